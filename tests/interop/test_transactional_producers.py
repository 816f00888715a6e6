"""Transactional producers of six clients: records of aborted transactions, fencing, emulated releases of Kafka."""

from collections.abc import Sequence

import confluent_kafka
import pytest
from kafka import KafkaAdminClient

from fakebroker import FakeCluster
from fakebroker.server.fake_cluster import internals
from tests.support.exactly_once.aio import AIO
from tests.support.exactly_once.application import GROUP_ID, INPUT, OUTPUT, Application, Client
from tests.support.exactly_once.clients import READERS, with_each_client
from tests.support.exactly_once.confluent import CONFLUENT
from tests.support.exactly_once.fakebroker_client import FAKEBROKER
from tests.support.exactly_once.java import JAVA
from tests.support.exactly_once.kafka_python import KAFKA_PYTHON
from tests.support.exactly_once.kafkajs import KAFKAJS
from tests.support.exactly_once.loop import RECORDS, STEPS, Loop
from tests.support.kafka_clients.client import CALL_TIMEOUT_S
from tests.support.soak import sampled, soak

pytestmark = [pytest.mark.slow, pytest.mark.fake_cluster(topics={INPUT: 1, OUTPUT: 1})]

TRANSACTIONS = 6

RELEASES = ("0.11", "2.4", "2.8", "3.9", "4.0", "4.2")

APIS = ("InitProducerId", "AddPartitionsToTxn", "Produce", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn")

NOT_SENT = -1

VERSIONS = {
    CONFLUENT: {
        "0.11": (0, 0, 3, 0, 0, 0),
        "2.4": (2, 0, 8, 0, 2, 1),
        "2.8": (4, 0, 9, 0, 3, 1),
        "3.9": (4, 0, 10, 0, 3, 1),
        "4.0": (4, 0, 10, 0, 3, 1),
        "4.2": (4, 0, 10, 0, 3, 1),
    },
    AIO: {release: (0, 0, 3 if release == "0.11" else 7, 0, 0, 0) for release in RELEASES},
    KAFKA_PYTHON: {
        "0.11": (0, 0, 3, 0, 0, 0),
        "2.4": (2, 1, 8, 1, 2, 1),
        "2.8": (4, 3, 9, 3, 3, 3),
        "3.9": (4, 3, 9, 3, 3, 3),
        "4.0": (4, 3, 9, 3, 3, 3),
        "4.2": (4, 3, 9, 3, 3, 3),
    },
    KAFKAJS: {release: (0, 0, 3, 0, 0, 0) if release == "0.11" else (1, 1, 7, 1, 1, 1) for release in RELEASES},
    FAKEBROKER: {
        "0.11": (0, 0, 3, 0, 0, 0),
        "2.4": (2, 1, 8, 1, 2, 1),
        "2.8": (4, 3, 9, 3, 3, 3),
        "3.9": (5, 3, 11, 4, 4, 4),
        "4.0": (5, NOT_SENT, 12, NOT_SENT, 5, 5),
        "4.2": (5, NOT_SENT, 12, NOT_SENT, 5, 5),
    },
    JAVA: {
        "0.11": (0, 0, 3, 0, 0, 0),
        "2.4": (2, 1, 8, 1, 2, 1),
        "2.8": (4, 3, 9, 3, 3, 3),
        "3.9": (5, 3, 11, 4, 4, 4),
        "4.0": (5, NOT_SENT, 12, NOT_SENT, 5, 5),
        "4.2": (5, NOT_SENT, 13, NOT_SENT, 5, 5),
    },
}
"""The versions of `APIS` that each client sends to each release."""


def transact(application: Application, values: Sequence[bytes], *, commits: bool = True) -> None:
    """Produce records in one transaction."""
    application.begin()
    for value in values:
        application.produce(0, value)
    application.flush()
    if commits:
        application.commit(CALL_TIMEOUT_S)
    else:
        application.abort()


@with_each_client
def test_only_committed_records_are_read(fake_cluster: FakeCluster, client: Client) -> None:
    application = client.start(fake_cluster.bootstrap_servers, "producer")
    expected = []
    for number in range(TRANSACTIONS):
        values = [b"%d-%d" % (number, index) for index in range(3)]
        is_commit = number % 2 == 0
        transact(application, values, commits=is_commit)
        expected += values if is_commit else []
        if number == TRANSACTIONS // 2:
            for broker in fake_cluster.brokers:
                fake_cluster.broker(broker.node_id).restart()
    application.begin()
    application.produce(0, b"open")
    application.flush()
    for reader in (client, READERS[client]):
        assert reader.read_committed(fake_cluster.bootstrap_servers, 1) == [expected]
    application.crash()


@with_each_client
def test_a_second_producer_fences_the_first_one(fake_cluster: FakeCluster, client: Client) -> None:
    first = client.start(fake_cluster.bootstrap_servers, "first")
    transact(first, [b"a"])
    second = client.start(fake_cluster.bootstrap_servers, "second")
    with pytest.raises(client.errors):
        transact(first, [b"b"])
    transact(second, [b"c"])
    first.crash()
    second.crash()
    assert READERS[client].read_committed(fake_cluster.bootstrap_servers, 1) == [[b"a", b"c"]]


def test_an_admin_finds_an_open_transaction(fake_cluster: FakeCluster) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": fake_cluster.bootstrap_servers, "transactional.id": "hanging", "log_level": 0}
    )
    producer.init_transactions(CALL_TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(OUTPUT, b"a")
    producer.flush(CALL_TIMEOUT_S)
    admin = KafkaAdminClient(bootstrap_servers=fake_cluster.bootstrap_servers)
    assert "hanging" in str(admin.list_transactions())
    described = admin.describe_transactions(["hanging"])
    assert "Ongoing" in str(described)
    assert OUTPUT in str(described)
    partition = internals(fake_cluster).cluster.topics.find(OUTPUT, b"", by_id=False)
    assert partition is not None
    log = partition.partitions[0].log
    assert (log.last_stable_offset, log.high_watermark) == (0, 1)
    producer.abort_transaction(CALL_TIMEOUT_S)
    assert (log.last_stable_offset, log.high_watermark) == (2, 2)
    admin.close()
    producer.close()


@soak
@with_each_client
def test_a_loop_with_each_release(client: Client, subtests: pytest.Subtests) -> None:
    for release in sampled(RELEASES, 2):
        with subtests.test(release), FakeCluster(as_version=release, seed=1) as cluster:
            loop = Loop(cluster, client, seed=0)
            application = loop.start()
            for offset in (0, RECORDS // 2):
                assert len(list(loop.steps(application, offset, RECORDS // 2, commits=True))) == STEPS
            assert application.committed() == RECORDS
            application.crash()
            loop.check(READERS[client])
            assert cluster.group(GROUP_ID).offsets()[INPUT, 0].offset == RECORDS
            sent = [
                {call.api_version for call in cluster.journal.requests(api, client_id="instance-1")} for api in APIS
            ]
            assert tuple(max(versions, default=NOT_SENT) for versions in sent) == VERSIONS[client][release]
            assert max(map(len, sent)) == 1
