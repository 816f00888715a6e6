"""Views about transactions for the queries of the promises, as Spark SQL; see `promise_views`.

They exist if a member has used transactions. Error codes in the views: 3 UNKNOWN_TOPIC_OR_PARTITION,
7 REQUEST_TIMED_OUT, 14 COORDINATOR_LOAD_IN_PROGRESS, 15 COORDINATOR_NOT_AVAILABLE, 16 NOT_COORDINATOR,
51 CONCURRENT_TRANSACTIONS.
"""

from fakebroker.replay.verify.bounds import BOUND_US

# The producers' requests. `is_old`: the epoch is older than the one that the last successful InitProducerId of the same
# transactional id had returned before.
PRODUCER_CALLS = """
    select *, fence.done_us <= sent_us and (
            producer_id = fence.producer_id and epoch < fence.epoch
            or producer_id <> fence.producer_id and array_contains(former, producer_id)) is_old
    from (
        select *, last(if(api = 'InitProducerId' and error = 0, struct(done_us, producer_id, epoch), null), true)
                over past fence,
            collect_set(if(api = 'InitProducerId' and error = 0, producer_id, null)) over past former
        from (
            select /*+ repartition(`group`) */ `group`, member, api, error, latency_us is null is_unanswered, sent_us,
                scheduled_us + latency_us done_us, offsets, transaction.producer_id, transaction.epoch,
                transaction.number, transaction.committed
            from events where kind = 'request' and transaction is not null)
        window past as (
            partition by `group`, member order by sent_us rows between unbounded preceding and 1 preceding))"""

# One row per transaction, without requests of old epochs. `commit_us`: when EndTxn was first sent, if it may have
# committed the transaction, which an error after which it is repeated does not exclude; `committed_us`, `aborted_us`:
# when it was acknowledged.
TRANSACTIONS = """
    select `group`, member, number, min(sent_us) begun_us, max(coalesce(done_us, sent_us)) last_us,
        min(sent_us) filter (where api = 'EndTxn') ended_us,
        min(sent_us) filter (where api = 'EndTxn' and committed and coalesce(error, 0) in (0, -1, 3, 7, 14, 15, 16, 51))
            commit_us,
        min(done_us) filter (where api = 'EndTxn' and committed and error = 0) committed_us,
        min(done_us) filter (where api = 'EndTxn' and not committed and error = 0) aborted_us,
        max_by(offsets, done_us) filter (where api = 'TxnOffsetCommit' and error = 0) offsets
    from producer_calls where number is not null and not coalesce(is_old, false) group by `group`, member, number"""

# What the reader of committed records has seen: batches that it has returned (`committed`) or skipped, and open
# transactions, since `scheduled_us`.
SEEN = """
    select /*+ repartition(`group`) */ `group`, member, api, broker, scheduled_us, sent_us,
        scheduled_us + latency_us done_us, offsets[0].partition partition, transaction.number, transaction.committed
    from events where kind = 'seen' and transaction is not null"""

# Each transaction that the reader has passed, by partition, with what it did.
PASSED_TRANSACTIONS = """
    select `group`, member, number, min(done_us) filter (where committed) returned_us,
        min(done_us) filter (where not committed) skipped_us, max(done_us) until_us,
        array_join(array_sort(collect_set(partition) filter (where committed)), ', ') returned,
        array_join(array_sort(collect_set(partition) filter (where not committed)), ', ') skipped
    from seen where api = 'Fetch' group by `group`, member, number"""

# All transactions, with what the reader did with those that it has passed.
KNOWN_TRANSACTIONS = "select * from transactions left join passed_transactions using (`group`, member, number)"

# The offsets in transactions, and when these were committed (`decided_us`).
STORED_OFFSETS = """
    select known.*, stored.partition, stored.offset, least(committed_us, returned_us) decided_us
    from known_transactions known lateral view explode(offsets) as stored"""

# The offsets that members have fetched.
MEMBER_FETCHES = """
    select `group`, member reader, sent_us, done_us, offset.partition, offset.offset
    from calls lateral view explode(offsets) as offset
    where api = 'OffsetFetch' and member is not null and error = 0"""

# Transactions that their producer did not end, and when another producer was initialized.
OPEN_TRANSACTIONS = """
    select t.group, t.member, t.number, begun_us, last_us, timeout_us, min(done_us) initialized_us
    from transactions t join (
            select `group`, member, transactions.timeout_ms * 1000L timeout_us from members
        ) scripts on scripts.group = t.group and scripts.member = t.member
        left join (
            select `group`, member, done_us from producer_calls where api = 'InitProducerId' and error = 0
        ) next on next.group = t.group and next.member = t.member and next.done_us > last_us
    where ended_us is null
    group by all"""

# Last stable offsets, with the one before of the same reader. A new leader may return a lower offset for a moment,
# because its high watermark is behind.
STABLE_OFFSETS = f"""
    select * from (
        select *, max(struct(offset, last_us, broker)) over (
            partition by `group`, reader, partition order by sent_us rows between unbounded preceding and 1 preceding
        ) before
        from (
            select /*+ repartition(member_id) */ `group`, member_id reader, broker, sent_us,
                coalesce(until_us, sent_us) last_us, stable.partition, stable.offset
            from events lateral view explode(offsets) as stable
            where kind = 'request' and api = 'Fetch' and latency_us is not null))
    where before.broker = broker or last_us > before.last_us + {BOUND_US}"""

TRANSACTION_VIEWS = {
    "producer_calls": PRODUCER_CALLS,
    "transactions": TRANSACTIONS,
    "seen": SEEN,
    "passed_transactions": PASSED_TRANSACTIONS,
    "known_transactions": KNOWN_TRANSACTIONS,
    "stored_offsets": STORED_OFFSETS,
    "member_fetches": MEMBER_FETCHES,
    "open_transactions": OPEN_TRANSACTIONS,
    "stable_offsets": STABLE_OFFSETS,
}
"""All views. Each may use those before it, and `calls`."""
