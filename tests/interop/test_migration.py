"""Running groups of classic members go to the consumer protocol (KIP-848) member by member, and back; mixed clients."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress

import aiokafka.errors
import confluent_kafka
import kafka.errors
import pytest

from fakebroker import FakeCluster
from fakebroker.client.errors import CommitFailed
from fakebroker.protocol.messages.offset_commit import OffsetCommitResponse
from tests.interop.conftest import closed_together
from tests.interop.test_consumer_protocol import Kip848Consumer
from tests.support.kafka_clients.aiokafka_client import AIO
from tests.support.kafka_clients.client import POLL_S, GroupConsumer, Record, Settings
from tests.support.kafka_clients.confluent_client import CONFLUENT, ConfluentConsumer
from tests.support.kafka_clients.driver import DriverError
from tests.support.kafka_clients.helpers import (
    committed_total,
    numbered,
    partitions_per_member,
    poll_until,
    values,
)
from tests.support.kafka_clients.kafka_python_client import KAFKA_PYTHON

pytestmark = [
    pytest.mark.slow,
    pytest.mark.fake_cluster(
        topics={"orders": 6}, clock="manual", config={"group.consumer.heartbeat.interval.ms": 100}
    ),
]

ALLOWED = {0, 22, 27, 79, 113}
"""Errors of a usual rebalance: ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED, STALE_MEMBER_EPOCH."""

APIS = "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "ConsumerGroupHeartbeat", "OffsetCommit"


COMMIT_ERRORS = (
    confluent_kafka.KafkaException,
    aiokafka.errors.KafkaError,
    kafka.errors.KafkaError,
    CommitFailed,
    DriverError,
)
"""Errors of a commit that a rebalance has overtaken, or when nothing is left to commit."""


class ClassicConsumer(ConfluentConsumer):
    """A classic member that waits in JoinGroup while its group may change its type.

    The coordinator answers such a request with REBALANCE_IN_PROGRESS (`completeAllJoinFutures` in Kafka's
    `GroupMetadataManager`). librdkafka reports that to the application and joins again.
    """

    passing_errors = ConfluentConsumer.passing_errors | {confluent_kafka.KafkaError.REBALANCE_IN_PROGRESS}

    def __init__(self, servers: str) -> None:
        super().__init__(servers, Settings(group_id="g"))


class CommittingMember:
    """A member that commits whatever it has read at once.

    A commit that a rebalance has overtaken is repeated after the next poll: a member that keeps its partitions in the
    rebalance keeps its positions, too, and would not read the records again.

    It runs in a thread: a commit may wait until the other members, too, are polled and join. aiokafka sends
    OffsetCommit after JoinGroup on the same connection.
    """

    def __init__(self, inner: GroupConsumer) -> None:
        self.inner = inner
        self._is_uncommitted = False
        self._thread = ThreadPoolExecutor(1)
        self._polling: Future[list[Record]] | None = None

    def poll(self) -> list[Record]:
        if self._polling is None:
            self._polling = self._thread.submit(self._poll_and_commit)
        if not wait([self._polling], POLL_S).done:
            return []
        records = self._polling.result()
        self._polling = None
        return records

    def finish(self) -> list[Record]:
        """Wait for the end of the last poll, and return its records."""
        self._thread.shutdown()
        return [] if self._polling is None else self._polling.result()

    def _poll_and_commit(self) -> list[Record]:
        records = self.inner.poll()
        if records or self._is_uncommitted:
            self._is_uncommitted = True
            with suppress(*COMMIT_ERRORS):
                self.inner.commit()
                self._is_uncommitted = False
        return records


class MigratingGroup:
    """A group whose members are replaced while records are produced; all are consumed, and commits are final.

    Attributes:
        members: The members that run.
        produced: How many records were produced.
    """

    def __init__(self, cluster: FakeCluster, started: list[GroupConsumer]) -> None:
        self.cluster = cluster
        self.members: list[GroupConsumer] = []
        self.produced = 0
        self._started = started

    def start(self, member: GroupConsumer) -> None:
        self._started.append(member)
        self.members.append(member)
        member.subscribe("orders")

    def stop(self, member: GroupConsumer) -> None:
        self.members.remove(member)
        member.close()

    def consume(self, kind: str) -> None:
        """Produce records and poll until they are committed and the members share all partitions.

        Args:
            kind: The type that the group has then.
        """
        numbers = range(self.produced, self.produced + 12)
        CONFLUENT.produce(self.cluster.bootstrap_servers, "orders", numbered(numbers), None)
        self.produced += 12
        share = sorted(6 // len(self.members) + (i < 6 % len(self.members)) for i in range(len(self.members)))

        def is_done(records: list[Record]) -> bool:
            known = sorted(len(member.assignment()) for member in self.members)
            is_shared = partitions_per_member(self.cluster, "g") == share == known
            is_committed = committed_total(self.cluster, "g") == self.produced
            return is_shared and is_committed and self.cluster.group("g").describe().type == kind

        what = f"{self.produced} committed records and {share} in a {kind} group"
        members = [CommittingMember(member) for member in self.members]
        read = poll_until(self.cluster, what, is_done, *members)
        for member in members:
            read += member.finish()
        assert set(values(read)) == set(values(numbered(numbers))), "what was committed is not read again"

    def errors(self) -> set[int]:
        """Return the error codes in the responses to the requests of members so far."""
        responses = [
            call.response for api in APIS for call in self.cluster.journal.requests(api) if call.response is not None
        ]
        codes = {getattr(response, "error_code", 0) for response in responses}
        commits = [response for response in responses if isinstance(response, OffsetCommitResponse)]
        codes |= {each.error_code for commit in commits for topic in commit.topics for each in topic.partitions}
        return codes


@pytest.fixture
def group(fake_cluster: FakeCluster) -> Iterator[MigratingGroup]:
    """A group whose members are closed after the test."""
    with closed_together() as consumers:
        yield MigratingGroup(fake_cluster, consumers)


def test_a_group_goes_to_the_consumer_protocol_and_back(fake_cluster: FakeCluster, group: MigratingGroup) -> None:
    servers = fake_cluster.bootstrap_servers

    for _ in range(3):
        group.start(ClassicConsumer(servers))
    group.consume("classic")
    replace: list[tuple[Callable[[str], GroupConsumer], list[str]]] = [
        (Kip848Consumer, ["consumer", "consumer", "consumer"]),
        (ClassicConsumer, ["consumer", "consumer", "classic"]),
    ]
    for new_member, kinds in replace:
        for kind in kinds:
            group.stop(group.members[0])
            group.start(new_member(servers))
            group.consume(kind)
    assert group.errors() <= ALLOWED, group.errors()
    history = fake_cluster.group("g").timeline()
    causes = [moment.cause for moment in history.moments]
    assert sum("upgrade of a classic group" in cause for cause in causes) == 1
    assert sum("becomes a classic group" in cause for cause in causes) >= 1


def test_clients_of_both_protocols_share_a_group(fake_cluster: FakeCluster, group: MigratingGroup) -> None:
    servers = fake_cluster.bootstrap_servers
    group.start(AIO.consumer(servers, Settings(group_id="g")))
    group.start(KAFKA_PYTHON.consumer(servers, Settings(group_id="g")))
    group.consume("classic")
    group.start(Kip848Consumer(servers))
    group.consume("consumer")
    fake_cluster.broker(fake_cluster.group("g").coordinator().node_id).stop()
    group.consume("consumer")
    group.stop(group.members[-1])
    group.consume("classic")
