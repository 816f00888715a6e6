"""confluent-kafka commits offsets in transactions while its group rebalances (KIP-447).

A process has a consumer in a group and a transactional producer. If the consumer is no longer a member, or of an old
generation, the transaction must be aborted, and no record is processed twice.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from fakebroker import FakeCluster
from tests.support.exactly_once.application import INPUT, OUTPUT
from tests.support.exactly_once.kafka_python import read_committed
from tests.support.kafka_clients.client import CALL_TIMEOUT_S, Poller, Record, Settings
from tests.support.kafka_clients.confluent_client import ConfluentConsumer
from tests.support.kafka_clients.helpers import committed_total, partitions_per_member, poll_records, poll_until

pytestmark = [pytest.mark.slow, pytest.mark.fake_cluster(topics={INPUT: 2, OUTPUT: 1})]

GROUP = "g"
VALUES = [b"%d" % number for number in range(6)]


class Process:
    """A consumer in the group, and a transactional producer.

    Attributes:
        consumer: The consumer.
    """

    def __init__(self, cluster: FakeCluster, name: str, instance_id: str | None) -> None:
        servers = cluster.bootstrap_servers
        self.consumer = ConfluentConsumer(servers, Settings(group_id=GROUP, client_id=name, instance_id=instance_id))
        self.consumer.subscribe(INPUT)
        self._is_closed = False
        self._positions: list[TopicPartition] = []
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": servers, "client.id": name, "transactional.id": name, "log_level": 0}
        )
        self._producer.init_transactions(CALL_TIMEOUT_S)

    def begin(self, records: list[Record]) -> None:
        """Begin a transaction with the values of records that were just read."""
        inner = self.consumer.inner
        self._positions = [each for each in inner.position(inner.assignment()) if each.offset >= 0]
        self._producer.begin_transaction()
        for record in records:
            self._producer.produce(OUTPUT, record.value)

    def metadata(self) -> Any:
        """Return the identity of the consumer in the group."""
        return self.consumer.inner.consumer_group_metadata()

    def send_offsets(self, metadata: Any) -> None:
        """Add the positions after these records to the transaction."""
        self._producer.send_offsets_to_transaction(self._positions, metadata, CALL_TIMEOUT_S)

    def commit(self) -> None:
        """Commit the transaction."""
        self._producer.commit_transaction(CALL_TIMEOUT_S)

    def abort(self) -> None:
        """Abort the transaction, and continue at the committed offsets."""
        self._producer.abort_transaction(CALL_TIMEOUT_S)
        inner = self.consumer.inner
        for each in inner.committed(inner.assignment(), timeout=CALL_TIMEOUT_S):
            # A partition that a rebalance has just assigned cannot be sought; it begins at the committed offset.
            with suppress(KafkaException):
                inner.seek(TopicPartition(each.topic, each.partition, max(0, each.offset)))

    def poll(self) -> list[Record]:
        """Read records, and process them in a transaction, which is aborted if the consumer has left the group."""
        records = self.consumer.poll()
        if not records:
            return []
        self.begin(records)
        try:
            self.send_offsets(self.metadata())
        except KafkaException:
            self.abort()
            return []
        self.commit()
        return records

    def close(self) -> None:
        """Leave the group."""
        if not self._is_closed:
            self._is_closed = True
            self.consumer.close()


StartProcess = Callable[..., Process]


@pytest.fixture
def start_process(fake_cluster: FakeCluster) -> Iterator[StartProcess]:
    """A function that starts a process from a client id and an instance id; closed after the test."""
    with ExitStack() as stack:

        def start(name: str, instance_id: str | None = None) -> Process:
            process = Process(fake_cluster, name, instance_id)
            stack.callback(process.close)
            return process

        yield start


def member_ids(cluster: FakeCluster) -> list[str]:
    """Return the ids of the members."""
    return [member.member_id for member in cluster.group(GROUP).describe().members]


def join(cluster: FakeCluster, first: Process, second: Process) -> None:
    """Let two processes join the group; only the second one processes what it reads."""
    poll_until(
        cluster, "two members", lambda _: partitions_per_member(cluster, GROUP) == [1, 1], first.consumer, second
    )


def leave(cluster: FakeCluster, first: Process, second: Process) -> None:
    """Let the second process leave the group."""
    generation = cluster.group(GROUP).describe().generation_id
    second.close()
    cluster.wait(cluster.group(GROUP).state(above=generation), polling=[first.consumer.poll])


def process_all(cluster: FakeCluster, *processes: Poller) -> None:
    """Process the remaining records."""
    poll_until(cluster, "all offsets", lambda _: committed_total(cluster, GROUP) == len(VALUES), *processes)


def check_output(cluster: FakeCluster) -> None:
    """Check that each record was processed once."""
    (output,) = read_committed(cluster.bootstrap_servers, 1)
    assert sorted(output) == VALUES


def check_failed(process: Process, metadata: Any, expected: int) -> None:
    """Commit offsets with an identity that is no longer valid: the transaction must be aborted."""
    with pytest.raises(KafkaException) as raised:
        process.send_offsets(metadata)
    error = raised.value.args[0]
    assert error.code() == expected
    assert error.txn_requires_abort()
    assert not error.fatal()
    process.abort()


def produce_input(cluster: FakeCluster) -> None:
    """Produce half of the records to each partition of the input."""
    for number, value in enumerate(VALUES):
        cluster.topic(INPUT).produce([value], partition=number % 2)


def test_a_member_joins_between_poll_and_commit(fake_cluster: FakeCluster, start_process: StartProcess) -> None:
    produce_input(fake_cluster)
    first = start_process("first")
    first.begin(poll_records(fake_cluster, len(VALUES), first.consumer))
    metadata = first.metadata()
    second = start_process("second")
    join(fake_cluster, first, second)
    check_failed(first, metadata, KafkaError.ILLEGAL_GENERATION)
    process_all(fake_cluster, first, second)
    check_output(fake_cluster)


def test_a_member_leaves_between_poll_and_commit(fake_cluster: FakeCluster, start_process: StartProcess) -> None:
    first, second = start_process("first"), start_process("second")
    join(fake_cluster, first, second)
    produce_input(fake_cluster)
    first.begin(poll_records(fake_cluster, len(VALUES) // 2, first.consumer))
    metadata = first.metadata()
    leave(fake_cluster, first, second)
    check_failed(first, metadata, KafkaError.ILLEGAL_GENERATION)
    process_all(fake_cluster, first)
    check_output(fake_cluster)


def test_offsets_are_committed_while_a_rebalance_begins(fake_cluster: FakeCluster, start_process: StartProcess) -> None:
    produce_input(fake_cluster)
    first = start_process("first")
    first.begin(poll_records(fake_cluster, len(VALUES), first.consumer))
    with fake_cluster.group(GROUP).hold("PreparingRebalance"):
        second = start_process("second")
        fake_cluster.wait(fake_cluster.group(GROUP).state("PreparingRebalance"), polling=[second.poll])
        first.send_offsets(first.metadata())
        first.commit()
    process_all(fake_cluster, first, second)
    check_output(fake_cluster)


def test_an_evicted_member_is_unknown(fake_cluster: FakeCluster, start_process: StartProcess) -> None:
    produce_input(fake_cluster)
    first = start_process("first")
    first.begin(poll_records(fake_cluster, len(VALUES), first.consumer))
    metadata = first.metadata()
    fake_cluster.group(GROUP).evict("first")
    check_failed(first, metadata, KafkaError.UNKNOWN_MEMBER_ID)
    process_all(fake_cluster, first)
    check_output(fake_cluster)


def test_a_static_member_is_fenced(fake_cluster: FakeCluster, start_process: StartProcess) -> None:
    produce_input(fake_cluster)
    first = start_process("first", "instance")
    first.begin(poll_records(fake_cluster, len(VALUES), first.consumer))
    metadata = first.metadata()
    fenced = member_ids(fake_cluster)
    second = start_process("second", "instance")
    poll_until(fake_cluster, "another member id", lambda _: member_ids(fake_cluster) != fenced, second)
    check_failed(first, metadata, KafkaError.FENCED_INSTANCE_ID)
    process_all(fake_cluster, second)
    check_output(fake_cluster)


def test_a_zombie_commits_nothing_after_a_rebalance(fake_cluster: FakeCluster, start_process: StartProcess) -> None:
    produce_input(fake_cluster)
    zombie = start_process("zombie")
    zombie.begin(poll_records(fake_cluster, len(VALUES), zombie.consumer))
    metadata = zombie.metadata()
    other = start_process("other")
    # The zombie does not notice, and does not join again.
    with fake_cluster.inject_fault(
        "JoinGroup", client_id="zombie", error="COORDINATOR_LOAD_IN_PROGRESS", may_miss=True
    ):
        fake_cluster.group(GROUP).evict("zombie")
        process_all(fake_cluster, other)
    check_failed(zombie, metadata, KafkaError.UNKNOWN_MEMBER_ID)
    check_output(fake_cluster)
