"""The promises of coordinators, each with two queries: one that counts its cases, and one for its violations.

A case is a situation in which a violation of the promise would have been seen; each violation is in a case. The query
of the cases returns rows of a group and a number of cases. It runs first; without a case, the other query does not run.

The query of the violations returns a row per violation: group, generation, members (their names), at_us, until_us,
what. Both use only the requests and responses of the members. There is no violation if a correct coordinator could have
caused these, for example because responses were lost, no member of the replay saw the end of a rebalance, or the
coordinator moved before a generation was stored. Groups with members outside the replay and administrative changes of
a group (evicted members, deleted offsets or topics, held rebalances) are not supported: leave the affected promises out
of `[promises] check`.

promise_views.py explains the columns of the views, such as `life` and `owner`. The parameter `:end_us` is the time at
which the last request was sent. Error codes in the queries:
14 COORDINATOR_LOAD_IN_PROGRESS, 15 COORDINATOR_NOT_AVAILABLE, 16 NOT_COORDINATOR, 22 ILLEGAL_GENERATION,
25 UNKNOWN_MEMBER_ID, 27 REBALANCE_IN_PROGRESS.
"""

from typing import NamedTuple

from fakebroker.replay.verify import consumer_queries as consumer
from fakebroker.replay.verify.bounds import (
    BOUND_US,
    CLOCK_SKEW_US,
    LOADING_US,
    NO_LOOKUP,
    OF_GROUPS,
    OVERDUE_US,
    PARKED,
    REQUEST_TIMEOUT_US,
    SESSION,
    TARGET_HEARTBEATS,
)
from fakebroker.replay.verify.transaction_queries import (
    ATOMIC,
    ATOMIC_CASES,
    OLD_EPOCHS,
    OLD_EPOCHS_CASES,
    OVERDUE,
    OVERDUE_CASES,
    OVERDUE_TRANSACTION_US,
    STABLE,
    STABLE_CASES,
)


class Promise(NamedTuple):
    """A promise.

    Attributes:
        sentence: The promise as a sentence, for reports and the guide.
        query: SQL for its violations.
        case: What is counted as a case, as a plural.
        cases: SQL for the number of cases, in any number of rows with the columns `group` and `cases`.
        suspects: SQL for rows without which there is no violation; None if `query` is as fast.
        consumer: Queries for violations and cases, as `query` and `cases`, in groups with members of the consumer
            protocol (KIP-848).
    """

    sentence: str
    query: str
    case: str
    cases: str
    suspects: str | None = None
    consumer: tuple[str, str] | None = None


# Only generations that assign a partition twice are divided into partitions.
_ONE_OWNER = """
    with doubtful as (
        select `group`, life, generation, collect_list(struct(owner, member, assigned, at_us, until_us)) given
        from assignments group by `group`, life, generation
        having size(flatten(collect_list(assigned))) > size(array_distinct(flatten(collect_list(assigned))))
    )
    select `group`, generation, array_sort(array_distinct(flatten(collect_list(owners)))) members, min(at_us) at_us,
        max(until_us) until_us, concat(array_join(array_sort(collect_list(partition)), ', '), ' of ', `group`,
        ': assigned to more than one member in generation ', generation) what
    from (
        select `group`, life, generation, partition, collect_set(member) owners, min(at_us) at_us,
            max(until_us) until_us
        from (
            select `group`, life, generation, owner, member, at_us, until_us, explode(assigned) partition
            from (select `group`, life, generation, inline(given) from doubtful))
        group by `group`, life, generation, partition having count(distinct owner) > 1
    ) group by `group`, life, generation"""

_ONE_OWNER_CASES = """
    select `group`, size(array_distinct(flatten(collect_list(assigned)))) cases from assignments
    group by `group`, life, generation having count(*) > 1"""

_COVERED = """
    select `group`, generation, members, at_us, until_us, concat('generation ', generation, ' of ', `group`,
        if(size(missing) > 0, concat(' does not assign ', array_join(slice(missing, 1, 5), ', '),
            if(size(missing) > 5, concat(' and ', size(missing) - 5, ' more'), '')), ''),
        if(size(missing) > 0 and size(foreign) > 0, ' and', ''),
        if(size(foreign) > 0, concat(' assigns ', array_join(slice(foreign, 1, 5), ', '),
            ', which no member subscribes to'), '')
        ) what
    from coverage where size(foreign) > 0 or size(missing) > 0 and is_decided"""

_COVERED_CASES = "select `group`, 1 cases from coverage where size(foreign) > 0 or size(missing) = 0 or is_decided"

_ONE_LEADER = """
    with ids as (select distinct `group`, member_id leader, owner leader_owner from steps)
    select `group`, generation, array_sort(collect_set(member)) members, min(at_us) at_us, max(until_us) until_us,
        concat('generation ', generation, ' of ', `group`,
            if(min(leader_owner) < max(leader_owner), concat(' has several leaders: ', array_join(array_sort(
                collect_set(if(leader_owner is null, null, leader))), ', ')), ''),
            if(min(protocol) < max(protocol), concat(' has several protocols: ', array_join(array_sort(
                collect_set(protocol)), ', ')), '')) what
    from places left join ids using (`group`, leader) group by `group`, life, generation
    having min(leader_owner) < max(leader_owner) or min(protocol) < max(protocol)"""

_ONE_LEADER_CASES = """
    select `group`, 1 cases from places group by `group`, life, generation having count(*) > 1"""

# A generation may be missing from all responses because the response to a JoinGroup was lost, or because the group
# became empty, which also increments the generation. It did not become empty if a member of the previous generation is
# in the next one.
_SKIPPED = """
    with marks as (
        select `group`, life, generation, joined_us at_us, 0 lost from generation_times where joined_us is not null
        union all
        select `group`, null, null, sent_us, 1 from calls where api = 'JoinGroup' and `group` is not null
            and (error is null or member is null or error in (-1, 14, 15, 16))
    ), pairs as (
        select *, lag(generation) over line previous, lag(at_us) over line previous_us
        from (select *, sum(lost) over (partition by `group` order by at_us) lost_so_far from marks)
        where generation is not null window line as (partition by `group`, life order by generation)
    ), stayed as (
        select `group`, life, generation, max(previous) stayed_from, array_sort(collect_set(member)) members from (
            select *, lag(generation) over (partition by `group`, life, member_id order by generation, done_us) previous
            from steps where api = 'JoinGroup')
        group by `group`, life, generation
    )
    select `group`, generation, members, least(previous_us, at_us) at_us, greatest(previous_us, at_us) until_us,
        concat(`group`, ' went from generation ', previous, ' to ', generation) what
    from pairs join stayed using (`group`, life, generation)
    where generation - previous - 1 > lost_so_far + if(stayed_from <=> previous, 0, lost_so_far + 1)"""

# A JoinGroup response has an earlier generation than one that was complete before the request was sent.
_WENT_BACK = f"""
    select `group`, generation, array(any_value(member)) members, min(sent_us) at_us, max(done_us) until_us,
        concat(`group`, ' went back to generation ', generation, ' after generation ', max(newest),
        ' was complete') what
    from (
        select *, max(if(api = 'SyncGroup', generation, null)) over (
            partition by `group`, life order by at_us, api desc rows between unbounded preceding and 1 preceding) newest
        from (select *, if(api = 'SyncGroup', done_us + {CLOCK_SKEW_US}, sent_us) at_us from steps)
    ) where api = 'JoinGroup' and generation < newest group by `group`, life, generation"""

# A group may start over only after it has been empty: each member has left, or its session has expired.
_STARTED_OVER = """
    select `group`, 1 generation, array_sort(collect_set(member)) members, min(last_us) at_us, max(from_us) until_us,
        concat(`group`, ' started over at generation 1 while it had members') what
    from (select `group`, life, min(sent_us) from_us from steps where life > 0 group by `group`, life)
        join (select `group`, life + 1 life, member, member_id, greatest(beat_us, proof_us) last_us from last_requests)
            using (`group`, life)
        join scripts using (`group`, member)
        left anti join (select `group`, member_id from calls where api = 'LeaveGroup') using (`group`, member_id)
    where last_us > from_us - session_timeout_ms * 1000L
    group by `group`, life"""

_USED_AGAIN = """
    select `group`, generation, joined_by members, completed_us at_us, at_us until_us,
        concat('generation ', generation, ' of ', `group`, ' was used again after it was complete') what
    from reused join generation_times using (`group`, life, generation)"""

_GENERATIONS = " union all ".join(
    f"select * from ({query})" for query in (_SKIPPED, _WENT_BACK, _STARTED_OVER, _USED_AGAIN)
)

# JoinGroup responses of another generation than the first one of the group, or after the first one was complete.
_GENERATIONS_CASES = """
    select `group`, count_if(struct(life, generation) <> struct(first.life, first.generation)
        or done_us > first.completed_us) cases
    from steps join (
        select `group`, min_by(struct(life, generation, completed_us), joined_us) first
        from generation_times where joined_us is not null group by `group`
    ) using (`group`) where api = 'JoinGroup' group by `group`"""

_COMMITS = f"""
    select `group`, last.generation,
        array_distinct(filter(array(last.member, member), name -> name is not null)) members,
        last.sent_us at_us, done_us until_us, concat('OffsetFetch of ', partition, ' in ', `group`, ' returned ',
            offset, ' after ', last.offset, ' was committed') what
    from (select * from fetched_offsets where offset < last.offset) lower
        left anti join (
            select `group`, sent_us, done_us, committed.partition, committed.offset
            from calls lateral view explode(offsets) as committed
            where api = 'OffsetCommit' and done_us is not null and `group` is not null
        ) c on c.group = lower.group and c.partition = lower.partition and c.offset = lower.offset
            and c.done_us >= lower.last.sent_us - {CLOCK_SKEW_US} and c.sent_us <= lower.done_us + {CLOCK_SKEW_US}"""

_COMMITS_CASES = "select `group`, count(*) cases from fetched_offsets group by `group`"

_SILENT = """
    select `group`, generation, array(member) members, since_us at_us, until_us,
        concat(what, ', with a session timeout of ', round(session_us / 1e6, 1), ' s') what
    from silent_members where is_broken"""

_SILENT_CASES = "select `group`, 1 cases from silent_members"

_BEATING = """
    select `group`, generation, array(member) members, at_us, until_us,
        concat(member, ' got UNKNOWN_MEMBER_ID from ', `group`, ' ', round((until_us - at_us) / 1e6, 3),
            ' s after a successful heartbeat') what
    from removed_members"""

# Members that were observed for longer than their session timeout: from an assignment to a successful heartbeat,
# without a look-up in between (a `stretch`). After a look-up, the coordinator may be loading.
_BEATING_CASES = f"""
    select `group`, 1 cases from (
        select `group`, member_id from (
            select /*+ shuffle_hash(looked_up) */ `group`, member, member_id,
                size(filter(coalesce(signs, array()), sign -> sign <= done_us)) stretch,
                min(if(api = 'SyncGroup' and error = 0, done_us, null)) synced_us, min(done_us) first_us,
                max(if(api = 'Heartbeat' and error = 0, greatest(last_us, done_us), null)) beat_us
            from calls left join (
                select `group`, collect_list(at_us) signs from lookups where is_sign group by `group`
            ) looked_up using (`group`)
            where {SESSION} and error is not null and member is not null and member_id is not null
                and not in_consumer_group
            group by all
        ) join scripts using (`group`, member)
        where beat_us > least(synced_us, if(stretch > 0, first_us + {LOADING_US}, null)) + session_timeout_ms * 1000L
        union
        select `group`, member_id from removed_members)"""

# A heartbeat without an error is a violation only if the group kept its coordinator, because a coordinator that is
# loading answers all heartbeats without an error. Other responses that accept the member, including
# REBALANCE_IN_PROGRESS for a heartbeat, are always violations.
_STALE = f"""
    select `group`, generation, members, at_us, until_us, what from (
        select `group`, generation, array(member) members, superseded_us at_us, superseded_us since_us,
            greatest(if(beat_us > superseded_us + {CLOCK_SKEW_US}, beat_us, null), proof_us) until_us,
            proof_us > superseded_us + {CLOCK_SKEW_US} is_proven, concat('a request of ', member, ' in generation ',
                generation, ' of ', `group`, ' was accepted after a later generation was complete') what
        from superseded where greatest(beat_us, proof_us) > superseded_us + {CLOCK_SKEW_US}
    ) s {NO_LOOKUP} and not s.is_proven"""

_STALE_CASES = f"""
    select `group`, 1 cases from (
        select `group`, superseded_us since_us, greatest(beat_us, refused_beat_us) until_us,
            coalesce(greatest(proof_us, refused_us) > superseded_us + {CLOCK_SKEW_US}, false) is_proven
        from superseded
        where greatest(beat_us, proof_us, refused_us, refused_beat_us) > superseded_us + {CLOCK_SKEW_US}
    ) s {NO_LOOKUP} and not s.is_proven"""

_FENCED = f"""
    select `group`, generation, array(member) members, next_us at_us, proof_us until_us, concat('a request of ',
        member_id, ' in ', `group`, ' was accepted after ', next_id, ' had taken over its instance id ', instance_id
    ) what
    from replaced_members where proof_us > next_us + {CLOCK_SKEW_US}"""

_FENCED_CASES = f"""
    select `group`, count(*) cases from replaced_members
    where answered_us > next_us + {CLOCK_SKEW_US} group by `group`"""

_UNKNOWN = """
    select `group`, generation, array(member) members, since_us at_us, until_us, concat('a request of ', member_id,
        ' in ', `group`, ' was accepted after ', if(is_removed, 'the response UNKNOWN_MEMBER_ID', 'it had left')) what
    from late_session_requests where is_known"""

_UNKNOWN_CASES = "select `group`, 1 cases from late_session_requests"

# A request must be answered before the replay ends; and before the client gives up, if the broker answered other
# requests at that time. Paused members read no responses. The parts of `overdue`:
#
# - Requests that have waited for the request timeout; a JoinGroup or SyncGroup, for the rebalance timeout of its group.
# - A SyncGroup, once other members have their assignments in that generation, under the same coordinator.
# - A SyncGroup, once that of the leader has waited for twice the bound: it is not parked, but written to the log. The
#   leader is that of its last JoinGroup, because a generation that was never complete may be used again.
# - A JoinGroup, if later heartbeats of other members succeed: during a rebalance, they do not. With expected instances
#   (KAFKA-8397) a JoinGroup is parked without a rebalance; tools register them with a JoinGroup of no member.
# - A JoinGroup or SyncGroup in a group without any other request or response for the longest session timeout: every
#   other member has joined, too, or has been removed. The first JoinGroups of a group also wait for the initial delay.
_OVERDUE = f"""
    with limits as (
        select `group`, max(rebalance_timeout_ms) * 1000L + {OVERDUE_US} limit_us,
            max(session_timeout_ms) * 1000L + {BOUND_US} session_us
        from scripts group by `group`
    ), parked as (
        select * from unanswered where {PARKED} and member is not null
    ), overdue as (
        select unanswered.* from unanswered left join limits using (`group`)
        where ended_us > sent_us + if({PARKED}, limit_us, {REQUEST_TIMEOUT_US} - if(is_over, 1000000, 0))
        union
        select `group`, member, member_id, generation, api, broker, is_over, sent_us, ended_us, stopped_us from (
            select parked.*, least(joined_us, sent_us) since_us, greatest(completed_us, sent_us) + {BOUND_US} until_us
            from parked left join lives using (`group`) join generation_times on generation_times.group = parked.group
                and generation_times.generation = parked.generation
                and life = size(filter(coalesce(starts, array()), start -> start <= sent_us))
            where api = 'SyncGroup' and completed_us is not null
        ) s {NO_LOOKUP}
        where ended_us > until_us
        union
        select `group`, member, member_id, generation, api, broker, is_over, sent_us, ended_us, stopped_us from (
            select parked.*, led.sent_us since_us, stopped_us until_us
            from parked join (
                select `group`, generation, min(sent_us) sent_us from (
                    select /*+ shuffle_hash(parked) */ parked.group, parked.generation, parked.member_id, parked.sent_us
                    from parked join steps joined on joined.group = parked.group
                        and joined.generation = parked.generation and joined.member_id = parked.member_id
                        and joined.api = 'JoinGroup' and joined.done_us <= parked.sent_us
                    where parked.api = 'SyncGroup' and parked.stopped_us > parked.sent_us + 2 * {BOUND_US}
                    group by parked.group, parked.generation, parked.member_id, parked.sent_us
                    having max_by(joined.leader, joined.done_us) = parked.member_id)
                group by `group`, generation
            ) led on led.group = parked.group and led.generation = parked.generation
            where api = 'SyncGroup' and stopped_us > greatest(parked.sent_us, led.sent_us) + 2 * {BOUND_US}
        ) s {NO_LOOKUP}
        where exists (
            select * from answering where answering.broker = s.broker
                and second between s.stopped_us div 1000000 - 3 and s.stopped_us div 1000000 - 1)
        union
        select `group`, member, member_id, generation, api, broker, is_over, sent_us, ended_us, stopped_us from (
            select parked.*, parked.sent_us since_us, other.last_us until_us
            from parked join (
                select `group`, member, broker, last_us from calls where api = 'Heartbeat' and error = 0
            ) other on other.group = parked.group and other.broker = parked.broker
                and other.last_us > parked.sent_us + {BOUND_US} and other.last_us < parked.stopped_us
                and other.member <> parked.member
            where api = 'JoinGroup'
        ) s {NO_LOOKUP}
        left anti join (select distinct `group` from calls where api = 'JoinGroup' and member is null) batches
            on batches.group = s.group
        union
        select `group`, member, member_id, generation, api, broker, is_over, sent_us, ended_us, stopped_us from (
            select parked.*, sent_us since_us, stopped_us until_us,
                stopped_us - session_us - if(api = 'JoinGroup' and assigned_us is null, :delay_us, 0) quiet_us
            from parked join limits using (`group`) left join (
                select `group`, min(completed_us) assigned_us from generation_times group by `group`
            ) using (`group`)
        ) s {NO_LOOKUP}
        left anti join (
            select `group`, sent_us, greatest(last_us, done_us) last_us from calls where member is not null) other
            on other.group = s.group and other.last_us > s.quiet_us and other.sent_us < s.stopped_us - 1000000
        where s.sent_us < quiet_us and exists (
            select * from answering where answering.broker = s.broker
                and second between s.stopped_us div 1000000 - 3 and s.stopped_us div 1000000 - 1)
    )"""

# A member must be assigned within the longer one of session and rebalance timeout, even if all its requests are
# answered. It waits from its first JoinGroup to its last request. If no member of its group is ever assigned (`stuck`),
# the session timeout is enough, from when the last member has joined, also if connections are lost all the time: the
# coordinator is the same, accepts JoinGroups and answers other requests. This is until the script of one of the members
# stops or pauses it.
_ANSWERED = f"""{_OVERDUE}, stuck as (
        select `group`, max(first_us) arrived_us from (
            select `group`, member, min(sent_us) first_us, count_if(api = 'SyncGroup' and error = 0) assigned,
                count_if(error in (14, 15, 16)) refused
            from calls where {SESSION} and member is not null group by `group`, member
        ) left anti join (
            select `group` from lookups group by `group` having count(distinct node) > 1) moved using (`group`)
        group by `group` having sum(assigned) = 0 and sum(refused) = 0
    )
    select `group`, generation, if(member is null, array(), array(member)) members, sent_us at_us, ended_us until_us,
        concat(api, coalesce(concat(' of ', member), ''), if(is_over, ' timed out after ', ' had no response for '),
            round((ended_us - sent_us) / 1e6, 1), if(is_over, ' s', ' s at the end of the replay')) what
    from overdue o left anti join (
        select member, sent_us from events where kind = 'act' and api in ('pause', 'zombie')) still
            on still.member = o.member and still.sent_us between o.sent_us - {BOUND_US} and o.ended_us
    where not is_over or exists (
        select * from answering where answering.broker = o.broker
            and (second between ended_us div 1000000 - 3 and ended_us div 1000000 - 1
                or second between stopped_us div 1000000 - 3 and stopped_us div 1000000 - 1))
    union all
    select `group`, cast(null as int), array(member), since_us, until_us,
        concat(member, ' joined ', `group`, ' for ', round((until_us - since_us) / 1e6, 1), ' s without an assignment')
    from unassigned s join limits using (`group`) {NO_LOOKUP}
        left anti join (select member, sent_us from events where kind = 'act' and api <> 'start') acts
            on acts.member = s.member and acts.sent_us between s.since_us and s.until_us
        left anti join stuck on stuck.group = s.group
    where until_us - since_us > greatest(limit_us, session_us)
    union all
    select `group`, cast(null as int), array(member), since_us, until_us,
        concat(member, ' joined ', `group`, ' for ', round((until_us - since_us) / 1e6, 1),
            ' s without an assignment, as all members of the group')
    from (
        select s.group, s.member, since_us, coalesce(
            min(acts.sent_us) filter (where acts.sent_us between since_us and until_us), first(until_us)) until_us
        from unassigned s left join (
            select `group`, sent_us from events where kind = 'act' and api <> 'start') acts on acts.group = s.group
        group by s.group, s.member, since_us
    ) s join limits using (`group`) join stuck using (`group`)
    where until_us > arrived_us + session_us + :delay_us"""

_ANSWERED_SUSPECTS = f"""
    select `group` from unanswered where ended_us > sent_us + {BOUND_US}
    union all
    select `group` from unassigned"""

# Requests without a response count once a response would have been late.
# Requests without a response are cases only if they could be violations: a broker that has died breaks no promise.
_ANSWERED_CASES = f"""
    select `group`, sum(`count`) cases from events where kind = 'request' and latency_us is not null group by `group`
    union all
    select `group`, 1 cases from unanswered where ended_us > sent_us + {BOUND_US} and (not is_over or exists (
        select * from answering where answering.broker = unanswered.broker
            and second between ended_us div 1000000 - 3 and ended_us div 1000000 - 1))"""

# A broker that FindCoordinator names has `BOUND_US` to serve the group. It is a violation if the broker refuses, is
# still named later than `BOUND_US` after that, and refuses again. A series of refusals ends when the broker serves or
# loads the group, or when another broker is named.
_FOUND = f"""
    with marks as (
        select `group`, node broker, cast(null as string) member, sent_us at_us, sent_us, 'named' kind from lookups
        union all
        select `group`, broker, member, done_us, sent_us, if(error = 16, 'refused', 'served') from calls
        where {OF_GROUPS} and error is not null and error <> 15 and `group` is not null
    ), watched as (
        select *, last(if(kind = 'named', broker, null), true) over past named,
            last(if(kind = 'named', broker, null), true) over earlier named_before
        from marks left semi join (select distinct `group` from calls where error = 16) using (`group`)
        window past as (partition by `group` order by at_us, kind),
            earlier as (partition by `group` order by at_us, kind rows between unbounded preceding and 1 preceding)
    ), stretches as (
        select *, count_if(kind = 'served' or named <> named_before) over (
            partition by `group` order by at_us, kind rows between unbounded preceding and current row) stretch
        from watched where broker = named
    )
    select `group`, cast(null as int) generation, array_sort(collect_set(member)) members,
        min(at_us) filter (where kind = 'refused') at_us, max(at_us) filter (where kind = 'refused') until_us,
        concat('FindCoordinator named broker ', named, ' as coordinator of ', `group`, ' for ', round((max(sent_us)
            filter (where kind = 'named') - min(at_us) filter (where kind = 'refused')) / 1e6, 1),
            ' s, and this broker answered NOT_COORDINATOR') what
    from stretches group by `group`, stretch, named
    having max(sent_us) filter (where kind = 'named')
            > min(at_us) filter (where kind = 'refused') + {BOUND_US}
        and max(sent_us) filter (where kind = 'refused') > max(sent_us) filter (where kind = 'named')"""

# Look-ups after which the named broker has accepted or rejected a request about the group.
_FOUND_CASES = f"""
    select lookups.group, count(*) cases from lookups join (
        select `group`, broker, max(done_us) done_us from calls
        where {OF_GROUPS} and error is not null and error <> 15 group by `group`, broker
    ) asked on asked.group = lookups.group and asked.broker = lookups.node and asked.done_us >= lookups.sent_us
    group by lookups.group"""

# Two brokers served the group alternately, with at least three changes, for longer than a move may take, and without
# rejected or lost requests in between.
_ONE_COORDINATOR = f"""
    with turned as (
        select *, lag(broker) over (partition by `group`, stretch order by done_us) <> broker is_turn from (
            select *, count_if(is_break) over (
                partition by `group` order by end_us rows between unbounded preceding and current row) stretch
            from served)
        where not is_break
    )
    select `group`, max(generation) generation, array_sort(collect_set(member)) members, min(done_us) at_us,
        max(done_us) until_us, concat(`group`, ' was served by the brokers ', array_join(array_sort(
            collect_set(broker)), ' and '), ' at the same time') what
    from turned where is_turn group by `group`, stretch
    having count(*) >= 3 and max(done_us) > min(done_us) + {BOUND_US}"""

_ONE_COORDINATOR_CASES = """
    select `group`, count_if(is_turn) cases from (
        select `group`, lag(broker) over (partition by `group` order by done_us) <> broker is_turn
        from served where not is_break)
    group by `group`"""

PROMISES: dict[str, Promise] = {
    "one-owner": Promise(
        "In a generation, no partition is assigned to more than one member; with the consumer protocol, none is before "
        "its former owner has given it up.",
        _ONE_OWNER,
        "partitions assigned in generations with several members, or taken over from another member",
        _ONE_OWNER_CASES,
        consumer=(consumer.OWNERS, consumer.OWNERS_CASES),
    ),
    "covered": Promise(
        "The assignments of a generation cover exactly the topics its members subscribe to.",
        _COVERED,
        "generations with the assignments of all their members",
        _COVERED_CASES,
    ),
    "one-leader": Promise(
        "A generation has one leader and one protocol.",
        _ONE_LEADER,
        "generations with several members",
        _ONE_LEADER_CASES,
    ),
    "generations-rise": Promise(
        "Each rebalance increments the group's generation by one, also after its coordinator has moved.",
        _GENERATIONS,
        "JoinGroup responses after the first rebalance of a group",
        _GENERATIONS_CASES,
    ),
    "commits-kept": Promise(
        "An OffsetFetch returns the last acknowledged commit, or a later one.",
        _COMMITS,
        "offsets fetched after a commit",
        _COMMITS_CASES,
    ),
    "silent-out": Promise(
        "A member that stops sending requests is removed from its group within its session timeout plus "
        f"{BOUND_US // 1_000_000} s.",
        _SILENT,
        f"silent members whose group was observed for the session timeout plus {BOUND_US // 1_000_000} s",
        _SILENT_CASES,
        consumer=(consumer.SILENT, consumer.SILENT_CASES),
    ),
    "beating-stays": Promise(
        "A member that sends its heartbeats in time is not removed from its group.",
        _BEATING,
        "members that were observed for longer than their session timeout",
        _BEATING_CASES,
        consumer=(consumer.BEATING, consumer.BEATING_CASES),
    ),
    "stale-refused": Promise(
        "Requests of an old generation are rejected once the next one is complete; with the consumer protocol, those "
        "with an old epoch once the member has got a newer one.",
        _STALE,
        "members that sent requests of an old generation, and requests with an old member epoch",
        _STALE_CASES,
        consumer=(consumer.STALE, consumer.STALE_CASES),
    ),
    "fenced-refused": Promise(
        "Requests with the old member id of a static member are rejected once a new one has taken over.",
        _FENCED,
        "old member ids that sent requests after a new one had taken over",
        _FENCED_CASES,
        consumer=(consumer.FENCED, consumer.FENCED_CASES),
    ),
    "unknown-refused": Promise(
        "Requests of members that have left or were removed are rejected.",
        _UNKNOWN,
        "requests of members that had left or were removed",
        _UNKNOWN_CASES,
        consumer=(consumer.UNKNOWN, consumer.UNKNOWN_CASES),
    ),
    "answered": Promise(
        "A broker that answers requests leaves none unanswered; JoinGroup and SyncGroup are answered within the "
        "rebalance timeout.",
        _ANSWERED,
        "requests that were answered, or due for an answer by a broker that answered others",
        _ANSWERED_CASES,
        _ANSWERED_SUSPECTS,
    ),
    "coordinator-found": Promise(
        "The coordinator that FindCoordinator names serves the group.",
        _FOUND,
        "look-ups followed by a request to the named broker",
        _FOUND_CASES,
    ),
    "one-coordinator": Promise(
        "No two brokers serve a group at the same time.",
        _ONE_COORDINATOR,
        "changes of the broker that serves a group",
        _ONE_COORDINATOR_CASES,
    ),
    "epochs-rise": Promise(
        "The epochs of members of the consumer protocol never go back, also after their coordinator has moved.",
        consumer.EPOCHS,
        "heartbeats answered with an epoch after another one",
        consumer.EPOCHS_CASES,
    ),
    "revoked-committed": Promise(
        "A member of the consumer protocol can commit the partitions that it must give up before they move.",
        consumer.COMMITTED,
        "partitions given up after a commit was answered",
        consumer.COMMITTED_CASES,
    ),
    "targets-reached": Promise(
        f"Within {TARGET_HEARTBEATS} heartbeat intervals plus {BOUND_US // 1_000_000} s after the last change "
        "of a group of the consumer protocol, its members have reached the newest epoch and have all partitions.",
        consumer.TARGETS,
        "times in which a group was left alone for longer",
        consumer.TARGETS_CASES,
    ),
    "atomic": Promise(
        "The records and offsets of a transaction become visible together if it is committed, and never if it is not.",
        ATOMIC,
        "transactions that the reader has passed, and offsets fetched after one",
        ATOMIC_CASES,
    ),
    "old-epochs-refused": Promise(
        "Requests with an old producer epoch are rejected once a newer one was returned for the transactional id.",
        OLD_EPOCHS,
        "requests with an old producer epoch",
        OLD_EPOCHS_CASES,
    ),
    "overdue-aborted": Promise(
        "A transaction that its producer does not end is aborted within its timeout plus "
        f"{OVERDUE_TRANSACTION_US // 1_000_000} s.",
        OVERDUE,
        f"transactions that their producers left open for the timeout plus {OVERDUE_TRANSACTION_US // 1_000_000} s",
        OVERDUE_CASES,
    ),
    "stable-offset-rises": Promise(
        "The last stable offset of a partition never goes back.",
        STABLE,
        "last stable offsets read after another one",
        STABLE_CASES,
    ),
}
"""All promises by their names in `[promises] check`, in the order of reports."""

TRANSACTION_PROMISES = ("atomic", "old-epochs-refused", "overdue-aborted", "stable-offset-rises")
"""The promises of transaction coordinators: without transactions, there is no case of them."""


CONSUMER_PROMISES = ("epochs-rise", "revoked-committed", "targets-reached")
"""The promises to members of the consumer protocol only: without such members, there is no case of them."""


def applicable_promises(*, is_transactional: bool, has_consumers: bool) -> list[str]:
    """Return the names of the promises that a workload checks by default."""
    left_out = (*(() if is_transactional else TRANSACTION_PROMISES), *(() if has_consumers else CONSUMER_PROMISES))
    return [name for name in PROMISES if name not in left_out]
