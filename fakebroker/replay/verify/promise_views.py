"""Views that the queries of the promises share, as Spark SQL over the views `events` and `members`.

Those that are about generations are of groups in which all members use the classic protocol; consumer_views.py has
others for groups with members of the consumer protocol (KIP-848).

Requests are partitioned by group once; every view and window is by group, so that Spark does not shuffle them again.
Times are by the members' clocks. A request takes effect between `sent_us` and `done_us`; a request without a response
takes effect at any time after `sent_us`, or never.

Error codes in the views: 14 COORDINATOR_LOAD_IN_PROGRESS, 15 COORDINATOR_NOT_AVAILABLE, 16 NOT_COORDINATOR,
22 ILLEGAL_GENERATION, 25 UNKNOWN_MEMBER_ID, 27 REBALANCE_IN_PROGRESS.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import msgspec
import pyarrow as pa
from msgspec.structs import asdict
from pyspark.sql import DataFrame, SparkSession

from fakebroker.client.member.assignors import COOPERATIVE_ASSIGNORS
from fakebroker.replay.spark.query_settings import (
    are_few,
    computed_once,
    free,
    local_table,
    settings_for_count,
    temporary_settings,
)
from fakebroker.replay.verify.bounds import (
    BOUND_US,
    CLOCK_SKEW_US,
    LOADING_US,
    NO_LOOKUP,
    OF_GROUPS,
    PARKED,
    RETENTION_US,
    SESSION,
)
from fakebroker.replay.verify.consumer_views import CONSUMER_VIEWS
from fakebroker.replay.verify.transaction_views import TRANSACTION_VIEWS

_IN_PLACE = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
}
"""Spark settings that keep joins local: no broadcasts, and no plans that change while they run."""

_IN_GENERATION = "api in ('SyncGroup', 'Heartbeat', 'OffsetCommit')"

# Requests about groups, by group; an OffsetFetch about several groups has a row for each. `done_us`: when the response
# was read; `last_us`: when the last of several folded requests was sent; `listed`: the number of members in it.
GROUP_REQUESTS = """
    select /*+ repartition(`group`) */ `group`, member, member_id, instance_id, api, version, broker, generation, error,
        sent_us, scheduled_us + latency_us done_us,
        if(missing is null, coalesce(until_us, sent_us), sent_us) last_us, leader, protocol, members listed, assigned,
        offsets, epoch, owned{in_consumer_group}
    from events where `group` is not null
        and if(kind = 'seen', api = 'OffsetFetch', kind = 'request' and api not in ('FindCoordinator', 'Metadata'))"""

_IN_CONSUMER_GROUP = ", bool_or(epoch is not null) over (partition by `group`) in_consumer_group"

# The same with columns that are computed, not stored. `owner`: the instance id of a static member, else the member id;
# `in_consumer_group`: whether a member of the group has used the consumer protocol (KIP-848).
CALLS = """
    select *, coalesce(instance_id, member_id) owner, done_us is null is_unanswered{in_consumer_group}
    from group_requests"""

SCRIPTS = """
    select /*+ repartition(`group`) */ `group`, member, topics, assignor, session_timeout_ms, rebalance_timeout_ms
    from members"""

# `is_sign`: the look-up indicates that a member lost its coordinator. A look-up by a client that had no coordinator
# does not, unless the result has changed.
LOOKUPS = """
    select *, again or node <> lag(node) over (partition by `group` order by at_us) is_sign from (
        select /*+ repartition(`group`) */ place.key `group`, place.node, place.again, sent_us,
            scheduled_us + latency_us at_us
        from events lateral view explode(found) as place where place.error = 0)"""

# Successful JoinGroups and SyncGroups. `life` counts how often the group was deleted or expired and started over at
# generation 1; a group that returns to generation 1 because the next one was never complete is in the same life.
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
        from calls where {PARKED} and error = 0 and member is not null and not in_consumer_group
        window line as (partition by `group` order by done_us, sent_us))"""

# The start of each life of a group after the first.
LIVES = """
    select `group`, collect_list(from_us) starts from (
        select `group`, life, min(done_us) from_us from steps where life > 0 group by `group`, life)
    group by `group`"""

# The last requests of each member id in a generation: `beat_us` and `proof_us` of accepted ones, `refused_us` and
# `refused_beat_us` of those with an error other than COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE and
# NOT_COORDINATOR. `beat_us`, for heartbeats, proves less than `proof_us`: a coordinator that is loading answers all
# heartbeats without an error. Spark sorts rows to aggregate text, so only the few rows of the inner aggregate.
LAST_REQUESTS = f"""
    select `group`, life, generation, owner, member_id, any_value(member) member, max(beat_us) beat_us,
        max(proof_us) proof_us, max(refused_us) refused_us, max(refused_beat_us) refused_beat_us
    from (
        select /*+ shuffle_hash(lives) */ `group`,
            size(filter(coalesce(starts, array()), start -> start <= done_us)) life, generation, owner, member_id,
            member, max(last_us) filter (where api = 'Heartbeat' and error = 0) beat_us,
            max(last_us) filter (where if(api = 'Heartbeat', error = 27, error = 0)) proof_us,
            max(last_us) filter (where api <> 'Heartbeat' and error <> 0) refused_us,
            max(last_us) filter (where api = 'Heartbeat' and error not in (0, 27)) refused_beat_us
        from calls left join lives using (`group`)
        where {_IN_GENERATION} and generation >= 0 and owner is not null and member is not null
            and error not in (14, 15, 16) and not in_consumer_group
        group by all)
    group by `group`, life, generation, owner, member_id"""

# A generation is joined with its first JoinGroup response, and complete with its first SyncGroup response.
GENERATION_TIMES = """
    select `group`, life, generation, min(done_us) filter (where api = 'JoinGroup') joined_us,
        min(done_us) filter (where api = 'SyncGroup') completed_us,
        max_by(listed, done_us) filter (where listed > 0) listed
    from steps group by `group`, life, generation"""

# Generations that were used again: after they were complete, a new member joined them, or their leader joined again.
# Both must begin another generation. Followers and static members may rejoin and get the current state.
REUSED = f"""
    select `group`, life, generation, min(done_us) at_us, array_sort(collect_set(member)) joined_by from (
        select s.*, completed_us, max(if(api = 'SyncGroup', done_us, null)) over (
            partition by s.group, life, generation, s.member_id order by s.sent_us, s.done_us
            rows between unbounded preceding and 1 preceding) synced_us
        from steps s join generation_times using (`group`, life, generation)
    ) join (
        select `group`, member_id, min(sent_us) first_join_us from calls
        where api = 'JoinGroup' and member_id is not null group by `group`, member_id
    ) using (`group`, member_id)
    where api = 'JoinGroup' and instance_id is null
        and (first_join_us > completed_us + {CLOCK_SKEW_US} or leader = member_id and sent_us >= synced_us)
    group by `group`, life, generation"""

# The last assignment of each member in a generation; a static member is identified by its instance id. Generation ids
# that were used twice are left out: they violate only `generations-rise`.
ASSIGNMENTS = """
    select `group`, life, generation, owner, any_value(member) member, min(done_us) at_us, max(done_us) until_us,
        max_by(assigned, done_us) assigned
    from steps left anti join reused using (`group`, life, generation)
    where api = 'SyncGroup' and assigned is not null group by `group`, life, generation, owner"""

# Requests of members with the state before them: `alive_us`, the end of the last request; `before`, the last request;
# `beat`, the last successful heartbeat. Only the rows that promises about sessions need.
SESSION_REQUESTS = f"""
    with session_requests as (
        select *, max(greatest(last_us, coalesce(done_us, last_us))) over earlier alive_us,
            lead(sent_us) over mine next_us, lag(struct(member_id, api, error, broker, is_unanswered)) over mine before,
            max(if(api = 'Heartbeat' and error = 0, struct(last_us, member_id), null)) over earlier beat,
            max(if(api in ('JoinGroup', 'LeaveGroup'), sent_us, null)) over earlier left_or_joined_us,
            max(if(api = 'SyncGroup' and error = 0, done_us, null)) over earlier synced_us
        from (select `group`, member, owner, member_id, api, broker, generation, error, is_unanswered, sent_us, last_us,
            done_us from calls
            where ({SESSION} or api = 'LeaveGroup') and owner is not null and member is not null
                and not in_consumer_group)
        window mine as (partition by `group`, owner order by sent_us, last_us), earlier as (
            partition by `group`, owner order by sent_us, last_us rows between unbounded preceding and 1 preceding)
    )
    select /*+ shuffle_hash(scripts) */ session_requests.*, session_timeout_ms * 1000L session_us,
        rebalance_timeout_ms * 1000L rebalance_us,
        {SESSION} and (error = 0 or error = 27 and api = 'Heartbeat' or error = 22) is_known,
        greatest(alive_us, last_us, coalesce(done_us, last_us)) last_alive_us
    from session_requests join scripts using (`group`, member)
    where error = 25 or before.error = 25 or before.api = 'LeaveGroup'
        or sent_us > alive_us + session_timeout_ms * 1000L + {BOUND_US}
        or next_us is null
        or next_us > greatest(alive_us, last_us, coalesce(done_us, last_us))
            + session_timeout_ms * 1000L + {BOUND_US}"""

_COOPERATIVE = ", ".join(f"'{name}'" for name in COOPERATIVE_ASSIGNORS)

# Checked only if all members in the leader's list have reported their assignments. Partitions that a cooperative
# assignor withholds until they are revoked (KIP-429) must be assigned by a later generation soon. `is_decided`: the
# generation lasted long enough.
COVERAGE = f"""
    with judged as (
        select `group`, life, generation, array_sort(collect_set(member)) members, min(at_us) at_us,
            max(until_us) until_us, flatten(collect_list(assigned)) given,
            array_distinct(flatten(collect_list(topics))) topics, bool_or(assignor in ({_COOPERATIVE})) is_cooperative,
            max(greatest(session_timeout_ms, rebalance_timeout_ms)) * 1000L limit_us, count(*) seen
        from assignments join scripts using (`group`, member) group by `group`, life, generation
    ), compared as (
        select judged.*, array_sort(array_except(flatten(transform(filter(topics, topic -> counts[topic] > 0), topic ->
                transform(sequence(0, counts[topic] - 1), number -> concat(topic, '-', number)))), given)) missing,
            array_sort(array_distinct(filter(given, partition -> not array_contains(
                topics, substring(partition, 1, length(partition) - length(substring_index(partition, '-', -1)) - 1)
            )))) foreign
        from judged join generation_times using (`group`, life, generation)
            cross join (select map_from_entries(collect_list(struct(topic, partitions))) counts from topics)
        where seen >= listed
    ), lasting as (
        select `group`, life, generation, max(beat_us) lasted_us from last_requests group by `group`, life, generation
    )
    select compared.*, not is_cooperative or coalesce(lasted_us > until_us + limit_us + {BOUND_US}, false) is_decided
    from compared left join lasting using (`group`, life, generation)"""

# A session has not ended if the coordinator still accepts the member, or if the member's last generation continues: the
# end of a session ends the generation. A coordinator that moves or restarts starts all sessions again. The end is seen
# if a later request of the member is rejected, or if other members are in a later generation. Members that have left
# or were removed before have no session.
SILENT_MEMBERS = f"""
    with ends as (
        select distinct `group`, owner, member, last_alive_us, next_us, session_us from session_requests
        where (next_us is null or next_us > last_alive_us + session_us + {BOUND_US})
            and not (error <=> 25) and not (api = 'LeaveGroup' and error <=> 0)
    ), owned as (
        select ends.*, max(struct(life, generation)) own
        from ends join (
            select `group`, owner, life, generation, min(done_us) from_us from steps
            group by `group`, owner, life, generation
        ) using (`group`, owner)
        where from_us <= last_alive_us
        group by all
    ), watched as (
        select owned.group, owned.member, own.life, own.generation, last_alive_us, next_us, session_us,
            max(if(other.generation = own.generation, beat_us, null)) other_us,
            max(if(other.generation = own.generation, beat_us, greatest(beat_us, proof_us))) seen_us
        from owned join last_requests other on other.group = owned.group and other.life = own.life
        where other.owner <> owned.owner and other.generation >= own.generation
        group by all
    )
    select * from (
        select `group`, generation, member, alive_us since_us, sent_us until_us, session_us, is_known is_broken,
            concat(member, ' sent nothing for ', round((sent_us - alive_us) / 1e6, 1),
                ' s and is still a member of ', `group`) what
        from session_requests where (is_known or error = 25 and {SESSION}) and before.member_id = member_id
            and before.broker = broker and sent_us > alive_us + session_us + {BOUND_US}
            and not (before.is_unanswered and before.{PARKED})
            and not (before.error <=> 25) and not (before.api = 'LeaveGroup' and before.error <=> 0)
        union all
        select `group`, generation, member, since_us, if(is_broken, other_us, limit_us), session_us, is_broken,
            concat('generation ', generation, ' of ', `group`, ' continued after ', member,
                ' had sent nothing for ', round((other_us - since_us) / 1e6, 1), ' s')
        from (
            select *, coalesce(least(other_us, next_us) > limit_us and other_us is not null, false) is_broken from (
                select watched.*, greatest(last_alive_us, completed_us) since_us,
                    greatest(last_alive_us, completed_us) + session_us + {BOUND_US} limit_us
                from watched join generation_times using (`group`, life, generation)
                    left anti join reused using (`group`, life, generation)
                where completed_us is not null)
        ) where least(seen_us, next_us) > limit_us and seen_us is not null
    ) s {NO_LOOKUP}"""

# What members know of a generation: only those that got their assignment, because after a coordinator has moved, a
# generation that no member saw complete may be used again. Leader ids without rows in `steps` may be other ids of the
# same leader.
PLACES = """
    select `group`, life, generation, member_id, any_value(member) member, min(done_us) at_us, max(done_us) until_us,
        max_by(leader, done_us) filter (where api = 'JoinGroup') leader,
        max_by(protocol, done_us) filter (where api = 'JoinGroup') protocol
    from steps left anti join reused using (`group`, life, generation) group by `group`, life, generation, member_id
    having count_if(api = 'JoinGroup') > 0 and count_if(api = 'SyncGroup') > 0"""

# Offsets that were fetched, and the commit before (`last`). An OffsetFetch must return the commit that was sent last
# among those acknowledged before, or one that may have come after it. The effect of a commit without a response is
# unknown. After the shortest retention, offsets may be missing. Most commits come after the last OffsetFetch of their
# group: they are left out before they are divided into partitions and sorted.
FETCHED_OFFSETS = f"""
    with fetches as (
        select `group`, max(sent_us) last_fetch_us from calls
        where api = 'OffsetFetch' and done_us is not null and `group` is not null group by `group`
    ), offsets as (
        select `group`, member, api, sent_us, done_us, generation, offset.partition, offset.offset, at_us
        from (
            select /*+ shuffle_hash(fetches) */ calls.group, member, api, sent_us, done_us, generation, offsets,
                if(api = 'OffsetCommit', done_us + {CLOCK_SKEW_US}, sent_us) at_us
            from calls join fetches on fetches.group = calls.group
                and if(api = 'OffsetCommit', done_us + {CLOCK_SKEW_US}, sent_us) <= last_fetch_us
            where api in ('OffsetCommit', 'OffsetFetch') and done_us is not null
        ) lateral view explode(offsets) as offset
    ), fetched as (
        select *, max(if(api = 'OffsetCommit', struct(sent_us, offset, done_us, generation, member), null)) over (
            partition by `group`, partition order by at_us, api rows between unbounded preceding and current row) last
        from offsets
    )
    select /*+ shuffle_hash(unknown) */ fetched.* from fetched
        left anti join (select `group`, sent_us from calls where api = 'OffsetCommit' and is_unanswered) unknown
            on unknown.group = fetched.group and unknown.sent_us >= fetched.last.sent_us - {BOUND_US}
            and unknown.sent_us <= fetched.done_us + {CLOCK_SKEW_US}
    where api = 'OffsetFetch' and last is not null and not (offset < 0 and sent_us > last.done_us + {RETENTION_US})"""

# Members that were removed too early. A successful heartbeat restarts the session in a group that is not rebalancing.
# So neither the session nor the rebalance timeout can have expired for a member that has its assignment and has not
# sent JoinGroup or LeaveGroup since. Only the first response that rejects a member is a violation.
REMOVED_MEMBERS = f"""
    select s.* from (
        select `group`, generation, member, member_id, beat.last_us at_us, coalesce(done_us, sent_us) until_us,
            greatest(beat.last_us - {LOADING_US}, synced_us) since_us
        from session_requests where error = 25 and api <> 'LeaveGroup' and beat.member_id = member_id
            and not (before.member_id = member_id and before.error <=> 25)
            and left_or_joined_us < synced_us and synced_us <= beat.last_us
            and coalesce(done_us, sent_us) - beat.last_us < least(session_us, rebalance_us) - {CLOCK_SKEW_US}
    ) s {NO_LOOKUP}"""

# The last requests of members in a generation, and when a later one was complete.
SUPERSEDED = """
    select *, min(completed_us) over (partition by `group`, life order by generation
        range between 1 following and unbounded following) superseded_us
    from (
        select `group`, life, generation, member, beat_us, proof_us, refused_us, refused_beat_us, null completed_us
        from last_requests
        union all
        select `group`, life, generation, null, null, null, null, null, completed_us from generation_times)"""

# Member ids of static members, and the next ones. Once the new member id of a static member has its assignment, the id
# is stored, and the old one is fenced permanently.
REPLACED_MEMBERS = """
    select *, lead(synced_us) over line next_us, lead(member_id) over line next_id from (
        select `group`, instance_id, member_id, any_value(member) member,
            min(done_us) filter (where api = 'SyncGroup' and error = 0) synced_us,
            max_by(generation, sent_us) generation, max(if(api in ('JoinGroup', 'SyncGroup', 'OffsetCommit')
                and error = 0 or api = 'Heartbeat' and error = 27, last_us, null)) proof_us,
            max(if(api <> 'LeaveGroup' and error not in (14, 15, 16), last_us, null)) answered_us
        from calls where instance_id is not null and member_id is not null and not in_consumer_group
        group by `group`, instance_id, member_id
    ) where synced_us is not null window line as (partition by `group`, instance_id order by synced_us)"""

# Requests of members that have left or were removed. `before` is the last request of the same member; a member that
# joins again has another member id.
LATE_SESSION_REQUESTS = f"""
    select s.* from (
        select `group`, generation, member, member_id, alive_us since_us, sent_us until_us, is_known,
            before.error = 25 is_removed
        from session_requests where (is_known or error = 25 and {SESSION}) and before.member_id = member_id
            and before.broker = broker and (before.error = 25 or before.api = 'LeaveGroup' and before.error = 0)
    ) s {NO_LOOKUP}"""

# Members that have joined more than once without an assignment.
UNASSIGNED = f"""
    select `group`, member, min(sent_us) since_us, max(coalesce(done_us, sent_us)) until_us
    from calls where {SESSION} and member is not null group by `group`, member
    having count_if(api = 'SyncGroup' and error = 0) = 0 and count_if(api = 'JoinGroup' and error = 0) > 1"""

# Requests without a response, also those that are pending at the end. `is_over`: the client has given up. `stopped_us`:
# when the member stopped or the request was lost; after that, the broker may have no more requests of the member.
UNANSWERED = """
    with stops as (
        select `group`, member, collect_list(sent_us) stops from events
        where kind = 'act' and api in ('leave', 'crash') group by `group`, member
    )
    select `group`, member, member_id, generation, api, broker, until_us is not null is_over, sent_us,
        coalesce(until_us, :end_us) ended_us,
        least(coalesce(until_us, :end_us), array_min(filter(stops, at_us -> at_us >= sent_us))) stopped_us
    from events left join stops using (`group`, member)
    where kind = 'request' and latency_us is null and (until_us is null or version >= 0)"""

# The seconds in which a broker answered requests.
ANSWERING = """
    select distinct broker, (done_us div 1000000) second from calls
    where not is_unanswered and done_us - sent_us < 1000000"""

# Requests that a broker served, or that prove nothing (`is_break`), in groups that several brokers have served.
SERVED = f"""
    select /*+ shuffle_hash(moved) */ calls.group, member, broker, generation, done_us,
        error in (14, 15, 16) or is_unanswered is_break, coalesce(done_us, sent_us) end_us
    from calls left semi join (
        select `group` from calls where {OF_GROUPS} and not error in (14, 15, 16)
        group by `group` having min(broker) < max(broker)) moved on moved.group = calls.group
    where {OF_GROUPS} and broker >= 0"""

_NOT_STORED = "calls"
"""The name of the view that is computed whenever it is read, from another one."""

_VIEWS = {
    "scripts": SCRIPTS,
    "lookups": LOOKUPS,
    "steps": STEPS,
    "lives": LIVES,
    "last_requests": LAST_REQUESTS,
    "generation_times": GENERATION_TIMES,
    "reused": REUSED,
    "assignments": ASSIGNMENTS,
    "session_requests": SESSION_REQUESTS,
    "coverage": COVERAGE,
    "silent_members": SILENT_MEMBERS,
    "places": PLACES,
    "fetched_offsets": FETCHED_OFFSETS,
    "removed_members": REMOVED_MEMBERS,
    "superseded": SUPERSEDED,
    "replaced_members": REPLACED_MEMBERS,
    "late_session_requests": LATE_SESSION_REQUESTS,
    "unassigned": UNASSIGNED,
    "unanswered": UNANSWERED,
    "answering": ANSWERING,
    "served": SERVED,
}


class BrokerTimes(msgspec.Struct, frozen=True):
    """Settings of the brokers that decide what they promise; by default those of Kafka. All are in microseconds.

    Attributes:
        delay_us: `group.initial.rebalance.delay.ms`.
        session_us: `group.consumer.session.timeout.ms`, the session timeout of members of the consumer protocol.
        heartbeat_us: `group.consumer.heartbeat.interval.ms`, their heartbeat interval.
    """

    delay_us: int = 3_000_000
    session_us: int = 45_000_000
    heartbeat_us: int = 5_000_000


DEFAULT_TIMES = BrokerTimes()


class PromiseViews(msgspec.Struct, frozen=True):
    """The session with the views of a run.

    Attributes:
        spark: The session.
        few: Whether there are few events, as for `computed_once`.
        end_us: When the last request was sent.
        brokers: Settings of the brokers.
        has_transactions: Whether members have used transactions. Otherwise the views about them do not exist.
        has_consumers: Whether members have used the consumer protocol. Otherwise the views about them do not exist.
    """

    spark: SparkSession
    few: bool
    end_us: int
    brokers: BrokerTimes
    has_transactions: bool
    has_consumers: bool

    def sql(self, query: str) -> DataFrame:
        """Return the result of a query on the views, with the parameter `:end_us` and those of `BrokerTimes`."""
        return self.spark.sql(query, {"end_us": self.end_us, **asdict(self.brokers)})


def _needed(views: Mapping[str, str], queries: Iterable[str]) -> dict[str, str]:
    """Return the views that queries name, and those that these need; each view may use those before it."""
    texts, needed = [*queries], []
    for name, query in reversed(list(views.items())):
        if any(re.search(rf"\b{name}\b", text) for text in texts):
            texts.append(query)
            needed.append(name)
    return {name: query for name, query in views.items() if name in needed}


@contextmanager
def promise_views(
    spark: SparkSession,
    events: DataFrame,
    members: DataFrame,
    partitions: Mapping[str, int],
    brokers: BrokerTimes = DEFAULT_TIMES,
    queries: Iterable[str] | None = None,
) -> Iterator[PromiseViews]:
    """Create the views; nearly all are stored, and exist until the context ends.

    Args:
        spark: The session.
        events: Rows as in `events.Event`; read twice.
        members: Rows as in `script.Script`.
        partitions: Partition counts by topic, only of topics whose count did not change during the replay.
        brokers: Settings of the brokers.
        queries: The queries that will be used: only the views that they need are created. If not given, all are.

    Yields:
        Functions on the views.
    """
    events.createOrReplaceTempView("events")
    members.createOrReplaceTempView("members")
    topics = pa.schema([("topic", pa.string()), ("partitions", pa.int32())])
    local_table(spark, list(partitions.items()), topics).createOrReplaceTempView("topics")
    (counted,) = spark.sql(
        "select count(*) rows, max(sent_us) end_us, count(transaction) used, count(epoch) beats from events"
    ).collect()
    few, is_used, has_consumers = are_few(counted["rows"]), bool(counted["used"]), bool(counted["beats"])
    found = PromiseViews(spark, few, counted["end_us"] or 0, brokers, is_used, has_consumers)
    views = {
        "group_requests": GROUP_REQUESTS.format(in_consumer_group=_IN_CONSUMER_GROUP if has_consumers else ""),
        _NOT_STORED: CALLS.format(in_consumer_group="" if has_consumers else ", false in_consumer_group"),
        **_VIEWS,
    }
    views |= (TRANSACTION_VIEWS if is_used else {}) | (CONSUMER_VIEWS if has_consumers else {})
    if queries is not None:
        views = _needed(views, queries)
    kept = []
    with temporary_settings(spark, {**settings_for_count(spark, counted["rows"]), **_IN_PLACE}):
        try:
            for name, query in views.items():
                rows = found.sql(query)
                if name != _NOT_STORED:
                    rows = computed_once(rows, few)
                    kept.append(rows)
                rows.createOrReplaceTempView(name)
            yield found
        finally:
            free(kept, few)
