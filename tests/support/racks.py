"""A fetch session of a consumer whose leader refers it to the follower in its rack (KIP-392)."""

from fakebroker import Broker, FakeCluster
from fakebroker.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from fakebroker.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from fakebroker.protocol.records import Record, encode_batch, split_batches
from tests.support.wire_client import WireClient, broker_of

RACKS = ("a", "b")
SELECTOR: dict[str, object] = {
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}

Seen = list[tuple[int, int, int]]
"""The partitions of a response: the error, the preferred read replica, and the number of batches."""


def create_topic(client: WireClient) -> None:
    """Create the topic "read", which broker 1 leads, and broker 2 follows."""
    assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])]
    topic = CreatableTopic(name="read", num_partitions=-1, replication_factor=-1, assignments=assignments, configs=[])
    created = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), CreateTopicsResponse, 5)
    assert [each.error_code for each in created.topics] == [0]


def produce(client: WireClient) -> int:
    """Produce a record to all replicas, and return the error."""
    data = PartitionProduceData(index=0, records=encode_batch([Record(0, 1_000, None, b"x")]))
    request = ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name="read", partition_data=[data])]
    )
    (produced,) = client.ask(request, ProduceResponse, 9).responses[0].partition_responses
    return produced.error_code


def session(client: WireClient) -> list[Seen]:
    """Return what the leader answers in one fetch session, to a consumer in the rack of the follower or in its own."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2**20)
    topics = [FetchTopic(topic="read", partitions=[partition])]
    seen: list[Seen] = []
    session_id = 0

    def fetch(rack_id: str, *, full: bool = False) -> None:
        nonlocal session_id
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            session_id=session_id,
            session_epoch=len(seen),
            topics=topics if full else [],
            rack_id=rack_id,
        )
        found = client.ask(request, FetchResponse, 12)
        assert not found.error_code
        session_id = found.session_id
        seen.append(
            [
                (each.error_code, each.preferred_read_replica, len(split_batches(each.records or b"")))
                for topic in found.responses
                for each in topic.partitions
            ]
        )

    fetch("b", full=True)
    fetch("b")  # Again, though nothing has changed.
    fetch("a")  # The consumer has another rack, and gets the records.
    fetch("b")
    partition.fetch_offset = 1
    fetch("a", full=True)  # Nothing is left to read.
    fetch("b")
    fetch("a")
    assert produce(client) == 0
    fetch("b")
    fetch("a")
    return seen


def session_on_fake_cluster() -> list[Seen]:
    """Return the session with a fake cluster."""
    with (
        FakeCluster([Broker(rack=each) for each in RACKS], config=SELECTOR) as cluster,
        WireClient(broker_of(cluster, 1)) as client,
    ):
        create_topic(client)
        assert produce(client) == 0
        return session(client)
