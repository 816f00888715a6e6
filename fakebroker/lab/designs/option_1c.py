"""Option 1.c of the consumer rewrite document: consumers ping the coordinator, which rebalances them in two phases.

As option 1.b, except for failure detection. Where the document is silent, these readings are implemented:

- A consumer sends a ping each heartbeat interval, but none while the response to the previous one is pending. A ping
  expires after the session timeout, unless its response or a StopFetcher or StartFetcher request arrives before.
- A consumer has failed if the coordinator has received nothing from it for its session timeout, or if its connection is
  broken, as in 1.b: the coordinator writes to that connection, too.
- A ping of an unknown consumer is answered with an error, upon which the consumer registers again.
- Pings have no offsets: the document names them only in 1.b.
"""

from collections.abc import Callable, Iterator

from fakebroker.client.member.member_settings import MemberSettings
from fakebroker.errors import ErrorCode
from fakebroker.lab.design import Beat, CoordinatorPort, CoordinatorSettings, Design, Link, MemberPort
from fakebroker.lab.designs.options.fetcher import Fetcher
from fakebroker.lab.designs.options.fetcher_consumer import FetcherConsumer
from fakebroker.lab.designs.options.fetcher_coordinator import FetcherCoordinator
from fakebroker.lab.designs.options.messages import (
    UNKNOWN_CONSUMER,
    OffsetCommitRequest,
    OffsetCommitResponse,
    PingRequest,
    PingResponse,
)
from fakebroker.lab.designs.options.offset_cache import OffsetCache
from fakebroker.lab.designs.options.pings import Pings
from fakebroker.lab.designs.options.served_groups import ConsumerInfo
from fakebroker.lab.designs.options.sessions import Sessions
from fakebroker.lab.invariants import LIVE_STAYS, NONE_SKIPPED
from fakebroker.protocol.schema import Message


class _SentPings:
    """The consumer's side; a `CoordinatorDetection`."""

    def __init__(
        self, settings: MemberSettings, consumer_id: str, new_correlation_id: Callable[[], int], fetcher: Fetcher
    ) -> None:
        interval_ms, timeout_ms = settings.heartbeat_interval_ms, settings.session_timeout_ms
        self._pings = Pings(settings.group_id, consumer_id, interval_ms, timeout_ms)
        self._new_correlation_id = new_correlation_id
        self._is_unknown = False

    def begin(self, now_ms: float) -> None:
        self._is_unknown = False
        self._pings.begin(now_ms)

    def end(self) -> None:
        self._is_unknown = False
        self._pings.end()

    def heard(self, now_ms: float) -> None:
        self._pings.heard()

    def received(self, message: Message, now_ms: float) -> Message | None:
        if isinstance(message, PingResponse) and self._pings.answered(message):
            self._is_unknown = message.error_code != 0
        return None

    def has_failed(self, now_ms: float) -> bool:
        return self._is_unknown or self._pings.is_expired(now_ms)

    def next_deadline(self) -> float:
        return self._pings.next_deadline()

    def next_request(self, now_ms: float) -> Message | None:
        return self._pings.next_request(self._new_correlation_id(), now_ms) if self._pings.is_due(now_ms) else None

    def beat(self) -> Beat | None:
        return self._pings.beat()

    def skipped(self, next_due_ms: float, last_ms: float) -> None:
        self._pings.skipped(next_due_ms)


class _PingedSessions:
    """The coordinator's side; a `FailureDetection`."""

    def __init__(self, settings: CoordinatorSettings, port: CoordinatorPort, offsets: OffsetCache) -> None:
        self._port, self._sessions = port, Sessions()

    def watch(self, consumer: ConsumerInfo, now_ms: float) -> None:
        self._sessions.watch(consumer, now_ms)

    def forget(self, consumer: ConsumerInfo) -> None:
        self._sessions.forget(consumer)

    def received(self, consumer: ConsumerInfo | None, link: Link, message: Message, now_ms: float) -> None:
        if consumer is not None:
            self._sessions.heard(consumer, now_ms)
        if isinstance(message, PingRequest):
            error = ErrorCode.NONE if consumer is not None else UNKNOWN_CONSUMER
            self._port.send(link, PingResponse(correlation_id=message.correlation_id, error_code=error))

    def next_deadline(self) -> float:
        return self._sessions.next_deadline()

    def expired(self, now_ms: float) -> Iterator[ConsumerInfo]:
        return self._sessions.expired(now_ms)

    def is_quiet(self, consumer: ConsumerInfo) -> bool:
        return True

    def next_beat(self, consumer: ConsumerInfo) -> float | None:
        return None

    def rest(self, consumer: ConsumerInfo) -> None:
        self._sessions.rest(consumer)

    def wake(self, consumer: ConsumerInfo, last_ms: float) -> None:
        self._sessions.wake(consumer, last_ms)


def _member(settings: MemberSettings, port: MemberPort) -> FetcherConsumer:
    return FetcherConsumer(settings, port, _SentPings)


def _coordinator(settings: CoordinatorSettings, port: CoordinatorPort) -> FetcherCoordinator:
    return FetcherCoordinator(settings, port, _PingedSessions)


DESIGN = Design(
    name="option-1c",
    summary="Consumers ping; coordinators stop and start their fetchers in a rebalance",
    member=_member,
    coordinator=_coordinator,
    has_replies=False,
    beats=frozenset({PingRequest, PingResponse, OffsetCommitRequest, OffsetCommitResponse}),
    guarantees=frozenset({LIVE_STAYS, NONE_SKIPPED}),
)
