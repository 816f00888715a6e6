"""The proposal `rewrite` in a cluster: coordinators of brokers, and the cluster as the registry of their groups.

Imported when a broker supports the proposal. Depends on `fakebroker.coordinator.rewrite`, brokers and topics. Start
with `rewrite_groups.py`. The handlers are `handlers/rewrite_*.py`.
"""
