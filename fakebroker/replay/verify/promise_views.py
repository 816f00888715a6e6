"""The views that the promises' queries share, as Spark SQL over `events` and `members`. Knows no promise.

The requests are dealt out by group once; all that follows stays in place, as every view and window is by group.
Times are of the members' own clocks. What a request does, it does between `sent_us` and `done_us`; one without an
answer may do it at any time after `sent_us`, or never.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from fakebroker.replay.spark.query_settings import settings_for_rows, temporary_settings

CLOCK_SKEW_US = 100_000
"""How far the clocks of the machines that members play on may be apart."""

BOUND_US = 5_000_000
"""How late a coordinator may be: with ending a session, with serving what it is named for."""

OVERDUE_US = 4_000_000
"""How long after the group's rebalance timeout a parked request counts as forgotten; members give up after 5 s."""

REQUEST_TIMEOUT_US = 30_000_000
"""How long a client waits for an answer to what is never parked (`request.timeout.ms`)."""

LOADING_US = 60_000_000
"""How long a coordinator may load: it answers every heartbeat without an error then, as Kafka's does."""

RETENTION_US = 60_000_000
"""The least time that Kafka can be told to keep offsets (`offsets.retention.minutes` = 1)."""

_IN_PLACE = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
}
"""Joins are where the rows are: no copies for everybody, and no plans that change as they run."""

PARKED = "api in ('JoinGroup', 'SyncGroup')"
"""What a coordinator may let wait."""

_SESSION = "api in ('JoinGroup', 'SyncGroup', 'Heartbeat', 'OffsetCommit')"
_IN_GENERATION = "api in ('SyncGroup', 'Heartbeat', 'OffsetCommit')"

NO_LOOKUP = """
    left anti join lookups l
        on l.is_sign and l.group = s.group and l.at_us > s.since_us and l.at_us <= s.until_us"""
"""Keeps of the rows `s` those between whose two times no look-up is a sign that the group lost its coordinator: it was
the same, with all that it had in memory. Whoever loses a coordinator looks it up."""

CALLS = """
    select /*+ repartition(`group`) */ `group`, member, member_id, instance_id,
        coalesce(instance_id, member_id) owner, api, version, broker, generation, error, lost,
        latency_us is null is_unanswered, sent_us, until_us,
        scheduled_us + latency_us done_us, if(lost, sent_us, coalesce(until_us, sent_us)) last_us,
        leader, protocol, members listed, assigned, offsets
    from events where kind = 'request' and `group` is not null and api not in ('FindCoordinator', 'Metadata')"""

SCRIPTS = """
    select /*+ repartition(`group`) */ `group`, member, topics, assignor, session_timeout_ms, rebalance_timeout_ms
    from members"""

# Who looks for a coordinator that cannot know him has lost none; but whoever asks is told of one that has moved.
LOOKUPS = """
    select *, again or node <> lag(node) over (partition by `group` order by at_us) is_sign from (
        select /*+ repartition(`group`) */ place.key `group`, place.node, place.again, sent_us,
            scheduled_us + latency_us at_us
        from events lateral view explode(found) as place where place.error = 0)"""

# A group that was deleted, or forgotten because it had expired, starts over at generation 1: another life. One that is
# back at generation 1 because the next one was never complete does not.
STEPS = f"""
    select *, count_if(
            api = 'JoinGroup' and generation = 1 and before > 1 and complete.generation > 1
            and sent_us > complete.done_us
        ) over (
        partition by `group` order by done_us, sent_us rows between unbounded preceding and current row) life
    from (
        select `group`, member, member_id, instance_id, owner, api, generation, sent_us, done_us, leader, protocol,
            listed, assigned, lag(generation) over line before,
            last(if(api = 'SyncGroup', struct(generation, done_us), null), true) over line complete
        from calls where {PARKED} and error = 0 and member is not null
        window line as (partition by `group` order by done_us, sent_us))"""

LIVES = """
    select `group`, collect_list(from_us) starts from (
        select `group`, life, min(done_us) from_us from steps where life > 0 group by `group`, life)
    group by `group`"""

# Of a member in a generation. Heartbeats prove less than the rest: a coordinator that loads answers all of them alike.
STAYS = f"""
    select `group`, size(filter(coalesce(starts, array()), start -> start <= done_us)) life, generation, owner,
        member_id, any_value(member) member,
        max(last_us) filter (where api = 'Heartbeat' and error = 0) beat_us,
        max(last_us) filter (where (api = 'Heartbeat') = (error = 27)) proof_us
    from calls left join lives using (`group`)
    where {_IN_GENERATION} and generation >= 0 and owner is not null and member is not null
        and (error = 0 or error = 27 and api = 'Heartbeat')
    group by all"""

ROUNDS = """
    select `group`, life, generation, min(done_us) filter (where api = 'JoinGroup') joined_us,
        min(done_us) filter (where api = 'SyncGroup') completed_us,
        max_by(listed, done_us) filter (where listed > 0) listed
    from steps group by `group`, life, generation"""

# Somebody who was not there when a generation was complete, or its leader, who gets a new one for the asking, joined
# it afterwards. Followers and static members may: they are told again where they are.
REUSED = f"""
    select `group`, life, generation, min(done_us) at_us, array_sort(collect_set(member)) who from (
        select s.*, completed_us, max(if(api = 'SyncGroup', done_us, null)) over (
            partition by s.group, life, generation, s.member_id order by s.sent_us, s.done_us
            rows between unbounded preceding and 1 preceding) synced_us
        from steps s join rounds using (`group`, life, generation)
    ) join (
        select `group`, member_id, min(sent_us) told_us from calls
        where api = 'JoinGroup' and member_id is not null group by `group`, member_id
    ) using (`group`, member_id)
    where api = 'JoinGroup' and instance_id is null
        and (told_us > completed_us + {CLOCK_SKEW_US} or leader = member_id and sent_us >= synced_us)
    group by `group`, life, generation"""

# Row by row of each member, what came before; only rows that a promise about sessions may be about.
TURNS = f"""
    with turns as (
        select *, max(greatest(last_us, coalesce(done_us, last_us))) over earlier alive_us,
            lead(sent_us) over mine next_us, lag(struct(member_id, api, error, broker, is_unanswered)) over mine before,
            max(if(api = 'Heartbeat' and error = 0, struct(last_us, member_id), null)) over earlier beat,
            max(if(api in ('JoinGroup', 'LeaveGroup'), sent_us, null)) over earlier asked_us,
            max(if(api = 'SyncGroup' and error = 0, done_us, null)) over earlier synced_us
        from (select `group`, member, owner, member_id, api, broker, generation, error, is_unanswered, sent_us, last_us,
            done_us from calls where ({_SESSION} or api = 'LeaveGroup') and owner is not null and member is not null)
        window mine as (partition by `group`, owner order by sent_us, last_us), earlier as (
            partition by `group`, owner order by sent_us, last_us rows between unbounded preceding and 1 preceding)
    )
    select turns.*, session_timeout_ms * 1000L session_us, rebalance_timeout_ms * 1000L rebalance_us,
        {_SESSION} and (error = 0 or error = 27 and api = 'Heartbeat' or error = 22) is_known,
        greatest(alive_us, last_us, coalesce(done_us, last_us)) last_alive_us
    from turns join scripts using (`group`, member)
    where error = 25 or before.error = 25 or before.api = 'LeaveGroup'
        or sent_us > alive_us + session_timeout_ms * 1000L + {BOUND_US}
        or next_us is null
        or next_us > greatest(alive_us, last_us, coalesce(done_us, last_us))
            + session_timeout_ms * 1000L + {BOUND_US}"""

_VIEWS = {
    "steps": STEPS,
    "lives": LIVES,
    "stays": STAYS,
    "rounds": ROUNDS,
    "reused": REUSED,
    "turns": TURNS,
}


@contextmanager
def promise_views(
    spark: SparkSession, events: DataFrame, members: DataFrame, partitions: Mapping[str, int]
) -> Iterator[None]:
    """Make the views, each worked out once, and let go of them in the end.

    Args:
        events: Rows as in `events.Event`; read twice.
        members: Rows as in `script.Script`.
        partitions: How many partitions each topic has had all the time.
    """
    events.createOrReplaceTempView("events")
    members.createOrReplaceTempView("members")
    spark.createDataFrame(list(partitions.items()), "topic string, partitions int").createOrReplaceTempView("topics")
    kept = []
    with temporary_settings(spark, {**settings_for_rows(events), **_IN_PLACE}):
        try:
            for name, query in (("calls", CALLS), ("scripts", SCRIPTS), ("lookups", LOOKUPS)):
                kept.append(spark.sql(query).persist(StorageLevel.MEMORY_AND_DISK))
                kept[-1].createOrReplaceTempView(name)
            for name, query in _VIEWS.items():
                kept.append(spark.sql(query).persist(StorageLevel.MEMORY_AND_DISK))
                kept[-1].createOrReplaceTempView(name)
            yield
        finally:
            for view in kept:
                view.unpersist()
