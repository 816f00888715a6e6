"""A scripted member without a driver. The broker answers each request after 1 ms."""

from typing import Any

from fakebroker.client.member.effects import GroupRequest, GroupResponse
from fakebroker.errors import ErrorCode
from fakebroker.protocol.consumer_protocol import encode_assignment
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from fakebroker.replay.members.events import Event
from fakebroker.replay.members.scripted_member import ScriptedMember
from fakebroker.replay.script.script import Act
from tests.support.group_responses import error_response, offset_fetch_response
from tests.support.replay.simulated_replays import script
from tests.support.virtual_time import START_MS

MEMBER_ID = "g-0-id"
PARTITIONS = (("orders", 0), ("orders", 1))
TOPIC_IDS = {"orders": bytes(15) + b"o"}


class ScriptedMemberHarness:
    """A scripted member that leads the group "g" and owns `PARTITIONS`, with committed offset 40.

    Args:
        acts: The actions of its script.
        closed_loop: As in `ScriptedMember`.
        changes: Other fields of the script.

    Attributes:
        errors: By type of request, the errors in the responses to the next requests.
        mute: Types of requests that get no response.
        disconnects: How often the member has closed its connection.
    """

    def __init__(self, *acts: Act, closed_loop: bool = False, **changes: Any) -> None:
        self.events: list[Event] = []
        self.scripted = ScriptedMember(
            script("g", 0, *acts, **changes), START_MS, self.events.append, closed_loop=closed_loop
        )
        self.errors: dict[type[GroupRequest], list[ErrorCode]] = {}
        self.mute: tuple[type[GroupRequest], ...] = ()
        self.disconnects = 0
        self.now_ms = START_MS
        self._generation_id = 0

    def run(self, until_ms: float) -> None:
        """Advance the time to `until_ms` after the start."""
        self.follow()
        while (due_ms := self.scripted.next_deadline()) <= START_MS + until_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.scripted.tick(self.now_ms)
            self.follow()
        self.now_ms = max(self.now_ms, START_MS + until_ms)

    def follow(self) -> None:
        """Perform the effects that the member requests, as a driver does."""
        while self.scripted.has_request or self.scripted.has_other_work:
            self.disconnects += self.scripted.take_disconnect()
            if self.scripted.take_discovery() is not None:
                self.scripted.discovered(1, "b1", 9092, self.now_ms)
            if self.scripted.take_metadata() is not None:
                self.scripted.metadata({"orders": 2}, TOPIC_IDS, self.now_ms)
            request = self.scripted.take_request()
            if request is None:
                return
            self.scripted.sent(4, self.now_ms)
            if isinstance(request, self.mute):
                return
            self.now_ms += 1
            self.scripted.answered(self.response_to(request), self.now_ms)

    def response_to(self, request: GroupRequest) -> GroupResponse:
        """Return the broker's response."""
        errors = self.errors.get(type(request), [])
        error = errors.pop(0) if errors else ErrorCode.NONE
        match request:
            case JoinGroupRequest():
                return self._join_response(request, error)
            case SyncGroupRequest() if not error:
                return SyncGroupResponse(assignment=encode_assignment(PARTITIONS))
            case OffsetFetchRequest() if not error:
                return offset_fetch_response(dict.fromkeys(PARTITIONS, 40))
        return error_response(request, error)

    def _join_response(self, request: JoinGroupRequest, error: ErrorCode) -> JoinGroupResponse:
        self._generation_id += error is ErrorCode.NONE
        member = JoinGroupResponseMember(member_id=MEMBER_ID, metadata=request.protocols[0].metadata)
        return JoinGroupResponse(
            error_code=error,
            generation_id=self._generation_id if error is ErrorCode.NONE else -1,
            protocol_name="range",
            leader=MEMBER_ID,
            member_id=MEMBER_ID,
            members=[member],
        )

    def of(self, *apis: str) -> list[Event]:
        """Return the events of these APIs and actions."""
        return [event for event in self.events if event.api in apis]

    def times_s(self, api: str) -> list[float]:
        """Return when requests were sent: seconds from the start, rounded to tenths."""
        return [round(event.sent_us / 1e6 - START_MS / 1e3, 1) for event in self.of(api)]
