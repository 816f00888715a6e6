"""The generic part of a coordinator: partitions of an internal topic, appends and timers (`CoordinatorRuntime`).

Generic over the type of records and of timer entries. Does not depend on groups, members or offsets.
Depends on `fakebroker.errors` only. Start with `runtime.py`.
"""
