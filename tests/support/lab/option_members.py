"""Drives a member of the options 1.a, 1.b and 1.c through registration and the passing of time."""

from typing import TypeVar

from fakebroker.client.member.member_settings import MemberSettings
from fakebroker.lab.design import Design, Member
from fakebroker.lab.designs.options.messages import RegisterConsumerRequest, RegisterConsumerResponse, to_wire
from fakebroker.protocol.schema import Message
from fakebroker.topic_partition import TopicPartition
from tests.support.lab.ports import FakeLink, FakeMemberPort

M = TypeVar("M", bound=Message)

SESSION_MS, PING_MS, COMMIT_MS, BACKOFF_MS = 10_000, 3_000, 4_000, 100


class OptionMember:
    """A member of group "g" with the client id "c", which subscribes to topic "t".

    Attributes:
        design: Its design.
        port: Its port.
        member: The member.
        now_ms: The present time.
    """

    def __init__(self, design: Design, *, commit_interval_ms: int = COMMIT_MS) -> None:
        self.design = design
        self.port = FakeMemberPort()
        settings = MemberSettings(
            group_id="g",
            client_id="c",
            topics=("t",),
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=PING_MS,
            commit_interval_ms=commit_interval_ms,
            retry_backoff_ms=BACKOFF_MS,
        )
        self.member: Member = design.member(settings, self.port)
        self.now_ms = 0.0

    @property
    def link(self) -> FakeLink:
        """The connection that was opened last."""
        return self.port.connecting[-1]

    def start(self) -> RegisterConsumerRequest:
        """Start the member until it registers."""
        self.member.start(self.now_ms)
        return self.find()

    def find(self, node_id: int = 1) -> RegisterConsumerRequest:
        """Answer a look-up, and open the connection; return the registration."""
        self.found(node_id)
        self.member.connected(self.link, self.now_ms)
        return self.port.take(RegisterConsumerRequest)

    def found(self, node_id: int | None) -> None:
        """Answer the only look-up."""
        assert self.port.lookups == 1
        self.port.lookups = 0
        self.member.found(node_id, self.now_ms)

    def receive(self, message: Message) -> None:
        self.member.received(self.link, message, self.now_ms)

    def answer(
        self, request: RegisterConsumerRequest, partitions: dict[TopicPartition, int] | None = None, error: int = 0
    ) -> None:
        """Answer a registration."""
        response = RegisterConsumerResponse(
            version=request.version,
            correlation_id=request.correlation_id,
            error_code=error,
            group_id=request.group_id,
            consumer_id=request.consumer_id,
            partitions_to_own=to_wire(partitions or {}),
        )
        self.receive(response)

    def advance(self, ms: float) -> None:
        """Let time pass, with a tick at each deadline."""
        until_ms = self.now_ms + ms
        while (due_ms := self.member.next_deadline()) <= until_ms:
            self.now_ms = max(due_ms, self.now_ms)
            self.member.tick(self.now_ms)
        self.now_ms = until_ms

    def take(self, kind: type[M]) -> M:
        return self.port.take(kind)

    def is_looking(self) -> bool:
        """Return whether it has asked for its coordinator."""
        return self.port.lookups == 1
