"""What the admin client asks that needs no coordinator: brokers, topics, and which groups each broker has (trio).

Tries again for a while what fails. Knows nothing of coordinators.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

import trio

from fakebroker.client.admin.batching import Asking
from fakebroker.client.admin.descriptions import (
    ClusterDescription,
    GroupListing,
    NewTopic,
    Node,
    PartitionDescription,
    TopicDescription,
)
from fakebroker.client.admin.driver import ASK_AGAIN, LOOK_UP_AGAIN, Backoff
from fakebroker.client.admin.results import AdminError, BrokerError, Results, TopicError
from fakebroker.client.connection import BrokerUnreachable, Connection, ConnectionLost
from fakebroker.client.member.reactions import error_code
from fakebroker.client.pool import BrokerPool
from fakebroker.errors import ErrorCode, FakebrokerError, WaitTimeout
from fakebroker.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from fakebroker.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from fakebroker.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

T = TypeVar("T")

_NO_TOPIC_ID = bytes(16)
_CREATE_AGAIN = (ErrorCode.NOT_CONTROLLER, ErrorCode.THROTTLING_QUOTA_EXCEEDED)


class _NotYet(FakebrokerError):  # noqa: N818  # a state of affairs
    """Some of what was asked is still to come."""


@dataclass(frozen=True, slots=True)
class ClusterCalls:
    """Calls that need no coordinator.

    Attributes:
        pool: The brokers; it learns where they are.
        asking: How they are asked.
        backoff: How long to wait before asking again.
        timeout_ms: How long a call may take, with all that is asked again.
    """

    pool: BrokerPool
    asking: Asking
    backoff: Backoff
    timeout_ms: float

    async def describe(self) -> ClusterDescription:
        """The cluster as one of its brokers knows it. Metadata tells that in every version."""
        return await self._until_done("Metadata", self._described)

    async def topics(self) -> dict[str, TopicDescription]:
        """All topics; not those that the broker asked has trouble with."""

        async def attempt() -> dict[str, TopicDescription]:
            metadata = await self._metadata(with_topics=True)
            return {
                topic.name: _topic(topic, topic.name)
                for topic in metadata.topics
                if topic.name and not topic.error_code
            }

        return await self._until_done("Metadata", attempt)

    async def create(self, topics: Sequence[NewTopic], *, validate_only: bool) -> Results[None]:
        """Create topics, at the controller: not every Kafka passes the request on."""
        left = {topic.name: topic for topic in topics}
        outcomes: dict[str, AdminError | None] = {}

        async def attempt() -> None:
            request = CreateTopicsRequest(
                topics=[_creatable(topic) for topic in left.values()],
                timeout_ms=int(self.asking.request_timeout_ms),
                validate_only=validate_only,
            )
            response: CreateTopicsResponse = await self.asking.one(await self._controller(), request)
            for created in response.topics:
                error = error_code(created.error_code)
                if error not in _CREATE_AGAIN:
                    del left[created.name]
                    failed = error is not ErrorCode.NONE
                    outcomes[created.name] = (
                        TopicError(created.name, "CreateTopics", error, created.error_message) if failed else None
                    )
            if left:
                raise _NotYet(f"topics {', '.join(left)} put off by the controller")

        try:
            await self._until_done("CreateTopics", attempt)
        except WaitTimeout as late:
            outcomes |= {
                name: TopicError(name, "CreateTopics", ErrorCode.REQUEST_TIMED_OUT, str(late)) for name in left
            }
        return Results({topic.name: outcomes[topic.name] for topic in topics})

    async def groups(self, states: Sequence[str], types: Sequence[str]) -> tuple[GroupListing, ...]:
        """The groups of all brokers, broker by broker; one that has moved meanwhile counts once."""
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        listed: dict[int, list[GroupListing]] = {}

        async def attempt() -> None:
            failures: dict[int, FakebrokerError] = {}

            async def ask(node: Node) -> None:
                try:
                    listed[node.node_id] = await self._groups_of(node, request)
                except FakebrokerError as error:
                    failures[node.node_id] = error

            nodes = (await self._described()).nodes
            async with trio.open_nursery() as nursery:
                for node in nodes:
                    if node.node_id not in listed:
                        nursery.start_soon(ask, node)
            _raise_one_of(failures)

        await self._until_done("ListGroups", attempt)
        groups: dict[str, GroupListing] = {}
        for node_id in sorted(listed):
            for group in listed[node_id]:
                groups.setdefault(group.group_id, group)
        return tuple(groups.values())

    async def _groups_of(self, node: Node, request: ListGroupsRequest) -> list[GroupListing]:
        connection = await self.pool.to(node.node_id)
        response: ListGroupsResponse = await self.asking.one(connection, request)
        error = error_code(response.error_code)
        if error is ErrorCode.NONE:
            return [_listing(group) for group in response.groups]
        failed = BrokerError(str(node.node_id), "ListGroups", error)
        raise _NotYet(str(failed)) if error in (*ASK_AGAIN, *LOOK_UP_AGAIN) else failed

    async def _described(self) -> ClusterDescription:
        metadata = await self._metadata()
        nodes = tuple(Node(each.node_id, each.host, each.port, each.rack) for each in metadata.brokers)
        return ClusterDescription(cluster_id=metadata.cluster_id, controller_id=metadata.controller_id, nodes=nodes)

    async def _controller(self) -> Connection:
        controller_id = (await self._described()).controller_id
        if controller_id < 0:
            raise _NotYet("there is no controller")
        return await self.pool.to(controller_id)

    async def _metadata(self, *, with_topics: bool = False) -> MetadataResponse:
        request = MetadataRequest(topics=None if with_topics else [])
        metadata: MetadataResponse = await self.asking.one(await self.pool.any(), request)
        for broker in metadata.brokers:
            self.pool.learn(broker.node_id, broker.host, broker.port)
        return metadata

    async def _until_done(self, api: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try until it works.

        Raises:
            WaitTimeout: It has not in the time that a call may take.
        """
        seen: FakebrokerError | None = None
        with trio.move_on_after(self.timeout_ms / 1000):
            for number in count():
                try:
                    return await attempt()
                except (BrokerUnreachable, ConnectionLost, _NotYet) as error:
                    seen = error
                await self.backoff.wait(number)
        raise WaitTimeout(f"{api}: not done in {self.timeout_ms:g} ms; last seen: {seen or 'no answer'}")


def _raise_one_of(failures: dict[int, FakebrokerError]) -> None:
    """Raise what will stay, else what may pass; of several that of the first broker."""
    in_order = [failures[node_id] for node_id in sorted(failures)]
    may_pass = (BrokerUnreachable, ConnectionLost, _NotYet)
    for error in sorted(in_order, key=lambda error: isinstance(error, may_pass)):
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
