"""Client of the control server, in the base install: the handles of `FakeCluster` for a cluster in another process.

Depends on the standard library and on the plain values of `cluster` and `server`. Start with `client.py`.
"""
