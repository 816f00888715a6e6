"""Waits for conditions of a cluster, while consumers of a test can be polled.

`cluster_waits.py` has the methods of `FakeCluster`; `waits.py` blocks a thread or a task until one of `conditions.py`
holds, which are evaluated in the cluster's thread; `polling.py` polls consumers of other libraries meanwhile.
"""
