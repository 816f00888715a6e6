"""Read-only views of a cluster: brokers and groups, explanations, timelines, deadlines, and queries on its journal.

Used by `FakeCluster`, the HTTP API, reports and simulations. Functions take a `Cluster` or plain data, and the time in
milliseconds. Depends only on `fakebroker.cluster` and `fakebroker.coordinator`. Start with `views.py`.
"""
