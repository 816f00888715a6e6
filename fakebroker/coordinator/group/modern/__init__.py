"""Consumer groups of the consumer rebalance protocol (KIP-848): the coordinator assigns, members reconcile.

`groups.py` has the groups of one coordinator; `heartbeat.py` decides what a request changes, `reconciliation.py` how a
member approaches its target, and `group.py` is the state, changed by the records in `records.py`. `subscription` has
topics and regular expressions, `assignors` the server-side assignors, and `migration` the members that use the classic
protocol and the change between classic and consumer groups. Depends on `coordinator.runtime`, on
`offset_store.py` and on the groups in `classic`. Start with `states.py` and `heartbeat.py`.
"""
