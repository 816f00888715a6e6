"""Consumer groups of the consumer rebalance protocol (KIP-848): the coordinator assigns, members reconcile.

`groups.py` has the groups of one coordinator; `heartbeat.py` decides what a request changes, `reconciliation.py` how a
member approaches its target, and `group.py` is the state, changed by the records in `records.py`. `resolution.py` finds
the topics of regular expressions; `assignors` has the server-side assignors. `classic_members.py` has the requests of
members that use the classic protocol, and `conversion.py` the change between classic and consumer groups. Depends on
`coordinator.runtime`, on `group.offsets` and on the groups in `classic`. Start with `states.py` and `heartbeat.py`.
"""
