"""The promises of transaction coordinators. Does not depend on Spark.

One task runs the members of a group and the reader of committed records. So their times come from one clock.
"""

from collections.abc import Iterable
from typing import NamedTuple

from fakebroker.replay.promises.observer import (
    BOUND_US,
    LOADING,
    MOVED,
    NOT_AVAILABLE,
    NOT_COORDINATOR,
    RETENTION_US,
    Group,
    Promise,
    Request,
    Run,
)

PRODUCER_APIS = frozenset(
    {"InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "Produce", "TxnOffsetCommit", "EndTxn"}
)
"""Requests of transactional producers."""

CHECK_US = 10_000_000
"""Kafka's interval between two checks for transactions that have timed out, in microseconds."""

OVERDUE_TRANSACTION_US = CHECK_US + BOUND_US
"""Time after its timeout at which an open transaction is overdue, in microseconds."""

MAY_COMMIT = (None, 0, -1, 3, 7, LOADING, NOT_AVAILABLE, NOT_COORDINATOR, 51)
"""Errors of an EndTxn that may have committed: none, and those after which it is repeated. None: no response.

-1 UNKNOWN_SERVER_ERROR, 3 UNKNOWN_TOPIC_OR_PARTITION, 7 REQUEST_TIMED_OUT, 51 CONCURRENT_TRANSACTIONS.
"""


def _transaction_of(request: Request) -> str:
    """Return the transaction of a request, or the member if it is in none, as text."""
    number = request.transaction and request.transaction[2]
    return f"{request.member}" if number is None else f"transaction {number} of {request.member}"


class _Initialized(NamedTuple):
    """An InitProducerId: the request, when its response was read, and the producer id and epoch in the response."""

    at_us: int
    producer_id: int | None
    epoch: int | None
    request: Request


class _Epochs:
    """The producer epochs that InitProducerId has returned, by member. A member's name is its transactional id."""

    def __init__(self) -> None:
        self._returned: dict[str | None, list[_Initialized]] = {}

    def add(self, request: Request) -> None:
        """Take note of a successful InitProducerId, when its response was read."""
        assert request.done_us is not None
        assert request.transaction is not None
        producer_id, epoch, *_ = request.transaction
        initialized = _Initialized(request.done_us, producer_id, epoch, request)
        self._returned.setdefault(request.member, []).append(initialized)

    def newer(self, request: Request) -> _Initialized | None:
        """Return the InitProducerId that had returned a newer epoch before a request was sent.

        A response may be read at the time at which the request is sent, so that it is not yet known in `sent`.
        """
        returned = self._returned.get(request.member, ())
        newest = next((each for each in reversed(returned) if each.at_us <= request.sent_us), None)
        if newest is None or request.transaction is None:
            return None
        producer_id, epoch, *_ = request.transaction
        if producer_id == newest.producer_id:
            is_old = epoch is not None and newest.epoch is not None and epoch < newest.epoch
        else:
            # When the epochs of a producer id are used up, an EndTxn returns another id, which is not in the events.
            is_old = any(each.producer_id == producer_id for each in returned if each.at_us < newest.at_us)
        return newest if is_old else None


class _Transaction:
    """A transaction.

    Attributes:
        begun: Its first request; None while only the reader has seen it.
        ends: The EndTxn requests. They may have an old epoch.
        returned: The batches that the reader has returned.
        skipped: The batches that it has skipped.
    """

    __slots__ = ("begun", "ends", "returned", "skipped")

    def __init__(self) -> None:
        self.begun: Request | None = None
        self.ends: list[Request] = []
        self.returned: list[Request] = []
        self.skipped: list[Request] = []


class _Stored(NamedTuple):
    """The offset of a partition in a transaction, and the TxnOffsetCommit that was accepted."""

    offset: int
    request: Request
    transaction: _Transaction


class Atomic(Promise):
    """The parts of a transaction are its batches and its offsets. All of them become visible, or none.

    The reader returns a batch, or skips it. It never returns a batch before EndTxn was sent. A member fetches only
    stable offsets. So it gets the offset that was committed last, or one that was stored later. It never gets an offset
    that only aborted transactions have stored.
    """

    name = "atomic"
    sentence = (
        "The records and offsets of a transaction become visible together if it is committed, and never if it is not."
    )
    cases = "transactions that the reader has passed, and offsets fetched after one"
    apis = PRODUCER_APIS | {"OffsetFetch"}

    def __init__(self, group: Group, run: Run) -> None:
        super().__init__(group, run)
        self._epochs = _Epochs()
        self._transactions: dict[tuple[str | None, int], _Transaction] = {}
        self._stored: dict[str, list[_Stored]] = {}  # By partition, in the order of requests.
        self._uncommitted: list[tuple[Request, str, list[_Stored]]] = []
        # Fetched offsets that only transactions have stored whose commit was not sent yet.

    def sent(self, request: Request) -> None:
        number = request.transaction and request.transaction[2]
        if number is None:
            return
        transaction = self._transactions.setdefault((request.member, number), _Transaction())
        if transaction.begun is None:
            transaction.begun = request
        if request.api == "EndTxn":
            transaction.ends.append(request)
        elif request.api == "TxnOffsetCommit" and request.offsets and not self._epochs.newer(request):
            # From now on, the coordinator may have these offsets.
            for partition, offset in request.offsets:
                self._stored.setdefault(partition, []).append(_Stored(offset, request, transaction))

    def answered(self, request: Request) -> None:
        if request.error != 0:
            return
        if request.api == "InitProducerId":
            self._epochs.add(request)
        elif request.api == "OffsetFetch" and request.member is not None:
            for partition, offset in request.offsets or ():
                stored = self._stored.get(partition)
                if stored is not None:
                    self.case()
                    self._fetched(request, partition, offset, stored)

    def seen(self, request: Request) -> None:
        if request.api != "Fetch" or request.transaction is None:
            return
        _, _, number, is_returned = request.transaction
        assert number is not None
        transaction = self._transactions.setdefault((request.member, number), _Transaction())
        if not transaction.returned and not transaction.skipped:
            self.case()
        (transaction.returned if is_returned else transaction.skipped).append(request)

    def end(self) -> None:
        for (member, number), transaction in self._transactions.items():
            # The reader may see records that an earlier replay has produced.
            if transaction.begun is not None and (transaction.returned or transaction.skipped):
                self._passed(f"transaction {number} of {member}", transaction)
        for fetch, partition, stored in self._uncommitted:
            # If the outcome of one of them is not known, the offset may be from it.
            if all(
                self._commit(each) or each.skipped or any(self._acknowledged(each, is_commit=False))
                for _, _, each in stored
            ):
                offset, request, transaction = stored[0]
                assert transaction.begun is not None
                assert fetch.done_us is not None
                self.violation(
                    f"OffsetFetch of {partition} in {self.group.name} returned {offset}, the offset of "
                    f"{_transaction_of(request)}, which was not committed",
                    *(request, *transaction.ends[:3], *transaction.skipped[:1], fetch),
                    at_us=transaction.begun.sent_us,
                    until_us=fetch.done_us,
                    members=(request.member, fetch.member),
                )

    def _fetched(self, request: Request, partition: str, offset: int, stored: list[_Stored]) -> None:
        """Compare a fetched offset with those that transactions have stored."""
        times = ((self._decided_us(each.transaction), each) for each in reversed(stored))
        before = (decided for decided in times if decided[0] is not None and decided[0] < request.sent_us)
        decided_us, last = next(before, (None, None))
        if last is not None and offset == last.offset:
            return
        others = [each for each in stored if each.offset == offset]
        committed = [each for each in others if self._commit(each.transaction)]
        if others and not committed:
            self._uncommitted.append((request, partition, others))
        if last is None or decided_us is None or offset > last.offset:
            return
        if offset < 0 and request.sent_us > decided_us + RETENTION_US:
            return  # The committed offset may have expired.
        if any((each.request.done_us or 0) > last.request.sent_us for each in committed):
            return  # A later transaction has committed a lower offset.
        assert request.done_us is not None
        self.violation(
            f"OffsetFetch of {partition} in {self.group.name} returned {offset} after "
            f"{_transaction_of(last.request)} had committed {last.offset}",
            *(last.request, *last.transaction.ends[:3], *last.transaction.returned[:1], request),
            at_us=decided_us,
            until_us=request.done_us,
            members=(last.request.member, request.member),
        )

    def _passed(self, name: str, transaction: _Transaction) -> None:
        """Compare what the reader has seen of a transaction with its outcome."""
        returned, skipped, commit = transaction.returned, transaction.skipped, self._commit(transaction)
        if returned and skipped:
            what = f"{name}: records are visible in {_partitions(returned)} and not in {_partitions(skipped)}"
        elif returned and (commit is None or commit.sent_us > _first_us(returned)):
            what = f"{name}: records were visible in {_partitions(returned)} without a commit"
        elif skipped and any(self._acknowledged(transaction, is_commit=True)):
            what = f"{name} was committed, but its records in {_partitions(skipped)} are not visible"
        else:
            return
        read = [*returned, *skipped]
        self.violation(
            what,
            *(*transaction.ends[:3], *returned[:3], *skipped[:3]),
            at_us=_first_us(read) if commit is None else min(_first_us(read), commit.sent_us),
            until_us=max(each.done_us or 0 for each in read),
        )

    def _commit(self, transaction: _Transaction) -> Request | None:
        """Return the first EndTxn that may have committed a transaction. One with an old epoch is refused."""
        for each in transaction.ends:
            is_commit = each.transaction and each.transaction[3]
            if is_commit and each.error in MAY_COMMIT and not self._epochs.newer(each):
                return each
        return None

    def _acknowledged(self, transaction: _Transaction, *, is_commit: bool) -> Iterable[int]:
        """Yield when commits, or aborts, were acknowledged."""
        for each in transaction.ends:
            is_of_kind = each.transaction is not None and each.transaction[3] is is_commit
            if is_of_kind and each.error == 0 and each.done_us is not None and not self._epochs.newer(each):
                yield each.done_us

    def _decided_us(self, transaction: _Transaction) -> int | None:
        """Return when it was known that a transaction is committed; None if it is not."""
        visible = (each.done_us for each in transaction.returned if each.done_us is not None)
        return min((*self._acknowledged(transaction, is_commit=True), *visible), default=None)


def _first_us(read: list[Request]) -> int:
    return min(each.done_us or 0 for each in read)


def _partitions(read: list[Request]) -> str:
    return ", ".join(sorted({partition for each in read for partition, _ in each.offsets or ()}))


class OldEpochsRefused(Promise):
    """Once InitProducerId has returned an epoch, requests with an older one are refused."""

    name = "old-epochs-refused"
    sentence = (
        "Requests with an old producer epoch are rejected once a newer one was returned for the transactional id."
    )
    cases = "requests with an old producer epoch"
    apis = PRODUCER_APIS

    def __init__(self, group: Group, run: Run) -> None:
        super().__init__(group, run)
        self._epochs = _Epochs()

    def answered(self, request: Request) -> None:
        newer = self._epochs.newer(request)
        if request.api == "InitProducerId" and request.error == 0:
            self._epochs.add(request)
        if newer is None:
            return
        if request.api == "Produce":
            return  # A broker may answer a repeated batch of an old epoch without an error, and not append it.
        if request.error in MOVED:
            return
        self.case()
        if request.error == 0:
            assert request.transaction is not None
            assert request.done_us is not None
            producer_id, epoch, *_ = request.transaction
            self.violation(
                f"{request.api} of {_transaction_of(request)} was accepted with epoch {epoch} of producer id "
                f"{producer_id}, after epoch {newer.epoch} of {newer.producer_id} had been returned",
                newer.request,
                request,
                at_us=newer.at_us,
                until_us=request.done_us,
            )


class _Open:
    """The last transaction of a member.

    Attributes:
        number: Its number.
        begun: Its first request.
        last_us: When its last request except EndTxn was answered; without a response, when it was sent.
        end: The first EndTxn.
        listed: The last ListTransactions in which it was overdue.
        is_over: Whether the next transaction, or the next producer, has begun.
    """

    __slots__ = ("begun", "end", "is_over", "last_us", "listed", "number")

    def __init__(self, number: int, begun: Request) -> None:
        self.number = number
        self.begun = begun
        self.last_us = begun.sent_us
        self.end: Request | None = None
        self.listed: Request | None = None
        self.is_over = False


class OverdueAborted(Promise):
    """Overdue transactions are aborted. The reader of committed records lists open transactions every two seconds."""

    name = "overdue-aborted"
    sentence = (
        "A transaction that its producer does not end is aborted within its timeout plus "
        f"{OVERDUE_TRANSACTION_US // 1_000_000} s."
    )
    cases = f"transactions that their producers left open for the timeout plus {OVERDUE_TRANSACTION_US // 1_000_000} s"
    apis = PRODUCER_APIS

    def __init__(self, group: Group, run: Run) -> None:
        super().__init__(group, run)
        self._timeouts = {
            name: script.transactions.timeout_ms * 1_000
            for name, script in group.scripts.items()
            if script.transactions is not None
        }
        self._last: dict[str, _Open] = {}

    def sent(self, request: Request) -> None:
        number, member = request.transaction and request.transaction[2], request.member
        if number is None or member not in self._timeouts:
            return
        last = self._last.get(member)
        if last is None or last.number != number:
            if last is not None:
                self._over(last, request.sent_us)
            last = self._last[member] = _Open(number, request)
        if request.api != "EndTxn":
            last.last_us = max(last.last_us, request.sent_us if request.done_us is None else request.done_us)
        elif last.end is None:
            last.end = request

    def answered(self, request: Request) -> None:
        if request.api == "InitProducerId" and request.error == 0 and request.member is not None:
            last = self._last.get(request.member)
            # The next transaction may begin at the same time.
            if last is not None and request.done_us is not None and request.done_us > last.last_us:
                self._over(last, request.done_us)

    def seen(self, request: Request) -> None:
        if request.api != "ListTransactions" or request.transaction is None or request.member is None:
            return
        last = self._last.get(request.member)
        if last is None or last.is_over or last.number != request.transaction[2]:
            return
        # A coordinator that has just started may take as long as a check interval from then on: `scheduled_us` is
        # since when the reader has seen the transaction without losing its connection.
        timed_out_us = last.last_us + self._timeouts[request.member]
        if request.sent_us > max(timed_out_us, request.scheduled_us) + OVERDUE_TRANSACTION_US:
            last.listed = request

    def end(self) -> None:
        for last in self._last.values():
            self._over(last, None)

    def _over(self, last: _Open, at_us: int | None) -> None:
        """Take note that the next producer, or its transaction, has begun, which ends the last one of the member.

        Args:
            last: The last transaction of the member.
            at_us: When it was over; None at the end of the replay.
        """
        if last.is_over:
            return
        last.is_over = True
        # A producer that had crashed sends an EndTxn with its old epoch as soon as the next one is initialized.
        if last.end is not None and (at_us is None or last.end.sent_us < at_us):
            return
        assert last.begun.member is not None
        timeout_us = self._timeouts[last.begun.member]
        overdue_us = last.last_us + timeout_us + OVERDUE_TRANSACTION_US
        if self.run.listed_us is None or self.run.listed_us <= overdue_us:
            return  # The reader has not listed transactions so late.
        if at_us is not None and at_us <= overdue_us:
            return
        self.case()
        if last.listed is not None:
            open_us = last.listed.sent_us - last.begun.sent_us
            self.violation(
                f"{_transaction_of(last.begun)} was open for {open_us / 1e6:.1f} s, with a timeout of "
                f"{timeout_us / 1e6:.1f} s",
                last.begun,
                last.listed,
                at_us=last.begun.sent_us,
                until_us=last.listed.sent_us,
            )


class _Highest:
    """The highest last stable offset of a partition.

    Attributes:
        offset: The offset.
        request: The last Fetch that returned it.
        lower: The first later Fetch with a lower offset, the later Fetch with the lowest offset, and this offset; None
            without a lower offset.
    """

    __slots__ = ("lower", "offset", "request")

    def __init__(self, offset: int, request: Request) -> None:
        self.offset = offset
        self.request = request
        self.lower: tuple[Request, Request, int] | None = None


class StableOffsetRises(Promise):
    """The last stable offset of a partition never falls, as seen by one reader of committed records."""

    name = "stable-offset-rises"
    sentence = "The last stable offset of a partition never goes back."
    cases = "last stable offsets read after another one"
    apis = frozenset({"Fetch"})

    def __init__(self, group: Group, run: Run) -> None:
        super().__init__(group, run)
        self._highest: dict[str, _Highest] = {}

    def answered(self, request: Request) -> None:
        if request.count > 1:
            return  # The last request of the row follows, with the same offsets.
        for partition, offset in request.offsets or ():
            highest = self._highest.get(partition)
            if highest is None:
                self._highest[partition] = _Highest(offset, request)
                continue
            before = highest.request
            # A new leader may return a lower offset for a moment, because its high watermark is behind.
            if request.broker == before.broker or request.sent_us > (before.done_us or 0) + BOUND_US:
                self.case()
                if offset < highest.offset:
                    first, lowest, least = highest.lower or (request, request, offset)
                    highest.lower = (first, request, offset) if offset < least else (first, lowest, least)
            if offset >= highest.offset:
                if highest.lower is not None:
                    self._went_back(partition, highest)
                    highest.lower = None
                highest.offset, highest.request = offset, request

    def end(self) -> None:
        for partition, highest in self._highest.items():
            if highest.lower is not None:
                self._went_back(partition, highest)

    def _went_back(self, partition: str, highest: _Highest) -> None:
        """Report that lower offsets were returned before the highest one was returned again, or a higher one."""
        assert highest.lower is not None
        first, lowest, least = highest.lower
        self.violation(
            f"the last stable offset of {partition} went back from {highest.offset} to {least}",
            highest.request,
            first,
            lowest,
            at_us=highest.request.sent_us,
            until_us=first.sent_us,
            members=[first.member_id],
        )
