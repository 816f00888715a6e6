"""The promises about the consumer protocol (KIP-848). They have no cases in groups of the classic protocol.

A group may also have members of the classic protocol, before, during or after a migration. In heartbeats, `epoch` is
the member epoch in the request. It is 0 to join, -1 to leave, and -2 to leave for a while as a static member.
`generation` is the epoch in a response without an error.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fakebroker.replay.promises.observer import (
    BOUND_US,
    CLOCK_SKEW_US,
    COORDINATOR_APIS,
    FENCED_INSTANCE_ID,
    ILLEGAL_GENERATION,
    MOVED,
    REBALANCE_IN_PROGRESS,
    TARGET_HEARTBEATS,
    UNKNOWN_MEMBER_ID,
    Group,
    Lookup,
    Promise,
    Request,
    Run,
)

HEARTBEAT = "ConsumerGroupHeartbeat"
GROUP_ID_NOT_FOUND, FENCED_MEMBER_EPOCH, STALE_MEMBER_EPOCH = 69, 110, 113

EPOCHS_RISE = "The epochs of members of the consumer protocol never go back, also after their coordinator has moved."
REVOKED_COMMITTED = "A member of the consumer protocol can commit the partitions that it must give up before they move."
TARGETS_REACHED = (
    f"Within {TARGET_HEARTBEATS} heartbeat intervals plus {BOUND_US // 1_000_000} s after the last change "
    "of a group of the consumer protocol, its members have reached the newest epoch and have all partitions."
)


def _last_us(request: Request) -> int:
    """Return when the last one of the heartbeats that a request stands for was sent."""
    return request.sent_us if request.until_us is None or request.missing else request.until_us


def _seconds(duration_us: int, digits: int = 1) -> float:
    """Return a duration in seconds for a sentence, rounded half up."""
    unit: int = 10 ** (6 - digits)
    return (duration_us + unit // 2) // unit * unit / 1e6


class Holding:
    """A time in which a member had a partition for certain.

    It begins with the response that assigns the partition, or with an accepted request that lists it. It ends when the
    member joins, leaves, or lists its partitions without this one.

    Attributes:
        partition: The partition.
        member: The name of the member.
        owner: Its instance id or member id.
        begin: The request with which it began.
        since_us: When it began.
        until_us: When it ended; None if it has not ended.
        is_confirmed: Whether it ended with a list that the coordinator has accepted.
    """

    __slots__ = ("begin", "is_confirmed", "member", "owner", "partition", "since_us", "until_us")

    def __init__(self, partition: str, member: str, begin: Request, since_us: int) -> None:
        self.partition = partition
        self.member = member
        self.owner = begin.owner
        self.begin = begin
        self.since_us = since_us
        self.until_us: int | None = None
        self.is_confirmed = False

    def lasts_until(self, at_us: int) -> bool:
        """Return whether it had not ended before a time."""
        return self.until_us is None or self.until_us >= at_us


class Move(NamedTuple):
    """A partition that has got another owner."""

    former: Holding
    new: Holding


class Holdings:
    """Which partitions the members of a group have.

    Several promises share one object, and each of them gives it all events. It handles an event once, when the first
    promise gives it. `sent` and `answered` return the moves that the event shows.
    """

    def __init__(self) -> None:
        self._newest: dict[str, Holding] = {}  # By partition.
        self._of: dict[str, dict[str, Holding]] = {}  # The newest ones by member and partition.
        self._sent: Request | None = None
        self._answered: Request | None = None
        self._moves: Sequence[Move] = ()

    def sent(self, request: Request) -> Sequence[Move]:
        """Take note of a request: the member has given up its partitions before that."""
        listed, is_accepted = request.owned, False
        if request.api == HEARTBEAT and (request.epoch or 0) > 0:
            if listed is None:
                return ()
            is_accepted = request.error == 0
        elif request.api in (HEARTBEAT, "JoinGroup", "LeaveGroup"):
            listed = []
        if listed is None or request.member is None:
            return ()
        if request is self._sent:
            return self._moves
        self._sent, self._moves, member = request, (), request.member
        for holding in self._of.get(member, {}).values():
            if holding.until_us is None and holding.partition not in listed:
                holding.until_us, holding.is_confirmed = request.sent_us, is_accepted
        if is_accepted:
            self._moves = self._begin(member, listed, request, request.sent_us)
        return self._moves

    def answered(self, request: Request) -> Sequence[Move]:
        """Take note of a response: it may assign partitions."""
        if request.assigned is None or request.error != 0 or (request.epoch or 0) < 0:
            return ()
        if request is not self._answered and request.member is not None and request.done_us is not None:
            self._answered = request
            self._moves = self._begin(request.member, request.assigned, request, request.done_us)
        return self._moves

    def of(self, member: str) -> Iterator[Holding]:
        """Return the newest holding of each partition that a member has had."""
        return iter(self._of.get(member, {}).values())

    def last(self, partition: str) -> Holding | None:
        """Return the newest holding of a partition."""
        return self._newest.get(partition)

    def may_have(self, member: str, partition: str, at_us: int) -> bool:
        """Return whether a member had a partition at a time, or has not confirmed that it has given it up."""
        holding = self._of.get(member, {}).get(partition)
        return holding is not None and (
            not holding.is_confirmed or holding.until_us is None or holding.until_us > at_us
        )

    def _begin(self, member: str, partitions: Sequence[str], request: Request, at_us: int) -> Sequence[Move]:
        own = self._of.setdefault(member, {})
        moves = []
        for partition in partitions:
            holding = own.get(partition)
            if holding is not None and holding.until_us is None:
                continue
            former = self._newest.get(partition)
            if (
                former is not None
                and former.owner != request.owner
                and request.sent_us < former.since_us + CLOCK_SKEW_US
            ):
                continue  # A response that was read late: the other member may have got the partition after it.
            own[partition] = self._newest[partition] = new = Holding(partition, member, request, at_us)
            if former is not None and former.owner != new.owner:
                moves.append(Move(former, new))
        return moves


def holdings_of(group: Group) -> Holdings:
    """Return the holdings of a group. All its promises get the same object; no other module needs it."""
    holdings: Holdings = vars(group).setdefault("holdings", Holdings())
    return holdings


_HOLDING_APIS = frozenset({HEARTBEAT, "JoinGroup", "SyncGroup", "LeaveGroup"})
"""The APIs with which members get and give up partitions: a promise that uses `Holdings` must have them all."""


class _Early:
    """A partition that was assigned too early: its former owner had not given it up. Also the last proof of this."""

    __slots__ = ("move", "proof")

    def __init__(self, move: Move) -> None:
        self.move = move
        self.proof: Request | None = None


class OwnersOneAfterAnother(Promise):
    """A partition is not assigned to another member before its former owner has given it up."""

    name = "one-owner"
    protocol = "consumer"
    apis = _HOLDING_APIS | {"OffsetCommit", "Heartbeat"}

    def __init__(self, group: Group, run: Run) -> None:
        super().__init__(group, run)
        self.holdings = holdings_of(group)
        self._early: dict[str | None, list[_Early]] = {}  # By the former member.

    def sent(self, request: Request) -> None:
        for move in self.holdings.sent(request):
            self._moved(move)

    def answered(self, request: Request) -> None:
        if request.assigned is not None:
            for move in self.holdings.answered(request):
                self._moved(move)
        if not self._early:
            return
        for each in self._early.get(request.member, ()):
            former, new = each.move
            if (
                request.sent_us > new.since_us + CLOCK_SKEW_US
                and (former.until_us is None or request.sent_us < former.until_us)
                and (each.proof is None or request.sent_us > each.proof.sent_us)
                and _is_of_current_member(request)
            ):
                each.proof = request

    def _moved(self, move: Move) -> None:
        self.case()
        if move.former.until_us is None:
            # The former owner may never send a request again: then nothing shows that it is still a member.
            self._early.setdefault(move.former.member, []).append(_Early(move))

    def end(self) -> None:
        found: dict[tuple[str, str], list[tuple[Request, Move]]] = {}
        for early in self._early.values():
            for each in early:
                if each.proof is not None:
                    key = each.move.former.member, each.move.new.member
                    found.setdefault(key, []).append((each.proof, each.move))
        for (former, new), moved in found.items():
            proof = max((proof for proof, _ in moved), key=lambda each: each.sent_us)
            partitions = sorted(move.new.partition for _, move in moved)
            self.violation(
                f"{', '.join(partitions)} of {self.group.name}: assigned to {new} before {former} gave up",
                *(move.former.begin for _, move in moved[:4]),
                *(move.new.begin for _, move in moved[:4]),
                proof,
                at_us=min(move.new.since_us for _, move in moved),
                until_us=proof.sent_us,
                members=(former, new),
            )


def _is_of_current_member(request: Request) -> bool:
    """Return whether the coordinator accepts such a request, with this response, of current members only.

    A coordinator that loads answers heartbeats of the classic protocol without an error, whoever sends them.
    """
    if request.api == HEARTBEAT:
        return request.error == 0 and (request.epoch or 0) > 0
    if request.api == "OffsetCommit":
        return request.error == 0 and (request.generation or 0) >= 0
    return request.api == "Heartbeat" and request.error == REBALANCE_IN_PROGRESS


class _Commits:
    """The commits of a member while it gives up a partition: from the response that takes it until the confirmation.

    Attributes:
        told: The response that takes the partition.
        last: The last commit.
        refused: The last commit that was rejected.
        is_committed: Whether a commit has committed the partition.
    """

    __slots__ = ("is_committed", "last", "refused", "told")

    def __init__(self, told: Request) -> None:
        self.told = told
        self.last: Request | None = None
        self.refused: Request | None = None
        self.is_committed = False


class RevokedCommitted(Promise):
    """A member that must give up partitions stays in its epoch until it confirms. Until then, it can commit."""

    name = "revoked-committed"
    sentence = REVOKED_COMMITTED
    cases = "partitions given up after a commit was answered"
    protocol = "consumer"
    apis = _HOLDING_APIS | {"OffsetCommit"}

    def __init__(self, group: Group, run: Run) -> None:
        super().__init__(group, run)
        self.holdings = holdings_of(group)
        self._asked: dict[str, dict[Holding, _Commits]] = {}  # By member: what it must give up, and has not yet.
        self._given_up: dict[Holding, _Commits] = {}
        self._moved: list[Holding] = []

    def sent(self, request: Request) -> None:
        for move in self.holdings.sent(request):
            self._moved.append(move.former)

    def answered(self, request: Request) -> None:
        if request.assigned is not None:
            for move in self.holdings.answered(request):
                self._moved.append(move.former)
        member, done_us = request.member, request.done_us
        if member is None or done_us is None:
            return
        if request.api == HEARTBEAT:
            if request.assigned is not None and request.error == 0:
                for holding in self.holdings.of(member):
                    if holding.partition not in request.assigned and holding.lasts_until(done_us):
                        self._asked.setdefault(member, {})[holding] = _Commits(request)
        elif request.api == "OffsetCommit" and self._asked.get(member):
            for holding, commits in list(self._asked[member].items()):
                if holding.lasts_until(done_us):
                    self._committed(request, holding, commits)
                else:
                    self._given_up[holding] = self._asked[member].pop(holding)

    def _committed(self, request: Request, holding: Holding, commits: _Commits) -> None:
        if request.sent_us < (commits.told.done_us or 0):
            return
        if commits.last is None or request.sent_us > commits.last.sent_us:
            commits.last = request
        if request.error == 0:
            if any(partition == holding.partition for partition, _ in request.offsets or ()):
                commits.is_committed = True
        elif (
            request.error in (ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, STALE_MEMBER_EPOCH)
            # It may have an older epoch than the response that takes the partition.
            and request.generation == commits.told.generation
        ):
            commits.refused = request

    def end(self) -> None:
        found: dict[tuple[str, int], list[tuple[str, _Commits]]] = {}
        for former in self._moved:
            commits = self._asked.get(former.member, {}).get(former) or self._given_up.get(former)
            if commits is None or not former.is_confirmed:
                continue  # The member was removed, or has left: nothing was asked of it.
            if commits.is_committed or commits.refused is not None:
                self.case()
            if commits.refused is not None and not commits.is_committed:
                key = former.member, commits.told.done_us or 0
                found.setdefault(key, []).append((former.partition, commits))
        for (member, told_us), refused in found.items():
            told = refused[0][1].told
            self.violation(
                f"{member} could not commit {', '.join(sorted({partition for partition, _ in refused}))} of "
                f"{self.group.name} before it gave up",
                told,
                *(commits.refused for _, commits in refused[:4] if commits.refused is not None),
                generation=told.generation,
                at_us=told_us,
                until_us=max(commits.last.sent_us for _, commits in refused if commits.last is not None),
                members=(member,),
            )


class _Term:
    """The time from a join of a member to its next one.

    Attributes:
        first_us: When the first response with an epoch was read; None without such a response.
        newest: The last request whose response has its newest epoch.
        seen_us: When its last accepted heartbeat was sent.
    """

    __slots__ = ("first_us", "newest", "seen_us")

    def __init__(self) -> None:
        self.first_us: int | None = None
        self.newest: Request | None = None
        self.seen_us = 0


def _epoch_and_time(request: Request) -> tuple[int, int]:
    return request.generation or 0, request.done_us or 0


class EpochsRise(Promise):
    """No member gets an older epoch than before. No member joins with an older epoch than other members have."""

    name = "epochs-rise"
    sentence = EPOCHS_RISE
    cases = "heartbeats answered with an epoch after another one"
    protocol = "consumer"
    apis = frozenset({HEARTBEAT})

    def __init__(self, group: Group, run: Run) -> None:
        super().__init__(group, run)
        self._terms: dict[str, _Term] = {}  # By member.
        self._all: list[_Term] = []
        self._newest = 0
        self._joins: list[tuple[Request, list[tuple[_Term, Request]]]] = []
        # With the terms of members that had a newer epoch when the join was sent.

    def sent(self, request: Request) -> None:
        if request.epoch != 0 or request.member is None:
            return
        if request.error == 0:
            joined, newer = request.generation or 0, []
            if joined < self._newest:
                newer = [
                    (term, term.newest)
                    for term in self._terms.values()
                    if term.newest is not None and (term.newest.generation or 0) > joined
                ]
            self._joins.append((request, newer))
        self._terms[request.member] = _Term()
        self._all.append(self._terms[request.member])

    def answered(self, request: Request) -> None:
        member, sent_epoch, sent_us = request.member, request.epoch or 0, request.sent_us
        if request.error != 0 or member is None or sent_epoch < 0:
            return
        term = self._terms.get(member)
        if term is None:
            self._terms[member] = term = _Term()
            self._all.append(term)
        if sent_epoch > 0 and sent_us > term.seen_us:
            term.seen_us = sent_us
        if request.row is not None:
            return  # The last one of heartbeats that all got the same epoch.
        former, epoch = term.newest, request.generation or 0
        if former is None:
            term.first_us, term.newest = request.done_us, request
        else:
            self.case()
            if epoch >= (former.generation or 0):
                term.newest = request
            else:
                self._went_back(request, former)
        if epoch > self._newest:
            self._newest = epoch

    def _went_back(self, request: Request, former: Request) -> None:
        self.violation(
            f"{request.member} of {self.group.name} got epoch {request.generation} after epoch {former.generation}",
            former,
            request,
            generation=request.generation,
            at_us=former.done_us or 0,
            until_us=request.done_us or 0,
            members=(request.member,),
        )

    def end(self) -> None:
        # An empty group may be deleted and start over. So a new member is compared only with members that have sent
        # heartbeats before it has joined, and after that.
        terms = sorted(((each.first_us, each.seen_us) for each in self._all if each.first_us is not None), reverse=True)
        seen_us = 0
        for join, newer in self._joins:
            done_us = join.done_us or 0
            while terms and terms[-1][0] < join.sent_us:
                seen_us = max(seen_us, terms.pop()[1])
            if seen_us > done_us:
                self.case()
            stayed = [newest for term, newest in newer if term.seen_us > done_us]
            if stayed:
                self._went_back(join, max(stayed, key=_epoch_and_time))


class _Watched:
    """A member whose heartbeats may end.

    Attributes:
        last: Its last heartbeat; None if no heartbeat counts.
        alive_us: When it last sent a heartbeat or read a response.
        accepted: The last accepted heartbeat, except heartbeats with which it leaves.
        returned: A heartbeat after a silence, and when the silence began. The heartbeat has no response yet.
    """

    __slots__ = ("accepted", "alive_us", "last", "returned")

    def __init__(self) -> None:
        self.last: Request | None = None
        self.alive_us = 0
        self.accepted: Request | None = None
        self.returned: tuple[Request, Request, int] | None = None


class SilentConsumersOut(Promise):
    """A member is removed when its session ends. Its next heartbeat is rejected, and other members get a new epoch."""

    name = "silent-out"
    protocol = "consumer"
    apis = frozenset({HEARTBEAT})

    def __init__(self, group: Group, run: Run) -> None:
        super().__init__(group, run)
        self._patience_us = run.session_us + BOUND_US
        self._members: dict[str, _Watched] = {}
        self._static: dict[str, _Watched] = {}  # The members that have joined last, by instance id.
        self._epoch = 0
        self._seen: Request | None = None  # The last accepted heartbeat of any member.
        self._seen_us = 0  # When it was sent.
        self._changed_us = 0  # When a response was read that has a new epoch, or another assignment.

    def sent(self, request: Request) -> None:
        if request.member is None:
            return
        member = self._members.get(request.member)
        if member is None:
            self._members[request.member] = member = _Watched()
        sent_us, before = request.sent_us, member.last
        if before is not None and sent_us > member.alive_us + self._patience_us and request.row is None:
            self._observed(member, sent_us)
            if (
                (request.epoch or 0) > 0
                and before.error == 0
                and before.epoch != -1
                and before.member_id == request.member_id
                and before.broker == request.broker
            ):
                member.returned = request, before, member.alive_us
        member.last = request
        if sent_us > member.alive_us:
            member.alive_us = sent_us
        if request.error == 0 and request.epoch is not None and request.epoch >= 0:
            member.accepted = request
            seen_us = sent_us if request.until_us is None else _last_us(request)
            if seen_us > self._seen_us:
                self._seen, self._seen_us = request, seen_us
            epoch = request.generation or 0
            if request.assigned is not None or request.epoch == 0 or epoch > self._epoch:
                # A member that joins may get an older epoch: then the group has been empty and started over.
                self._changed_us = max(self._changed_us, request.done_us or 0)
                self._epoch = epoch if request.epoch == 0 else max(epoch, self._epoch)
            if request.epoch == 0 and request.instance_id is not None:
                former = self._static.get(request.instance_id)
                if former is not None and former is not member:
                    # Its membership was taken over, which starts no new epoch.
                    self._observed(former, sent_us)
                    former.last = None
                self._static[request.instance_id] = member

    def answered(self, request: Request) -> None:
        member = self._members.get(request.member or "")
        if member is None or request.done_us is None:
            return
        if request.done_us > member.alive_us:
            member.alive_us = request.done_us
        if member.returned is None or member.returned[0] is not request:
            return
        (_, before, since_us), member.returned = member.returned, None
        if request.error not in (0, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH):
            return
        # The next coordinator begins all sessions again.
        if self.group.kept_coordinator(since_us, request.sent_us):
            self.case()
            if request.error == 0:
                self._violation(
                    f"{request.member} sent nothing for {_seconds(request.sent_us - since_us)} s and is still a "
                    f"member of {self.group.name}",
                    before,
                    request,
                    request.generation,
                    since_us,
                    request.sent_us,
                )

    def end(self) -> None:
        for member in self._members.values():
            self._observed(member, self.run.end_us + 1)

    def _observed(self, member: _Watched, next_us: int) -> None:
        """Judge by the epoch of other members whether a member was removed. A removal starts the next epoch.

        Args:
            member: The member that was silent.
            next_us: When it sent its next heartbeat, or the end.
        """
        last, since_us = member.last, member.alive_us
        limit_us = since_us + self._patience_us
        if last is None or last.error != 0 or last.epoch == -1 or self._seen is None:
            return
        seen_us = min(self._seen_us, next_us - 1)
        if seen_us <= limit_us or not self.group.kept_coordinator(since_us, seen_us):
            return
        self.case()
        # If others got another epoch or assignment for other reasons, this hides whether the member was removed.
        if self._changed_us <= since_us:
            accepted = [each.accepted for each in self._members.values() if each is not member]
            later = max(each.generation or 0 for each in accepted if each is not None and _last_us(each) > limit_us)
            self._violation(
                f"epoch {later} of {self.group.name} continued after {last.member} had sent nothing for "
                f"{_seconds(seen_us - since_us)} s",
                last,
                self._seen,
                last.generation,
                since_us,
                seen_us,
            )

    def _violation(
        self, what: str, last: Request, shown: Request, epoch: int | None, since_us: int, until_us: int
    ) -> None:
        self.violation(
            f"{what}, with a session timeout of {_seconds(self.run.session_us)} s",
            last,
            shown,
            generation=epoch,
            at_us=since_us,
            until_us=until_us,
            members=(last.member,),
        )


class _Beating:
    """The accepted heartbeats of a member.

    Attributes:
        before: Its last heartbeat, if this was accepted and the member did not leave with it.
        told: The heartbeats whose responses have an assignment that the member has not confirmed yet.
        since_us: When the first response since its last join was read; None if no response was read.
        until_us: When the last heartbeat since then was sent.
        left_us: When it last sent a goodbye that has no response.
        is_counted: Whether the member is a case.
    """

    __slots__ = ("before", "is_counted", "left_us", "since_us", "told", "until_us")

    def __init__(self) -> None:
        self.before: Request | None = None
        self.told: list[Request] = []
        self.since_us: int | None = None
        self.until_us = 0
        self.left_us = -BOUND_US
        self.is_counted = False


class BeatingConsumersStay(Promise):
    """A member is not removed if it sends heartbeats within its session timeout and gives up partitions in time."""

    name = "beating-stays"
    protocol = "consumer"
    apis = frozenset({HEARTBEAT})

    def __init__(self, group: Group, run: Run) -> None:
        super().__init__(group, run)
        self._members: dict[str, _Beating] = {}

    def sent(self, request: Request) -> None:
        if request.epoch == 0 or request.done_us is None:
            member = self._members.get(request.member or "")
            if member is not None:
                if request.done_us is None:
                    member.before = None  # A request without a response may have had any effect.
                    if (request.epoch or 0) < 0:
                        member.left_us = request.sent_us
                if request.epoch == 0:
                    self._stretch(member)

    def answered(self, request: Request) -> None:
        if request.member is None:
            return
        member = self._members.get(request.member)
        if member is None:
            self._members[request.member] = member = _Beating()
        if request.error == 0 and request.epoch is not None and request.epoch >= 0:
            member.before = request
            if request.sent_us > member.until_us:
                member.until_us = request.sent_us
            if member.since_us is None:
                member.since_us = request.done_us
            if request.owned is not None and member.told:  # What has it given up?
                member.told = [each for each in member.told if not {*request.owned} <= {*(each.assigned or ())}]
            if request.assigned is not None and not (member.told and member.told[-1].assigned == request.assigned):
                member.told.append(request)
            return
        before, member.before = member.before, None
        script = self.group.scripts.get(request.member)
        if (
            request.error != UNKNOWN_MEMBER_ID
            or request.epoch is None
            or request.epoch <= 0
            or before is None
            or before.member_id != request.member_id
            or request.done_us is None
            or script is None
        ):
            return
        if request.done_us - before.sent_us >= self.run.session_us - CLOCK_SKEW_US:
            return
        patience_us = script.rebalance_timeout_ms * 1000 - CLOCK_SKEW_US
        if member.told and request.done_us - member.told[0].sent_us >= patience_us:
            return  # It may have been removed because it had not given up its partitions.
        if before.sent_us <= member.left_us + BOUND_US:
            return  # It has joined again, and its goodbye may have been handled after that.
        if not self.group.kept_coordinator(before.sent_us, request.done_us):
            return  # The next coordinator may not know it.
        if not member.is_counted:
            member.is_counted = True
            self.case()
        self.violation(
            f"{request.member} got UNKNOWN_MEMBER_ID from {self.group.name} "
            f"{_seconds(request.done_us - before.sent_us, 3)} s after a successful heartbeat",
            before,
            request,
            generation=request.generation,
            at_us=before.sent_us,
            until_us=request.done_us,
        )

    def end(self) -> None:
        for member in self._members.values():
            self._stretch(member)

    def _stretch(self, member: _Beating) -> None:
        """Count a member that was observed for longer than its session timeout, under one coordinator."""
        since_us, until_us = member.since_us, member.until_us
        member.since_us, member.until_us = None, 0
        if (
            not member.is_counted
            and since_us is not None
            and until_us > since_us + self.run.session_us
            and self.group.kept_coordinator(since_us, until_us)
        ):
            member.is_counted = True
            self.case()


_NAMING_EPOCHS = frozenset({HEARTBEAT, "OffsetCommit", "TxnOffsetCommit", "OffsetFetch"})
"""Requests that name a member and its epoch; an OffsetFetch does from version 9 on."""

_DECIDED = frozenset(
    {
        0,
        ILLEGAL_GENERATION,
        UNKNOWN_MEMBER_ID,
        GROUP_ID_NOT_FOUND,
        FENCED_INSTANCE_ID,
        FENCED_MEMBER_EPOCH,
        STALE_MEMBER_EPOCH,
    }
)
"""Responses that show whether the coordinator accepts the member and its epoch."""


class _LateRequests(Promise):
    """Requests with an epoch that must be rejected.

    For example, a heartbeat was answered with epoch 7. Later, the same member id sends a commit with epoch 6. The
    response to the heartbeat rules out this commit.
    """

    protocol = "consumer"
    apis = _NAMING_EPOCHS

    def __init__(self, group: Group, run: Run) -> None:
        super().__init__(group, run)
        self._before: dict[str | None, Request] = {}  # The last heartbeat of each member.
        self._late: dict[int, Request] = {}  # The heartbeats before late requests, by the `id` of these.
        # A classic group serves the OffsetFetch of any member.
        self._may_become_classic = any(act.action == "migrate" for each in group.scripts.values() for act in each.acts)

    def rules_out(self, before: Request, epoch: int) -> bool:
        """Return whether no later request with an epoch may be accepted."""
        raise NotImplementedError

    def judge(self, request: Request, before: Request) -> None:
        """Judge the response to a late request."""
        raise NotImplementedError

    def sent(self, request: Request) -> None:
        api, member, epoch = request.api, request.member, request.generation
        before = self._before.get(member)
        if api == HEARTBEAT:
            self._before[member], epoch = request, request.epoch
        if before is None or (before.error == 0 and before.generation == epoch):
            return  # the first request of the member, or the usual case
        if epoch is None or epoch <= 0 or not self.rules_out(before, epoch):
            return
        if api not in _NAMING_EPOCHS or (api == "OffsetFetch" and (request.version < 9 or self._may_become_classic)):
            return  # the coordinator does not check its epoch
        if request.error not in _DECIDED:
            return
        if before.member_id != request.member_id:
            return  # it has started again
        # A member may send a request in the microsecond in which it reads a response. Its coordinator has sent the
        # response before that, so that equal times count here.
        if before.done_us is not None and before.done_us <= request.sent_us:
            self._late[id(request)] = before

    def answered(self, request: Request) -> None:
        if self._late:
            before = self._late.pop(id(request), None)
            if before is not None:
                self.judge(request, before)


class StaleEpochsRefused(_LateRequests):
    """A request is rejected if its member has already got a newer epoch. `judge` has two exceptions."""

    name = "stale-refused"
    protocol = "consumer"
    apis = _NAMING_EPOCHS | _HOLDING_APIS

    def __init__(self, group: Group, run: Run) -> None:
        super().__init__(group, run)
        self.holdings = holdings_of(group)
        self._assigned: dict[str | None, list[str]] = {}  # The last assignments of members.

    def rules_out(self, before: Request, epoch: int) -> bool:
        return (before.generation or 0) > epoch and before.error == 0 and (before.epoch or 0) >= 0

    def sent(self, request: Request) -> None:
        self.holdings.sent(request)
        super().sent(request)

    def answered(self, request: Request) -> None:
        super().answered(request)
        if request.assigned is not None:
            self.holdings.answered(request)
            if request.api == HEARTBEAT and request.error == 0:
                self._assigned[request.member] = request.assigned

    def judge(self, request: Request, before: Request) -> None:
        if request.api == HEARTBEAT:
            if request.owned is not None and set(request.owned).issubset(self._assigned.get(request.member, ())):
                # The response with the newer epoch may be lost, so that a member may send the previous one, if it lists
                # only partitions that it is assigned.
                return
            is_accepted = request.error == 0
        elif request.api == "OffsetFetch":
            is_accepted = request.error == 0
        else:
            # From 4.3 (KIP-1251), a commit is accepted if the member has had the partitions since then. What was
            # rejected of a commit is not known, so that there is no case.
            is_accepted = any(
                not self.holdings.may_have(request.member or "", partition, request.sent_us)
                for partition, _ in request.offsets or ()
            )
            if not is_accepted:
                return
        self.case()
        if is_accepted:
            epoch = request.epoch if request.api == HEARTBEAT else request.generation
            self.violation(
                f"{request.api} of {request.member} with epoch {epoch} of {self.group.name} was accepted after epoch "
                f"{before.generation}",
                before,
                request,
                generation=epoch,
                at_us=(before.row or before).done_us or 0,
                until_us=request.sent_us,
            )


class UnknownConsumersRefused(_LateRequests):
    """Requests of members that have left or were removed are rejected."""

    name = "unknown-refused"

    def rules_out(self, before: Request, epoch: int) -> bool:
        return before.error == UNKNOWN_MEMBER_ID or (before.error == 0 and (before.epoch or 0) < 0)

    def judge(self, request: Request, before: Request) -> None:
        since_us = before.done_us or 0
        # Another coordinator may not have stored what ended the membership.
        if before.broker != request.broker or not self.group.kept_coordinator(since_us, request.sent_us):
            return
        self.case()
        if request.error == 0:
            ended = "the response UNKNOWN_MEMBER_ID" if before.error == UNKNOWN_MEMBER_ID else "it had left"
            self.violation(
                f"a request of {request.member_id} in {self.group.name} was accepted after {ended}",
                before,
                request,
                generation=request.generation,
                at_us=since_us,
                until_us=request.sent_us,
            )


class FencedConsumersRefused(Promise):
    """A static member joins with a new member id. From then on, requests with its former member id are rejected."""

    name = "fenced-refused"
    protocol = "consumer"
    apis = _NAMING_EPOCHS | {"SyncGroup", "Heartbeat"}

    def __init__(self, group: Group, run: Run) -> None:
        super().__init__(group, run)
        self._holders: dict[str, Request] = {}  # The last join of each instance id.
        self._joins: dict[tuple[str, str], Request] = {}  # The last join of each member id of an instance id.
        self._late: set[str] = set()
        self._accepted: dict[tuple[str, str], tuple[Request, Request]] = {}

    def answered(self, request: Request) -> None:
        instance_id, member_id, api = request.instance_id, request.member_id, request.api
        if instance_id is None or member_id is None:
            return
        if request.member is None or request.error in MOVED:
            return
        key = instance_id, member_id
        if request.error == 0 and (api == "SyncGroup" or (api == HEARTBEAT and request.epoch == 0)):
            self._holders[instance_id] = self._joins[key] = request
            return
        holder, joined = self._holders.get(instance_id), self._joins.get(key)
        if holder is None or holder.done_us is None or holder.member_id == member_id:
            return
        if request.sent_us <= holder.done_us + CLOCK_SKEW_US:
            return
        if joined is None or joined.done_us is None or holder.sent_us <= joined.done_us + CLOCK_SKEW_US:
            return  # Which one of two simultaneous joins was the later one is unknown.
        if api == "SyncGroup" or (api == HEARTBEAT and (request.epoch or 0) <= 0):
            return  # It joins again, or leaves.
        if api == "OffsetFetch" and request.version < 9:
            return
        if api in ("OffsetCommit", "TxnOffsetCommit") and (request.generation or 0) <= 0:
            return
        if api == "Heartbeat" and request.error == 0:
            return  # A coordinator that loads answers all heartbeats of the classic protocol so.
        if member_id not in self._late:
            self._late.add(member_id)
            self.case()
        if request.error == (REBALANCE_IN_PROGRESS if api == "Heartbeat" else 0):
            self._accepted[key] = request, holder

    def end(self) -> None:
        for (instance_id, member_id), (request, holder) in self._accepted.items():
            self.violation(
                f"a request of {member_id} in {self.group.name} was accepted after {holder.member_id} had taken over "
                f"its instance id {instance_id}",
                holder,
                request,
                generation=request.generation,
                at_us=holder.done_us or 0,
                until_us=request.sent_us,
                members=(request.member,),
            )


_SLOW_US = BOUND_US // (2 * TARGET_HEARTBEATS)
"""Responses that take longer delay a rebalance: each heartbeat may wait for another response, and for its own."""


class TargetsReached(Promise):
    """In a quiet time, all members reach the newest epoch, and all partitions are assigned.

    A quiet time begins when no earlier event can delay the rebalance any more. It ends when something happens again. It
    counts if it is long enough.
    """

    name = "targets-reached"
    sentence = TARGETS_REACHED
    cases = "times in which a group was left alone for longer"
    protocol = "consumer"
    apis = (
        COORDINATOR_APIS
        | _HOLDING_APIS
        | {"TxnOffsetCommit", "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "Produce", "EndTxn"}
        | {"Fetch", "ListTransactions", "DescribeGroups"}
    )

    def __init__(self, group: Group, run: Run) -> None:
        super().__init__(group, run)
        self.holdings = holdings_of(group)
        self._enough_us = TARGET_HEARTBEATS * run.heartbeat_us + BOUND_US
        self._busy_us = 0  # What has happened can have an effect until then.
        self._beats: dict[str, Request] = {}  # The last accepted heartbeat of each member.
        self._epochs: dict[int | None, Request] = {}  # The first response with each epoch.
        self._leaving: dict[str | None, int] = {}  # When dynamic members that have not said so were to leave.
        self._has_stopped = False
        self._last_us = 0  # When the last heartbeat was sent or answered.

    def sent(self, request: Request) -> None:
        self.holdings.sent(request)
        api, sent_us, done_us = request.api, request.sent_us, request.done_us
        if done_us is None:
            self._happened(sent_us)
            if api == HEARTBEAT:
                self._last_us = max(self._last_us, sent_us)
        elif done_us - sent_us > _SLOW_US:
            self._happened(sent_us, done_us)
        if api == HEARTBEAT:
            if request.error != 0 or (request.epoch or 0) <= 0:
                self._happened(sent_us)
        elif api in ("JoinGroup", "SyncGroup", "Heartbeat"):
            # A member of the classic protocol. It may keep its partitions until its session ends.
            self._happened(sent_us, _last_us(request) + self.run.session_us)

    def answered(self, request: Request) -> None:
        if request.assigned is not None:
            self.holdings.answered(request)
        member, done_us, epoch = request.member, request.done_us, request.epoch or 0
        if member is None or done_us is None:
            return
        if request.api != HEARTBEAT:
            if request.api == "LeaveGroup" and request.error == 0:
                self._left(request)
            return
        if request.error != 0 or epoch <= 0:
            self._happened(done_us)
        if request.error == 0:
            if epoch == -1:
                self._left(request)
            elif epoch >= 0 and request.generation not in self._epochs:
                # It counts from when a response has it. The request may be handled after the end of a quiet time.
                self._happened(done_us)
                self._epochs[request.generation] = request
            if epoch > 0:
                self._beats[member] = request
        if done_us > self._last_us:
            self._last_us = done_us

    def _left(self, request: Request) -> None:
        since_us = self._leaving.get(request.member)
        if since_us is not None and since_us <= request.sent_us <= since_us + BOUND_US:
            del self._leaving[request.member]

    def acted(self, act: Request) -> None:
        script = self.group.scripts.get(act.member or "")
        if script is None:
            return
        at_us, session_us = act.sent_us, self.run.session_us
        if act.api == "slow":
            # It keeps the partitions that it must give up for its rebalance timeout.
            self._has_stopped = True
            self._happened(at_us, at_us + script.rebalance_timeout_ms * 1000)
        elif act.api in ("crash", "pause", "zombie") or (
            act.api in ("leave", "migrate") and act.instance_id is not None
        ):
            self._has_stopped = True
            self._happened(at_us, at_us + session_us)
        elif act.api in ("leave", "migrate"):
            # It may be unable to say that it leaves. Then it keeps its partitions until its session ends.
            self._happened(at_us)
            if act.member in self._leaving:
                self._has_stopped = True
                self._happened(at_us, self._leaving[act.member] + session_us)
            self._leaving[act.member] = at_us

    def looked_up(self, lookup: Lookup) -> None:
        if lookup.is_sign:
            # The sessions of members that have stopped begin again with the next coordinator.
            is_longer = self._has_stopped or self._leaving
            self._happened(lookup.at_us, lookup.at_us + self.run.session_us if is_longer else 0)

    def end(self) -> None:
        self._happened(self._last_us)

    def _happened(self, at_us: int, until_us: int = 0) -> None:
        """Take note that something happens to the group, which can have an effect until a time."""
        if at_us > self._busy_us + self._enough_us:
            since_us = max((self._busy_us, *(each + self.run.session_us for each in self._leaving.values())))
            if at_us > since_us + self._enough_us:
                self._quiet(since_us, at_us)
        self._busy_us = max(self._busy_us, at_us, until_us)

    def _quiet(self, since_us: int, until_us: int) -> None:
        """Judge the state of the group at the end of a quiet time, by the members that are still there."""
        present = {
            member: beat
            for member, beat in sorted(self._beats.items())
            if _last_us(beat) > until_us - 2 * self.run.heartbeat_us and member in self.group.scripts
        }
        if not present:
            return
        self.case()
        newest = max(beat.generation or 0 for beat in present.values())
        late = [
            member
            for member, beat in present.items()
            if (beat.generation or 0) < newest and _last_us(beat) > since_us + self._enough_us
        ]
        if late:
            what = f"{', '.join(late[:5])} of {self.group.name} did not reach epoch"
            self._violation(what, newest, since_us, until_us, late, [self._beats[member] for member in late[:8]])
            return
        topics = {topic for member in present for topic in self.group.scripts[member].topics}
        partitions = {f"{topic}-{number}" for topic in topics for number in range(self.run.partitions.get(topic, 0))}
        missing = sorted(
            partitions.difference(
                holding.partition
                for member in present
                for holding in self.holdings.of(member)
                if holding.since_us < until_us and holding.lasts_until(until_us)
            )
        )
        if missing:
            more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
            what = f"{', '.join(missing[:5])}{more} of {self.group.name}: not assigned in epoch"
            had = [holding.begin for each in missing[:4] if (holding := self.holdings.last(each)) is not None]
            self._violation(what, newest, since_us, until_us, list(present), [*had, *list(present.values())[:5]])

    def _violation(
        self, what: str, epoch: int, since_us: int, until_us: int, members: Sequence[str], events: Sequence[Request]
    ) -> None:
        self.violation(
            f"{what} {epoch} within {_seconds(until_us - since_us)} s",
            self._epochs[epoch],
            *events,
            generation=epoch,
            at_us=since_us,
            until_us=until_us,
            members=members,
        )
