"""A consumer group that members of both protocols join, and the classic group that it comes from or becomes."""

from collections.abc import Iterable
from typing import Any

import msgspec

from fakebroker.coordinator import invariants
from fakebroker.coordinator.classic.group import Group
from fakebroker.coordinator.classic.states import STABLE
from fakebroker.coordinator.persistence import group_value
from fakebroker.errors import ErrorCode
from fakebroker.protocol.consumer_protocol import decode_assignment, encode_assignment, encode_subscription
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.support.coordinator.consumer_group_harness import GROUP, ConsumerGroupHarness, Owned
from tests.support.coordinator.group_messages import assigned, identities, leave_errors, offered

CLASSIC_SESSION_MS, CLASSIC_REBALANCE_MS = 10_000, 30_000


class ClassicContext(msgspec.Struct, frozen=True):
    """The context of a request of a classic member. Its answer is found by the token."""

    token: object
    api_version: int = 3
    client_id: str = "classic"
    client_host: str = "/127.0.0.1"
    may_describe: None = None


class MixedGroupHarness(ConsumerGroupHarness):
    """A coordinator whose clients use either protocol. The token of a classic member's request is its member id."""

    def __init__(self, *args: Any, group_max_size: int = 2**31 - 1, **config: Any) -> None:
        super().__init__(*args, classic_max_size=group_max_size, **config)
        self.config.group_max_size = group_max_size
        self.config.group_initial_rebalance_delay_ms = 0

    # Requests

    def join(
        self,
        member_id: str = "",
        topics: Iterable[str] = ("orders",),
        owned: Owned | None = None,
        token: object = None,
        *,
        two_step: bool = False,
        client_id: str = "classic",
        instance_id: str | None = None,
        protocols: Iterable[tuple[str, bytes]] | None = None,
        **fields: Any,
    ) -> JoinGroupResponse | None:
        """Send a JoinGroup, by default with the protocol "range", and return its answer; None if it is parked.

        Without `two_step`, a dynamic member joins with one request, as in version 3.
        """
        if protocols is None:
            places = [(name, index) for name, indexes in (owned or {}).items() for index in indexes]
            protocols = [("range", encode_subscription(topics, places))]
        request = JoinGroupRequest(
            **{
                "group_id": GROUP,
                "member_id": member_id,
                "group_instance_id": instance_id,
                "session_timeout_ms": CLASSIC_SESSION_MS,
                "rebalance_timeout_ms": CLASSIC_REBALANCE_MS,
                "protocol_type": "consumer",
                "protocols": offered(protocols),
                **fields,
            }
        )
        token = member_id if token is None else token
        version = 3 if instance_id is None and not two_step else 8
        self.coordinator.join_group(request, ClassicContext(token, version, client_id), self.now_ms)
        self.check()
        return self.answers().get(token)

    def joined(self, member_id: str = "", *args: Any, **fields: Any) -> JoinGroupResponse:
        """Send a JoinGroup that is answered at once, without error."""
        answer = self.join(member_id, *args, **fields)
        assert answer is not None
        assert answer.error_code == ErrorCode.NONE, answer
        return answer

    def sync(
        self,
        member_id: str,
        generation_id: int,
        assignments: dict[str, Owned] | None = None,
        token: object = None,
        instance_id: str | None = None,
        **fields: Any,
    ) -> SyncGroupResponse | None:
        """Send a SyncGroup, and return its answer; None if it is parked."""
        encoded = assigned(
            (each, encode_assignment((name, i) for name, indexes in owned.items() for i in indexes))
            for each, owned in (assignments or {}).items()
        )
        request = SyncGroupRequest(
            **{
                "group_id": GROUP,
                "generation_id": generation_id,
                "member_id": member_id,
                "group_instance_id": instance_id,
                "protocol_type": "consumer",
                "protocol_name": "range",
                "assignments": encoded,
                **fields,
            }
        )
        token = member_id if token is None else token
        self.coordinator.sync_group(request, ClassicContext(token, 5), self.now_ms)
        self.check()
        return self.answers().get(token)

    def beat(self, member_id: str, generation_id: int, instance_id: str | None = None) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=GROUP, generation_id=generation_id, member_id=member_id, group_instance_id=instance_id
        )
        error = self.coordinator.heartbeat(request, self.now_ms)
        self.check()
        return error

    def leave(self, *members: tuple[str, str | None]) -> tuple[ErrorCode, list[ErrorCode]]:
        """Send a LeaveGroup of members, given as (member id, instance id); return its error, and the error of each."""
        response = self.coordinator.leave_group(GROUP, identities(members), self.now_ms)
        self.check()
        return leave_errors(response)

    def answers(self) -> dict[object, Any]:
        """Return the answers by token, and forget them. Those that belong to earlier requests are kept in `late`."""
        answers, self.coordinator.answers = self.coordinator.answers, []
        self.late: dict[object, Any] = {}
        for context, response in answers:
            assert isinstance(context, ClassicContext)
            self.late[context.token] = response
        return self.late

    def start_classic_group(self, **owned: Owned) -> dict[str, str]:
        """Make a Stable classic group of these members, with these assignments; return their ids.

        Args:
            owned: The partitions of each member; its client id is its name.
        """
        ids: dict[str, str] = {}
        for name in owned:
            answer = self.joined("", client_id=name) if not ids else self.join("", client_id=name)
            group = self.classic
            ids[name] = answer.member_id if answer is not None else [*group.members][-1]
        leader = next(iter(ids.values()))
        for member_id in ids.values():
            self.join(member_id)
        generation_id = self.classic.generation_id
        for name in [*ids][::-1]:
            assignments = {ids[each]: partitions for each, partitions in owned.items()} if ids[name] == leader else None
            self.sync(ids[name], generation_id, assignments)
        assert self.classic.state.value == "Stable"
        return ids

    def settle(self, *member_ids: str) -> None:
        """As in the parent; classic members rejoin when they have to, and report what they have."""
        for _ in range(10):
            for member_id in member_ids or tuple(self.group.members):
                member = self.member(member_id)
                if member.classic is None:
                    self.stay(member_id, self.assigned(member_id))
                elif self.beat(member_id, member.member_epoch) is ErrorCode.REBALANCE_IN_PROGRESS:
                    joined = self.joined(member_id, member.subscribed_topic_names, self.assigned(member_id))
                    self.sync(member_id, joined.generation_id)
        assert self.group.state.value == "Stable", self.group.members

    # State

    @property
    def classic(self) -> Group:
        group = self.coordinator.groups.classic.get(GROUP)
        assert group is not None
        return group

    @property
    def is_classic(self) -> bool:
        return self.coordinator.groups.classic.get(GROUP) is not None

    def fail_over(self) -> None:
        is_stored = self.is_classic and self.classic.state is STABLE
        before = group_value(self.classic) if is_stored else None
        super().fail_over()
        if before is not None:
            after = group_value(self.classic)
            assert [each.member_id for each in after.members] == [each.member_id for each in before.members]

    def check(self) -> None:
        super().check()
        for group in self.coordinator.groups.classic.values():
            invariants.check(group)
            assert group.group_id not in self.coordinator.groups.consumer


def places(result: SyncGroupResponse | None) -> dict[str, set[int]]:
    """Return the partitions of an assignment."""
    assert result is not None
    assert result.error_code == ErrorCode.NONE, result
    owned: dict[str, set[int]] = {}
    for topic, index in decode_assignment(result.assignment):
        owned.setdefault(topic, set()).add(index)
    return owned
