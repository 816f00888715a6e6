"""The promises of coordinators to members of the consumer protocol (KIP-848): queries for violations and for cases.

As in promise_queries.py, on the views in consumer_views.py. The parameters `:session_us` and `:heartbeat_us` are the
session timeout and the heartbeat interval of the brokers. Error codes in the queries: 22 ILLEGAL_GENERATION,
25 UNKNOWN_MEMBER_ID, 27 REBALANCE_IN_PROGRESS, 110 FENCED_MEMBER_EPOCH, 113 STALE_MEMBER_EPOCH.
"""

from fakebroker.replay.verify.promise_views import BOUND_US, CLOCK_SKEW_US, NO_LOOKUP

OWNERS = f"""
    select `group`, cast(null as int) generation, array(former.member, member) members, min(from_us) at_us,
        max(former.proof_us) until_us, concat(array_join(array_sort(collect_list(partition)), ', '), ' of ', `group`,
            ': assigned to ', member, ' before ', former.member, ' gave up') what
    from moves where former.proof_us > from_us + {CLOCK_SKEW_US} group by `group`, former.member, member"""

OWNERS_CASES = "select `group`, count(*) cases from moves group by `group`"

# A member that must give up partitions stays in its epoch until it has confirmed that, so that it can commit before.
_LAST_COMMITS = """
    with given_up as (
        select moves.group, partition, former.member, former.until_us confirmed_us, max(beats.done_us) told_us,
            max_by(beats.generation, beats.done_us) generation
        from moves join beats on beats.group = moves.group and beats.member = moves.former.member
            and beats.done_us >= moves.former.from_us and beats.done_us <= moves.former.until_us
            and beats.assigned is not null and beats.error = 0
        where former.is_confirmed and not array_contains(beats.assigned, moves.partition)
        group by all
    ), tried as (
        select given_up.*, max(commits.sent_us) tried_us,
            bool_or(commits.error = 0 and exists(offsets, each -> each.partition = given_up.partition)) is_committed,
            bool_or(commits.error in (22, 25, 27, 113) and commits.generation = given_up.generation) is_refused
        from given_up join calls commits on commits.group = given_up.group and commits.member = given_up.member
            and commits.api = 'OffsetCommit' and commits.sent_us >= told_us and commits.done_us <= confirmed_us
        group by all
    )"""

COMMITTED = f"""{_LAST_COMMITS}
    select `group`, generation, array(member) members, told_us at_us, max(tried_us) until_us,
        concat(member, ' could not commit ', array_join(array_sort(collect_set(partition)), ', '), ' of ', `group`,
            ' before it gave up') what
    from tried where is_refused and not coalesce(is_committed, false) group by `group`, generation, member, told_us"""

COMMITTED_CASES = f"""{_LAST_COMMITS}
    select `group`, count_if(is_committed or is_refused) cases from tried group by `group`"""

# A member that joins is compared only with members that stay until after it has joined: an empty group may be deleted
# and start over.
_EPOCHS = """
    with answered as (
        select *, max(if(epoch > 0, last_us, null)) over (partition by `group`, member, term) seen_us
        from beats where error = 0 and epoch >= 0
    ), joined as (
        select new.group, new.member, new.generation, new.done_us, max(struct(old.generation, old.done_us)) former
        from answered new join answered old on old.group = new.group and old.member <> new.member
            and old.done_us < new.sent_us and old.seen_us > new.done_us
        where new.epoch = 0 group by all
    ), compared as (
        select `group`, member, generation, done_us, former from (
            select *, max(struct(generation, done_us)) over (partition by `group`, member, term order by sent_us
                rows between unbounded preceding and 1 preceding) former
            from answered)
        where former is not null
        union all select `group`, member, generation, done_us, former from joined
    )"""

EPOCHS = f"""{_EPOCHS}
    select `group`, generation, array(member) members, former.done_us at_us, done_us until_us,
        concat(member, ' of ', `group`, ' got epoch ', generation, ' after epoch ', former.generation) what
    from compared where generation < former.generation"""

EPOCHS_CASES = f"{_EPOCHS} select `group`, count(*) cases from compared group by `group`"

# Members whose session has ended. What shows whether they were removed is their next request, or the epoch of the other
# members, because a removal starts the next one; not if one of these got another assignment for other reasons.
_SILENCES = f"""
    with own as (
        select `group`, generation, member, alive_us since_us, sent_us until_us, error = 0 is_broken,
            concat(member, ' sent nothing for ', round((sent_us - alive_us) / 1e6, 1), ' s and is still a member of ',
                `group`) what
        from beats
        where epoch > 0 and error in (0, 25, 110) and before.error = 0 and before.epoch <> -1
            and before.member_id = member_id and before.broker = broker
            and sent_us > alive_us + :session_us + {BOUND_US}
    ), gaps as (
        select `group`, generation, member, owner, greatest(last_us, done_us) since_us,
            coalesce(next_us, :end_us + 1) next_us, greatest(last_us, done_us) + :session_us + {BOUND_US} limit_us
        from beats where error = 0 and epoch <> -1
    ), watched as (
        select gaps.*, max(b.generation) filter (where b.done_us <= since_us) newest,
            max(b.generation) filter (where b.last_us > limit_us) later,
            max(least(b.last_us, gaps.next_us - 1)) filter (where b.last_us > limit_us) seen_us,
            bool_or(b.assigned is not null and b.done_us > since_us) is_changed
        from gaps join beats b on b.group = gaps.group and b.owner <> gaps.owner and b.error = 0 and b.epoch >= 0
            and b.sent_us < gaps.next_us
        where limit_us < gaps.next_us group by all
    )
    select s.* from (
        select * from own
        union all
        select `group`, generation, member, since_us, seen_us, later <= greatest(newest, generation) and not is_changed,
            concat('epoch ', later, ' of ', `group`, ' continued after ', member, ' had sent nothing for ',
                round((seen_us - since_us) / 1e6, 1), ' s')
        from watched where seen_us > limit_us
    ) s {NO_LOOKUP}"""

SILENT = f"""
    select `group`, generation, array(member) members, since_us at_us, until_us,
        concat(what, ', with a session timeout of ', round(:session_us / 1e6, 1), ' s') what
    from ({_SILENCES}) where is_broken"""

SILENT_CASES = f"select `group`, count(*) cases from ({_SILENCES}) group by `group`"

# Not if a member took longer than its rebalance timeout to give up partitions.
_REMOVED = f"""
    select `group`, generation, member, accepted_us since_us, coalesce(done_us, sent_us) until_us
    from beats join scripts using (`group`, member)
    where error = 25 and epoch > 0 and before.error = 0 and before.epoch >= 0 and before.member_id = member_id
        and coalesce(done_us, sent_us) - accepted_us < :session_us - {CLOCK_SKEW_US}
        and (told_us is null or listed_us > told_us
            or coalesce(done_us, sent_us) - told_us < rebalance_timeout_ms * 1000L - {CLOCK_SKEW_US})"""

BEATING = f"""
    select `group`, generation, array(member) members, since_us at_us, until_us,
        concat(member, ' got UNKNOWN_MEMBER_ID from ', `group`, ' ', round((until_us - since_us) / 1e6, 3),
            ' s after a successful heartbeat') what
    from ({_REMOVED}) s {NO_LOOKUP}"""

BEATING_CASES = f"""
    select `group`, count(*) cases from (
        select `group`, member from (
            select `group`, member, min(done_us) since_us, max(last_us) until_us
            from beats where error = 0 and epoch >= 0 group by `group`, member, term
        ) s {NO_LOOKUP} where until_us > since_us + :session_us
        union select `group`, member from ({_REMOVED}) s {NO_LOOKUP})
    group by `group`"""

_AFTER_THE_END = """
    select `group`, generation, member, member_id, alive_us since_us, sent_us until_us, error = 0 is_known,
        before.error = 25 is_removed
    from beats where epoch > 0 and error in (0, 25, 110) and before.member_id = member_id and before.broker = broker
        and (before.error = 25 or before.epoch = -1 and before.error = 0)"""

UNKNOWN = f"""
    select `group`, generation, array(member) members, since_us at_us, until_us, concat('a request of ', member_id,
        ' in ', `group`, ' was accepted after ', if(is_removed, 'the response UNKNOWN_MEMBER_ID', 'it had left')) what
    from ({_AFTER_THE_END}) s {NO_LOOKUP} where is_known"""

UNKNOWN_CASES = f"select `group`, count(*) cases from ({_AFTER_THE_END}) s {NO_LOOKUP} group by `group`"

TARGET_HEARTBEATS = 3
"""A member tells the coordinator with one heartbeat that it has given up a partition, and another one gets it with its
next heartbeat."""

# Times in which nothing happens to a group that can delay a rebalance, and the members at their end. `for_us`: how long
# something can have an effect: a silent member keeps its partitions until its session ends, a slow one until its
# rebalance timeout. The newest epoch is that of members which are still there, because an empty group may start over.
_QUIET = f"""
    with marks as (
        select `group`, min(done_us) at_us, 0L for_us from beats where error = 0 and epoch >= 0
        group by `group`, generation
        union all
        select `group`, max(greatest(last_us, coalesce(done_us, last_us))), 0L from beats group by `group`
        union all
        select `group`, explode(array(sent_us, coalesce(done_us, last_us))), 0L from beats
        where epoch <= 0 or not error <=> 0
        union all
        select `group`, sent_us, last_us - sent_us + :session_us from calls
        where in_consumer_group and api in ('JoinGroup', 'SyncGroup', 'Heartbeat')
        union all
        select `group`, sent_us, done_us - sent_us from calls
        where in_consumer_group and (done_us - sent_us > 1000000 or is_unanswered)
        union all
        select `group`, at_us, 0L from lookups where is_sign
        union all
        select acts.group, sent_us, if(api = 'slow', rebalance_timeout_ms * 1000L, :session_us)
        from events acts join scripts on scripts.group = acts.group and scripts.member = acts.member
        where kind = 'act' and (api in ('crash', 'pause', 'slow', 'zombie')
            or api in ('leave', 'migrate') and instance_id is not null)
    ), gaps as (
        select `group`, at_us, lead(at_us) over (partition by `group` order by at_us) until_us,
            max(at_us + coalesce(for_us, 0)) over (partition by `group` order by at_us) since_us
        from marks
    ), quiet as (
        select `group`, since_us, since_us + {TARGET_HEARTBEATS} * :heartbeat_us + {BOUND_US} limit_us, until_us
        from gaps where until_us > since_us + {TARGET_HEARTBEATS} * :heartbeat_us + {BOUND_US}
    ), present as (
        select quiet.*, member, max_by(generation, sent_us) generation, max(last_us) last_us
        from quiet join beats on beats.group = quiet.group and beats.error = 0 and beats.epoch > 0
            and beats.sent_us < until_us and beats.last_us > until_us - 2 * :heartbeat_us
        group by all
    ), reached as (
        select `group`, since_us, limit_us, until_us, max(newest) newest, array_sort(collect_list(member)) members,
            array_sort(collect_list(if(generation < newest and last_us > limit_us, member, null))) late,
            array_distinct(flatten(collect_list(topics))) topics
        from (select *, max(generation) over (partition by `group`, until_us) newest from present)
            join scripts using (`group`, member)
        group by `group`, since_us, limit_us, until_us
    ), used as (
        select reached.group, reached.until_us, collect_set(partition) partitions
        from reached join holdings on holdings.group = reached.group and array_contains(members, holdings.member)
            and from_us < reached.until_us and coalesce(holdings.until_us >= reached.until_us, true)
        group by all
    ), judged as (
        select reached.*, array_sort(array_except(flatten(transform(filter(topics, topic -> counts[topic] > 0), topic ->
                transform(sequence(0, counts[topic] - 1), number -> concat(topic, '-', number)))),
            coalesce(partitions, array()))) missing
        from reached left join used using (`group`, until_us)
            cross join (select map_from_entries(collect_list(struct(topic, partitions))) counts from topics)
    )"""

TARGETS = f"""{_QUIET}
    select `group`, newest generation, if(size(late) > 0, late, members) members, since_us at_us, until_us, concat(
        if(size(late) > 0,
            concat(array_join(slice(late, 1, 5), ', '), ' of ', `group`, ' did not reach epoch ', newest),
            concat(array_join(slice(missing, 1, 5), ', '), if(size(missing) > 5, concat(' and ', size(missing) - 5,
                ' more'), ''), ' of ', `group`, ': not assigned in epoch ', newest)),
        ' within ', round((until_us - since_us) / 1e6, 1), ' s') what
    from judged where size(late) > 0 or size(missing) > 0"""

TARGETS_CASES = f"{_QUIET} select `group`, count(*) cases from reached group by `group`"
