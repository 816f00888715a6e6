"""The transaction coordinator (KIP-98, KIP-360, KIP-890): a pure state machine, like the group coordinator.

Depends on `coordinator/runtime` and `fakebroker.errors` only. Start with `states.py`, then `coordinator.py`.
"""
