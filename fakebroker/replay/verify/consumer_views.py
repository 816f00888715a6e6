"""Views of the members of the consumer protocol (KIP-848) for the queries of the promises, as Spark SQL.

They exist if a member has sent a ConsumerGroupHeartbeat. Then `in_consumer_group` of the view `calls` is true for the
requests of all members of its group, also of those that use the classic protocol before, during or after a migration.

The parameters are those of `PromiseViews.sql`. Error codes in the views: 14 COORDINATOR_LOAD_IN_PROGRESS,
15 COORDINATOR_NOT_AVAILABLE, 16 NOT_COORDINATOR, 22 ILLEGAL_GENERATION, 25 UNKNOWN_MEMBER_ID, 27 REBALANCE_IN_PROGRESS,
69 GROUP_ID_NOT_FOUND, 82 FENCED_INSTANCE_ID, 110 FENCED_MEMBER_EPOCH, 113 STALE_MEMBER_EPOCH.
"""

from fakebroker.replay.verify.bounds import BOUND_US, CLOCK_SKEW_US, NO_LOOKUP, TARGET_HEARTBEATS

# Heartbeats. `term`: how often the member has joined so far. Of the heartbeats before: `before` is the last one,
# `alive_us` the end of it, `accepted_us` when the last one was sent that was accepted, `told_us` when the member got
# its last assignment, `listed_us` when it last listed its partitions.
BEATS = """
    select *, max(greatest(last_us, coalesce(done_us, last_us))) over earlier alive_us,
        lag(struct(member_id, epoch, error, broker, is_unanswered)) over line before, lead(sent_us) over line next_us,
        max(if(error = 0 and epoch >= 0, last_us, null)) over earlier accepted_us,
        max(if(error = 0 and assigned is not null, done_us, null)) over earlier told_us,
        max(if(error = 0 and owned is not null, sent_us, null)) over earlier listed_us
    from (
        select `group`, member, owner, member_id, broker, epoch, generation, error, is_unanswered, sent_us, last_us,
            done_us, assigned, owned, count_if(epoch = 0) over (
                partition by `group`, member order by sent_us rows between unbounded preceding and current row) term
        from calls where api = 'ConsumerGroupHeartbeat' and member is not null)
    window line as (partition by `group`, member order by sent_us),
        earlier as (partition by `group`, member order by sent_us rows between unbounded preceding and 1 preceding)"""

# From when until when a member had a partition for certain. This begins with the response that assigns the partition,
# or with a request that lists it. It ends (`until_us`, null if it does not) with the next request that lists the
# partitions of the member without it (`is_confirmed`, if it was accepted), that joins, or that leaves. `proof_us` is
# when the member sent its last request in this time that is accepted of current members only.
HOLDINGS = """
    with changes as (
        select `group`, owner, member, done_us at_us, assigned partitions, 'gets' kind from beats
        where error = 0 and epoch >= 0 and assigned is not null
        union all
        select `group`, owner, member, sent_us, if(epoch > 0, owned, array()),
            if(epoch > 0 and error = 0, 'lists', 'ends')
        from beats where owned is not null or epoch <= 0
        union all
        select `group`, owner, member, done_us, assigned, 'gets' from calls
        where in_consumer_group and api = 'SyncGroup' and error = 0 and assigned is not null and member is not null
        union all
        select `group`, owner, member, sent_us, array(), 'ends' from calls
        where in_consumer_group and api in ('JoinGroup', 'LeaveGroup') and member is not null
    ), begun as (
        select `group`, owner, member, at_us, explode(partitions) partition from changes where kind <> 'ends'
    ), ended as (
        select begun.*, min(struct(changes.at_us at_us, changes.kind = 'lists' is_confirmed)) ending
        from begun left join changes on changes.group = begun.group and changes.member = begun.member
            and changes.at_us > begun.at_us and changes.kind <> 'gets'
            and not array_contains(changes.partitions, begun.partition)
        group by all
    ), held as (
        select `group`, owner, member, partition, ending.at_us until_us,
            coalesce(ending.is_confirmed, false) is_confirmed, min(at_us) from_us
        from ended group by all
    )
    select held.*, max(if(last_us > until_us, until_us, last_us)) proof_us
    from held left join (
        select `group`, member, sent_us, last_us from calls where in_consumer_group and (
            api = 'ConsumerGroupHeartbeat' and epoch > 0 and error = 0
            or api = 'OffsetCommit' and error = 0 and generation >= 0
            or api = 'Heartbeat' and error = 27)
    ) proof on proof.group = held.group and proof.member = held.member and proof.sent_us > held.from_us
        and (held.until_us is null or proof.sent_us < held.until_us)
    group by all"""

# A partition that a member got, and `former`, the member that had it before.
MOVES = """
    select `group`, partition, former, owner, member, from_us from (
        select *, lag(struct(owner, member, from_us, until_us, is_confirmed, proof_us)) over (
            partition by `group`, partition order by from_us, member) former
        from holdings)
    where former.owner <> owner"""

# A member that must give up partitions stays in its epoch until it has confirmed that, so that it can commit before.
LAST_COMMITS = """
    with given_up as (
        select moves.group, partition, former.member, former.until_us confirmed_us, max(beats.done_us) told_us,
            max_by(beats.generation, beats.done_us) generation
        from moves join beats on beats.group = moves.group and beats.member = moves.former.member
            and beats.done_us >= moves.former.from_us and beats.done_us <= moves.former.until_us
            and beats.assigned is not null and beats.error = 0
        where former.is_confirmed and not array_contains(beats.assigned, moves.partition)
        group by all
    )
    select given_up.*, max(commits.sent_us) tried_us,
        bool_or(commits.error = 0 and exists(offsets, each -> each.partition = given_up.partition)) is_committed,
        bool_or(commits.error in (22, 25, 27, 113) and commits.generation = given_up.generation) is_refused
    from given_up join calls commits on commits.group = given_up.group and commits.member = given_up.member
        and commits.api = 'OffsetCommit' and commits.sent_us >= told_us and commits.done_us <= confirmed_us
    group by all"""

# Epochs in responses, each with the one before of the member (`former`). A member that joins is compared with members
# that stay until after it has joined: an empty group may be deleted and start over.
COMPARED_EPOCHS = """
    with answered as (
        select *, max(if(epoch > 0, last_us, null)) over (partition by `group`, member, term) seen_us
        from beats where error = 0 and epoch >= 0
    ), joined as (
        select new.group, new.member, new.generation, new.done_us, max(struct(old.generation, old.done_us)) former
        from answered new join answered old on old.group = new.group and old.member <> new.member
            and old.done_us < new.sent_us and old.seen_us > new.done_us
        where new.epoch = 0 group by all
    )
    select `group`, member, generation, done_us, former from (
        select *, max(struct(generation, done_us)) over (partition by `group`, member, term order by sent_us
            rows between unbounded preceding and 1 preceding) former
        from answered)
    where former is not null
    union all select `group`, member, generation, done_us, former from joined"""

# Members whose session has ended. What shows whether they were removed is their next request, or the epoch of the other
# members, because a removal starts the next one; not if one of these got another assignment for other reasons.
SILENCES = f"""
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

# Members that were removed within their session timeout, and that did not take longer than their rebalance timeout to
# give up partitions.
REMOVALS = f"""
    select s.* from (
        select `group`, generation, member, accepted_us since_us, coalesce(done_us, sent_us) until_us
        from beats join scripts using (`group`, member)
        where error = 25 and epoch > 0 and before.error = 0 and before.epoch >= 0 and before.member_id = member_id
            and coalesce(done_us, sent_us) - accepted_us < :session_us - {CLOCK_SKEW_US}
            and (told_us is null or listed_us > told_us
                or coalesce(done_us, sent_us) - told_us < rebalance_timeout_ms * 1000L - {CLOCK_SKEW_US})
    ) s {NO_LOOKUP}"""

# Requests that name a member and its epoch (`sent_epoch`), and the last heartbeat of the same member id (`before`), if
# its response, received before, has a newer epoch, shows that the member was removed, or ends its membership. `listed`
# is the last assignment of the member. Kafka rejects nearly all such requests, see `OLD_EPOCHS`.
LATE_REQUESTS = """
    select * from (
        select *, last(if(api = 'ConsumerGroupHeartbeat', struct(member_id, epoch, generation, error, broker, done_us),
                null), true) over earlier before,
            last(if(api = 'ConsumerGroupHeartbeat' and error = 0, assigned, null), true) over earlier listed
        from (
            select `group`, member, member_id, api, broker, epoch, generation, if(api = 'ConsumerGroupHeartbeat',
                epoch, generation) sent_epoch, error, sent_us, last_us, done_us, assigned, owned, offsets
            from calls where in_consumer_group and member is not null and member_id is not null and (
                api in ('ConsumerGroupHeartbeat', 'OffsetCommit', 'TxnOffsetCommit')
                or api = 'OffsetFetch' and version >= 9))
        window earlier as (partition by `group`, member order by sent_us rows between unbounded preceding
            and 1 preceding))
    where sent_epoch > 0 and error in (0, 22, 25, 69, 82, 110, 113) and before.member_id = member_id
        and before.done_us <= sent_us
        and (before.error = 25 or before.error = 0 and (before.epoch < 0 or before.generation > sent_epoch))"""

# Requests with an older epoch than the member has got. Kafka accepts some:
#
# - A heartbeat with the previous epoch, if the partitions that it lists are all assigned: the response with the present
#   epoch may be lost.
# - From 4.3 (KIP-1251), commits of partitions that the member has had since then. What was rejected of a commit is not
#   known, so that rejected ones are left out.
OLD_EPOCHS = """
    with old as (
        select *, error = 0 is_accepted from late_requests where before.error = 0 and before.epoch >= 0
    )
    select `group`, member, sent_epoch, api, before, last_us, is_accepted from old
    where api = 'OffsetFetch' or api = 'ConsumerGroupHeartbeat'
        and (owned is null or size(array_except(owned, coalesce(listed, array()))) > 0)
    union all
    select c.group, c.member, sent_epoch, api, before, last_us, true from (
        select *, explode(offsets.partition) partition from old where api in ('OffsetCommit', 'TxnOffsetCommit')
    ) c left anti join holdings on holdings.group = c.group and holdings.member = c.member
        and holdings.partition = c.partition and holdings.from_us <= c.sent_us
        and not (holdings.is_confirmed and holdings.until_us <= c.sent_us)
    group by all"""

# Requests of members that have left or were removed.
AFTER_THE_END = f"""
    select s.* from (
        select `group`, generation, member, member_id, before.done_us since_us, sent_us until_us, error = 0 is_known,
            before.error = 25 is_removed
        from late_requests where before.broker = broker and (before.error = 25 or before.epoch < 0)
    ) s {NO_LOOKUP}"""

# Requests with the former member id of a static member. `holder` is the member id that has joined last with the
# instance id; an id may join again. Heartbeats of the classic protocol without an error prove nothing: a coordinator
# that is loading answers all of them so.
REPLACED_IDS = f"""
    select `group`, member, member_id, instance_id, holder, generation, last_us, is_accepted from (
        select *, last(if(is_join, struct(member_id, sent_us, done_us), null), true) over of_instance holder,
            last(if(is_join, done_us, null), true) over of_id joined_us
        from (
            select `group`, member, member_id, instance_id, generation, sent_us, last_us, done_us, is_join,
                if(is_join, done_us, last_us) at_us, if(api = 'Heartbeat', error = 27, error = 0) is_accepted
            from (
                select *, error = 0 and (api = 'SyncGroup' or api = 'ConsumerGroupHeartbeat' and epoch = 0) is_join
                from calls where in_consumer_group and instance_id is not null and member_id is not null
                    and member is not null and error not in (14, 15, 16))
            where is_join or api = 'Heartbeat' and error <> 0 or api = 'ConsumerGroupHeartbeat' and epoch > 0
                or api in ('OffsetCommit', 'TxnOffsetCommit') and generation > 0
                or api = 'OffsetFetch' and version >= 9)
        window of_instance as (partition by `group`, instance_id order by at_us rows between unbounded preceding
                and 1 preceding),
            of_id as (partition by `group`, instance_id, member_id order by at_us rows between unbounded preceding
                and 1 preceding))
    where not is_join and holder.member_id <> member_id and last_us > holder.done_us + {CLOCK_SKEW_US}
        and holder.sent_us > joined_us + {CLOCK_SKEW_US}"""

# Times in which nothing happens to a group that can delay a rebalance, and the members at their end. `for_us`: how
# long something can have an effect: a silent member, also one that could not say that it leaves, keeps its partitions
# until its session ends, which begins again with each coordinator; a slow one until its rebalance timeout. The newest
# epoch is that of members which are still there, because an empty group may start over. An epoch counts from when its
# response was read, because the heartbeat may be handled after the end of such a time.
QUIET_TIMES = f"""
    with stops as (
        select acts.group, acts.sent_us at_us, if(acts.api = 'slow', rebalance_timeout_ms * 1000L, :session_us) for_us
        from events acts join scripts on scripts.group = acts.group and scripts.member = acts.member
            left join (
                select `group`, member, sent_us from calls
                where in_consumer_group and error = 0 and (api = 'LeaveGroup' or epoch = -1)
            ) goodbye on goodbye.group = acts.group and goodbye.member = acts.member
                and goodbye.sent_us between acts.sent_us and acts.sent_us + {BOUND_US}
        where kind = 'act' and (acts.api in ('crash', 'pause', 'slow', 'zombie')
            or acts.api in ('leave', 'migrate') and (instance_id is not null or goodbye.sent_us is null))
    ), marks as (
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
        select lookups.group, at_us, if(first_us < at_us, :session_us, 0L)
        from lookups left join (select `group`, min(at_us) first_us from stops group by `group`) s
            on s.group = lookups.group
        where is_sign
        union all
        select `group`, at_us, for_us from stops
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
            and beats.done_us < until_us and beats.last_us > until_us - 2 * :heartbeat_us
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
    )
    select reached.*, array_sort(array_except(flatten(transform(filter(topics, topic -> counts[topic] > 0), topic ->
            transform(sequence(0, counts[topic] - 1), number -> concat(topic, '-', number)))),
        coalesce(partitions, array()))) missing
    from reached left join used using (`group`, until_us)
        cross join (select map_from_entries(collect_list(struct(topic, partitions))) counts from topics)"""

CONSUMER_VIEWS = {
    "beats": BEATS,
    "holdings": HOLDINGS,
    "moves": MOVES,
    "last_commits": LAST_COMMITS,
    "compared_epochs": COMPARED_EPOCHS,
    "silences": SILENCES,
    "removals": REMOVALS,
    "late_requests": LATE_REQUESTS,
    "old_epochs": OLD_EPOCHS,
    "after_the_end": AFTER_THE_END,
    "replaced_ids": REPLACED_IDS,
    "quiet_times": QUIET_TIMES,
}
"""All views. Each may use those before it."""
