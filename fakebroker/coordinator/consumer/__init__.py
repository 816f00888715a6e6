"""Consumer groups of the consumer rebalance protocol (KIP-848): the coordinator assigns, members reconcile.

Start with `states.py` and `heartbeat.py`. `heartbeat.py` decides what a request changes, and how a member approaches
its target. `group.py` is the state of a group, which the records in `records.py` change. `groups.py` has the groups of
one coordinator. `subscriptions.py` has topics and regular expressions. `migration.py` has members that use the classic
protocol, and the change between classic and consumer groups.
"""
