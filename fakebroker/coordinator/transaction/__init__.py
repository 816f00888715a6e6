"""The transaction coordinator (KIP-98, KIP-360, KIP-890): a pure state machine, like the group coordinator.

Depends on what all coordinators share, and on `fakebroker.errors`. Start with the states in `transaction.py`, then
`coordinator.py`.
"""
