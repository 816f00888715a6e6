"""The figures by which designs are compared: their names, units and meanings, in the order of reports."""

import msgspec


class Figure(msgspec.Struct, frozen=True):
    """A figure of a run.

    Attributes:
        name: The attribute of `measures.RunResult`.
        title: Its description, with its unit, in at most 32 characters.
        divisor: By which values are divided for the unit of the title.
        is_decisive: Whether it is in the terminal's table.
    """

    name: str
    title: str
    divisor: float = 1.0
    is_decisive: bool = False


FIGURES = (
    Figure("rebalance_p50_ms", "rebalance, median, s", 1000),
    Figure("rebalance_p99_ms", "rebalance, 99th percentile, s", 1000, is_decisive=True),
    Figure("rebalance_max_ms", "rebalance, longest, s", 1000),
    Figure("rebalances", "rebalances"),
    Figure("never_ended", "rebalances that never ended", is_decisive=True),
    Figure("unowned_s", "partition-s without an owner", is_decisive=True),
    Figure("double_s", "partition-s with two owners", is_decisive=True),
    Figure("rebalance_messages", "messages a rebalance", is_decisive=True),
    Figure("rebalance_bytes", "KB a rebalance", 1000, is_decisive=True),
    Figure("steady_messages_per_s", "steady: messages/s a member"),
    Figure("steady_bytes_per_s", "steady: bytes/s a member", is_decisive=True),
    Figure("coordinator_mean_per_s", "requests/s a broker, mean"),
    Figure("coordinator_peak_per_s", "requests/s a broker, peak", is_decisive=True),
    Figure("noticed_p50_ms", "death noticed, median, s", 1000, is_decisive=True),
    Figure("noticed_max_ms", "death noticed, longest, s", 1000),
    Figure("mistakes", "members removed by mistake", is_decisive=True),
    Figure("failover_p50_ms", "failover, median group, s", 1000),
    Figure("failover_max_ms", "failover, all groups, s", 1000, is_decisive=True),
    Figure("repeated", "records repeated", is_decisive=True),
    Figure("lost", "records lost", is_decisive=True),
    Figure("failed", "members stopped by an error", is_decisive=True),
)
"""All figures. Of each, less is better, except of `rebalances`, which is only a number."""
