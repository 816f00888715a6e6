"""The classic group (Kafka's `ClassicGroup`): members join, a leader assigns, everyone syncs.

Start with `states.py`, the answer to each request in each state. `group.py` holds the state of one group, and the
functions in `rebalance.py` change it. `extension.py` is the hook for protocol extensions.
"""
