"""Clients of a fresh cluster that creates its internal topics as slowly as Kafka; the test advances the time."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from fakebroker import FakeCluster
from fakebroker.cluster.first_use import CREATION_MS, ELECTION_MS, LOADING_MS
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitResponse
from tests.support.exactly_once import aio, confluent, fakebroker_client, kafka_python
from tests.support.exactly_once.application import OUTPUT, TRANSACTIONAL_ID, Client
from tests.support.group_requests import commit_request
from tests.support.kafka_clients.aiokafka_client import AIO
from tests.support.kafka_clients.client import CALL_TIMEOUT_S, GroupConsumer, Settings
from tests.support.kafka_clients.confluent_client import CONFLUENT
from tests.support.kafka_clients.fakebroker_client import FakebrokerConsumer
from tests.support.kafka_clients.helpers import numbered, values
from tests.support.kafka_clients.kafka_python_client import KAFKA_PYTHON
from tests.support.wire_client import WireClient, broker_of, find_coordinator

FRESH = pytest.mark.fake_cluster(topics={"orders": 1}, first_use="kafka", clock="manual")
CONSUMERS: dict[str, Callable[[str, Settings], GroupConsumer]] = {
    **{client.name: client.consumer for client in (CONFLUENT, AIO, KAFKA_PYTHON)},
    "fakebroker": FakebrokerConsumer,
}
PRODUCERS = (confluent.CONFLUENT, aio.AIO, kafka_python.KAFKA_PYTHON, fakebroker_client.FAKEBROKER)

T = TypeVar("T")


def through_first_use(cluster: FakeCluster, run: Callable[[], T], **filters: Any) -> T:
    """Run a function of a client in a thread. Advance the time when it has met each error of the first use.

    Args:
        cluster: The cluster.
        run: The function.
        filters: Which requests get the errors.
    """
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(run)
        cluster.wait(cluster.requested("FindCoordinator", error="COORDINATOR_NOT_AVAILABLE", **filters))
        cluster.advance(CREATION_MS / 1000)
        cluster.wait(cluster.requested(error="NOT_COORDINATOR", **filters))
        cluster.advance(ELECTION_MS / 1000)
        cluster.wait(cluster.requested(error="COORDINATOR_LOAD_IN_PROGRESS", **filters))
        cluster.advance(LOADING_MS / 1000)
        return done.result(CALL_TIMEOUT_S)


@pytest.mark.slow
@FRESH
@pytest.mark.parametrize("name", CONSUMERS)
def test_a_consumer_joins_reads_and_commits(name: str, fake_cluster: FakeCluster) -> None:
    records = numbered(range(3))
    fake_cluster.topic("orders").produce([each.value for each in records])
    consumer = CONSUMERS[name](fake_cluster.bootstrap_servers, Settings(group_id="g"))

    def consume() -> list[bytes]:
        consumer.subscribe("orders")
        found = consumer.poll()
        while len(found) < len(records):
            found += consumer.poll()
        consumer.commit()
        return values(found)

    assert through_first_use(fake_cluster, consume, group="g") == values(records)
    assert fake_cluster.group("g").offsets()["orders", 0].offset == len(records)
    consumer.close()


@pytest.mark.slow
@pytest.mark.fake_cluster(topics={OUTPUT: 1}, first_use="kafka", clock="manual")
@pytest.mark.parametrize("client", PRODUCERS, ids=lambda client: client.name)
def test_a_producer_commits_a_transaction(client: Client, fake_cluster: FakeCluster) -> None:
    servers = fake_cluster.bootstrap_servers
    application = through_first_use(
        fake_cluster, lambda: client.start(servers, "producer"), transactional_id=TRANSACTIONAL_ID
    )
    application.begin()
    application.produce(0, b"a")
    application.flush()
    application.commit(CALL_TIMEOUT_S)
    application.crash()
    assert fake_cluster.transaction(TRANSACTIONAL_ID).describe().state == "CompleteCommit"
    assert [record.value for record in fake_cluster.topic(OUTPUT).records()] == [b"a"]


def commit_without_retries(cluster: FakeCluster) -> ErrorCode:
    """Look for a coordinator and commit an offset, as a client that gives up at the first error; return it."""
    with WireClient(cluster.brokers[0]) as client:
        (found,) = client.ask(find_coordinator("g"), FindCoordinatorResponse, 4).coordinators
    if found.error_code:
        return ErrorCode(found.error_code)
    with WireClient(broker_of(cluster, found.node_id)) as client:
        committed = client.ask(commit_request(7), OffsetCommitResponse, 9)
    return ErrorCode(committed.topics[0].partitions[0].error_code)


@FRESH
def test_a_client_without_retries_fails(fake_cluster: FakeCluster) -> None:
    assert commit_without_retries(fake_cluster) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    fake_cluster.advance(CREATION_MS / 1000)
    assert commit_without_retries(fake_cluster) is ErrorCode.NOT_COORDINATOR
    fake_cluster.advance(ELECTION_MS / 1000)
    assert commit_without_retries(fake_cluster) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    fake_cluster.advance(LOADING_MS / 1000)
    assert commit_without_retries(fake_cluster) is ErrorCode.NONE


@pytest.mark.fake_cluster(topics={"orders": 1}, clock="manual")
def test_by_default_it_has_success(fake_cluster: FakeCluster) -> None:
    assert commit_without_retries(fake_cluster) is ErrorCode.NONE
