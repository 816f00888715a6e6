"""The extension of a group with batch joins (KAFKA-8397): registers expected instances and holds their joins back.

An expected instance is a registered `group.instance.id` with a reserved member id that has not become a member yet.
When all expected instances have sent a JoinGroup, or the wait has expired, the waiting joins are handled together, in
an ordinary rebalance. `scenarios/proposals/batch-join.md` has the rules.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain
from math import inf
from typing import cast

from msgspec.structs import replace

from fakebroker.cluster.inspect.phrases import listed
from fakebroker.coordinator.classic import rebalance
from fakebroker.coordinator.classic.extension import ReservedPlace, TaggedFields
from fakebroker.coordinator.classic.group import Group, join_error
from fakebroker.coordinator.context import OwnContext, RequestContext
from fakebroker.coordinator.persistence import store_extension
from fakebroker.errors import ErrorCode
from fakebroker.proposals.batch_join.batch import BatchContext
from fakebroker.proposals.batch_join.combined_joins import handle_combined_joins
from fakebroker.proposals.batch_join.expected_instances import (
    ExpectedInstance,
    ExpectedInstances,
    WaitingJoin,
)
from fakebroker.proposals.batch_join.messages import (
    EXPECTED_MEMBERS_TAG,
    BatchJoinGroupRequest,
    BatchJoinGroupRequestMember,
    ExpectedMember,
    ExpectedMembers,
)
from fakebroker.protocol.codec import decode, encode
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from fakebroker.protocol.schema import Message

_NOBODY = OwnContext(9, "", "")
"""The context of the waiting joins in a copy of a group. No client waits for their responses."""

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
        members: Sequence[tuple[BatchContext, BatchJoinGroupRequestMember]],
        timeout_ms: int,
        now_ms: float,
        new_uuid: Callable[[], str],
    ) -> ErrorCode:
        """Register expected instances and answer each registration.

        Args:
            members: The members of the batch that have no protocols, each with its context.
            timeout_ms: How long a registration lasts without a join.
            now_ms: The time.
            new_uuid: Returns the last part of a new member id.

        Returns:
            NONE, or the error of the append. After an error no registration is kept, and the caller must answer all
            members.
        """
        responses = [self._register(each, context, timeout_ms, now_ms, new_uuid) for context, each in members]
        registered = [
            member.group_instance_id or ""
            for (_, member), response in zip(members, responses, strict=True)
            if not response.error_code
        ]
        if registered and (error := store_extension(self.group)):
            for instance_id in registered:
                del self.expected.instances[instance_id]
            return error
        for (context, _), response in zip(members, responses, strict=True):
            self.group.answer(context, response)
        return ErrorCode.NONE

    def _register(
        self,
        member: BatchJoinGroupRequestMember,
        context: RequestContext,
        timeout_ms: int,
        now_ms: float,
        new_uuid: Callable[[], str],
    ) -> JoinGroupResponse:
        group, instance_id, instances = self.group, member.group_instance_id or "", self.expected.instances
        expected = instances.get(instance_id)
        known_id = group.static_members.get(instance_id, "") if expected is None else expected.member_id
        if member.member_id and member.member_id != known_id:
            return join_error(context, ErrorCode.FENCED_INSTANCE_ID, member.member_id)
        if known_id:
            return join_error(context, ErrorCode.DUPLICATE_RESOURCE, known_id)
        if len(group.members) + len(instances) >= group.config.group_max_size:
            return join_error(context, ErrorCode.GROUP_MAX_SIZE_REACHED)
        member_id = f"{instance_id}-{new_uuid()}"
        self.expect(instance_id, member_id, timeout_ms, now_ms)
        return join_error(context, ErrorCode.NONE, member_id)

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
        request: BatchJoinGroupRequest,
        members: Sequence[tuple[BatchContext, BatchJoinGroupRequestMember]],
        now_ms: float,
        new_uuid: Callable[[], str],
    ) -> None:
        """Handle the joins of a batch together. If an expected instance is among them, all of them are held back."""
        joins, is_expected = [], False
        for context, member in members:
            join = _join_of(request, member)
            expected = self.expected.instances.get(member.group_instance_id or "")
            if expected is None:
                self._supersede_waiting(member.member_id, now_ms)
                new_member_id = ""
                if not member.member_id:
                    new_member_id = rebalance.new_member_id(member.group_instance_id, context, new_uuid)
                joins.append(WaitingJoin(join, context, new_member_id))
            elif rejection := self._rejection(expected, join, context):
                self.group.answer(context, rejection)
            else:
                joins.append(self._waiting_join(expected, join, context))
                is_expected = True
        if is_expected:
            for waiting in joins:
                self._hold_back(waiting, now_ms)
            self._end_wait_if_complete(now_ms)
        elif joins:
            handle_combined_joins(self.group, joins, f"JoinGroup of {len(joins)} members at once", now_ms)

    def join(
        self, request: JoinGroupRequest, context: RequestContext, now_ms: float, new_uuid: Callable[[], str]
    ) -> bool:
        """Hold back the join of an expected instance. The classic group handles any other join."""
        if not self.expected.instances:
            return False
        expected = self.expected.instances.get(request.group_instance_id or "")
        if expected is None:
            self._supersede_waiting(request.member_id, now_ms)
            return False
        if rejection := self._rejection(expected, request, context):
            self.group.answer(context, rejection)
        else:
            self._hold_back(self._waiting_join(expected, request, context), now_ms)
            self._end_wait_if_complete(now_ms)
        return True

    def _rejection(
        self, expected: ExpectedInstance, request: JoinGroupRequest, context: RequestContext
    ) -> JoinGroupResponse | None:
        if not self._fits(expected, request):
            return join_error(context, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        if request.member_id not in ("", expected.member_id):
            return join_error(context, ErrorCode.FENCED_INSTANCE_ID, request.member_id)
        return None

    def _fits(self, expected: ExpectedInstance, request: JoinGroupRequest) -> bool:
        """Whether this join, the members of the group, and the waiting expected instances have a common protocol.

        Waiting instances that are no longer compatible with the members are ignored.
        """
        group = self.group
        if not group.supports(request.protocol_type, request.protocols):
            return False
        counts, size = group.protocol_counts, len(group.members)
        common = {each.name for each in request.protocols if counts.get(each.name, 0) == size}
        for each in self.expected.instances.values():
            other = self.expected.waiting.get(each.member_id)
            if other is None or each is expected:
                continue
            kind, protocols = other.request.protocol_type, other.request.protocols
            if group.supports(kind, protocols):
                common &= {each.name for each in protocols if kind == request.protocol_type}
        return bool(common)

    def _waiting_join(
        self, expected: ExpectedInstance, request: JoinGroupRequest, context: RequestContext
    ) -> WaitingJoin:
        """Return the waiting join of an expected instance, and end its older waiting join.

        A join without the member id replaces the older one, which gets FENCED_INSTANCE_ID, as when a static
        member is replaced. A join with the member id is a repetition by the same member.
        """
        older = self.expected.waiting.pop(expected.member_id, None)  # The deadline of the waiting joins remains.
        if older is not None and request.member_id:
            self.supersede(older.context)
        elif older is not None:
            response = join_error(older.context, ErrorCode.FENCED_INSTANCE_ID, expected.member_id)
            self.group.answer(older.context, response)
        return WaitingJoin(replace(request, member_id=""), context, expected.member_id)

    def _supersede_waiting(self, member_id: str, now_ms: float) -> None:
        """End the waiting join of a member that has joined again. Has no effect without a waiting join."""
        if older := self._remove_waiting(member_id):
            self.supersede(older.context)
            self._restart_session(member_id, now_ms)

    def _hold_back(self, join: WaitingJoin, now_ms: float) -> None:
        """Hold a join back. The rebalance timeout of the first waiting join limits how long all of them wait."""
        expected = self.expected
        if expected.waiting_deadline_ms == inf:
            expected.waiting_deadline_ms = now_ms + max(1, join.request.rebalance_timeout_ms)
        expected.waiting[join.member_id] = join
        self._arm()

    def _remove_waiting(self, member_id: str) -> WaitingJoin | None:
        """Remove and return the waiting join of a member; None if no join of the member waits."""
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
    def reserved_places(self) -> Collection[ReservedPlace]:
        return [self._place(each) for each in self.expected.instances.values()]

    def _place(self, expected: ExpectedInstance) -> ReservedPlace:
        ids, waiting = (expected.member_id, expected.instance_id), self.expected.waiting.get(expected.member_id)
        if waiting is None:
            return ReservedPlace(*ids, expected.rebalance_timeout_ms)
        join, client = waiting.request, waiting.context
        client_of = client.client_id, client.client_host
        return ReservedPlace(*ids, join.rebalance_timeout_ms, *client_of, join.session_timeout_ms)

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
            self.group.answer(join.context, join_error(join.context, ErrorCode.UNKNOWN_MEMBER_ID))
        return ErrorCode.NONE

    def after_leave(self, now_ms: float) -> bool:
        store_extension(self.group)
        return self._end_wait_if_complete(now_ms)

    def deliver(
        self, context: RequestContext, response: Message, send: Callable[[RequestContext, Message], None]
    ) -> None:
        if isinstance(context, BatchContext):
            context.batch.add(context.index, cast(JoinGroupResponse, response), send)
        else:
            send(context, response)

    def supersede(self, context: RequestContext) -> None:
        """Answer a superseded join if it belongs to a batch, which needs the results of all its members.

        Other superseded joins get no answer, as in Kafka.
        """
        if isinstance(context, BatchContext):
            self.group.answer(context, join_error(context, ErrorCode.REBALANCE_IN_PROGRESS))

    def reject_waiting(self, error: ErrorCode) -> None:
        for join in self.expected.waiting.values():
            self.group.answer(join.context, join_error(join.context, error, join.member_id))

    def stored_tags(self) -> TaggedFields:
        members = [
            ExpectedMember(
                group_instance_id=each.instance_id,
                member_id=each.member_id,
                rebalance_timeout=each.rebalance_timeout_ms,
            )
            for each in self.expected.instances.values()
        ]
        return ((EXPECTED_MEMBERS_TAG, encode(ExpectedMembers(members=members), 0)),) if members else ()

    def restore(self, tags: TaggedFields, now_ms: float) -> None:
        """Restore expected instances, up to the free places in the group. Their timers start over.

        An instance that is stored both as a member and as expected remains a member: it has left and was registered
        again, but the record of its leaving was not stored.
        """
        stored = [decode(ExpectedMembers, tagged, 0).members for tag, tagged in tags if tag == EXPECTED_MEMBERS_TAG]
        expected = [each for each in chain(*stored) if each.group_instance_id not in self.group.static_members]
        places = max(0, self.group.config.group_max_size - len(self.group.members))
        for each in expected[:places]:
            self.expect(each.group_instance_id, each.member_id, each.rebalance_timeout, now_ms)

    def copied(self, group: Group) -> "BatchJoinExtension":
        copy, expected = BatchJoinExtension(group), self.expected
        waiting = {
            member_id: WaitingJoin(join.request, _NOBODY, join.new_member_id)
            for member_id, join in expected.waiting.items()
        }
        copy.expected = ExpectedInstances(dict(expected.instances), waiting, expected.waiting_deadline_ms)
        return copy

    def awaited(self) -> tuple[str, ...]:
        return tuple(instance.member_id for instance in self.expected.missing)

    def explain(self, left: Callable[[float], str]) -> Iterator[str]:
        expected = self.expected
        missing = listed(instance.instance_id for instance in expected.missing)
        if expected.waiting:
            joins = "1 join is" if len(expected.waiting) == 1 else f"{len(expected.waiting)} joins are"
            at_most = left(expected.deadline_ms())
            yield f"{joins} held back until the registered instances {missing} join, for at most {at_most} more."
        elif expected.instances:
            yield f"The registered instances {missing} have not joined."
            yield f"If none of them joins, the first registration expires in {left(expected.deadline_ms())}."

    def explain_expiry(self, removed: Collection[str], outcome: str) -> str:
        if self.expected.waiting:
            missing = listed(instance.instance_id for instance in self.expected.missing)
            return f"The joins that wait for the registered instances {missing} stop waiting, and {outcome}."
        gone = listed(each.instance_id for each in self.expected.instances.values() if each.member_id in removed)
        return f"The registrations of instances that have not joined expire: {gone}."

    def broken_rule(self) -> str | None:
        return next((rule for rule, holds in _RULES if not holds(self.group, self.expected)), None)


def expected_instances(group: Group) -> ExpectedInstances:
    """Return the expected instances and waiting joins of a group, for callers that do not change them."""
    return group.extension.expected if isinstance(group.extension, BatchJoinExtension) else ExpectedInstances()


def _join_of(request: BatchJoinGroupRequest, member: BatchJoinGroupRequestMember) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=request.group_id,
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=member.protocols,
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
