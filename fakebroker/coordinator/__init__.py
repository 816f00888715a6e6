"""Coordination as a pure state machine: requests and the time go in, responses and records to append come out.

Start with `group_coordinator.py` (the requests) and `classic/states.py` (the answer to each request in each state).

- `partitions.py`, `timers.py`, `history.py` and `records.py` are what all coordinators share. They do not depend on
  groups.
- `group_coordinator.py` and `groups.py` are the group coordinator, `classic/` and `consumer/` its two kinds of groups,
  `committed_offsets.py` its offsets. `persistence.py` restores all of it from the log.
- `transaction/` is the transaction coordinator.

Depends on the standard library, msgspec, `fakebroker.errors`, `fakebroker.topic_partition`, `fakebroker.assignment`,
and the messages of `fakebroker.protocol`, which it neither decodes nor encodes. The caller provides the time, member
ids and the log. All times are in milliseconds.
"""
