"""Read-only views of a cluster: brokers and groups, explanations, timelines, deadlines, and queries on its journal.

Used by `FakeCluster`, the HTTP API, reports and simulations. Fields of views are named as in JSON: the HTTP API encodes
them, and the control client decodes them to the same classes. Functions take a `Cluster` or plain data, and the time in
milliseconds. Depends only on `fakebroker.cluster` and `fakebroker.coordinator`. Start with `views.py`.
"""
