"""What coordinators have in common: partitions of an internal topic, appends, and timers (Kafka's
`CoordinatorRuntime`).

Generic over the records that are appended and the entries that have timers; does not know groups, members or offsets.
Depends on `fakebroker.errors` only. Start with `runtime.py`.
"""
