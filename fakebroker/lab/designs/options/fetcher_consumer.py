"""The consumer that is stopped and started by its coordinator (options 1.b and 1.c)."""

from collections.abc import Callable, Mapping
from typing import Protocol

from fakebroker.client.member.member_settings import MemberSettings
from fakebroker.errors import ErrorCode
from fakebroker.lab.design import Beat, Idle, Link, MemberPort
from fakebroker.lab.designs.options.fetcher import Fetcher
from fakebroker.lab.designs.options.messages import (
    UNKNOWN_CONSUMER,
    OffsetCommitResponse,
    RegisterConsumerRequest,
    RegisterConsumerResponse,
    StartFetcherRequest,
    StartFetcherResponse,
    StopFetcherRequest,
    StopFetcherResponse,
)
from fakebroker.lab.designs.options.registration import Registration, new_consumer_id, register_request
from fakebroker.protocol.schema import Message


class CoordinatorDetection(Protocol):
    """How a consumer detects that its coordinator has failed, a broken connection aside."""

    def begin(self, now_ms: float) -> None:
        """The consumer is registered."""

    def end(self) -> None:
        """The consumer is no longer registered."""

    def heard(self, now_ms: float) -> None:
        """A StopFetcherRequest or a StartFetcherRequest has arrived."""

    def received(self, message: Message, now_ms: float) -> Message | None:
        """Take a ping or its response; return what to send."""

    def has_failed(self, now_ms: float) -> bool:
        """Return whether the coordinator has failed, or does not know the consumer."""

    def next_deadline(self) -> float:
        """Return when `next_request` or `has_failed` have something to do."""

    def next_request(self, now_ms: float) -> Message | None:
        """Return what to send now."""

    def beat(self) -> Beat | None:
        """Return the pings that are repeated; None while a response is pending."""

    def skipped(self, next_due_ms: float, last_ms: float) -> None:
        """Pings were exchanged without this object."""


class FetcherConsumer:
    """A consumer; a `lab.design.Member`.

    Args:
        settings: Its settings.
        port: Carries out its actions.
        new_detection: Makes its failure detection, from settings, consumer id, correlation ids and the fetcher.
    """

    def __init__(
        self,
        settings: MemberSettings,
        port: MemberPort,
        new_detection: Callable[[MemberSettings, str, Callable[[], int], Fetcher], CoordinatorDetection],
    ) -> None:
        self._settings, self._port = settings, port
        self._consumer_id = new_consumer_id(settings, port)
        self._registration = Registration(settings, port, self._request)
        new_correlation_id = self._registration.new_correlation_id
        self._fetcher = Fetcher(settings, port, self._consumer_id, new_correlation_id)
        self._detection = new_detection(settings, self._consumer_id, new_correlation_id, self._fetcher)

    def _request(self, correlation_id: int) -> RegisterConsumerRequest:
        return register_request(self._settings, self._consumer_id, correlation_id)

    # lab.design.Member

    def start(self, now_ms: float) -> None:
        self._registration.begin()

    def leave(self, now_ms: float) -> None:
        if self._registration.is_registered and self._registration.link is not None:
            self._fetcher.commit(self._registration.link)
        self._registration.end()

    def found(self, node_id: int | None, now_ms: float) -> None:
        self._registration.found(node_id, now_ms)

    def metadata(self, partition_counts: Mapping[str, int], now_ms: float) -> None:
        """Consumers do not need metadata: the coordinator assigns."""

    def connected(self, link: Link, now_ms: float) -> None:
        self._registration.connected(link, now_ms)

    def disconnected(self, link: Link, now_ms: float) -> None:
        if self._registration.disconnected(link, now_ms):
            self._on_coordinator_failure()

    def received(self, link: Link, message: Message, now_ms: float) -> None:
        if link is not self._registration.link:
            return
        match message:
            case RegisterConsumerResponse():
                if self._registration.answered(message, now_ms):
                    self._port.identified(self._consumer_id)
                    self._detection.begin(now_ms)
            case StopFetcherRequest():
                self._detection.heard(now_ms)
                self._port.send(link, self._handle_stop_fetcher(message))
            case StartFetcherRequest():
                self._detection.heard(now_ms)
                self._port.send(link, self._handle_start_fetcher(message, now_ms))
            case OffsetCommitResponse():
                self._fetcher.committed(message)
            case _:
                response = self._detection.received(message, now_ms)
                if response is not None:
                    self._port.send(link, response)
                elif self._detection.has_failed(now_ms):
                    self._on_coordinator_failure()

    def next_deadline(self) -> float:
        detection, fetcher = self._detection.next_deadline(), self._fetcher.next_deadline()
        return min(self._registration.next_deadline(), detection, fetcher)

    def tick(self, now_ms: float) -> None:
        registration = self._registration
        if self._detection.has_failed(now_ms):
            self._on_coordinator_failure()
        registration.tick(now_ms)
        link = registration.link if registration.is_registered else None
        if link is not None:
            request = self._detection.next_request(now_ms)
            if request is not None:
                self._port.send(link, request)
        self._fetcher.tick(link, now_ms)

    def idle(self) -> Idle | None:
        ping = self._detection.beat()
        if not self._registration.is_registered or ping is None or self._fetcher.is_committing:
            return None
        commit = self._fetcher.beat()
        return Idle((ping,) if commit is None else (ping, commit))

    def beats_skipped(self, beat: Beat, next_due_ms: float, last_ms: float) -> None:
        if beat.is_commit and not beat.is_from_coordinator:
            self._fetcher.skipped(next_due_ms)
        else:
            self._detection.skipped(next_due_ms, last_ms)

    # The document's handlers

    def _handle_stop_fetcher(self, request: StopFetcherRequest) -> StopFetcherResponse:
        error = self._error_of(request.consumer_id)
        if not error:
            self._fetcher.stop()
        return StopFetcherResponse(
            correlation_id=request.correlation_id,
            error_code=error,
            consumer_id=self._consumer_id,
            consumed_so_far=[] if error else self._fetcher.consumed(),
        )

    def _handle_start_fetcher(self, request: StartFetcherRequest, now_ms: float) -> StartFetcherResponse:
        error = self._error_of(request.consumer_id)
        if not error:
            self._fetcher.start(request.partitions_to_own, now_ms)
        return StartFetcherResponse(
            correlation_id=request.correlation_id, error_code=error, consumer_id=self._consumer_id
        )

    def _error_of(self, consumer_id: str) -> ErrorCode:
        return ErrorCode.NONE if consumer_id == self._consumer_id else UNKNOWN_CONSUMER

    def _on_coordinator_failure(self) -> None:
        """Register again; the fetcher goes on."""
        self._detection.end()
        self._fetcher.connection_lost()
        self._registration.begin()
