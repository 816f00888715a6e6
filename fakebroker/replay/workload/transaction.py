"""The table `transaction` of a population: how its members consume and produce in transactions. Plain data."""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from fakebroker.errors import ConfigError
from fakebroker.replay.workload.table import Span, Table, check_span
from fakebroker.validation import Positive, Share


class Transaction(Table, frozen=True):
    """The transactions of a member, one after the other, at intervals of `commit_interval_ms`.

    Each one consumes records of the assigned partitions, produces one record for each, and commits the offsets.

    Attributes:
        to: Topic that the records are produced to. The members do not subscribe to it.
        records: Number of records that a transaction consumes and produces.
        timeout_ms: The producer's `transaction.timeout.ms`: the coordinator aborts a transaction that takes longer.
        abort: Share of the transactions that the member aborts, after a part of their requests.
        crash: Share of the transactions in which the producer stops, after a part of their requests. Another one with
            the same transactional id takes over, and then the first one tries to commit, with its old epoch.
        return_after_s: Time from a crash until the other producer starts.
    """

    to: Annotated[str, Meta(min_length=1)]
    records: Positive
    timeout_ms: Annotated[int, Meta(ge=1, le=2**31 - 1)] = 60_000
    abort: Share = 0.0
    crash: Share = 0.0
    return_after_s: Span = 1.0

    def broken_rules(self) -> Iterator[ConfigError]:
        yield from check_span("return_after_s", self.return_after_s)
        if self.abort + self.crash > 1 + 1e-9:
            yield ConfigError.of("abort", self.abort, f"a share of at most 1 together with crash ({self.crash:g})")
