"""The extension of a group with batch joins (KAFKA-8397): registers expected instances and holds their joins back.

An expected instance is a registered `group.instance.id` with a reserved member id that has not become a member yet.
When all expected instances have sent a JoinGroup, or the wait has expired, the waiting joins are handled together, in
an ordinary rebalance. `scenarios/proposals/batch-join.md` has the rules.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from math import inf
from typing import cast

from msgspec.structs import replace

from fakebroker.coordinator.api import JoinGroup, JoinResult
from fakebroker.coordinator.batch_join.batch import BatchJoin, BatchMember, BatchToken
from fakebroker.coordinator.batch_join.combined_joins import handle_combined_joins
from fakebroker.coordinator.batch_join.expected_instances import (
    ExpectedInstance,
    ExpectedInstances,
    StoredInstance,
    WaitingJoin,
)
from fakebroker.coordinator.classic import rebalance
from fakebroker.coordinator.classic.group import Group
from fakebroker.coordinator.persistence import store_extension
from fakebroker.errors import ErrorCode

_MOST_NAMED = 8
"""At most this many missing instances are named in the cause of a change."""


class BatchJoinExtension:
    """Expected instances and waiting joins of one group; implements `GroupExtension`.

    Attributes:
        group: The group.
        expected: The expected instances and waiting joins. Replaced when the wait ends.
    """

    timer_name = "expected"

    def __init__(self, group: Group) -> None:
        self.group = group
        self.expected = ExpectedInstances()

    @classmethod
    def of(cls, group: Group) -> "BatchJoinExtension":
        """Return the extension of a group; add it if the group has none yet."""
        if not isinstance(group.extension, cls):
            group.extension = cls(group)
        return group.extension

    # Registrations

    def register(
        self,
        members: Sequence[tuple[BatchToken, BatchMember]],
        timeout_ms: int,
        now_ms: float,
        new_uuid: Callable[[], str],
    ) -> ErrorCode:
        """Register expected instances and answer each registration.

        Args:
            members: Those members of the batch that have no protocols, each with the token for its result.
            timeout_ms: How long a registration lasts without a join.
            now_ms: The time.
            new_uuid: Returns the last part of a new member id.

        Returns:
            NONE, or the error of the append. After an error no registration is kept, and the caller must answer all
            members.
        """
        results = [(token, self._register(member, timeout_ms, now_ms, new_uuid)) for token, member in members]
        registered = [token.batch.members[token.index].instance_id or "" for token, each in results if not each.error]
        if registered and (error := store_extension(self.group)):
            for instance_id in registered:
                del self.expected.instances[instance_id]
            return error
        for token, result in results:
            self.group.answer(token, result)
        return ErrorCode.NONE

    def _register(self, member: BatchMember, timeout_ms: int, now_ms: float, new_uuid: Callable[[], str]) -> JoinResult:
        group, instance_id, instances = self.group, member.instance_id or "", self.expected.instances
        expected = instances.get(instance_id)
        known_id = group.static_members.get(instance_id, "") if expected is None else expected.member_id
        if member.member_id and member.member_id != known_id:
            return JoinResult(ErrorCode.FENCED_INSTANCE_ID, member_id=member.member_id)
        if known_id:
            return JoinResult(ErrorCode.DUPLICATE_RESOURCE, member_id=known_id)
        if len(group.members) + len(instances) >= group.config.group_max_size:
            return JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED)
        member_id = f"{instance_id}-{new_uuid()}"
        self.expect(instance_id, member_id, timeout_ms, now_ms)
        return JoinResult(ErrorCode.NONE, member_id=member_id)

    def expect(self, instance_id: str, member_id: str, timeout_ms: int, now_ms: float) -> None:
        """Add an expected instance with the member id reserved for it; its timer runs for at least 1 ms."""
        expected = ExpectedInstance(instance_id, member_id, timeout_ms, now_ms + max(1, timeout_ms))
        self.expected.instances[instance_id] = expected
        self._arm()

    def _arm(self) -> None:
        self.group.deadline_ms = min(self.group.deadline_ms, self.deadline_ms)

    # Joins

    def join_batch(
        self,
        request: BatchJoin,
        members: Sequence[tuple[BatchToken, BatchMember]],
        now_ms: float,
        new_uuid: Callable[[], str],
    ) -> None:
        """Handle the joins of a batch together. If an expected instance is among them, all of them are held back."""
        joins, is_expected = [], False
        for token, member in members:
            join = _join_of(request, member)
            expected = self.expected.instances.get(member.instance_id or "")
            if expected is None:
                self._supersede_waiting(member.member_id, now_ms)
                new_member_id = "" if member.member_id else rebalance.new_member_id(join, new_uuid)
                joins.append(WaitingJoin(join, token, new_member_id))
            elif rejection := self._rejection(expected, join):
                self.group.answer(token, rejection)
            else:
                joins.append(self._waiting_join(expected, join, token))
                is_expected = True
        if is_expected:
            for waiting in joins:
                self._hold_back(waiting, now_ms)
            self._end_wait_if_complete(now_ms)
        elif joins:
            handle_combined_joins(self.group, joins, f"JoinGroup of {len(joins)} members at once", now_ms)

    def join(self, request: JoinGroup, token: object, now_ms: float, new_uuid: Callable[[], str]) -> bool:
        """Hold back the join of an expected instance. The classic group handles any other join."""
        if not self.expected.instances:
            return False
        expected = self.expected.instances.get(request.instance_id or "")
        if expected is None:
            self._supersede_waiting(request.member_id, now_ms)
            return False
        if rejection := self._rejection(expected, request):
            self.group.answer(token, rejection)
        else:
            self._hold_back(self._waiting_join(expected, request, token), now_ms)
            self._end_wait_if_complete(now_ms)
        return True

    def _rejection(self, expected: ExpectedInstance, request: JoinGroup) -> JoinResult | None:
        if not self._fits(expected, request):
            return JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id=request.member_id)
        if request.member_id not in ("", expected.member_id):
            return JoinResult(ErrorCode.FENCED_INSTANCE_ID, member_id=request.member_id)
        return None

    def _fits(self, expected: ExpectedInstance, request: JoinGroup) -> bool:
        """Whether this join, the members of the group, and the waiting expected instances have a common protocol.

        Waiting instances that are no longer compatible with the members are ignored.
        """
        group = self.group
        if not group.supports(request.protocol_type, request.protocols):
            return False
        common = {name for name, _ in request.protocols if group.protocol_counts.get(name, 0) == len(group.members)}
        for each in self.expected.instances.values():
            other = self.expected.waiting.get(each.member_id)
            if other is None or each is expected:
                continue
            kind, protocols = other.request.protocol_type, other.request.protocols
            if group.supports(kind, protocols):
                common &= {name for name, _ in protocols if kind == request.protocol_type}
        return bool(common)

    def _waiting_join(self, expected: ExpectedInstance, request: JoinGroup, token: object) -> WaitingJoin:
        """Return the waiting join of an expected instance, and end its older waiting join.

        A join without the member id replaces the older one, which gets FENCED_INSTANCE_ID, as when a static
        member is replaced. A join with the member id is a repetition by the same member.
        """
        older = self.expected.waiting.pop(expected.member_id, None)  # The deadline of the waiting joins remains.
        if older is not None and request.member_id:
            self.supersede(older.token)
        elif older is not None:
            self.group.answer(older.token, JoinResult(ErrorCode.FENCED_INSTANCE_ID, member_id=expected.member_id))
        return WaitingJoin(replace(request, member_id=""), token, expected.member_id)

    def _supersede_waiting(self, member_id: str, now_ms: float) -> None:
        """End the waiting join of a member, if there is one, because the member has joined again."""
        if older := self._remove_waiting(member_id):
            self.supersede(older.token)
            self._restart_session(member_id, now_ms)

    def _hold_back(self, join: WaitingJoin, now_ms: float) -> None:
        """Hold a join back. The rebalance timeout of the first waiting join limits how long all of them wait."""
        expected = self.expected
        if expected.waiting_deadline_ms == inf:
            expected.waiting_deadline_ms = now_ms + max(1, join.request.rebalance_timeout_ms)
        expected.waiting[join.member_id] = join
        self._arm()

    def _remove_waiting(self, member_id: str) -> WaitingJoin | None:
        """Remove and return a waiting join, if there is one."""
        join = self.expected.waiting.pop(member_id, None)
        if not self.expected.waiting:
            self.expected.waiting_deadline_ms = inf
            self._arm()
        return join

    # The end of the wait

    def _end_wait_if_complete(self, now_ms: float) -> bool:
        """End the wait if no instance is missing; return whether a rebalance was started."""
        if not self.expected.waiting or self.expected.missing:
            return False
        return self._end_wait("all expected instances have joined", now_ms)

    def _end_wait(self, cause: str, now_ms: float) -> bool:
        """End the wait and handle the waiting joins together.

        Expected instances come first, then the others; each part is in order of arrival.
        """
        expected_ids = [expected.member_id for expected in self.expected.instances.values()]
        joins = sorted(self.expected.waiting.values(), key=lambda join: join.member_id not in expected_ids)
        self.expected = ExpectedInstances()
        for join in joins:
            self._restart_session(join.member_id, now_ms)
        # If the append fails, a new coordinator loads the instances as expected again.
        store_extension(self.group)
        return handle_combined_joins(self.group, joins, cause, now_ms)

    def _restart_session(self, member_id: str, now_ms: float) -> None:
        """Restart the session of a member, which may have expired without effect while the member's join waited."""
        if member := self.group.members.get(member_id):
            self.group.arm_session(member, member.session_timeout_ms, now_ms)

    # GroupExtension

    @property
    def deadline_ms(self) -> float:
        return self.expected.deadline_ms()

    @property
    def reserved_places(self) -> int:
        return len(self.expected.instances)

    @property
    def waiting_joins(self) -> Collection[str]:
        return self.expected.waiting

    def expire(self, now_ms: float) -> None:
        """End the wait for missing instances if there are waiting joins; else drop the registrations that expire."""
        expected = self.expected
        missing = ", ".join(instance.instance_id for instance in expected.missing[:_MOST_NAMED])
        if expected.waiting:
            self._end_wait(f"expected instances have not joined in time: {missing}", now_ms)
            return
        deadline_ms = expected.deadline_ms()
        for instance in expected.missing:
            if instance.deadline_ms == deadline_ms:
                del expected.instances[instance.instance_id]
        store_extension(self.group)

    def leave(self, member_id: str, instance_id: str | None) -> ErrorCode | None:
        """Drop an expected instance; its waiting join gets UNKNOWN_MEMBER_ID."""
        expected = self.expected.find(member_id, instance_id)
        if expected is None:
            return None
        if member_id not in ("", expected.member_id):
            return ErrorCode.FENCED_INSTANCE_ID
        del self.expected.instances[expected.instance_id]
        if join := self._remove_waiting(expected.member_id):
            self.group.answer(join.token, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID))
        return ErrorCode.NONE

    def after_leave(self, now_ms: float) -> bool:
        store_extension(self.group)
        return self._end_wait_if_complete(now_ms)

    def deliver(self, token: object, result: object, send: Callable[[object, object], None]) -> None:
        if isinstance(token, BatchToken):
            token.batch.add_result(token.index, cast(JoinResult, result), send)
        else:
            send(token, result)

    def supersede(self, token: object) -> None:
        """Answer a superseded join if it belongs to a batch, which needs the results of all its members.

        Other superseded joins get no answer, as in Kafka.
        """
        if isinstance(token, BatchToken):
            self.group.answer(token, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS))

    def reject_waiting(self, error: ErrorCode) -> None:
        for join in self.expected.waiting.values():
            self.group.answer(join.token, JoinResult(error, member_id=join.member_id))

    def stored_values(self) -> tuple[object, ...]:
        instances = self.expected.instances.values()
        return tuple(StoredInstance(each.instance_id, each.member_id, each.rebalance_timeout_ms) for each in instances)

    def restore(self, values: Iterable[object], now_ms: float) -> None:
        """Restore expected instances, up to the free places in the group. Their timers start over.

        An instance that is stored both as a member and as expected remains a member: it has left and was registered
        again, but the record of its leaving was not stored.
        """
        members = self.group.static_members
        instances = [each for each in values if isinstance(each, StoredInstance) and each.instance_id not in members]
        places = max(0, self.group.config.group_max_size - len(self.group.members))
        for each in instances[:places]:
            self.expect(each.instance_id, each.member_id, each.rebalance_timeout_ms, now_ms)

    def broken_rule(self) -> str | None:
        return next((rule for rule, holds in _RULES if not holds(self.group, self.expected)), None)


def expected_instances(group: Group) -> ExpectedInstances:
    """Return the expected instances and waiting joins of a group, for callers that do not change them."""
    return group.extension.expected if isinstance(group.extension, BatchJoinExtension) else ExpectedInstances()


def _join_of(request: BatchJoin, member: BatchMember) -> JoinGroup:
    return JoinGroup(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=member.protocols,
        requires_member_id=False,
        supports_skip_assignment=False,
    )


def _are_not_members(group: Group, expected: ExpectedInstances) -> bool:
    ids = [instance.member_id for instance in expected.instances.values()]
    is_member = any(each in group.members or each in group.pending_members for each in ids)
    return len(set(ids)) == len(ids) and not is_member and not group.static_members.keys() & expected.instances


_RULES: tuple[tuple[str, Callable[[Group, ExpectedInstances], object]], ...] = (
    (
        "the key of an expected instance is its instance id",
        lambda g, e: all(instance.instance_id == i for i, instance in e.instances.items()),
    ),
    ("an expected instance is not a member", _are_not_members),
    ("joins wait only while an expected instance is missing", lambda g, e: not e.waiting or e.missing),
    (
        "the timer of waiting joins runs exactly while joins wait",
        lambda g, e: (e.waiting_deadline_ms < inf) == bool(e.waiting),
    ),
    (
        "a waiting join is not parked in the group",
        lambda g, e: not any(i in g.parked_joins for i in e.waiting),
    ),
)
