"""How a consumer finds its coordinator and registers there (`registerConsumer` of the document)."""

from collections.abc import Callable, Mapping
from enum import Enum
from itertools import count
from math import inf

from fakebroker.client.member.member_settings import MemberSettings
from fakebroker.lab.design import Link, MemberPort
from fakebroker.lab.designs.options.messages import (
    ANY_PARTITION,
    PartitionAndOffset,
    RegisterConsumerRequest,
    RegisterConsumerResponse,
    TopicPartitions,
)
from fakebroker.protocol.schema import Message


class RegistrationState(Enum):
    """The states of a consumer's registration.

    DOWN: Not started, or left.
    DISCOVERING: Asking a broker for the coordinator.
    CONNECTING: Opening the connection to the coordinator.
    REGISTERING: The request is sent. Without a response within the session timeout -> DISCOVERING.
    REGISTERED: The response had no error.
    BACKING_OFF: Rejected, or the connection was lost, or there is no coordinator; after the back-off -> DISCOVERING.
    """

    DOWN = "Down"
    DISCOVERING = "Discovering"
    CONNECTING = "Connecting"
    REGISTERING = "Registering"
    REGISTERED = "Registered"
    BACKING_OFF = "Backing off"


DOWN = RegistrationState.DOWN
DISCOVERING = RegistrationState.DISCOVERING
CONNECTING = RegistrationState.CONNECTING
REGISTERING = RegistrationState.REGISTERING
REGISTERED = RegistrationState.REGISTERED
BACKING_OFF = RegistrationState.BACKING_OFF

TRANSITIONS: Mapping[RegistrationState, tuple[RegistrationState, ...]] = {
    DOWN: (DISCOVERING,),
    DISCOVERING: (CONNECTING, REGISTERING, BACKING_OFF, DOWN),
    CONNECTING: (REGISTERING, BACKING_OFF, DOWN),
    REGISTERING: (REGISTERED, DISCOVERING, BACKING_OFF, DOWN),
    REGISTERED: (DISCOVERING, DOWN),
    BACKING_OFF: (DISCOVERING, DOWN),
}
"""The states that may follow each state; every other transition is a bug."""


class Registration:
    """The registration of one consumer, and its connection to the coordinator.

    The number of restarts is not limited: the thread that gets False from `registerConsumer` calls it again.

    Args:
        settings: The settings of the consumer.
        port: Carries out its actions.
        request: Makes the request, with a correlation id.

    Attributes:
        state: The present state; written only by `_enter`.
        link: The connection; None without one.
    """

    def __init__(self, settings: MemberSettings, port: MemberPort, request: Callable[[int], Message]) -> None:
        self._settings, self._port, self._request = settings, port, request
        self.state = DOWN
        self.link: Link | None = None
        self._is_connected = False
        self._correlation_ids = count(1)
        self._pending_id = 0
        self._due_ms = inf

    def _enter(self, state: RegistrationState, due_ms: float = inf) -> None:
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(f"registration: no transition from {self.state} to {state}")
        self.state, self._due_ms = state, due_ms

    def new_correlation_id(self) -> int:
        """Return the correlation id of the consumer's next request."""
        return next(self._correlation_ids)

    @property
    def is_registered(self) -> bool:
        """Whether the coordinator has confirmed, and the connection is open."""
        return self.state is REGISTERED and self._is_connected

    def begin(self, *, keeps_link: bool = False) -> None:
        """Find the coordinator, and register there.

        Args:
            keeps_link: Whether to use the present connection if the coordinator has not moved.
        """
        if not keeps_link:
            self._drop_link()
        self._enter(DISCOVERING)
        self._port.find_coordinator()

    def end(self) -> None:
        """Close the connection."""
        self._enter(DOWN)
        self._drop_link()

    def found(self, node_id: int | None, now_ms: float) -> None:
        """Continue with the answer to `MemberPort.find_coordinator`."""
        if self.state is not DISCOVERING:
            return
        if node_id is None:
            self._back_off(now_ms)
        elif self.link is not None and self.link.node_id == node_id and self._is_connected:
            self._register(now_ms)
        else:
            self._drop_link()
            self._enter(CONNECTING)
            self.link = self._port.connect(node_id)

    def connected(self, link: Link, now_ms: float) -> None:
        """Continue after a connection was opened."""
        if link is self.link:
            self._is_connected = True
            self._register(now_ms)

    def disconnected(self, link: Link, now_ms: float) -> bool:
        """Forget a connection that was closed; return whether the consumer was registered over it."""
        if link is not self.link:
            return False
        self.link, self._is_connected = None, False
        if self.state in (CONNECTING, REGISTERING):
            self._back_off(now_ms)
        return self.state is REGISTERED

    def answered(self, response: RegisterConsumerResponse, now_ms: float) -> bool:
        """Continue with a response; return whether the consumer is registered now."""
        if self.state is not REGISTERING or response.correlation_id != self._pending_id:
            return False
        if response.error_code:
            self._back_off(now_ms)
            return False
        self._enter(REGISTERED)
        return True

    def next_deadline(self) -> float:
        """Return when `tick` is due."""
        return self._due_ms

    def tick(self, now_ms: float) -> None:
        """Start again after the back-off, or after the coordinator has not responded in time."""
        if self._due_ms <= now_ms:
            self.begin()

    def _register(self, now_ms: float) -> None:
        assert self.link is not None
        self._enter(REGISTERING, now_ms + self._settings.session_timeout_ms)
        self._pending_id = self.new_correlation_id()
        self._port.send(self.link, self._request(self._pending_id))

    def _back_off(self, now_ms: float) -> None:
        self._drop_link()
        self._enter(BACKING_OFF, now_ms + self._settings.retry_backoff_ms)

    def _drop_link(self) -> None:
        if self.link is not None:
            self._port.close(self.link)
        self.link, self._is_connected = None, False


def new_consumer_id(settings: MemberSettings, port: MemberPort) -> str:
    """Return a new consumer id in the form of Kafka 0.8: group, client and a part of a random UUID."""
    return f"{settings.group_id}_{settings.client_id}-{port.new_id()[:8]}"


def register_request(
    settings: MemberSettings, consumer_id: str, correlation_id: int, consumed: list[PartitionAndOffset] | None = None
) -> RegisterConsumerRequest:
    """Return the registration of a consumer; with its consumed offsets in option 1.a, else None."""
    return RegisterConsumerRequest(
        version=0 if consumed is None else 1,
        correlation_id=correlation_id,
        group_id=settings.group_id,
        consumer_id=consumer_id,
        session_timeout=settings.session_timeout_ms,
        subscribing=[TopicPartitions(topic=topic, partition_ids=[ANY_PARTITION]) for topic in settings.topics],
        consumed_so_far=consumed or [],
    )
