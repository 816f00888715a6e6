"""The queries of the promises about transactions: their violations and cases; see `promise_queries`.

They use the requests of the members' producers, what the reader of committed records has seen, and the offsets that
members have fetched. The members of a group and the reader of its records are in one task, so their times are by one
clock.
"""

from fakebroker.replay.verify.bounds import BOUND_US, RETENTION_US

CHECK_US = 10_000_000
"""Kafka's interval between two checks for transactions that have timed out, in microseconds."""

OVERDUE_TRANSACTION_US = CHECK_US + BOUND_US
"""Time after its timeout at which an open transaction is overdue, in microseconds."""

_TRANSACTION = "concat('transaction ', number, ' of ', member)"

# The parts of a transaction are its batches and its offsets. A batch is returned by the reader, or skipped; it is never
# returned before EndTxn was sent. A member fetches stable offsets only, so that it gets an offset that was committed
# before, or a later one; it never gets one that only aborted transactions have committed.
ATOMIC = f"""
    select `group`, cast(null as int) generation, array(member) members,
        least(returned_us, skipped_us, commit_us) at_us, until_us, concat({_TRANSACTION}, what) what
    from (
        select *, case
            when returned_us is not null and skipped_us is not null
                then concat(': records are visible in ', returned, ' and not in ', skipped)
            when returned_us is not null and not coalesce(commit_us <= returned_us, false)
                then concat(': records were visible in ', returned, ' without a commit')
            when committed_us is not null and skipped_us is not null
                then concat(' was committed, but its records in ', skipped, ' are not visible') end what
        from known_transactions)
    where what is not null
    union all
    select `group`, cast(null as int), array_distinct(array(member, reader)), decided_us, done_us,
        concat('OffsetFetch of ', partition, ' in ', `group`, ' returned ', fetched_offset, ' after ', {_TRANSACTION},
            ' had committed ', offset)
    from (
        select later.*, row_number() over (
            partition by `group`, reader, sent_us, partition order by decided_us desc) place
        from (
            select stored.*, reader, fetched.sent_us, done_us, fetched.offset fetched_offset
            from stored_offsets stored join member_fetches fetched on fetched.group = stored.group
                and fetched.partition = stored.partition and fetched.offset < stored.offset
                and decided_us < fetched.sent_us
            where not (fetched.offset < 0 and fetched.sent_us > decided_us + {RETENTION_US})
        ) later left anti join stored_offsets newer on newer.group = later.group and newer.partition = later.partition
            and newer.offset = later.fetched_offset and newer.commit_us > later.commit_us
    ) where place = 1
    union all
    select `group`, cast(null as int), array_distinct(array(min_by(member, number), reader)), min(begun_us), done_us,
        concat('OffsetFetch of ', partition, ' in ', `group`, ' returned ', any_value(offset), ', the offset of ',
            min_by({_TRANSACTION}, number), ', which was not committed')
    from (
        select stored.*, reader, fetched.sent_us, done_us
        from stored_offsets stored join member_fetches fetched on fetched.group = stored.group
            and fetched.partition = stored.partition and fetched.offset = stored.offset
        where commit_us > fetched.done_us
            or commit_us is null and (aborted_us is not null or skipped_us is not null)
    ) leaked left anti join stored_offsets other on other.group = leaked.group and other.partition = leaked.partition
        and other.offset = leaked.offset and (other.commit_us <= leaked.done_us
            or other.commit_us is null and other.aborted_us is null and other.skipped_us is null)
    group by `group`, reader, sent_us, done_us, partition"""

ATOMIC_CASES = """
    select `group`, count(*) cases from passed_transactions group by `group`
    union all
    select fetched.group, count(*) from member_fetches fetched join (
        select `group`, partition, min(begun_us) from_us from stored_offsets stored group by `group`, partition
    ) first on first.group = fetched.group and first.partition = fetched.partition and done_us > from_us
    group by fetched.group"""

# A broker may answer a repeated batch of an old epoch without an error, and not append it.
_OLD = "is_old and api <> 'Produce' and error not in (14, 15, 16)"

OLD_EPOCHS = f"""
    select `group`, cast(null as int) generation, array(member) members, fence.done_us at_us, done_us until_us,
        concat(api, ' of ', {_TRANSACTION}, ' was accepted with epoch ', epoch, ' of producer id ', producer_id,
            ', after epoch ', fence.epoch, ' of ', fence.producer_id, ' had been returned') what
    from producer_calls where {_OLD} and error = 0"""

OLD_EPOCHS_CASES = f"select `group`, count(*) cases from producer_calls where {_OLD} group by `group`"

# A coordinator that has just started may take as long as a check interval from then on: `scheduled_us` is since when
# the reader has seen the transaction without losing its connection.
OVERDUE = f"""
    select `group`, cast(null as int) generation, array(member) members, begun_us at_us, until_us,
        concat({_TRANSACTION}, ' was open for ', round((until_us - begun_us) / 1e6, 1), ' s, with a timeout of ',
            round(timeout_us / 1e6, 1), ' s') what
    from (
        select o.group, o.member, o.number, begun_us, timeout_us, max(sent_us) until_us
        from open_transactions o join (
            select `group`, member, number, scheduled_us, sent_us from seen where api = 'ListTransactions'
        ) listed on listed.group = o.group and listed.member = o.member and listed.number = o.number
            and sent_us > greatest(last_us + timeout_us, scheduled_us) + {OVERDUE_TRANSACTION_US}
        group by all
    )"""

OVERDUE_CASES = f"""
    select o.group, count(distinct o.member, o.number) cases from open_transactions o join (
        select max(sent_us) sent_us from events
        where kind = 'request' and api = 'ListTransactions' and latency_us is not null and error = 0
    ) watched on watched.sent_us > last_us + timeout_us + {OVERDUE_TRANSACTION_US}
    where coalesce(initialized_us > last_us + timeout_us + {OVERDUE_TRANSACTION_US}, true) group by o.group"""

STABLE = """
    select `group`, cast(null as int) generation, array(reader) members, before.last_us at_us, min(last_us) until_us,
        concat('the last stable offset of ', partition, ' went back from ', before.offset, ' to ', min(offset)) what
    from stable_offsets where offset < before.offset
    group by `group`, reader, partition, before.offset, before.last_us"""

STABLE_CASES = "select coalesce(`group`, reader) `group`, count(*) cases from stable_offsets group by 1"
