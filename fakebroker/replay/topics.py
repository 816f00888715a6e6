"""The workload's topics, made before anything is played; also the first word with the cluster. Knows no Spark."""

from collections.abc import Mapping

import trio

from fakebroker.client.connection import Connection
from fakebroker.errors import ErrorCode, FakebrokerError
from fakebroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from fakebroker.replay.bootstrap import addresses, connect

_READY_TIMEOUT_S = 20.0
_RETRY_S = 0.1
_MOST_REPLICAS = 3


async def ready_topics(bootstrap: str, topics: Mapping[str, int]) -> dict[str, int]:
    """See to it that the topics are there.

    Args:
        bootstrap: HOST:PORT of the cluster, or several with commas.
        topics: Their partitions; a topic that is already there keeps those that it has.

    Returns:
        How many partitions each topic really has.

    Raises:
        FakebrokerError: The cluster cannot be reached, refuses to make a topic, or does not get ready with it.
    """
    brokers = addresses(bootstrap)
    try:
        with trio.fail_after(_READY_TIMEOUT_S):
            async with trio.open_nursery() as nursery:
                connection, _ = await connect(brokers, nursery)
                await _create(connection, topics, nursery)
                counts = await _partition_counts(connection, topics)
                nursery.cancel_scope.cancel()
    except trio.TooSlowError:
        names = ", ".join(topics)
        raise FakebrokerError(f"cluster {bootstrap}: topics {names} not ready after {_READY_TIMEOUT_S:g} s") from None
    except ExceptionGroup as group:  # of one: a connection's own task raises nothing
        raise group.exceptions[0] from None
    return counts


async def _create(connection: Connection, topics: Mapping[str, int], nursery: trio.Nursery) -> None:
    """Create the topics at the controller: not all Kafka versions pass the request on."""
    metadata: MetadataResponse = await connection.request(MetadataRequest(topics=[]))
    for broker in metadata.brokers:
        if broker.node_id == metadata.controller_id:
            connection, _ = await connect([(broker.host, broker.port)], nursery)
    replicas = min(_MOST_REPLICAS, len(metadata.brokers))
    wanted = [
        CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, assignments=[], configs=[])
        for name, partitions in topics.items()
    ]
    created: CreateTopicsResponse = await connection.request(CreateTopicsRequest(topics=wanted))
    for topic in created.topics:
        if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            error = ErrorCode(topic.error_code).name
            raise FakebrokerError(
                f"topic {topic.name!r} cannot be created: {error} {topic.error_message or ''}".strip()
            )


async def _partition_counts(connection: Connection, topics: Mapping[str, int]) -> dict[str, int]:
    """Wait until all topics are known to the broker asked, with a leader for each partition."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in topics])
    while True:
        metadata: MetadataResponse = await connection.request(request)
        if not any(topic.error_code or any(p.error_code for p in topic.partitions) for topic in metadata.topics):
            return {topic.name or "": len(topic.partitions) for topic in metadata.topics}
        await trio.sleep(_RETRY_S)
