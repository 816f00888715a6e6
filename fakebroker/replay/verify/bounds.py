"""Bounds of what coordinators promise, and conditions that several queries of the promises have, as Spark SQL."""

from fakebroker.replay.members.events import PARKED_APIS

CLOCK_SKEW_US = 100_000
"""Maximum difference between the clocks of the machines on which members run, in microseconds."""

BOUND_US = 5_000_000
"""Maximum delay of a coordinator in microseconds: to remove an expired member, or to serve a group once named."""

OVERDUE_US = 4_000_000
"""Time after the rebalance timeout at which a parked request is overdue, in microseconds; members give up after 5 s."""

REQUEST_TIMEOUT_US = 30_000_000
"""Time that a client waits for responses to requests that are never parked (`request.timeout.ms`), in microseconds."""

LOADING_US = 60_000_000
"""Maximum loading time of a coordinator, in microseconds; while loading, it answers all heartbeats without an error."""

RETENTION_US = 60_000_000
"""Minimum retention of offsets (`offsets.retention.minutes` = 1), in microseconds."""

TARGET_HEARTBEATS = 3
"""A member tells the coordinator with one heartbeat that it has given up a partition, and another one gets it with its
next heartbeat."""

PARKED = f"api in {PARKED_APIS}"
"""Condition for requests whose response a coordinator may delay until a rebalance makes progress."""

SESSION = "api in ('JoinGroup', 'SyncGroup', 'Heartbeat', 'OffsetCommit')"
"""Condition for requests that extend the session of their member."""

OF_GROUPS = "api in ('JoinGroup', 'SyncGroup', 'Heartbeat', 'ConsumerGroupHeartbeat', 'OffsetCommit', 'OffsetFetch')"
"""Condition for requests of members that only the coordinator of their group serves."""

NO_LOOKUP = """
    left anti join lookups l
        on l.is_sign and l.group = s.group and l.at_us > s.since_us and l.at_us <= s.until_us"""
"""Join that keeps the rows of `s` during which the group had the same coordinator, with its sessions in memory.

These are rows without a look-up between `since_us` and `until_us`: members that lose their coordinator look it up.
"""
