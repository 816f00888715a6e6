"""Requests that are refused, in all versions: without a permission, and while there are no coordinators.

Old versions lack the fields of some errors. Where errors are, and which ones have a message, is the same on Apache
Kafka and on the fake cluster.
"""

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing

import pytest

from fakebroker.kafka.jars import RELEASES as COMPARED
from fakebroker.kafka.process import ApacheKafka, KafkaBroker
from fakebroker.protocol.registry import API_BY_NAME
from fakebroker.protocol.releases import RELEASES, release
from fakebroker.protocol.schema import Message, Versions
from fakebroker.security.acls import AclStore
from tests.histories.answers import Pairs
from tests.histories.sides import KafkaSide
from tests.support.cluster.cluster_harness import ClusterHarness, carried
from tests.support.cluster.permissions import ROWS, Row
from tests.support.soak import IS_SOAK, soak
from tests.support.wire_client import TIMEOUT_S, WireClient

pytestmark = pytest.mark.slow

BROKERS_HOST, CLIENTS_HOST = "127.0.0.1", "127.0.0.2"
MANY_REPLICAS: dict[str, object] = {
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
}
"""So many that one broker cannot create the internal topics."""

COORDINATED = {
    *("OffsetCommit", "OffsetFetch", "FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup"),
    *("DescribeGroups", "DeleteGroups", "OffsetDelete", "ConsumerGroupHeartbeat", "ConsumerGroupDescribe"),
    *("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn", "DescribeTransactions"),
}
"""The APIs of coordinators."""


def requests(rows: Iterable[Row], of_release: str) -> Iterator[tuple[Row, int]]:
    """Yield the requests of a table in all versions of a release."""
    for row in rows:
        versions = RELEASES[release(of_release)].get(row.api)
        supported = API_BY_NAME[row.api].versions
        if versions is not None:
            for version in range(max(versions.first, supported.first), versions.last + 1):
                if version in Versions.parse(row.versions):
                    yield row, version


def create_news(side: KafkaSide) -> bytes:
    """Create the topic of the table, and return its id."""
    side.ask("CreateTopics", 5, {"topics": [{"name": "news", "num_partitions": 1, "replication_factor": 1}]})
    (topic_id,) = side.learned_ids(["news"])
    return topic_id


def forbid(side: KafkaSide) -> None:
    """Allow everything to the broker, and so nothing to clients at another address."""
    allowed = {"principal": "User:ANONYMOUS", "host": BROKERS_HOST, "operation": 2, "permission_type": 3}
    resources = ((2, "*"), (3, "*"), (4, "kafka-cluster"), (5, "*"))
    creations = [{"resource_type": kind, "resource_name": name, **allowed} for kind, name in resources]
    created = side.ask("CreateAcls", 3, {"creations": creations}).results
    assert [each.error_code for each in created] == [0] * len(resources)
    everything = {
        "resource_type_filter": 1,
        "pattern_type_filter": 1,
        "operation": 1,
        "permission_type": 1,
        "resource_name_filter": None,
        "principal_filter": None,
        "host_filter": None,
    }
    deadline = time.monotonic() + TIMEOUT_S
    while len(side.ask("DescribeAcls", 3, everything).resources) < len(resources):
        assert time.monotonic() < deadline, side.ask("DescribeAcls", 3, everything)


def differences(
    broker: KafkaBroker, news_id: bytes, harness: ClusterHarness, rows: Iterable[Row], of_release: str, host: str
) -> list[str]:
    """Send requests to Kafka, from an address, and to the fake cluster. Return the differences of the answers."""
    pairs, found = Pairs("-"), []
    with WireClient(broker, host=host) as client:
        for row, version in requests(rows, of_release):
            theirs = client.ask(row.request(version, news_id), Message, version)
            call = harness.send(row.request(version, harness.topic().topic_id), version)
            if call.response is None:
                harness.advance(1_000)
            difference = pairs.difference(row.api, carried(call.response, version), theirs)
            if difference is not None:
                found.append(f"{row.api} {version} {row.fields}: {difference}")
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="needs another loopback address")
@soak
@pytest.mark.parametrize("of_release", COMPARED if IS_SOAK else ["4.4"])
def test_requests_without_permission(of_release: str) -> None:
    config = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    harness = ClusterHarness(as_version=of_release)
    harness.cluster.acls = AclStore([])
    with ApacheKafka(of_release, config=config) as kafka:
        broker = kafka.brokers[1]
        with closing(KafkaSide("-", (broker.host, broker.port))) as side:
            news_id = create_news(side)
            forbid(side)
        found = differences(broker, news_id, harness, ROWS, of_release, CLIENTS_HOST)

    assert found == []


@soak
@pytest.mark.parametrize("of_release", COMPARED if IS_SOAK else ["4.4"])
def test_requests_without_coordinator(of_release: str) -> None:
    harness = ClusterHarness(config=MANY_REPLICAS, as_version=of_release)
    rows = [row for row in ROWS if row.api in COORDINATED and row.fields.get("transactional_id", "t")]
    with ApacheKafka(of_release, config=MANY_REPLICAS) as kafka:
        broker = kafka.brokers[1]
        with closing(KafkaSide("-", (broker.host, broker.port))) as side:
            news_id = create_news(side)
        found = differences(broker, news_id, harness, rows, of_release, BROKERS_HOST)

    assert found == []
