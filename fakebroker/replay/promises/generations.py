"""Promises about the generations of groups whose members use the classic protocol: owners, leaders and numbers.

A member learns of a generation from the responses to its JoinGroup and SyncGroup. If a generation id is used twice,
only `generations-rise` is broken. The other promises here skip such generations.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from fakebroker.client.member.assignors import COOPERATIVE_ASSIGNORS
from fakebroker.replay.promises.observer import (
    BOUND_US,
    CLOCK_SKEW_US,
    LOADING_US,
    MOVED,
    REBALANCE_IN_PROGRESS,
    Group,
    Promise,
    Request,
    Run,
)

_SHOWN = 10
"""Maximum number of requests of each kind that show a violation."""

UNKNOWN_SERVER_ERROR = -1


class Seen:
    """What members have seen of a generation: the responses that they got, in order of time.

    Attributes:
        number: The generation.
        joins: JoinGroups that returned it.
        syncs: SyncGroups that were accepted. With the first one, the generation is complete.
        again: JoinGroups that returned it, but should have begun another generation.
        back: JoinGroups that returned it when a later generation was already complete.
        newest: The latest generation that was complete before a JoinGroup in `back` was sent; 0 without one.
    """

    __slots__ = ("again", "back", "joins", "newest", "number", "syncs")

    def __init__(self, number: int) -> None:
        self.number = number
        self.joins: list[Request] = []
        self.syncs: list[Request] = []
        self.again: list[Request] = []
        self.back: list[Request] = []
        self.newest = 0

    def is_used_again_by(self, join: Request, arrived_us: int) -> bool:
        """Return whether a JoinGroup returned the generation although it must begin another one.

        Args:
            join: The JoinGroup.
            arrived_us: When the first JoinGroup of the same member id was sent.
        """
        if not self.syncs or join.instance_id is not None:
            return False  # A static member may get the current generation, if it is known.
        if arrived_us > done_us(self.syncs[0]) + CLOCK_SKEW_US:
            return True  # A new member
        # A leader that joins again after it got its assignment must begin another generation. A follower gets the
        # current one.
        return join.leader == join.member_id and any(
            sync.member_id == join.member_id and done_us(sync) <= join.sent_us for sync in self.syncs
        )

    def assignments(self) -> dict[str | None, list[Request]]:
        """Return, for each owner of partitions, its SyncGroups that have an assignment. The last one counts."""
        found: dict[str | None, list[Request]] = {}
        for sync in self.syncs:
            if sync.assigned is not None:
                found.setdefault(sync.owner, []).append(sync)
        return found


def done_us(request: Request) -> int:
    """Return when the response to an answered request was read."""
    assert request.done_us is not None
    return request.done_us


class _OfEachGeneration(Promise):
    """A promise about each generation. Each generation is judged at the end, when all responses are known."""

    protocol = "classic"
    apis = frozenset({"JoinGroup", "SyncGroup"})

    def __init__(self, group: Group, run: Run) -> None:
        super().__init__(group, run)
        self._arrived_us: dict[str | None, int] = {}
        self._seen: dict[tuple[int, int], Seen] = {}
        self._life, self._life_us = 0, 0

    def sent(self, request: Request) -> None:
        if request.api == "JoinGroup":
            self._arrived_us.setdefault(request.member_id, request.sent_us)

    def answered(self, request: Request) -> None:
        if request.error != 0 or request.member is None:
            return
        if self.group.life > self._life:
            self._life, self._life_us = self.group.life, done_us(request)
        if request.api == "SyncGroup" and request.sent_us < self._life_us:
            return  # A response of an earlier life, which a paused member has read late.
        number = request.generation
        assert number is not None
        key = self._life, number
        seen = self._seen.get(key)
        if seen is None:
            seen = self._seen[key] = Seen(number)
        if request.api == "SyncGroup":
            seen.syncs.append(request)
            return
        if seen.is_used_again_by(request, self._arrived_us[request.member_id]):
            seen.again.append(request)
        seen.joins.append(request)

    def end(self) -> None:
        for (life, _), seen in self._seen.items():
            if not seen.again:
                self.judge(life, seen)

    def judge(self, life: int, seen: Seen) -> None:
        """Judge a generation."""
        raise NotImplementedError


class OneOwner(_OfEachGeneration):
    """No partition is assigned to two members of a generation.

    A static member that returns with a new member id is the same owner.
    """

    name = "one-owner"
    sentence = (
        "In a generation, no partition is assigned to more than one member; with the consumer protocol, none is before "
        "its former owner has given it up."
    )
    cases = "partitions assigned in generations with several members, or taken over from another member"

    def judge(self, life: int, seen: Seen) -> None:
        assignments = seen.assignments()
        if len(assignments) < 2:
            return
        first_owners: dict[str, str | None] = {}
        twice: dict[str, set[str | None]] = {}
        for owner, syncs in assignments.items():
            for partition in syncs[-1].assigned or ():
                first = first_owners.setdefault(partition, owner)
                if first != owner:
                    twice.setdefault(partition, {first}).add(owner)
        self.case(len(first_owners))
        if twice:
            owners = dict.fromkeys(owner for partition in twice for owner in assignments if owner in twice[partition])
            self.violation(
                f"{', '.join(sorted(twice))} of {self.group.name}: assigned to more than one member in generation "
                f"{seen.number}",
                *[assignments[owner][-1] for owner in owners][:_SHOWN],
                at_us=min(done_us(assignments[owner][0]) for owner in owners),
                until_us=max(done_us(assignments[owner][-1]) for owner in owners),
                generation=seen.number,
                members=[assignments[owner][-1].member for owner in owners],
            )


class Covered(_OfEachGeneration):
    """Each partition of the subscribed topics is assigned, and no others are.

    A generation can be judged only if all its members have reported their assignments. If a topic got more partitions
    during the replay, its partitions may be unassigned.
    """

    name = "covered"
    sentence = "The assignments of a generation cover exactly the topics its members subscribe to."
    cases = "generations with the assignments of all their members"
    protocol = "classic"
    apis = frozenset({"JoinGroup", "SyncGroup", "Heartbeat"})

    def __init__(self, group: Group, run: Run) -> None:
        super().__init__(group, run)
        self._is_cooperative = any(script.assignor in COOPERATIVE_ASSIGNORS for script in group.scripts.values())
        self._lasted_us: dict[tuple[int, int], int] = {}  # By generation: its last heartbeat that was accepted

    def answered(self, request: Request) -> None:
        if request.api != "Heartbeat":
            super().answered(request)
        elif self._is_cooperative and request.error == 0 and request.generation is not None:
            key = self.group.life, request.generation
            generation = self.group.generations.get(key)
            if generation is None or generation.completed_us is None or request.member is None:
                return
            if not self.group.kept_coordinator(generation.completed_us, request.sent_us):
                return  # A coordinator that is loading accepts all heartbeats. They do not show that this one lasts.
            self._lasted_us[key] = max(request.sent_us, self._lasted_us.get(key, 0))

    def judge(self, life: int, seen: Seen) -> None:
        assignments = [
            (syncs, script)
            for syncs in seen.assignments().values()
            if (script := self.group.scripts.get(syncs[-1].member or "")) is not None
        ]
        listed = self.group.generations[life, seen.number].listed
        if listed is None or len(assignments) < listed:
            return  # The assignment of a member, or the leader's list of members, is unknown.
        scripts = [script for _, script in assignments]
        given = {partition for syncs, _ in assignments for partition in syncs[-1].assigned or ()}
        topics = {topic for script in scripts for topic in script.topics}
        wanted = {f"{topic}-{number}" for topic in topics for number in range(self.run.partitions.get(topic, 0))}
        foreign = sorted(each for each in given - wanted if each.rpartition("-")[0] not in topics)
        missing = sorted(wanted - given)
        until_us = max(done_us(syncs[-1]) for syncs, _ in assignments)
        if missing and any(script.assignor in COOPERATIVE_ASSIGNORS for script in scripts):
            # A cooperative assignor withholds a partition until its owner has revoked it (KIP-429). The next generation
            # must assign it, so this one must not last.
            limit_ms = max(max(script.session_timeout_ms, script.rebalance_timeout_ms) for script in scripts)
            if self._lasted_us.get((life, seen.number), 0) <= until_us + limit_ms * 1000 + BOUND_US:
                if not foreign:
                    return
                missing = []
        self.case()
        if missing or foreign:
            faults = []
            if missing:
                more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
                faults.append(f"does not assign {', '.join(missing[:5])}{more}")
            if foreign:
                faults.append(f"assigns {', '.join(foreign[:5])}, which no member subscribes to")
            self.violation(
                f"generation {seen.number} of {self.group.name} {' and '.join(faults)}",
                *[syncs[-1] for syncs, _ in assignments[:_SHOWN]],
                at_us=min(done_us(syncs[0]) for syncs, _ in assignments),
                until_us=until_us,
                generation=seen.number,
                members=[syncs[-1].member for syncs, _ in assignments],
            )


class OneLeader(_OfEachGeneration):
    """All members of a generation get the same leader and protocol.

    Only members that got their assignment count. The reason: if no member saw generation 5 complete, and the
    coordinator moves, the group may use generation 5 again, with another leader.
    """

    name = "one-leader"
    sentence = "A generation has one leader and one protocol."
    cases = "generations with several members"

    def __init__(self, group: Group, run: Run) -> None:
        super().__init__(group, run)
        self._owners: dict[str | None, str | None] = {}  # By member id

    def answered(self, request: Request) -> None:
        super().answered(request)
        if request.error == 0 and request.member is not None:
            self._owners[request.member_id] = request.owner

    def judge(self, life: int, seen: Seen) -> None:
        assigned = {sync.member_id for sync in seen.syncs}
        last = {join.member_id: join for join in seen.joins}
        joins = {
            member_id: join
            for member_id, join in last.items()
            # A response that a member has read late may be about an earlier use of the generation, before a move.
            if member_id in assigned and self.group.kept_coordinator(join.sent_us, done_us(join))
        }
        if len(joins) < 2:
            return
        self.case()
        # A leader that was never seen may be another member id of the same static member.
        leaders = {join.leader: join for join in joins.values() if join.leader in self._owners}
        protocols = {join.protocol: join for join in joins.values() if join.protocol is not None}
        what, shown = "", []
        if len({self._owners[leader] for leader in leaders}) > 1:
            what += f" has several leaders: {', '.join(sorted(filter(None, leaders)))}"
            shown += list(leaders.values())[:_SHOWN]
        if len(protocols) > 1:
            what += f" has several protocols: {', '.join(sorted(filter(None, protocols)))}"
            shown += list(protocols.values())[:_SHOWN]
        if what:
            times = [done_us(each) for each in (*seen.joins, *seen.syncs) if each.member_id in joins]
            self.violation(
                f"generation {seen.number} of {self.group.name}{what}",
                *shown,
                at_us=min(times),
                until_us=max(times),
                generation=seen.number,
                members=[join.member for join in joins.values()],
            )


class GenerationsRise(Promise):
    """Generations count the rebalances of a group. Only a group that was empty may start over at generation 1.

    A generation that no member saw complete may be used again. The coordinator may have moved before the generation was
    stored.
    """

    name = "generations-rise"
    sentence = "Each rebalance increments the group's generation by one, also after its coordinator has moved."
    cases = "JoinGroup responses after the first rebalance of a group"
    protocol = "classic"
    apis = frozenset({"JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit", "LeaveGroup"})

    def __init__(self, group: Group, run: Run) -> None:
        super().__init__(group, run)
        self._arrived_us: dict[str | None, int] = {}  # By member id: its first JoinGroup
        self._lost_us: list[int] = []  # When JoinGroups were sent whose effect is unknown
        self._left: set[str | None] = set()  # The member ids in LeaveGroups
        # No member is removed within this time after an accepted request.
        self._shortest_us = min(
            (1000 * min(each.session_timeout_ms, each.rebalance_timeout_ms) for each in group.scripts.values()),
            default=0,
        )
        self._first: Seen | None = None
        self._lives: list[dict[int, Seen]] = []
        self._begin_life(0)

    def _begin_life(self, at_us: int) -> None:
        """Begin a life of the group; it ends when the group is deleted, or expires, and starts over at generation 1."""
        self._life: dict[int, Seen] = {}
        self._life_us = at_us
        self._complete = 0  # The highest generation that was complete
        # By member id: its last accepted request when no rebalance was waiting for it.
        self._steady: dict[str | None, Request] = {}
        # By member id: its last accepted request when a rebalance may have been waiting for it.
        self._rebalancing: dict[str | None, Request] = {}
        self._lives.append(self._life)

    def sent(self, request: Request) -> None:
        if request.api == "JoinGroup":
            self._arrived_us.setdefault(request.member_id, request.sent_us)
            if request.error in (None, UNKNOWN_SERVER_ERROR, *MOVED) or request.member is None:
                self._lost_us.append(request.sent_us)
        elif request.api == "LeaveGroup":
            self._left.add(request.member_id)

    def answered(self, request: Request) -> None:
        if request.member is None:
            return
        if request.api == "Heartbeat":
            if request.error == REBALANCE_IN_PROGRESS:
                self._rebalancing[request.member_id] = request
            elif request.error == 0:
                # A coordinator that is loading accepts all heartbeats. They count only if the member cannot have been
                # removed since its last one.
                moved_us = self.group.moved_us
                before = self._steady.get(request.member_id)
                if (
                    not moved_us
                    or request.sent_us > moved_us[-1] + LOADING_US
                    or (before is not None and request.sent_us < _last_us(before) + self._shortest_us)
                ):
                    self._steady[request.member_id] = request
        elif request.error != 0:
            pass
        elif request.api == "OffsetCommit":
            self._rebalancing[request.member_id] = request
        elif request.api == "JoinGroup":
            self._joined(request)
        elif request.api == "SyncGroup" and request.sent_us >= self._life_us:
            # Otherwise it is a response of an earlier life, which a paused member has read late.
            seen = self._seen(request)
            seen.syncs.append(request)
            self._complete = max(self._complete, seen.number)
            self._steady[request.member_id] = request

    def _seen(self, request: Request) -> Seen:
        number = request.generation
        assert number is not None
        seen = self._life.get(number)
        if seen is None:
            seen = self._life[number] = Seen(number)
        return seen

    def _joined(self, join: Request) -> None:
        number = join.generation
        assert number is not None
        if join.sent_us < self._life_us and number > 1:
            # It may belong to the earlier life: its effect on this one is unknown.
            insort(self._lost_us, join.sent_us)
            return
        newest = self._newest_before(join)
        goes_back = newest > number
        is_again = number in self._life and self._life[number].is_used_again_by(join, self._arrived_us[join.member_id])
        if goes_back and number == 1:
            starts_over = True
        else:
            starts_over = (goes_back or is_again) and self._may_have_started_over(join)
        if starts_over:
            # The group has started over, which it may do only after it has been empty.
            present = list(self._present(join))
            if present:
                self.violation(
                    f"{self.group.name} started over at generation 1 while it had members",
                    *present[:_SHOWN],
                    join,
                    at_us=min(_last_us(each) for each in present),
                    until_us=join.sent_us,
                    generation=1,
                    members=[each.member for each in present],
                )
            self._begin_life(done_us(join))
            goes_back = is_again = False
        seen = self._seen(join)
        if goes_back:
            seen.back.append(join)
            seen.newest = max(newest, seen.newest)
        if is_again:
            seen.again.append(join)
        seen.joins.append(join)
        if self._first is None:
            self._first = seen
        if seen is not self._first or (seen.syncs and done_us(join) > done_us(seen.syncs[0])):
            self.case()

    def _newest_before(self, join: Request) -> int:
        """Return the latest generation above a JoinGroup's own that was complete before it was sent; 0 without one."""
        number = join.generation or 0
        if number >= self._complete:
            return 0
        return max(
            (
                later
                for later, seen in self._life.items()
                if later > number and seen.syncs and done_us(seen.syncs[0]) + CLOCK_SKEW_US <= join.sent_us
            ),
            default=0,
        )

    def _may_have_started_over(self, join: Request) -> bool:
        """Return whether the group may have been empty, and have started over.

        Then JoinGroups whose effect is unknown must have begun the new generations below this one.
        """
        assert join.generation is not None
        complete_us = done_us(self._life[self._complete].syncs[0])
        # A new group rejects member ids that it does not know.
        is_new = self._arrived_us[join.member_id] + CLOCK_SKEW_US > complete_us
        lost = self._lost_between(complete_us, done_us(join))
        return is_new and join.generation - 1 <= lost and not any(self._present(join))

    def _lost_between(self, since_us: int, until_us: int) -> int:
        """Return how many JoinGroups sent between two times may have begun a generation that no member has seen."""
        before = bisect_left(self._lost_us, since_us - CLOCK_SKEW_US)
        return bisect_right(self._lost_us, until_us + CLOCK_SKEW_US) - before

    def _present(self, join: Request) -> Iterator[Request]:
        """Yield the last accepted requests of members that the group had when it got the first JoinGroup of a life.

        Args:
            join: The JoinGroup that was answered first. A group that was empty answers it after the initial delay.
        """
        at_us = max(join.sent_us, done_us(join) - self.run.delay_us) + CLOCK_SKEW_US
        for member_id in self._steady:
            last, until_us = self._known_until(member_id)
            if last is not None and until_us > at_us and member_id not in self._left:
                yield last

    def _known_until(self, member_id: str | None) -> tuple[Request | None, int]:
        """Return the last accepted request of a member, and until when it is known to stay if it sends nothing more.

        It may be removed when its session expires, or when it does not join before a rebalance ends.
        """
        steady = self._steady.get(member_id)
        script = self.group.scripts.get((steady and steady.member) or "")
        if steady is None or script is None:
            return None, 0
        last = max(steady, self._rebalancing.get(member_id, steady), key=_last_us)
        session_us = _last_us(last) + script.session_timeout_ms * 1000
        return last, min(session_us, _last_us(steady) + script.rebalance_timeout_ms * 1000)

    def end(self) -> None:
        for life in self._lives:
            previous: Seen | None = None
            for _, seen in sorted(life.items()):
                if not seen.joins:
                    continue
                if previous is not None:
                    self._compare(previous, seen)
                if seen.back:
                    complete = life[seen.newest].syncs[0]
                    self.violation(
                        f"{self.group.name} went back to generation {seen.number} after generation {seen.newest} was "
                        "complete",
                        complete,
                        *seen.back[:_SHOWN],
                        at_us=min(join.sent_us for join in seen.back),
                        until_us=done_us(seen.back[-1]),
                        generation=seen.number,
                        members=[join.member for join in seen.back],
                    )
                if seen.again:
                    self.violation(
                        f"generation {seen.number} of {self.group.name} was used again after it was complete",
                        seen.syncs[0],
                        *seen.again[:_SHOWN],
                        at_us=done_us(seen.syncs[0]),
                        until_us=done_us(seen.again[0]),
                        generation=seen.number,
                        members=[join.member for join in seen.again],
                    )
                previous = seen

    def _compare(self, previous: Seen, seen: Seen) -> None:
        """Compare a generation with the previous generation, in the order of numbers."""
        skipped = seen.number - previous.number - 1
        if skipped == 0:
            return
        before, after = previous.joins[0], seen.joins[0]
        # A generation is not seen if the JoinGroups that began it were lost.
        lost = unseen = self._lost_between(0, done_us(after))
        if {join.member_id for join in previous.joins}.isdisjoint(join.member_id for join in seen.joins):
            # The group may have become empty: at first, and after each lost JoinGroup. Each time skips a generation.
            unseen = 2 * lost + 1
        if skipped > unseen:
            self.violation(
                f"{self.group.name} went from generation {previous.number} to {seen.number}",
                before,
                after,
                at_us=min(done_us(before), done_us(after)),
                until_us=max(done_us(before), done_us(after)),
                generation=seen.number,
                members=[join.member for join in seen.joins],
            )


def _last_us(request: Request) -> int:
    """Return when a request was sent; of folded requests, when the last one was sent, even if it is still to come."""
    return request.sent_us if request.until_us is None else request.until_us
