"""The classic group (Kafka's `ClassicGroup`): members join, a leader assigns, everyone syncs.

`states.py` describes the answer to each request in each state. `group.py` holds the state of one group; the functions
in `join`, `sync`, `leave` and `rebalance` change it. `extension.py` is the hook for protocol extensions. Start with
`states.py`.
"""
