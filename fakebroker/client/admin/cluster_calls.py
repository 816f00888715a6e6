"""Calls of the admin client that need no coordinator: cluster, topics, lists of groups and transactions (trio)."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from itertools import count
from typing import Any, TypeVar

import msgspec
import trio

from fakebroker.client.admin.descriptions import (
    ClusterDescription,
    GroupListing,
    NewTopic,
    Node,
    PartitionDescription,
    Results,
    TopicDescription,
    TransactionListing,
)
from fakebroker.client.backoff import Backoff
from fakebroker.client.coordinators import RETRIABLE_ERRORS
from fakebroker.client.errors import AdminError, BrokerError, BrokerUnreachable, ConnectionLost, TopicError, error_code
from fakebroker.client.trio_brokers import TrioBrokers
from fakebroker.errors import ErrorCode, FakebrokerError, WaitTimeout
from fakebroker.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from fakebroker.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from fakebroker.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from fakebroker.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from fakebroker.protocol.registry import api_of
from fakebroker.protocol.schema import Message

T = TypeVar("T")

_NO_TOPIC_ID = bytes(16)
_CREATE_RETRIABLE = (ErrorCode.NOT_CONTROLLER, ErrorCode.THROTTLING_QUOTA_EXCEEDED)


class _IncompleteResult(FakebrokerError):  # noqa: N818  # internal
    """The result is incomplete; the call is repeated."""


class ClusterCalls(msgspec.Struct, frozen=True):
    """Calls that need no coordinator.

    Attributes:
        brokers: Sends the requests.
        backoff: Delays between attempts.
        request_timeout_ms: How long the controller may take for a request.
        timeout_ms: Maximum duration of a call, retries included.
    """

    brokers: TrioBrokers
    backoff: Backoff
    request_timeout_ms: float
    timeout_ms: float

    async def describe(self) -> ClusterDescription:
        """Describe the cluster, as one of its brokers sees it, with Metadata, which every release supports."""
        return await self._until_done("Metadata", self._described)

    async def topics(self) -> dict[str, TopicDescription]:
        """Return all topics, without those that the broker reports an error for."""

        async def attempt() -> dict[str, TopicDescription]:
            metadata = await self._metadata(with_topics=True)
            return {
                topic.name: _topic(topic, topic.name)
                for topic in metadata.topics
                if topic.name and not topic.error_code
            }

        return await self._until_done("Metadata", attempt)

    async def create(self, topics: Sequence[NewTopic], *, validate_only: bool) -> Results[str, None]:
        """Create topics at the controller, because not all versions of Kafka forward the request to it."""
        pending = {topic.name: topic for topic in topics}
        outcomes: dict[str, AdminError | None] = {}

        async def attempt() -> None:
            request = CreateTopicsRequest(
                topics=[_creatable(topic) for topic in pending.values()],
                timeout_ms=int(self.request_timeout_ms),
                validate_only=validate_only,
            )
            response: CreateTopicsResponse = await self.brokers.request(request, await self._controller())
            for created in response.topics:
                error = error_code(created.error_code)
                if error not in _CREATE_RETRIABLE:
                    del pending[created.name]
                    failed = error is not ErrorCode.NONE
                    outcomes[created.name] = (
                        TopicError(created.name, "CreateTopics", error, created.error_message) if failed else None
                    )
            if pending:
                raise _IncompleteResult(f"the controller has not created topics {', '.join(pending)}")

        try:
            await self._until_done("CreateTopics", attempt)
        except WaitTimeout as late:
            outcomes |= {
                name: TopicError(name, "CreateTopics", ErrorCode.REQUEST_TIMED_OUT, str(late)) for name in pending
            }
        return Results({topic.name: outcomes[topic.name] for topic in topics})

    async def groups(self, states: Sequence[str], types: Sequence[str]) -> tuple[GroupListing, ...]:
        """Return the groups of all brokers, ordered by node id."""

        def read(response: ListGroupsResponse) -> dict[str, GroupListing]:
            return {group.group_id: _listing(group) for group in response.groups}

        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        return await self._of_all_brokers(request, read, RETRIABLE_ERRORS)

    async def transactions(self, request: ListTransactionsRequest) -> tuple[TransactionListing, ...]:
        """Return the transactional ids of all brokers, ordered by node id."""

        def read(response: ListTransactionsResponse) -> dict[str, TransactionListing]:
            return {
                each.transactional_id: TransactionListing(
                    transactional_id=each.transactional_id,
                    producer_id=each.producer_id,
                    state=each.transaction_state,
                )
                for each in response.transaction_states
            }

        return await self._of_all_brokers(request, read, (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,))

    async def _of_all_brokers(
        self, request: Message, read: Callable[[Any], Mapping[str, T]], retriable: Collection[ErrorCode]
    ) -> tuple[T, ...]:
        """Send a request to all brokers. What moves from one broker to another meanwhile is returned once.

        Args:
            request: The request.
            read: Returns the items in a response, by id.
            retriable: The errors in responses after which a broker is asked again.
        """
        api = api_of(request).name
        listed: dict[int, Mapping[str, T]] = {}

        async def attempt() -> None:
            failures: dict[int, FakebrokerError] = {}

            async def ask(node: Node) -> None:
                try:
                    response = await self.brokers.request(request, node.node_id)
                    error = error_code(response.error_code)
                    if error is ErrorCode.NONE:
                        listed[node.node_id] = read(response)
                    else:
                        failed = BrokerError(str(node.node_id), api, error)
                        failures[node.node_id] = _IncompleteResult(str(failed)) if error in retriable else failed
                except FakebrokerError as failure:
                    failures[node.node_id] = failure

            nodes = (await self._described()).nodes
            async with trio.open_nursery() as nursery:
                for node in nodes:
                    if node.node_id not in listed:
                        nursery.start_soon(ask, node)
            _raise_one_of(failures)

        await self._until_done(api, attempt)
        items: dict[str, T] = {}
        for node_id in sorted(listed):
            for name, item in listed[node_id].items():
                items.setdefault(name, item)
        return tuple(items.values())

    async def _described(self) -> ClusterDescription:
        metadata = await self._metadata()
        nodes = tuple(Node(each.node_id, each.host, each.port, each.rack) for each in metadata.brokers)
        return ClusterDescription(cluster_id=metadata.cluster_id, controller_id=metadata.controller_id, nodes=nodes)

    async def _controller(self) -> int:
        controller_id = (await self._described()).controller_id
        if controller_id < 0:
            raise _IncompleteResult("there is no controller")
        return controller_id

    async def _metadata(self, *, with_topics: bool = False) -> MetadataResponse:
        request = MetadataRequest(topics=None if with_topics else [])
        metadata: MetadataResponse = await self.brokers.request(request)
        return metadata

    async def _until_done(self, api: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat an attempt until it succeeds.

        Raises:
            WaitTimeout: It did not succeed within `timeout_ms`.
        """
        seen: FakebrokerError | None = None
        with trio.move_on_after(self.timeout_ms / 1000):
            for number in count():
                try:
                    return await attempt()
                except (BrokerUnreachable, ConnectionLost, _IncompleteResult) as error:
                    seen = error
                await trio.sleep(self.backoff.delay_ms(number) / 1000)
        raise WaitTimeout(f"{api}: timed out after {self.timeout_ms:g} ms; last error: {seen or 'no response'}")


def _raise_one_of(failures: dict[int, FakebrokerError]) -> None:
    """Raise the first error by node id; errors that are not retriable come first."""
    in_order = [failures[node_id] for node_id in sorted(failures)]
    retriable = (BrokerUnreachable, ConnectionLost, _IncompleteResult)
    for error in sorted(in_order, key=lambda error: isinstance(error, retriable)):
        raise error


def _topic(topic: MetadataResponseTopic, name: str) -> TopicDescription:
    partitions = sorted((_partition(each) for each in topic.partitions), key=lambda each: each.partition)
    return TopicDescription(
        name=name,
        topic_id=topic.topic_id if topic.topic_id != _NO_TOPIC_ID else None,
        is_internal=topic.is_internal,
        partitions=tuple(partitions),
    )


def _partition(partition: MetadataResponsePartition) -> PartitionDescription:
    return PartitionDescription(
        partition=partition.partition_index,
        leader=partition.leader_id,
        replicas=tuple(partition.replica_nodes),
        isr=tuple(partition.isr_nodes),
    )


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )


def _listing(group: ListedGroup) -> GroupListing:
    return GroupListing(
        group_id=group.group_id,
        protocol_type=group.protocol_type,
        state=group.group_state or None,
        type=group.group_type or None,
    )
