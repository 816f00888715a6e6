"""Option 1.b of the consumer rewrite document: the coordinator pings consumers, and rebalances them in two phases.

Where the document is silent or contradicts itself, these readings are implemented:

- Consumers choose their ids, as in Kafka 0.8; see option 1.a. A consumer keeps its id when it registers again.
- A registration is validated before the consumer is added to the group. The document does it afterwards, and says not
  how a rejected consumer is removed again.
- The confirmation of a registration is immediate: "record metadata" concerns the memory of the coordinator.
- The registration of a consumer that is already in the group gives it the new connection, and causes no rebalance.
- A rejected consumer registers again after the back-off, forever: `registerConsumer` returns False after some restarts
  of it, and the fetcher thread calls it again.
- The first ping is sent one session timeout after the registration, then one each session timeout, as `HeartbeatTask`
  says. A ping expires after one session timeout, too. `CoordinatorSettings.expired_heartbeats` is the number of expired
  pings in a row after which the consumer has failed.
- A consumer expects a request of the coordinator within two of "a number of session timeouts": with one, each delay of
  a ping would be a failure, since pings are one session timeout apart. Responses to its commits do not count.
- "Record offset": the response to a ping has the consumed offsets, which the coordinator keeps in memory without
  storing them; they are lost when it fails. Consumers commit periodically, too.
- When the coordinator has failed, the coordination thread of the consumer registers again, and the fetcher goes on:
  only StopFetcher clears the partition ownership. The fetcher thread of the document would register, too.
- A failed rebalance has no other consequence than that the thread is free: consumers that have stopped stay so, their
  consumed offsets are not committed, and a consumer that has not responded in time is not removed. Late responses are
  ignored.
- "If a timeout signal is received in either 4.2 or 4.5" means 5.2 or 5.5.
- The ownership is written after StartFetcher, as step 5.6 says.
- The rebalance bit is reset when a rebalance begins, as step 1 says. So at most one more rebalance of a group waits
  while one is executed.
- A load-balanced rebalancer has the fewest rebalances in its queue and in progress; of several, it is the first.
- Consumers that register while a rebalance waits for responses are not part of it.
- The offsets in StopFetcherResponses replace the coordinator's offsets, also if they are lower.
- Closing the connection is the only way to leave, after a last commit.
- A group without consumers is forgotten, except for its ownership in the registry.
- RegisterConsumer names no strategy: ranges of each topic. Its other errors and fields, and topic changes, as in option
  1.a: a new topic concerns only wildcard subscriptions, which are not implemented.
- Before its offsets are loaded, a coordinator answers "Not Coordinator". One that is no longer the leader closes the
  connections of its consumers.
"""

from collections.abc import Callable, Iterator
from itertools import count
from math import inf

from fakebroker.client.member.member_settings import MemberSettings
from fakebroker.coordinator.timers import TimedValue, TimerQueue
from fakebroker.lab.design import Beat, CoordinatorPort, CoordinatorSettings, Design, Link, MemberPort
from fakebroker.lab.designs.options.fetcher import Fetcher
from fakebroker.lab.designs.options.fetcher_consumer import FetcherConsumer
from fakebroker.lab.designs.options.fetcher_coordinator import FetcherCoordinator
from fakebroker.lab.designs.options.messages import (
    CoordinatorPingRequest,
    CoordinatorPingResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    PartitionAndOffset,
    StartFetcherResponse,
    StopFetcherResponse,
    from_wire,
)
from fakebroker.lab.designs.options.offset_cache import OffsetCache
from fakebroker.lab.designs.options.purgatory import Purgatory
from fakebroker.lab.designs.options.served_groups import ConsumerInfo
from fakebroker.lab.invariants import LIVE_STAYS, NONE_SKIPPED
from fakebroker.protocol.schema import Message

COORDINATOR_TIMEOUTS = 2
"""The number of session timeouts without a request after which a consumer suspects that the coordinator is dead."""


class _AnsweredPings:
    """The consumer's side: it responds to pings, and expects them; a `CoordinatorDetection`."""

    def __init__(
        self, settings: MemberSettings, consumer_id: str, new_correlation_id: Callable[[], int], fetcher: Fetcher
    ) -> None:
        self._period_ms = settings.session_timeout_ms
        self._consumer_id, self._fetcher = consumer_id, fetcher
        self._deadline_ms = inf

    def begin(self, now_ms: float) -> None:
        self.heard(now_ms)

    def end(self) -> None:
        self._deadline_ms = inf

    def heard(self, now_ms: float) -> None:
        self._deadline_ms = now_ms + COORDINATOR_TIMEOUTS * self._period_ms

    def received(self, message: Message, now_ms: float) -> Message | None:
        if not isinstance(message, CoordinatorPingRequest):
            return None
        self.heard(now_ms)
        return self._response(message.correlation_id, self._fetcher.consumed())

    def _response(self, correlation_id: int, consumed: list[PartitionAndOffset]) -> CoordinatorPingResponse:
        return CoordinatorPingResponse(
            correlation_id=correlation_id, consumer_id=self._consumer_id, consumed_so_far=consumed
        )

    def has_failed(self, now_ms: float) -> bool:
        return self._deadline_ms <= now_ms

    def next_deadline(self) -> float:
        return self._deadline_ms

    def next_request(self, now_ms: float) -> Message | None:
        return None

    def beat(self) -> Beat | None:
        request = CoordinatorPingRequest(correlation_id=0, consumer_id=self._consumer_id)
        response = self._response(0, self._fetcher.sample())
        return Beat(inf, self._period_ms, request, response, is_from_coordinator=True, is_commit=True)

    def skipped(self, next_due_ms: float, last_ms: float) -> None:
        self._deadline_ms = max(self._deadline_ms, last_ms + COORDINATOR_TIMEOUTS * self._period_ms)


class _HeartbeatScheduler:
    """The coordinator's side: a delayed scheduler that sends pings, and their purgatory; a `FailureDetection`."""

    def __init__(self, settings: CoordinatorSettings, port: CoordinatorPort, offsets: OffsetCache) -> None:
        self._most_expired, self._port, self._offsets = settings.expired_heartbeats, port, offsets
        self._tasks: dict[ConsumerInfo, TimedValue[ConsumerInfo]] = {}
        self._timers: TimerQueue[TimedValue[ConsumerInfo]] = TimerQueue()
        self._purgatory = Purgatory()
        self._expired: dict[ConsumerInfo, int] = {}
        self._correlation_ids = count(1)

    def watch(self, consumer: ConsumerInfo, now_ms: float) -> None:
        task = self._tasks[consumer] = TimedValue(consumer)
        self._timers.schedule(task, now_ms + consumer.session_timeout_ms)

    def forget(self, consumer: ConsumerInfo) -> None:
        self._timers.cancel(self._tasks.pop(consumer))
        self._alive(consumer)

    def received(self, consumer: ConsumerInfo | None, link: Link, message: Message, now_ms: float) -> None:
        match message:
            case CoordinatorPingResponse() if consumer is not None:
                self._alive(consumer)
                self._offsets.record(consumer.group_id, from_wire(message.consumed_so_far))
            case StopFetcherResponse() | StartFetcherResponse() if consumer is not None:
                self._alive(consumer)

    def _alive(self, consumer: ConsumerInfo) -> None:
        self._purgatory.clear_all(consumer)
        self._expired.pop(consumer, None)

    def next_deadline(self) -> float:
        due_ms = self._timers.next_deadline()
        return min(inf if due_ms is None else due_ms, self._purgatory.next_deadline())

    def expired(self, now_ms: float) -> Iterator[ConsumerInfo]:
        for watcher in self._purgatory.expired(now_ms):
            expired = self._expired[watcher.consumer] = self._expired.get(watcher.consumer, 0) + 1
            if expired >= self._most_expired:
                yield watcher.consumer
        for task, _ in self._timers.expired(now_ms):
            self._ping(task.value, now_ms)
            self._timers.schedule(task, now_ms + task.value.session_timeout_ms)

    def _ping(self, consumer: ConsumerInfo, now_ms: float) -> None:
        correlation_id = next(self._correlation_ids)
        self._purgatory.watch(consumer, correlation_id, now_ms + consumer.session_timeout_ms)
        request = CoordinatorPingRequest(correlation_id=correlation_id, consumer_id=consumer.consumer_id)
        self._port.send(consumer.link, request)

    def is_quiet(self, consumer: ConsumerInfo) -> bool:
        return not self._purgatory.is_waiting_for(consumer)

    def next_beat(self, consumer: ConsumerInfo) -> float | None:
        return self._tasks[consumer].scheduled_ms

    def rest(self, consumer: ConsumerInfo) -> None:
        self._timers.cancel(self._tasks[consumer])

    def wake(self, consumer: ConsumerInfo, last_ms: float) -> None:
        self._timers.schedule(self._tasks[consumer], last_ms + consumer.session_timeout_ms)


def _member(settings: MemberSettings, port: MemberPort) -> FetcherConsumer:
    return FetcherConsumer(settings, port, _AnsweredPings)


def _coordinator(settings: CoordinatorSettings, port: CoordinatorPort) -> FetcherCoordinator:
    return FetcherCoordinator(settings, port, _HeartbeatScheduler)


DESIGN = Design(
    name="option-1b",
    summary="Coordinators ping consumers, and stop and start their fetchers in a rebalance",
    member=_member,
    coordinator=_coordinator,
    has_replies=False,
    beats=frozenset({CoordinatorPingRequest, CoordinatorPingResponse, OffsetCommitRequest, OffsetCommitResponse}),
    guarantees=frozenset({LIVE_STAYS, NONE_SKIPPED}),
)
