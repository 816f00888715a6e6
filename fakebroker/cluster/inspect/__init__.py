"""Read-only views of a cluster: brokers and groups, explanations, timelines, deadlines, and queries on its journal.

For tests, HTTP, reports and simulations alike. Functions take a `Cluster`, or plain data, and the time. Depends on
`fakebroker.cluster` and `fakebroker.coordinator` only. Start reading with `views.py`.
"""
