"""The admin client's calls about transactions compared with those of kafka-python and confluent-kafka."""

from typing import Any

import kafka
import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from kafka.admin import KafkaAdminClient
from msgspec.structs import astuple

from fakebroker import FakeCluster
from tests.support.client.admin_harness import PARTITION, cluster_and_admin
from tests.support.client.wire_producer import WireProducer
from tests.support.trio_runner import in_trio_with_sockets

pytestmark = pytest.mark.slow

OTHER = ("orders", 1)
TIMEOUT_S = 20


def transact(cluster: FakeCluster) -> None:
    """Leave an open transaction with an offset of the group "g", a committed one, and an id without any."""
    one, two, three = (WireProducer(cluster, name) for name in ("one", "two", "three"))
    one.begin(PARTITION, b"a", b"b")
    one.add_offsets("g")
    one.commit_offset("g", OTHER, 7)
    two.begin(OTHER, b"c")
    two.end(commit=True)
    three.init(timeout_ms=7_000)


@in_trio_with_sockets
async def test_kafka_python_returns_the_same_transactions_and_producers(subtests: pytest.Subtests) -> None:
    for release in ("3.0", "3.9", None):
        with subtests.test(release=release):
            async with cluster_and_admin(as_version=release) as (cluster, admin):
                transact(cluster)
                theirs: Any = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
                ids = ["one", "two", "three"]
                listed = {tuple(each) for found in theirs.list_transactions().values() for each in found}
                ours = await admin.list_transactions()
                assert {(each.transactional_id, each.producer_id, each.state) for each in ours} == listed
                described = (await admin.describe_transactions(ids)).all()
                for name, found in theirs.describe_transactions(ids).items():
                    each = described[name]
                    assert (each.coordinator.node_id, each.state, each.producer_id, each.producer_epoch) == found[:4]
                    start_ms = -1 if each.start_ms is None else each.start_ms
                    assert (each.timeout_ms, start_ms, set(each.partitions)) == found[4:]
                places = [kafka.TopicPartition(*PARTITION), kafka.TopicPartition(*OTHER)]
                producers = (await admin.describe_producers([PARTITION, OTHER])).all()
                for place, state in theirs.describe_producers(places).items():
                    (found,), (producer,) = state.active_producers, producers[place.topic, place.partition]
                    assert tuple(-1 if value is None else value for value in astuple(producer)) == found
                theirs.close()


@in_trio_with_sockets
async def test_confluent_kafka_returns_the_same_offsets(subtests: pytest.Subtests) -> None:
    for release in ("2.8", "3.9", None):
        with subtests.test(release=release):
            async with cluster_and_admin(as_version=release) as (cluster, admin):
                transact(cluster)
                theirs = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
                latest_offset: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
                for level, isolation in (
                    ("read_uncommitted", IsolationLevel.READ_UNCOMMITTED),
                    ("read_committed", IsolationLevel.READ_COMMITTED),
                ):
                    wanted = {TopicPartition(*place): latest_offset for place in (PARTITION, OTHER)}
                    futures = theirs.list_offsets(wanted, isolation_level=isolation, request_timeout=TIMEOUT_S)
                    found = {(each.topic, each.partition): future.result().offset for each, future in futures.items()}
                    latest: Any = dict.fromkeys((PARTITION, OTHER), "latest")
                    ours = (await admin.list_offsets(latest, isolation_level=level)).all()  # type: ignore[arg-type]
                    assert {place: each.offset for place, each in ours.items()} == found
