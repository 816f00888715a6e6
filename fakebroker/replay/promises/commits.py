"""The promise about committed offsets, in groups of both protocols."""

from typing import NamedTuple

import msgspec

from fakebroker.replay.promises.observer import BOUND_US, CLOCK_SKEW_US, RETENTION_US, Group, Promise, Request, Run

_KEPT = 16
"""If a partition has more commits than this, commits that no longer matter are dropped."""


class _Commit(NamedTuple):
    """An offset that was committed.

    Attributes:
        sent_us: When the OffsetCommit was sent.
        offset: The offset.
        done_us: When its response was read.
        request: The OffsetCommit.
    """

    sent_us: int
    offset: int
    done_us: int
    request: Request


class _Fetched(msgspec.Struct):
    """An offset in an OffsetFetch response after a commit.

    Attributes:
        partition: The partition.
        offset: The offset; -1 if there is none.
        fetch: The OffsetFetch.
        last: The last commit, by the time it was sent, among the commits that were acknowledged before the fetch.
        is_lower: Whether the fetched offset is lower than the committed one, and no other commit explains it.
        until_us: Requests that are sent after this time have no effect on the response.
    """

    partition: str
    offset: int
    fetch: Request
    last: _Commit
    is_lower: bool
    until_us: int


class CommitsKept(Promise):
    """Offsets that were committed are not lost.

    A commit takes effect at some time after it is sent, and before its response is read. In between, an OffsetFetch may
    return the old or the new offset. Afterwards, it must not return a lower one, unless another commit follows. A
    commit without a response may take effect up to `BOUND_US` later.
    """

    name = "commits-kept"
    sentence = "An OffsetFetch returns the last acknowledged commit, or a later one."
    cases = "offsets fetched after a commit"
    apis = frozenset({"OffsetCommit", "OffsetFetch"})

    def __init__(self, group: Group, run: Run) -> None:
        super().__init__(group, run)
        self._commits: dict[str, list[_Commit]] = {}
        self._fetched: list[_Fetched] = []  # Those that other requests may still explain
        self._unanswered_us: int | None = None  # The last OffsetCommit without a response

    def sent(self, request: Request) -> None:
        if self._fetched:
            self._decide(request.sent_us)
        if request.done_us is None:
            return
        if request.api == "OffsetCommit":
            self._committed(request, request.done_us)
            return
        for partition, offset in request.offsets or ():
            self._fetch(partition, offset, request, request.done_us)

    def unanswered(self, request: Request) -> None:
        if request.api == "OffsetCommit":
            # It is unknown what it has committed, and whether.
            self._unanswered_us = request.sent_us
            self._fetched.clear()

    def end(self) -> None:
        self._decide(None)

    def _committed(self, request: Request, done_us: int) -> None:
        offsets = request.offsets or []
        for each in self._fetched:
            if each.is_lower and (each.partition, each.offset) in offsets:
                each.is_lower = False
        for partition, offset in offsets:
            commit = _Commit(request.sent_us, offset, done_us, request)
            commits = self._commits.get(partition)
            if commits is None:
                self._commits[partition] = [commit]
                continue
            commits.append(commit)
            if len(commits) > _KEPT:
                last = _last_before(commits, request.sent_us)
                if last is not None:
                    self._commits[partition] = _since(commits, last)

    def _fetch(self, partition: str, offset: int, fetch: Request, done_us: int) -> None:
        commits = self._commits.get(partition, [])
        last = _last_before(commits, fetch.sent_us)
        if last is None:
            return
        if self._unanswered_us is not None and self._unanswered_us >= last.sent_us - BOUND_US:
            return  # The commit without a response may have come later.
        if offset < 0 and fetch.sent_us > last.done_us + RETENTION_US:
            return  # The offset may have expired.
        # Another commit may have come later than the last one if it was not acknowledged when the last one was sent.
        is_lower = offset < last.offset and all(offset != each.offset for each in _since(commits, last))
        self._fetched.append(_Fetched(partition, offset, fetch, last, is_lower, done_us + CLOCK_SKEW_US))

    def _decide(self, at_us: int | None) -> None:
        """Judge the fetched offsets that requests sent from a time on cannot explain. At the end, judge all."""
        undecided = []
        for each in self._fetched:
            if at_us is not None and each.until_us >= at_us:
                undecided.append(each)
                continue
            self.case()
            if each.is_lower:
                last = each.last
                self.violation(
                    f"OffsetFetch of {each.partition} in {self.group.name} returned {each.offset} after {last.offset} "
                    "was committed",
                    last.request,
                    each.fetch,
                    at_us=last.sent_us,
                    until_us=each.until_us - CLOCK_SKEW_US,
                    generation=last.request.generation,
                )
        self._fetched = undecided


def _last_before(commits: list[_Commit], at_us: int) -> _Commit | None:
    """Return the commit that was sent last, of those that were acknowledged before a time by all clocks."""
    return max((each for each in commits if each.done_us + CLOCK_SKEW_US <= at_us), default=None, key=_order)


def _order(commit: _Commit) -> tuple[int, int]:
    return commit.sent_us, commit.offset


def _since(commits: list[_Commit], last: _Commit) -> list[_Commit]:
    """Return a commit and all that may have taken effect after it: those not acknowledged when it was sent."""
    return [each for each in commits if each.done_us >= last.sent_us - CLOCK_SKEW_US]
