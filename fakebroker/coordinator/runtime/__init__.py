"""What coordinators share: partitions of an internal topic, placement by hash, the queue of timers, histories.

Does not depend on groups, members or offsets. Depends on `fakebroker.errors` only.
"""
