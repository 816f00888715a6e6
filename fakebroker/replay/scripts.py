"""From a workload and a seed to one script a member, generated in Spark.

Every random choice is a hash of (seed, group, member, what is chosen), so that a member does the same however many
members there are beside it and however Spark cuts them up. Knows nothing of sockets and time.
"""

from pyspark.sql import Column, DataFrame, SparkSession, functions as f

from fakebroker.replay.workload import Workload

_STEPS = 1 << 53
"""Into how many steps the interval [0, 1) is cut: as many as a double can tell apart."""

_LEAVING = 0.1
"""In which share of the duration, its last, the groups leave one after the other; a group leaves as one."""


def member_scripts(spark: SparkSession, workload: Workload, seed: int, partitions: int) -> DataFrame:
    """The scripts of all members, a row each as in `player.Script`; the members of a group share a partition.

    Args:
        partitions: Into how many the groups are dealt. The rows are the same for any number.
    """
    groups, members = workload.groups, workload.members
    leaving_s = min(workload.duration_s * _LEAVING, workload.duration_s - workload.arrival.over_s)

    def interval(length_ms: int, choice: str) -> Column:
        factor = 1 + members.jitter * (2 * _share(seed, choice, f.col("group"), f.col("member")) - 1)
        return f.round(f.lit(length_ms) * factor).cast("int")

    number = f.lpad(f.col("id").cast("string"), len(str(groups.count - 1)), "0")
    size = groups.members[0] + f.floor(
        _share(seed, "size", f.col("group")) * (groups.members[1] - groups.members[0] + 1)
    ).cast("int")
    named = spark.range(0, groups.count, 1, partitions).select(
        f.replace(f.lit(groups.name), f.lit("{}"), number).alias("group")
    )
    manned = named.withColumn("index", f.explode(f.sequence(f.lit(0), size - 1)))
    return manned.withColumn("member", f.concat_ws("-", "group", f.col("index").cast("string"))).select(
        "group",
        "member",
        (workload.arrival.over_s * 1000 * _share(seed, "arrival", f.col("group"), f.col("member"))).alias("arrive_ms"),
        (1000 * (workload.duration_s - leaving_s * _share(seed, "leave", f.col("group")))).alias("leave_ms"),
        f.array(*map(f.lit, workload.subscribed_topics)).alias("topics"),
        f.lit(members.assignor).alias("assignor"),
        f.lit(members.session_timeout_ms).alias("session_timeout_ms"),
        f.lit(members.rebalance_timeout_ms).alias("rebalance_timeout_ms"),
        interval(members.heartbeat_interval_ms, "heartbeat").alias("heartbeat_interval_ms"),
        interval(members.commit_interval_ms, "commit").alias("commit_interval_ms"),
    )


def _share(seed: int, choice: str, *who: Column) -> Column:
    """A number in [0, 1), evenly spread: the hash of the seed, what is chosen and for whom."""
    return f.pmod(f.xxhash64(f.lit(str(seed)), f.lit(choice), *who), f.lit(_STEPS)) / f.lit(float(_STEPS))
