"""Coordination as a pure state machine: requests and the time go in, answers and records to append come out.

`runtime` holds what every coordinator needs: partitions, appends, timers. `group` is the group coordinator on top of
it. Depends on the standard library, `fakebroker.errors` and `fakebroker.topic_partition` only; sockets, clocks and
random numbers are the caller's. Start with `group/coordinator.py` (the requests) and `group/classic/states.py` (what a
group does in each state).
"""
