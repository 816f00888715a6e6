"""The promises of a group coordinator, each with a query that returns its violations.

A query returns a row per violation: group, generation, members (their names), at_us, until_us, what. It uses only the
requests and responses of the members. It reports no violation if a correct coordinator could have caused these, for
example because responses were lost, no member of the replay saw the end of a rebalance, or the coordinator moved before
a generation was stored. Groups with members outside the replay and administrative changes of a group (evicted members,
deleted offsets or topics, held rebalances) are not supported: leave the affected promises out of `[promises] check`.

promise_views.py explains the columns of the views, such as `life` and `owner`. Error codes in the queries:
14 COORDINATOR_LOAD_IN_PROGRESS, 15 COORDINATOR_NOT_AVAILABLE, 16 NOT_COORDINATOR, 22 ILLEGAL_GENERATION,
25 UNKNOWN_MEMBER_ID, 27 REBALANCE_IN_PROGRESS.
"""

from typing import NamedTuple

from fakebroker.client.member.assignors import COOPERATIVE_ASSIGNORS
from fakebroker.replay.verify.promise_views import (
    BOUND_US,
    CLOCK_SKEW_US,
    LOADING_US,
    NO_LOOKUP,
    OVERDUE_US,
    PARKED,
    REQUEST_TIMEOUT_US,
    RETENTION_US,
)


class Promise(NamedTuple):
    """A promise.

    Attributes:
        sentence: The promise as a sentence, for reports and the guide.
        query: SQL for its violations.
    """

    sentence: str
    query: str


_COOPERATIVE = ", ".join(f"'{name}'" for name in COOPERATIVE_ASSIGNORS)

# The last assignment of each member in a generation; a static member is identified by its instance id. Generation ids
# that were used twice are left out: they violate only `generations-rise`.
_ASSIGNMENTS = """
    select `group`, life, generation, owner, any_value(member) member, min(done_us) at_us, max(done_us) until_us,
        max_by(assigned, done_us) assigned
    from steps left anti join reused using (`group`, life, generation)
    where api = 'SyncGroup' and assigned is not null group by `group`, life, generation, owner"""

_ONE_OWNER = f"""
    select `group`, generation, array_sort(array_distinct(flatten(collect_list(owners)))) members, min(at_us) at_us,
        max(until_us) until_us, concat(array_join(array_sort(collect_list(partition)), ', '), ' of ', `group`,
        ': assigned to more than one member in generation ', generation) what
    from (
        select `group`, life, generation, partition, collect_set(member) owners, min(at_us) at_us,
            max(until_us) until_us
        from (select *, explode(assigned) partition from ({_ASSIGNMENTS}))
        group by `group`, life, generation, partition having count(distinct owner) > 1
    ) group by `group`, life, generation"""

# Checked only if all members in the leader's list have reported their assignments. Partitions that a cooperative
# assignor withholds until they are revoked (KIP-429) must be assigned by a later generation soon.
_COVERED = f"""
    with judged as (
        select `group`, life, generation, array_sort(collect_set(member)) members, min(at_us) at_us,
            max(until_us) until_us, flatten(collect_list(assigned)) given,
            array_distinct(flatten(collect_list(topics))) topics, bool_or(assignor in ({_COOPERATIVE})) is_cooperative,
            max(greatest(session_timeout_ms, rebalance_timeout_ms)) * 1000L limit_us, count(*) seen
        from ({_ASSIGNMENTS}) join scripts using (`group`, member) group by `group`, life, generation
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
        select `group`, life, generation, max(beat_us) lasted_us from last_accepted group by `group`, life, generation
    )
    select `group`, generation, members, at_us, until_us, concat('generation ', generation, ' of ', `group`,
        if(size(missing) > 0, concat(' does not assign ', array_join(slice(missing, 1, 5), ', '),
            if(size(missing) > 5, concat(' and ', size(missing) - 5, ' more'), '')), ''),
        if(size(missing) > 0 and size(foreign) > 0, ' and', ''),
        if(size(foreign) > 0, concat(' assigns ', array_join(slice(foreign, 1, 5), ', '),
            ', which no member subscribes to'), '')
        ) what
    from compared left join lasting using (`group`, life, generation)
    where size(foreign) > 0
        or size(missing) > 0 and (not is_cooperative or lasted_us > until_us + limit_us + {BOUND_US})"""

# Considers only members that got their assignment: after a coordinator has moved, a generation that no member saw
# complete may be used again. Leader ids without rows in `steps` are ignored: they may be other ids of the same leader.
_ONE_LEADER = """
    with places as (
        select `group`, life, generation, member_id, any_value(member) member, min(done_us) at_us,
            max(done_us) until_us, max_by(leader, done_us) filter (where api = 'JoinGroup') leader,
            max_by(protocol, done_us) filter (where api = 'JoinGroup') protocol
        from steps left anti join reused using (`group`, life, generation)
        group by `group`, life, generation, member_id
        having count_if(api = 'JoinGroup') > 0 and count_if(api = 'SyncGroup') > 0
    ), ids as (select distinct `group`, member_id leader, owner leader_owner from steps)
    select `group`, generation, array_sort(collect_set(member)) members, min(at_us) at_us, max(until_us) until_us,
        concat('generation ', generation, ' of ', `group`,
            if(count(distinct leader_owner) > 1, concat(' has several leaders: ', array_join(array_sort(
                collect_set(if(leader_owner is null, null, leader))), ', ')), ''),
            if(count(distinct protocol) > 1, concat(' has several protocols: ', array_join(array_sort(
                collect_set(protocol)), ', ')), '')) what
    from places left join ids using (`group`, leader) group by `group`, life, generation
    having count(distinct leader_owner) > 1 or count(distinct protocol) > 1"""

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
        join (select `group`, life + 1 life, member, member_id, greatest(beat_us, proof_us) last_us from last_accepted)
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

# An OffsetFetch must return the commit that was sent last among those acknowledged before, or one that may have come
# after it. The effect of a commit without a response is unknown.
_COMMITS = f"""
    with offsets as (
        select `group`, member, api, sent_us, done_us, generation, offset.partition, offset.offset,
            if(api = 'OffsetCommit', done_us + {CLOCK_SKEW_US}, sent_us) at_us
        from calls lateral view explode(offsets) as offset
        where api in ('OffsetCommit', 'OffsetFetch') and done_us is not null and `group` is not null
    ), fetched as (
        select *, max(if(api = 'OffsetCommit', struct(sent_us, offset, done_us, generation, member), null)) over (
            partition by `group`, partition order by at_us, api rows between unbounded preceding and current row) last
        from offsets
    ), lower as (
        select * from fetched where api = 'OffsetFetch' and offset < last.offset
            and not (offset < 0 and sent_us > last.done_us + {RETENTION_US})
    )
    select `group`, last.generation,
        array_distinct(filter(array(last.member, member), name -> name is not null)) members,
        last.sent_us at_us, done_us until_us, concat('OffsetFetch of ', partition, ' in ', `group`, ' returned ',
            offset, ' after ', last.offset, ' was committed') what
    from lower
        left anti join (select `group`, partition, offset, sent_us, done_us from offsets where api = 'OffsetCommit') c
            on c.group = lower.group and c.partition = lower.partition and c.offset = lower.offset
            and c.done_us >= lower.last.sent_us - {CLOCK_SKEW_US} and c.sent_us <= lower.done_us + {CLOCK_SKEW_US}
        left anti join (select `group`, sent_us from calls where api = 'OffsetCommit' and is_unanswered) unknown
            on unknown.group = lower.group and unknown.sent_us >= lower.last.sent_us - {BOUND_US}
            and unknown.sent_us <= lower.done_us + {CLOCK_SKEW_US}"""

# A session has not ended if the coordinator still accepts the member, or if the member's last generation continues: the
# end of a session ends the generation. A coordinator that moves or restarts starts all sessions again.
_SILENT = f"""
    select `group`, generation, members, since_us at_us, until_us, what from (
        select `group`, generation, array(member) members, alive_us since_us, sent_us until_us, concat(
            member, ' sent nothing for ', round((sent_us - alive_us) / 1e6, 1), ' s and is still a member of ', `group`,
            ', with a session timeout of ', round(session_us / 1e6, 1), ' s') what
        from session_requests where is_known and before.member_id = member_id and before.broker = broker
            and sent_us > alive_us + session_us + {BOUND_US}
            and not (before.is_unanswered and before.{PARKED})
        union all
        select `group`, generation, array(member), greatest(last_alive_us, completed_us), other_us, concat(
            'generation ', generation, ' of ', `group`, ' continued after ', member, ' had sent nothing for ',
            round((other_us - greatest(last_alive_us, completed_us)) / 1e6, 1), ' s, with a session timeout of ',
            round(session_us / 1e6, 1), ' s')
        from (
            select gone.group, gone.member, life, generation, last_alive_us, next_us, session_us,
                max(other.beat_us) other_us
            from (select distinct `group`, owner, member, last_alive_us, next_us, session_us from session_requests
                    where next_us is null or next_us > last_alive_us + session_us + {BOUND_US}) gone
                join (select distinct `group`, life, generation, owner from steps) own using (`group`, owner)
                join last_accepted other using (`group`, life, generation)
            where other.owner <> gone.owner and other.beat_us is not null
            group by all
        ) join generation_times using (`group`, life, generation)
            left anti join reused using (`group`, life, generation)
        where completed_us is not null
            and least(other_us, next_us) > greatest(last_alive_us, completed_us) + session_us + {BOUND_US}
    ) s {NO_LOOKUP}"""

# A successful heartbeat restarts the session in a group that is not rebalancing. So neither the session nor the
# rebalance timeout can have expired for a member that has its assignment and has not sent JoinGroup or LeaveGroup
# since.
_BEATING = f"""
    select `group`, generation, members, at_us, until_us, what from (
        select `group`, generation, array(member) members, beat.last_us at_us, coalesce(done_us, sent_us) until_us,
            concat(member, ' got UNKNOWN_MEMBER_ID from ', `group`, ' ',
                round((coalesce(done_us, sent_us) - beat.last_us) / 1e6, 3), ' s after a successful heartbeat') what,
            greatest(beat.last_us - {LOADING_US}, synced_us) since_us
        from session_requests where error = 25 and api <> 'LeaveGroup' and beat.member_id = member_id
            and left_or_joined_us < synced_us and synced_us <= beat.last_us
            and coalesce(done_us, sent_us) - beat.last_us < least(session_us, rebalance_us) - {CLOCK_SKEW_US}
    ) s {NO_LOOKUP}"""

# A heartbeat without an error is a violation only if the group kept its coordinator, because a coordinator that is
# loading answers all heartbeats without an error. Other responses that accept the member, including
# REBALANCE_IN_PROGRESS for a heartbeat, are always violations.
_STALE = f"""
    select `group`, generation, members, at_us, until_us, what from (
        select `group`, generation, array(member) members, superseded_us at_us, superseded_us since_us,
            greatest(if(beat_us > superseded_us + {CLOCK_SKEW_US}, beat_us, null), proof_us) until_us,
            proof_us > superseded_us + {CLOCK_SKEW_US} is_proven, concat('a request of ', member, ' in generation ',
                generation, ' of ', `group`, ' was accepted after a later generation was complete') what
        from (
            select *, min(completed_us) over (partition by `group`, life order by generation
                range between 1 following and unbounded following) superseded_us
            from (
                select `group`, life, generation, member, beat_us, proof_us, null completed_us from last_accepted
                union all
                select `group`, life, generation, null, null, null, completed_us from generation_times)
        ) where greatest(beat_us, proof_us) > superseded_us + {CLOCK_SKEW_US}
    ) s {NO_LOOKUP} and not s.is_proven"""

# Once the new member id of a static member has its assignment, the id is stored, and the old one is fenced permanently.
_FENCED = f"""
    select `group`, generation, array(member) members, next_us at_us, proof_us until_us, concat('a request of ',
        member_id, ' in ', `group`, ' was accepted after ', next_id, ' had taken over its instance id ', instance_id
    ) what
    from (
        select *, lead(synced_us) over line next_us, lead(member_id) over line next_id from (
            select `group`, instance_id, member_id, any_value(member) member,
                min(done_us) filter (where api = 'SyncGroup' and error = 0) synced_us,
                max_by(generation, sent_us) generation, max(if(api in ('JoinGroup', 'SyncGroup', 'OffsetCommit')
                    and error = 0 or api = 'Heartbeat' and error = 27, last_us, null)) proof_us
            from calls where instance_id is not null and member_id is not null
            group by `group`, instance_id, member_id
        ) where synced_us is not null window line as (partition by `group`, instance_id order by synced_us)
    ) where proof_us > next_us + {CLOCK_SKEW_US}"""

# `before` is the last request of the same member; a member that joins again has another member id.
_UNKNOWN = f"""
    select `group`, generation, members, since_us at_us, until_us, what from (
        select `group`, generation, array(member) members, alive_us since_us, sent_us until_us,
            concat('a request of ', member_id, ' in ', `group`, ' was accepted after ',
                if(before.error = 25, 'the response UNKNOWN_MEMBER_ID', 'it had left')) what
        from session_requests where is_known and before.member_id = member_id and before.broker = broker
            and (before.error = 25 or before.api = 'LeaveGroup' and before.error = 0)
    ) s {NO_LOOKUP}"""

# A request must be answered before the replay ends; and before the client gives up, if the broker answered other
# requests at that time. A SyncGroup must be answered once other members have their assignments in that generation,
# under the same coordinator. Paused members read no responses.
_ANSWERED = f"""
    with limits as (
        select `group`, max(rebalance_timeout_ms) * 1000L + {OVERDUE_US} limit_us from scripts group by `group`
    ), waiting as (
        select `group`, member, generation, api, broker, until_us is not null is_over, sent_us,
            coalesce(until_us, end_us) ended_us
        from events cross join (select max(sent_us) end_us from events)
        where kind = 'request' and latency_us is null and (until_us is null or version >= 0)
    ), overdue as (
        select waiting.* from waiting left join limits using (`group`)
        where ended_us > sent_us + if({PARKED}, limit_us, {REQUEST_TIMEOUT_US} - if(is_over, 1000000, 0))
        union
        select `group`, member, generation, api, broker, is_over, sent_us, ended_us from (
            select waiting.*, least(joined_us, sent_us) since_us, greatest(completed_us, sent_us) + {BOUND_US} until_us
            from waiting left join lives using (`group`) join generation_times on generation_times.group = waiting.group
                and generation_times.generation = waiting.generation
                and life = size(filter(coalesce(starts, array()), start -> start <= sent_us))
            where api = 'SyncGroup' and completed_us is not null
        ) s {NO_LOOKUP}
        where ended_us > until_us
    )
    select `group`, generation, if(member is null, array(), array(member)) members, sent_us at_us, ended_us until_us,
        concat(api, coalesce(concat(' of ', member), ''), if(is_over, ' timed out after ', ' had no response for '),
            round((ended_us - sent_us) / 1e6, 1), if(is_over, ' s', ' s at the end of the replay')) what
    from overdue o left anti join (
        select member, sent_us from events where kind = 'act' and api in ('pause', 'zombie')) still
            on still.member = o.member and still.sent_us between o.sent_us - {BOUND_US} and o.ended_us
    where not is_over or exists (
        select * from (
            select distinct broker, sent_us div 1000000 second from calls
            where not is_unanswered and done_us - sent_us < 1000000) answering
        where answering.broker = o.broker and second between ended_us div 1000000 - 3 and ended_us div 1000000 - 1)"""

_REJECTED = "error in (14, 15, 16)"
_OF_GROUPS = "api in ('JoinGroup', 'SyncGroup', 'Heartbeat', 'OffsetCommit', 'OffsetFetch')"

# A broker that FindCoordinator names has `BOUND_US` to serve the group. It is a violation if the broker refuses, is
# still named later than `BOUND_US` after that, and refuses again. A series of refusals ends when the broker serves or
# loads the group, or when another broker is named.
_FOUND = f"""
    with marks as (
        select `group`, node broker, cast(null as string) member, sent_us at_us, sent_us, 'named' kind from lookups
        union all
        select `group`, broker, member, done_us, sent_us, if(error = 16, 'refused', 'served') from calls
        where {_OF_GROUPS} and error is not null and error <> 15 and `group` is not null
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

# Two brokers served the group alternately, with at least three changes, for longer than a move may take, and without
# rejected or lost requests in between.
_ONE_COORDINATOR = f"""
    with served as (
        select *, {_REJECTED} or is_unanswered is_break, coalesce(done_us, sent_us) end_us
        from calls left semi join (
            select `group` from calls where {_OF_GROUPS} and not {_REJECTED}
            group by `group` having min(broker) < max(broker)) using (`group`)
        where {_OF_GROUPS} and broker >= 0
    ), turned as (
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

PROMISES: dict[str, Promise] = {
    "one-owner": Promise("In a generation, no partition is assigned to more than one member.", _ONE_OWNER),
    "covered": Promise("The assignments of a generation cover exactly the topics its members subscribe to.", _COVERED),
    "one-leader": Promise("A generation has one leader and one protocol.", _ONE_LEADER),
    "generations-rise": Promise(
        "Each rebalance increments the group's generation by one, also after its coordinator has moved.", _GENERATIONS
    ),
    "commits-kept": Promise("An OffsetFetch returns the last acknowledged commit, or a later one.", _COMMITS),
    "silent-out": Promise(
        "A member that stops sending requests is removed from its group within its session timeout plus "
        f"{BOUND_US // 1_000_000} s.",
        _SILENT,
    ),
    "beating-stays": Promise("A member that sends its heartbeats in time is not removed from its group.", _BEATING),
    "stale-refused": Promise("Requests of an old generation are rejected once the next one is complete.", _STALE),
    "fenced-refused": Promise(
        "Requests with the old member id of a static member are rejected once a new one has taken over.", _FENCED
    ),
    "unknown-refused": Promise("Requests of members that have left or were removed are rejected.", _UNKNOWN),
    "answered": Promise("Every request is answered; JoinGroup and SyncGroup within the rebalance timeout.", _ANSWERED),
    "coordinator-found": Promise("The coordinator that FindCoordinator names serves the group.", _FOUND),
    "one-coordinator": Promise("No two brokers serve a group at the same time.", _ONE_COORDINATOR),
}
"""All promises by their names in `[promises] check`, in the order of reports."""
