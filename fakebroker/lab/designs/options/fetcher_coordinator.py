"""The coordinator that rebalances by StopFetcher and StartFetcher (options 1.b and 1.c)."""

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from fakebroker.errors import ErrorCode
from fakebroker.lab.design import CoordinatorPort, CoordinatorSettings, Link, Records
from fakebroker.lab.designs.options.messages import (
    NOT_COORDINATOR,
    UNKNOWN_CONSUMER,
    OffsetCommitRequest,
    OffsetCommitResponse,
    RegisterConsumerRequest,
    RegisterConsumerResponse,
    StartFetcherResponse,
    StopFetcherResponse,
    from_wire,
)
from fakebroker.lab.designs.options.offset_cache import OffsetCache
from fakebroker.lab.designs.options.rebalancers import RebalancedGroup, Rebalancers
from fakebroker.lab.designs.options.served_groups import ConsumerInfo, ServedGroups, changed_topics, registration_error
from fakebroker.protocol.schema import Message


class FailureDetection(Protocol):
    """How a coordinator detects failed consumers, broken connections aside."""

    def watch(self, consumer: ConsumerInfo, now_ms: float) -> None:
        """Begin with a consumer."""

    def forget(self, consumer: ConsumerInfo) -> None:
        """End with a consumer."""

    def received(self, consumer: ConsumerInfo | None, link: Link, message: Message, now_ms: float) -> None:
        """A message has arrived; `consumer` is None if unknown."""

    def next_deadline(self) -> float:
        """Return when `expired` has something to do."""

    def expired(self, now_ms: float) -> Iterator[ConsumerInfo]:
        """Do what is due; yield the consumers that have failed."""

    def is_quiet(self, consumer: ConsumerInfo) -> bool:
        """Return whether no response of a consumer is pending."""

    def next_beat(self, consumer: ConsumerInfo) -> float | None:
        """Return when a consumer gets the next ping; None if it sends them."""

    def rest(self, consumer: ConsumerInfo) -> None:
        """Suspend; see `lab.design.Coordinator.rest`."""

    def wake(self, consumer: ConsumerInfo, last_ms: float) -> None:
        """Resume; see `lab.design.Coordinator.wake`."""


class FetcherCoordinator:
    """The coordinator of one broker; a `lab.design.Coordinator`.

    Args:
        settings: Its settings.
        port: Carries out its actions.
        new_detection: Makes its failure detection, which may use the offsets.
    """

    def __init__(
        self,
        settings: CoordinatorSettings,
        port: CoordinatorPort,
        new_detection: Callable[[CoordinatorSettings, CoordinatorPort, OffsetCache], FailureDetection],
    ) -> None:
        self._settings, self._port = settings, port
        self._groups: ServedGroups[RebalancedGroup] = ServedGroups(RebalancedGroup)
        self._offsets = OffsetCache(settings.offsets_partitions, port)
        self._rebalancers = Rebalancers(settings, port, self._offsets)
        self._detection = new_detection(settings, port, self._offsets)
        self._partition_counts = dict(port.partition_counts())

    # lab.design.Coordinator

    def elected(self, partition: int, now_ms: float) -> None:
        """Serves nothing of a partition before its offsets are loaded."""

    def loaded(self, partition: int, records: Records, now_ms: float) -> None:
        self._offsets.load(partition, records)

    def topics_changed(self, now_ms: float) -> None:
        before, self._partition_counts = self._partition_counts, dict(self._port.partition_counts())
        for group in self._groups.interested_in(changed_topics(before, self._partition_counts)):
            self._rebalancers.handle_group_rebalance(group)

    def received(self, link: Link, message: Message, now_ms: float) -> None:
        consumer = self._groups.by_link.get(link)
        match message:
            case RegisterConsumerRequest():
                self._handle_register_consumer(link, message, now_ms)
            case OffsetCommitRequest():
                self._handle_commit_offset(link, message)
            case StopFetcherResponse() | StartFetcherResponse() if consumer is not None:
                self._rebalancers.received(consumer, self._group_of(consumer), message)
        self._detection.received(consumer, link, message, now_ms)

    def disconnected(self, link: Link, now_ms: float) -> None:
        consumer = self._groups.by_link.get(link)
        if consumer is not None:
            self._handle_consumer_failure(consumer)

    def next_deadline(self) -> float:
        return min(self._detection.next_deadline(), self._rebalancers.next_deadline())

    def tick(self, now_ms: float) -> None:
        for consumer in self._detection.expired(now_ms):
            self._handle_consumer_failure(consumer)
        self._rebalancers.tick(now_ms, self._group_of)

    def is_steady(self, group_id: str, links: int) -> bool:
        group = self._groups.get(group_id)
        if group is None or len(group.consumers) != links or group.rebalancer is not None:
            return False
        return all(self._detection.is_quiet(consumer) for consumer in group.consumers.values())

    def next_beats(self, group_id: str) -> Mapping[Link, float]:
        beats = ((each.link, self._detection.next_beat(each)) for each in self._consumers(group_id))
        return {link: at_ms for link, at_ms in beats if at_ms is not None}

    def rest(self, group_id: str) -> None:
        for consumer in self._consumers(group_id):
            self._detection.rest(consumer)

    def wake(self, group_id: str, last_ms: Mapping[Link, float]) -> None:
        for consumer in self._consumers(group_id):
            self._detection.wake(consumer, last_ms[consumer.link])

    def _consumers(self, group_id: str) -> list[ConsumerInfo]:
        group = self._groups.get(group_id)
        return [] if group is None else list(group.consumers.values())

    def _group_of(self, consumer: ConsumerInfo) -> RebalancedGroup:
        group = self._groups.get(consumer.group_id)
        assert group is not None, f"consumer {consumer.consumer_id!r}: expected one of a group"
        return group

    # The document's handlers

    def _handle_register_consumer(self, link: Link, request: RegisterConsumerRequest, now_ms: float) -> None:
        error = (
            registration_error(request, self._partition_counts, self._settings.max_session_timeout_ms)
            if self._offsets.serves(request.group_id)
            else NOT_COORDINATOR
        )
        response = RegisterConsumerResponse(
            correlation_id=request.correlation_id,
            error_code=error,
            group_id=request.group_id,
            consumer_id=request.consumer_id,
        )
        self._port.send(link, response)
        if error:
            return
        is_added = request.consumer_id not in self._groups.consumers
        group, consumer = self._groups.add(request, link)
        if is_added:
            self._detection.watch(consumer, now_ms)
            self._rebalancers.handle_group_rebalance(group)

    def _handle_consumer_failure(self, consumer: ConsumerInfo) -> None:
        self._port.expelled(consumer.group_id, consumer.consumer_id)
        group = self._group_of(consumer)
        self._remove(consumer)
        self._rebalancers.fail(group)
        if group.consumers:
            self._rebalancers.handle_group_rebalance(group)

    def _remove(self, consumer: ConsumerInfo) -> None:
        self._detection.forget(consumer)
        self._port.close(consumer.link)
        self._groups.remove(consumer)

    def _handle_commit_offset(self, link: Link, request: OffsetCommitRequest) -> None:
        def answer(error: ErrorCode) -> None:
            response = OffsetCommitResponse(correlation_id=request.correlation_id, error_code=error)
            self._port.send(link, response)

        consumer = self._groups.consumers.get(request.consumer_id)
        if consumer is None:
            answer(UNKNOWN_CONSUMER)
            return
        offsets = from_wire(request.offset_info)
        self._offsets.commit(
            consumer.group_id, offsets, lambda is_stored: answer(ErrorCode.NONE if is_stored else NOT_COORDINATOR)
        )
