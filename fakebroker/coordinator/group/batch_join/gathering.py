"""Instances that are to come together: registering them, keeping their joins aside, and letting all in at once.

A proposal (KAFKA-8397); no Kafka does this. `scenarios/proposals/batch-join.md` says what holds. The round that they
begin is like any other.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf

from fakebroker.coordinator.group.api import BatchJoin, BatchMember, CoordinatorConfig, JoinGroup, JoinResult
from fakebroker.coordinator.group.batch_join.admission import join_together
from fakebroker.coordinator.group.batch_join.batch import Batch, Seat, drop
from fakebroker.coordinator.group.batch_join.expectations import Arrival, Expectations, Expected
from fakebroker.coordinator.group.classic import join as joining
from fakebroker.coordinator.group.classic.group import Group
from fakebroker.errors import ErrorCode

_LEGAL_INSTANCE_ID = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}", re.ASCII)
_NAMED_AT_MOST = 8


# Batches


def refuse(
    batch: Batch, request: BatchJoin, config: CoordinatorConfig, error: ErrorCode, *, is_there: bool
) -> list[tuple[Seat, BatchMember]]:
    """Tells those of a batch what is wrong with them whatever the group is; gives the others.

    Args:
        error: Why the whole request is refused, or NONE.
        is_there: Whether there is such a group. Else nobody can have an id in it.
    """
    counts = Counter(member.instance_id for member in batch.members)
    passed = []
    for index, member in enumerate(batch.members):
        is_twice = counts[member.instance_id] > 1
        if fault := error or _fault(request, member, config, is_twice=is_twice, is_there=is_there):
            batch.results[index] = JoinResult(fault, member_id=member.member_id)
        else:
            passed.append((Seat(batch, index), member))
    return passed


def _fault(
    request: BatchJoin, member: BatchMember, config: CoordinatorConfig, *, is_twice: bool, is_there: bool
) -> ErrorCode:
    timeout_ms = request.session_timeout_ms
    if member.instance_id is None and not member.protocols:
        return ErrorCode.INVALID_REQUEST
    if member.instance_id is not None and not _LEGAL_INSTANCE_ID.fullmatch(member.instance_id):
        return ErrorCode.INVALID_REQUEST
    if member.instance_id is not None and is_twice:
        return ErrorCode.FENCED_INSTANCE_ID
    if not member.protocols:
        return ErrorCode.FENCED_INSTANCE_ID if member.member_id and not is_there else ErrorCode.NONE
    if not config.group_min_session_timeout_ms <= timeout_ms <= config.group_max_session_timeout_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return ErrorCode.UNKNOWN_MEMBER_ID if member.member_id and not is_there else ErrorCode.NONE


def register(
    group: Group,
    members: Sequence[tuple[Seat, BatchMember]],
    timeout_ms: int,
    now_ms: float,
    new_uuid: Callable[[], str],
) -> ErrorCode:
    """Expects instances from now on, and tells each what has become of it.

    Returns:
        Why that could not be stored, or NONE. If it could not, nobody has been told anything.
    """
    results = [(seat, _register(group, member, timeout_ms, now_ms, new_uuid)) for seat, member in members]
    registered = [seat.batch.members[seat.index].instance_id or "" for seat, result in results if not result.error]
    if registered and (error := group.store_expected(group)):
        for instance_id in registered:
            del group.expected.instances[instance_id]
        return error
    for seat, result in results:
        group.answer(seat, result)
    return ErrorCode.NONE


def _register(
    group: Group, member: BatchMember, timeout_ms: int, now_ms: float, new_uuid: Callable[[], str]
) -> JoinResult:
    instance_id, instances = member.instance_id or "", group.expected.instances
    expected = instances.get(instance_id)
    known_id = group.static_members.get(instance_id, "") if expected is None else expected.member_id
    if member.member_id and member.member_id != known_id:
        return JoinResult(ErrorCode.FENCED_INSTANCE_ID, member_id=member.member_id)
    if known_id:
        return JoinResult(ErrorCode.DUPLICATE_RESOURCE, member_id=known_id)
    if len(group.members) + len(instances) >= group.config.group_max_size:
        return JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED)
    member_id = f"{instance_id}-{new_uuid()}"
    expect(group, instance_id, member_id, timeout_ms, now_ms)
    return JoinResult(ErrorCode.NONE, member_id=member_id)


def expect(group: Group, instance_id: str, member_id: str, timeout_ms: int, now_ms: float) -> None:
    """Awaits an instance that is to become a member under this id; at least 1 ms, as all timers."""
    expected = Expected(instance_id, member_id, timeout_ms, now_ms + max(1, timeout_ms))
    group.expected.instances[instance_id] = expected
    _arm(group)


def _arm(group: Group) -> None:
    group.deadline_ms = min(group.deadline_ms, group.expected.deadline_ms())


def join_batch(
    group: Group,
    request: BatchJoin,
    members: Sequence[tuple[Seat, BatchMember]],
    now_ms: float,
    new_uuid: Callable[[], str],
) -> None:
    """Handles those of a batch that join: all in one round, with those who are expected if one of them is."""
    arrivals, is_expected = [], False
    for seat, member in members:
        join = _join_of(request, member)
        expected = group.expected.instances.get(member.instance_id or "")
        if expected is None:
            _drop_waiting(group, member.member_id, now_ms)
            arrivals.append(Arrival(join, seat, "" if member.member_id else joining.new_member_id(join, new_uuid)))
        elif refusal := _refusal(group, expected, join):
            group.answer(seat, refusal)
        else:
            arrivals.append(_arrival(group, expected, join, seat))
            is_expected = True
    if is_expected:
        for arrival in arrivals:
            _wait(group, arrival, now_ms)
        admit_if_complete(group, now_ms)
    elif arrivals:
        join_together(group, arrivals, f"JoinGroup of {len(arrivals)} members at once", now_ms)


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


# Joins of instances that are expected


def join(group: Group, request: JoinGroup, token: object, now_ms: float, new_uuid: Callable[[], str]) -> None:
    """Handles a JoinGroup for a group in which somebody is expected: whoever that is waits, any other joins as ever."""
    expected = group.expected.instances.get(request.instance_id or "")
    if expected is None:
        _drop_waiting(group, request.member_id, now_ms)
        joining.join(group, request, token, now_ms, new_uuid)
    elif refusal := _refusal(group, expected, request):
        group.answer(token, refusal)
    else:
        _wait(group, _arrival(group, expected, request, token), now_ms)
        admit_if_complete(group, now_ms)


def _refusal(group: Group, expected: Expected, request: JoinGroup) -> JoinResult | None:
    if not _fits(group, expected, request):
        return JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id=request.member_id)
    if request.member_id not in ("", expected.member_id):
        return JoinResult(ErrorCode.FENCED_INSTANCE_ID, member_id=request.member_id)
    return None


def _fits(group: Group, expected: Expected, request: JoinGroup) -> bool:
    """Whether some protocol is one of this join, of the members, and of the others who were expected and wait.

    Of those, who does not fit the members any more does not count.
    """
    if not group.supports(request.protocol_type, request.protocols):
        return False
    common = {name for name, _ in request.protocols if group.protocol_counts.get(name, 0) == len(group.members)}
    for each in group.expected.instances.values():
        other = group.expected.waiting.get(each.member_id)
        if other is None or each is expected:
            continue
        kind, protocols = other.request.protocol_type, other.request.protocols
        if group.supports(kind, protocols):
            common &= {name for name, _ in protocols if kind == request.protocol_type}
    return bool(common)


def _arrival(group: Group, expected: Expected, request: JoinGroup, token: object) -> Arrival:
    """The join of an instance that is expected. An older one of it ends here.

    One that comes without the id takes the place of the older, as where a static member is replaced; one that knows the
    id is the same member, which has asked again.
    """
    older = group.expected.waiting.pop(expected.member_id, None)  # The time of those who wait goes on.
    if older is not None and request.member_id:
        drop(older.token, group.answer)
    elif older is not None:
        group.answer(older.token, JoinResult(ErrorCode.FENCED_INSTANCE_ID, member_id=expected.member_id))
    return Arrival(replace(request, member_id=""), token, expected.member_id)


def _drop_waiting(group: Group, member_id: str, now_ms: float) -> None:
    """A member whose join waits with others has joined again by itself."""
    if older := _withdraw(group, member_id):
        drop(older.token, group.answer)
        _begin_session_anew(group, member_id, now_ms)


def _wait(group: Group, arrival: Arrival, now_ms: float) -> None:
    """Keeps a join aside; the first one says how long all of them wait."""
    expectations = group.expected
    if expectations.gathering_deadline_ms == inf:
        expectations.gathering_deadline_ms = now_ms + max(1, arrival.request.rebalance_timeout_ms)
    expectations.waiting[arrival.member_id] = arrival
    _arm(group)


def _withdraw(group: Group, member_id: str) -> Arrival | None:
    """Takes a join that waits out of those who wait, if there is one."""
    arrival = group.expected.waiting.pop(member_id, None)
    if not group.expected.waiting:
        group.expected.gathering_deadline_ms = inf
        _arm(group)
    return arrival


# The end of the waiting


def admit_if_complete(group: Group, now_ms: float) -> bool:
    """Lets in those who wait if nobody is missing any more; whether there is a round for them."""
    if not group.expected.waiting or group.expected.missing:
        return False
    return _admit(group, "all instances that were expected have joined", now_ms)


def _admit(group: Group, cause: str, now_ms: float) -> bool:
    """Begins the one round: those who were expected come first, each in order of arrival. Nobody is expected then."""
    expectations = group.expected
    expected_ids = [expected.member_id for expected in expectations.instances.values()]
    arrivals = sorted(expectations.waiting.values(), key=lambda arrival: arrival.member_id not in expected_ids)
    group.expected = Expectations()
    group.store_expected(group)  # If it cannot, they are expected again should another coordinator take over.
    for arrival in arrivals:
        _begin_session_anew(group, arrival.member_id, now_ms)
    return join_together(group, arrivals, cause, now_ms)


def _begin_session_anew(group: Group, member_id: str, now_ms: float) -> None:
    """The session of a member may have run out while an answer to its waiting join was owed."""
    if member := group.members.get(member_id):
        group.arm_session(member, member.session_timeout_ms, now_ms)


def expire(group: Group, now_ms: float) -> None:
    """The time is up: for who is missing if others wait, or for who was to come first, and has not."""
    expectations = group.expected
    missing = ", ".join(expected.instance_id for expected in expectations.missing[:_NAMED_AT_MOST])
    if expectations.waiting:
        _admit(group, f"instances that were expected have not joined in time: {missing}", now_ms)
        return
    deadline_ms = expectations.deadline_ms()
    for expected in expectations.missing:
        if expected.deadline_ms == deadline_ms:
            del expectations.instances[expected.instance_id]
    group.store_expected(group)


def leave(group: Group, expected: Expected, member_id: str) -> ErrorCode:
    """Does not expect an instance any more; a join of it that waits is told that nobody knows it."""
    if member_id not in ("", expected.member_id):
        return ErrorCode.FENCED_INSTANCE_ID
    del group.expected.instances[expected.instance_id]
    if arrival := _withdraw(group, expected.member_id):
        group.answer(arrival.token, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID))
    return ErrorCode.NONE
