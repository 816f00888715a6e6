"""The classic group (Kafka's `ClassicGroup`): members join, a leader assigns, everyone syncs.

`states.py` defines what each request gets in each state, `group.py` is the state of one group, and `join`, `sync`,
`leave` and `rebalance` are the procedures that change it. `extension.py` is the hook for proposals. Start with
`states.py`.
"""
