"""Views of the members of the consumer protocol (KIP-848) for the queries of the promises, as Spark SQL.

They exist if a member has sent a ConsumerGroupHeartbeat. Then `in_consumer_group` of the view `calls` is true for the
requests of all members of its group, also of those that use the classic protocol before, during or after a migration.
"""

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

CONSUMER_VIEWS = {"beats": BEATS, "holdings": HOLDINGS, "moves": MOVES}
