"""Coordination as a pure state machine: requests and the time go in, answers and records to append come out.

`runtime` is the generic part: partitions, appends, timers. `group` is the group coordinator on top of it. `rewrite` is
that of Kafka's consumer rewrite design, a proposal, and `registry.py` models the registry that it needs. Depends on the
standard library, msgspec, `fakebroker.errors`, `fakebroker.topic_partition` and `fakebroker.assignment`; the caller
provides the time, member ids and the log. All times are in milliseconds. Start with `group/coordinator.py` (the
requests) and `group/classic/states.py` (the answer to each request in each state).
"""
