"""Consumer groups of the consumer rebalance protocol (KIP-848): the coordinator assigns, members reconcile.

`groups.py` has the groups of one coordinator; `heartbeat.py` decides what a request changes, `reconciliation.py` how a
member approaches its target, and `group.py` is the state, changed by the records in `records.py`. `resolution.py` finds
the topics of regular expressions; `assignors` has the server-side assignors. Depends on `coordinator.runtime` and on
`group.offsets`. Start with `states.py` and `heartbeat.py`.
"""
