"""Promises about membership in groups of the classic protocol. In other groups, they have no cases."""

from bisect import bisect_right
from typing import NamedTuple

from fakebroker.replay.members.events import PARKED_APIS
from fakebroker.replay.promises.observer import (
    BOUND_US,
    CLOCK_SKEW_US,
    FENCED_INSTANCE_ID,
    ILLEGAL_GENERATION,
    LOADING_US,
    MOVED,
    REBALANCE_IN_PROGRESS,
    SESSION_APIS,
    UNKNOWN_MEMBER_ID,
    Group,
    Promise,
    Request,
    Run,
)

_IN_GENERATION = frozenset({"SyncGroup", "Heartbeat", "OffsetCommit"})
"""Requests that name the generation of their member."""


def _is_known(request: Request) -> bool:
    """Return whether the response shows that the coordinator knows the member.

    A coordinator checks the member id before the generation. So ILLEGAL_GENERATION also shows that it knows the member.
    """
    if request.error == REBALANCE_IN_PROGRESS:
        return request.api == "Heartbeat"
    return request.error in (0, ILLEGAL_GENERATION) and request.api != "LeaveGroup"


class _Latest:
    """Two requests: the latest one, and the latest one of any other member than its sender.

    So for each member, the latest request of another member is known.

    Attributes:
        last: The latest request.
        owner: Its sender, as in `Request.owner`.
        before: The latest request of another member than `owner`.
    """

    __slots__ = ("before", "last", "owner")

    def __init__(self) -> None:
        self.owner: str | None = None
        self.last: Request | None = None
        self.before: Request | None = None

    def add(self, owner: str | None, request: Request) -> None:
        if self.last is None or request.sent_us >= self.last.sent_us:
            if owner != self.owner:
                self.owner, self.before = owner, self.last
            self.last = request
        elif owner != self.owner and (self.before is None or request.sent_us > self.before.sent_us):
            self.before = request

    def merge(self, other: "_Latest") -> None:
        for request in (other.before, other.last):
            if request is not None:
                self.add(request.owner, request)

    def of_another(self, owner: str) -> Request | None:
        return self.before if owner == self.owner else self.last


class _Member:
    """What was last seen of a member. A static member is one member under all its member ids.

    Attributes:
        last: Its last request.
        alive_us: When it last sent a request or read a response.
        patience_us: The coordinator must have removed it after a silence of this length.
        own: The life and the number of the newest generation that it has joined; None if it has not joined any.
        since_us: When it sent its first request.
        life: The life of the group at its last accepted request.
        generation: The generation of its last accepted request.
        beats: The latest successful heartbeats of all members in this generation.
        requests: The latest other requests of all members in this generation that were accepted, except JoinGroups.
            They include heartbeats with REBALANCE_IN_PROGRESS.
    """

    __slots__ = (
        "alive_us",
        "beats",
        "generation",
        "last",
        "life",
        "own",
        "patience_us",
        "requests",
        "since_us",
    )

    def __init__(self, last: Request, patience_us: int) -> None:
        self.last = last
        self.alive_us = 0
        self.patience_us = patience_us
        self.own: tuple[int, int] | None = None
        self.since_us = last.sent_us
        self.life = self.generation = -1
        self.beats = self.requests = _Latest()


class _Silence(NamedTuple):
    """A time without requests of a member.

    Attributes:
        last: The last request before the silence.
        since_us: When this request was sent, or answered.
        patience_us: The coordinator must have removed the member after a silence of this length.
        own: The life and the number of the member's generation; None without a generation.
        next: The first request after the silence; None if the member sent nothing more.
    """

    last: Request
    since_us: int
    patience_us: int
    own: tuple[int, int] | None
    next: Request | None


class SilentOut(Promise):
    """The end of a session is seen in two ways: the returning member is rejected, or its generation ends."""

    name = "silent-out"
    sentence = (
        "A member that stops sending requests is removed from its group within its session timeout plus "
        f"{BOUND_US // 1_000_000} s."
    )
    cases = f"silent members whose group was observed for the session timeout plus {BOUND_US // 1_000_000} s"
    protocol = "classic"
    apis = SESSION_APIS | {"LeaveGroup"}

    def __init__(self, group: Group, run: Run) -> None:
        super().__init__(group, run)
        self._members: dict[str, _Member] = {}
        self._silences: list[_Silence] = []
        self._beats: dict[tuple[int, int], _Latest] = {}
        self._requests: dict[tuple[int, int], _Latest] = {}
        self._reused: set[tuple[int, int]] = set()

    def sent(self, request: Request) -> None:
        owner = request.instance_id or request.member_id
        if owner is None or request.member is None:
            return
        member = self._members.get(owner)
        sent_us, done_us = request.sent_us, request.done_us
        if member is None:
            script = self.group.scripts[request.member]
            member = self._members[owner] = _Member(request, script.session_timeout_ms * 1000 + BOUND_US)
        elif sent_us > member.alive_us + member.patience_us:
            self._add_silence(member, request)
        member.last = request
        alive_us = sent_us if done_us is None or done_us < sent_us else done_us
        if request.count > 1 and request.until_us is not None and request.until_us > alive_us:
            alive_us = request.until_us  # heartbeats go on at regular intervals until then
        if alive_us > member.alive_us:
            member.alive_us = alive_us

    def answered(self, request: Request) -> None:
        owner = request.instance_id or request.member_id
        member = self._members.get(owner or "")
        generation = request.generation
        if member is None or generation is None or generation < 0:
            return
        api, error, life = request.api, request.error, self.group.life
        if api in PARKED_APIS and error == 0:
            joined = life, generation
            member.own = max(member.own or joined, joined)
            completed_us = self.group.generations[joined].completed_us
            if completed_us is not None and member.since_us > completed_us + CLOCK_SKEW_US:
                self._reused.add(joined)
        if api == "JoinGroup" or (error != 0 and not (api == "Heartbeat" and error == REBALANCE_IN_PROGRESS)):
            return
        if generation != member.generation or life != member.life:
            member.life, member.generation = life, generation
            member.beats = self._beats.setdefault((life, generation), _Latest())
            member.requests = self._requests.setdefault((life, generation), _Latest())
        # When a session ends, a rebalance begins. During it, commits are still accepted, and heartbeats get
        # REBALANCE_IN_PROGRESS. So neither shows that the generation continues.
        (member.beats if api == "Heartbeat" and error == 0 else member.requests).add(owner, request)

    def end(self) -> None:
        for member in self._members.values():
            self._add_silence(member, None)
        later = self._later_requests()
        for silence in self._silences:
            if silence.next is not None:
                self._judge_return(silence, silence.next)
            if silence.own is not None:
                self._judge_generation(silence, silence.own, later)

    def _add_silence(self, member: _Member, following: Request | None) -> None:
        last = member.last
        if last.error in (UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID) or (last.api == "LeaveGroup" and last.error == 0):
            return  # it was removed or fenced, or has left, before
        self._silences.append(_Silence(last, member.alive_us, member.patience_us, member.own, following))

    def _judge_return(self, silence: _Silence, request: Request) -> None:
        """Report a member whose session must have ended, if its next request is not rejected."""
        last, since_us, until_us = silence.last, silence.since_us, request.sent_us
        if last.member_id != request.member_id:
            return  # a new member, or a static one that has started again
        if last.broker != request.broker or not self.group.kept_coordinator(since_us, until_us):
            return  # a coordinator that moves or restarts starts all sessions again
        if last.api in PARKED_APIS and last.done_us is None:
            return  # while a JoinGroup or SyncGroup waits at the coordinator, the member does not expire
        is_known = _is_known(request)
        if not is_known and (request.error != UNKNOWN_MEMBER_ID or request.api == "LeaveGroup"):
            return  # the response does not say whether it is a member
        self.case()
        if is_known:
            self.violation(
                f"{last.member} sent nothing for {_seconds(until_us - since_us)} s and is still a member of "
                f"{self.group.name}, with a session timeout of {_seconds(silence.patience_us - BOUND_US)} s",
                last,
                request,
                at_us=since_us,
                until_us=until_us,
                generation=request.generation,
            )

    def _judge_generation(self, silence: _Silence, own: tuple[int, int], later: dict[tuple[int, int], _Latest]) -> None:
        """Report a member whose session must have ended, if its generation goes on without a rebalance."""
        last, following = silence.last, silence.next
        completed_us = self.group.generations[own].completed_us
        if completed_us is None:
            return  # the coordinator may still wait for members, and the session has not started
        if own in self._reused:
            return  # the group may have been deleted: it has started over and used the number again
        since_us = max(silence.since_us, completed_us)
        limit_us = since_us + silence.patience_us
        if following is not None and following.sent_us <= limit_us:
            return
        owner = last.owner
        assert owner is not None
        other = self._beats[own].of_another(owner) if own in self._beats else None
        if other is not None and other.sent_us > limit_us:
            # A coordinator that moves or restarts starts all sessions again, and may return to this generation if the
            # next one was not complete. Members may look it up only after their first heartbeats to it. So each look-up
            # until the heartbeat of the other member counts. It may also use the number again without the member.
            if not self.group.kept_coordinator(silence.since_us, other.sent_us):
                return
            self.case()
            silent_us = (other.sent_us if following is None else min(following.sent_us, other.sent_us)) - since_us
            self.violation(
                f"generation {own[1]} of {self.group.name} continued after {last.member} had sent nothing for "
                f"{_seconds(silent_us)} s, with a session timeout of {_seconds(silence.patience_us - BOUND_US)} s",
                last,
                other,
                at_us=since_us,
                until_us=other.sent_us,
                generation=own[1],
                members=[last.member],
            )
            return
        proof = later[own].of_another(owner)
        if proof is not None and proof.sent_us > limit_us and self.group.kept_coordinator(silence.since_us, limit_us):
            self.case()  # other members are in a later generation

    def _later_requests(self) -> dict[tuple[int, int], _Latest]:
        """Return, for each generation, the latest accepted requests in later generations of the same life."""
        later: dict[tuple[int, int], _Latest] = {}
        sum_of_life, life = _Latest(), -1
        for key in sorted(self.group.generations.keys() | self._requests.keys(), reverse=True):
            if key[0] != life:
                sum_of_life, life = _Latest(), key[0]
            later[key] = _Latest()
            later[key].merge(sum_of_life)
            if key in self._requests:
                sum_of_life.merge(self._requests[key])
                sum_of_life.merge(self._beats[key])
        return later


class _Session:
    """A session of a member. The member has its assignment, and has sent no JoinGroup or LeaveGroup since then.

    Attributes:
        synced_us: When it got the assignment.
        beat: Its last successful heartbeat.
    """

    __slots__ = ("beat", "synced_us")

    def __init__(self, synced_us: int) -> None:
        self.synced_us = synced_us
        self.beat: Request | None = None


class _Observed:
    """A member that is observed.

    Attributes:
        moves: How often a member of the group had lost its coordinator by then.
        since_us: Since when a removal of the member would have been seen: since its assignment. After a lost
            coordinator, since the next assignment, or since the next coordinator must have loaded. None if unknown.
    """

    __slots__ = ("moves", "since_us")

    def __init__(self) -> None:
        self.moves = 0
        self.since_us: int | None = None


class BeatingStays(Promise):
    """A successful heartbeat restarts the session, and shows that the group is not rebalancing.

    Therefore, neither the session timeout nor the rebalance timeout can expire shortly after such a heartbeat.
    """

    name = "beating-stays"
    sentence = "A member that sends its heartbeats in time is not removed from its group."
    cases = "members that were observed for longer than their session timeout"
    protocol = "classic"
    apis = SESSION_APIS | {"LeaveGroup"}

    def __init__(self, group: Group, run: Run) -> None:
        super().__init__(group, run)
        self._sessions: dict[str, _Session] = {}
        self._observed: dict[str, _Observed] = {}  # By member id.
        self._counted: set[str] = set()

    def sent(self, request: Request) -> None:
        api = request.api
        if api == "LeaveGroup" or (api == "JoinGroup" and request.error != UNKNOWN_MEMBER_ID):
            # From now on the member may be removed: it leaves, or it does not complete the rebalance in time.
            self._sessions.pop(request.owner or "", None)

    def answered(self, request: Request) -> None:
        owner = request.instance_id or request.member_id
        api, error, member_id = request.api, request.error, request.member_id
        if owner is None or member_id is None or request.member is None or api == "LeaveGroup":
            return
        if error == 0:
            if api == "Heartbeat":
                session = self._sessions.get(owner)
                if session is not None and request.sent_us >= session.synced_us:
                    session.beat = request
            elif api == "SyncGroup":
                assert request.done_us is not None
                self._sessions[owner] = _Session(request.done_us)
        elif error == UNKNOWN_MEMBER_ID:
            session = self._sessions.get(owner)
            if session is not None and session.beat is not None and session.beat.member_id == member_id:
                del self._sessions[owner]  # only the first response that rejects it is a violation
                self._judge_removal(session.synced_us, session.beat, request)
        if member_id not in self._counted:
            self._observe(member_id, request)

    def _judge_removal(self, synced_us: int, beat: Request, request: Request) -> None:
        assert request.member is not None
        assert request.member_id is not None
        assert request.done_us is not None
        script, until_us = self.group.scripts[request.member], request.done_us
        timeout_us = min(script.session_timeout_ms, script.rebalance_timeout_ms) * 1000
        if until_us - beat.sent_us >= timeout_us - CLOCK_SKEW_US:
            return  # a timeout may have expired
        if not self.group.kept_coordinator(max(beat.sent_us - LOADING_US, synced_us), until_us):
            return  # a coordinator that was loading has answered the heartbeat without an error
        self._count(request.member_id)
        self.violation(
            f"{request.member} got UNKNOWN_MEMBER_ID from {self.group.name} "
            f"{_seconds(until_us - beat.sent_us, 3)} s after a successful heartbeat",
            beat,
            request,
            at_us=beat.sent_us,
            until_us=until_us,
            generation=request.generation,
        )

    def _observe(self, member_id: str, request: Request) -> None:
        """Count a member once it has sent heartbeats for longer than its session timeout."""
        assert request.member is not None
        assert request.done_us is not None
        session_us = self.group.scripts[request.member].session_timeout_ms * 1000
        moved_us, done_us, row = self.group.moved_us, request.done_us, request.row
        observed = self._observed.get(member_id)
        if observed is None:
            observed = self._observed[member_id] = _Observed()
        if observed.moves != len(moved_us):
            # The coordinator was lost, and the next one may load for a while. Then it answers heartbeats of members
            # that it does not know, so that the member is observed again only after that.
            since_us, lost_us = observed.since_us, moved_us[observed.moves]
            if row is not None and since_us is not None and lost_us > since_us + session_us:
                self._count(member_id)  # its heartbeats went on until then
                return
            heard_us = done_us if row is None else max(row.sent_us, moved_us[-1])
            observed.moves, observed.since_us = len(moved_us), heard_us + LOADING_US
        if request.error != 0:
            return
        if request.api == "SyncGroup":
            observed.since_us = done_us if observed.since_us is None else min(observed.since_us, done_us)
        elif request.api == "Heartbeat" and observed.since_us is not None and done_us > observed.since_us + session_us:
            self._count(member_id)

    def _count(self, member_id: str) -> None:
        if member_id not in self._counted:
            self._counted.add(member_id)
            self.case()


class _Late:
    """Requests of one member in one generation that were sent after a later generation was complete.

    Attributes:
        complete: The response that completed the later generation.
        is_loaded: Whether a response proves that the coordinator has loaded the group.
        accepted: The last such response that accepts the member.
        beat: The last successful heartbeat.
        heartbeat: The last heartbeat that succeeded, or was rejected with an error that ends the generation.
    """

    __slots__ = ("accepted", "beat", "complete", "heartbeat", "is_loaded")

    def __init__(self, complete: Request) -> None:
        self.complete = complete
        self.is_loaded = False
        self.accepted: Request | None = None
        self.beat: Request | None = None
        self.heartbeat: Request | None = None


class StaleRefused(Promise):
    """The first SyncGroup response of the next generation completes it. Later requests in the old one are rejected."""

    name = "stale-refused"
    sentence = (
        "Requests of an old generation are rejected once the next one is complete; with the consumer protocol, those "
        "with an old epoch once the member has got a newer one."
    )
    cases = "members that sent requests of an old generation, and requests with an old member epoch"
    protocol = "classic"
    apis = _IN_GENERATION

    def __init__(self, group: Group, run: Run) -> None:
        super().__init__(group, run)
        self._life = 0
        self._newest = -1
        self._completed: list[tuple[int, Request]] = []
        # Of this life of the group: generations that are newer than all before, with the response that completed them.
        self._late: dict[tuple[int, int, str], _Late] = {}
        # By life, generation and member id.

    def answered(self, request: Request) -> None:
        generation = request.generation
        if generation is None:
            return
        if generation >= self._newest and request.api != "SyncGroup":
            return
        if self._life != self.group.life:
            self._life, self._newest = self.group.life, -1
            self._completed.clear()
        if generation < self._newest:
            self._add(generation, request)
        elif generation > self._newest and request.error == 0:
            self._newest = generation
            self._completed.append((generation, request))

    def _add(self, generation: int, request: Request) -> None:
        api, error, member_id = request.api, request.error, request.member_id
        if generation < 0 or request.member is None or member_id is None or error in MOVED:
            return
        _, complete = self._completed[bisect_right(self._completed, generation, key=lambda each: each[0])]
        assert complete.done_us is not None
        if request.sent_us <= complete.done_us + CLOCK_SKEW_US:
            return  # it may have been handled before the generation was complete
        key = self._life, generation, member_id
        late = self._late.get(key)
        if late is None:
            late = self._late[key] = _Late(complete)
        if api == "Heartbeat" and error != REBALANCE_IN_PROGRESS:
            late.heartbeat = request
            if error == 0:
                late.beat = request
        else:
            late.is_loaded = True
            if api == "Heartbeat" or error == 0:
                late.accepted = request

    def end(self) -> None:
        for late in self._late.values():
            accepted = late.accepted or (late.beat if self._is_kept(late.complete, late.beat) else None)
            if accepted is None:
                if late.is_loaded or self._is_kept(late.complete, late.heartbeat):
                    self.case()
                continue
            self.case()
            if late.beat is not None and late.beat.sent_us > accepted.sent_us:
                accepted = late.beat
            assert late.complete.done_us is not None
            self.violation(
                f"a request of {accepted.member} in generation {accepted.generation} of {self.group.name} was accepted "
                "after a later generation was complete",
                late.complete,
                accepted,
                at_us=late.complete.done_us,
                until_us=accepted.sent_us,
                generation=accepted.generation,
                members=[accepted.member],
            )

    def _is_kept(self, complete: Request, heartbeat: Request | None) -> bool:
        """Return whether the coordinator was the same until a heartbeat.

        A coordinator that is loading answers all heartbeats without an error. Members may look it up only after their
        first heartbeats to it. So look-ups until the last heartbeat count.
        """
        assert complete.done_us is not None
        return heartbeat is not None and self.group.kept_coordinator(complete.done_us, heartbeat.sent_us)


class FencedRefused(Promise):
    """A static member returns with a new member id. Once this id has an assignment, the old id is fenced for good."""

    name = "fenced-refused"
    sentence = "Requests with the old member id of a static member are rejected once a new one has taken over."
    cases = "old member ids that sent requests after a new one had taken over"
    protocol = "classic"
    apis = SESSION_APIS

    def __init__(self, group: Group, run: Run) -> None:
        super().__init__(group, run)
        self._synced: set[str] = set()
        self._holders: dict[str, Request] = {}  # By instance id: the first SyncGroup of its newest member id.
        self._fenced: dict[str, Request] = {}  # By old member id: the SyncGroup of the new one.
        self._late: set[str] = set()
        self._accepted: dict[str, Request] = {}

    def answered(self, request: Request) -> None:
        instance_id, member_id = request.instance_id, request.member_id
        if instance_id is None or member_id is None:
            return
        by = self._fenced.get(member_id)
        if by is not None:
            self._judge(member_id, by, request)
        if request.api == "SyncGroup" and request.error == 0 and member_id not in self._synced:
            self._synced.add(member_id)
            holder = self._holders.get(instance_id)
            self._holders[instance_id] = request
            if holder is None:
                return
            assert holder.done_us is not None
            assert holder.member_id is not None
            if request.sent_us > holder.done_us + CLOCK_SKEW_US:
                # Otherwise either one may have taken over from the other.
                self._fenced[holder.member_id] = request

    def _judge(self, member_id: str, by: Request, request: Request) -> None:
        assert by.done_us is not None
        if request.sent_us <= by.done_us + CLOCK_SKEW_US or request.error in MOVED:
            return
        if member_id not in self._late:
            self._late.add(member_id)
            self.case()
        # A coordinator that is loading answers all heartbeats without an error: such a heartbeat proves nothing.
        if request.error == (REBALANCE_IN_PROGRESS if request.api == "Heartbeat" else 0):
            self._accepted[member_id] = request

    def end(self) -> None:
        for member_id, request in self._accepted.items():
            by = self._fenced[member_id]
            assert by.done_us is not None
            self.violation(
                f"a request of {member_id} in {self.group.name} was accepted after {by.member_id} had taken over its "
                f"instance id {request.instance_id}",
                by,
                request,
                at_us=by.done_us,
                until_us=request.sent_us,
                generation=request.generation,
                members=[request.member],
            )


class UnknownRefused(Promise):
    """A member that has left or was removed joins again with a new member id. The old id is never accepted again."""

    name = "unknown-refused"
    sentence = "Requests of members that have left or were removed are rejected."
    cases = "requests of members that had left or were removed"
    protocol = "classic"
    apis = SESSION_APIS | {"LeaveGroup"}

    def __init__(self, group: Group, run: Run) -> None:
        super().__init__(group, run)
        self._ended: dict[str, Request] = {}  # By member id: the request whose response ended the membership.
        self._lost_us: dict[str, int] = {}  # By member id: when it sent its last request without a response.

    def unanswered(self, request: Request) -> None:
        if request.member_id is not None:
            self._lost_us[request.member_id] = request.sent_us

    def answered(self, request: Request) -> None:
        member_id, error = request.member_id, request.error
        ended = self._ended.get(member_id or "")
        if ended is None and error == 0 and request.api != "LeaveGroup":
            return
        if member_id is None or request.member is None:
            return
        is_known, is_removed = _is_known(request), error == UNKNOWN_MEMBER_ID
        if ended is not None and (is_known or (is_removed and request.api != "LeaveGroup")):
            self._judge(member_id, ended, request, is_known=is_known)
        if is_removed or (request.api == "LeaveGroup" and error == 0):
            self._ended[member_id] = request
        elif is_known or error in MOVED:
            # Either the coordinator has accepted the member again, which was reported. Or another coordinator has the
            # group now, and may not know that the member was removed.
            self._ended.pop(member_id, None)

    def _judge(self, member_id: str, ended: Request, request: Request, *, is_known: bool) -> None:
        since_us, until_us = ended.done_us, request.sent_us
        assert since_us is not None
        if until_us < since_us:
            return  # it may have been handled before
        if ended.broker != request.broker or not self.group.kept_coordinator(since_us, until_us):
            return  # another coordinator may not know that the member was removed
        if ended.sent_us < self._lost_us.get(member_id, 0) <= until_us:
            return  # a request was lost: the coordinator may have restarted, and not know that the member was removed
        self.case()
        if is_known:
            reason = "the response UNKNOWN_MEMBER_ID" if ended.error == UNKNOWN_MEMBER_ID else "it had left"
            self.violation(
                f"a request of {member_id} in {self.group.name} was accepted after {reason}",
                ended,
                request,
                at_us=since_us,
                until_us=until_us,
                generation=request.generation,
            )


def _seconds(duration_us: int, digits: int = 1) -> float:
    return round(duration_us / 1e6, digits)
