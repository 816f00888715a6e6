"""Upgrades of brokers of a running cluster: supported versions, and behavior of the coordinator."""

import pytest

from fakebroker import Broker, ConfigError, FakeCluster
from fakebroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from fakebroker.protocol.records import decode_records, split_batches
from fakebroker.protocol.registry import API_BY_NAME
from fakebroker.protocol.releases import RELEASES, release
from fakebroker.server.fake_cluster import internals
from tests.support.wire_client import WireClient, broker_of


def supported(cluster: FakeCluster, node_id: int, api: str) -> tuple[int, int] | None:
    """Return the first and last version of an API in an ApiVersions response; None if it is not supported."""
    with WireClient(broker_of(cluster, node_id)) as wire:
        ranges = wire.ask(ApiVersionsRequest(), ApiVersionsResponse, version=0).api_keys
    return next(((each.min_version, each.max_version) for each in ranges if each.api_key == API_BY_NAME[api].key), None)


def expected(name: str, api: str) -> tuple[int, int]:
    versions = RELEASES[release(name)][api]
    return versions.first, versions.last


@pytest.mark.fake_cluster(brokers=[Broker(as_version="2.8"), Broker(as_version="2.8")])
def test_an_upgraded_broker_supports_the_versions_of_its_release(fake_cluster: FakeCluster) -> None:
    ports = [broker.port for broker in fake_cluster.brokers]
    assert supported(fake_cluster, 1, "FindCoordinator") == expected("2.8", "FindCoordinator") == (0, 3)
    fake_cluster.broker(1).upgrade("3.9", api_versions={"DeleteGroups": None})
    assert supported(fake_cluster, 1, "FindCoordinator") == expected("3.9", "FindCoordinator") == (0, 6)
    assert supported(fake_cluster, 1, "DeleteGroups") is None
    assert supported(fake_cluster, 2, "FindCoordinator") == (0, 3)
    fake_cluster.broker(1).upgrade("1.1")
    assert supported(fake_cluster, 1, "FindCoordinator") == expected("1.1", "FindCoordinator") == (0, 1)
    assert [broker.port for broker in fake_cluster.brokers] == ports


@pytest.mark.fake_cluster(brokers=1, as_version="3.9")
def test_an_upgraded_coordinator_behaves_as_its_release(fake_cluster: FakeCluster) -> None:
    coordinator = internals(fake_cluster).cluster.brokers[1].coordinator
    assert coordinator.config.is_before_kip_848
    fake_cluster.broker(1).upgrade("4.2")
    assert not coordinator.config.is_before_kip_848


@pytest.mark.fake_cluster(brokers=2, as_version="2.8")
def test_a_broker_that_is_down_stays_down(fake_cluster: FakeCluster) -> None:
    fake_cluster.broker(2).stop()
    fake_cluster.broker(2).upgrade("3.0")
    assert [broker.up for broker in fake_cluster.brokers] == [True, False]
    fake_cluster.broker(2).start()
    assert supported(fake_cluster, 2, "OffsetFetch") == expected("3.0", "OffsetFetch") == (0, 8)


@pytest.mark.fake_cluster(brokers=1, as_version="2.8")
def test_an_added_broker_has_the_release_of_the_cluster_by_default(fake_cluster: FakeCluster) -> None:
    assert supported(fake_cluster, fake_cluster.brokers.add().node_id, "JoinGroup") == expected("2.8", "JoinGroup")
    assert supported(fake_cluster, fake_cluster.brokers.add(Broker(as_version="2.2")).node_id, "JoinGroup") == (0, 4)


@pytest.mark.fake_cluster(brokers=1, as_version="2.8")
def test_an_invalid_upgrade_changes_nothing(fake_cluster: FakeCluster) -> None:
    with pytest.raises(ConfigError, match=r"as_version='9\.9'"):
        fake_cluster.broker(1).upgrade("9.9")
    with pytest.raises(ConfigError, match="node_id=2: expected one of"):
        fake_cluster.broker(2).upgrade("3.9")
    assert supported(fake_cluster, 1, "FindCoordinator") == (0, 3)


@pytest.mark.fake_cluster(brokers=1, as_version="2.0", topics={"orders": 1}, config={"offsets.topic.num.partitions": 1})
def test_records_of_groups_have_the_version_of_the_release(fake_cluster: FakeCluster) -> None:
    def last_value_versions() -> set[int]:
        """Return the versions of the values in the last batch of __consumer_offsets, as a client reads them."""
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2**20)
        topics = [FetchTopic(topic="__consumer_offsets", partitions=[partition])]
        with WireClient(broker_of(fake_cluster, 1)) as wire:
            answer = wire.ask(FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics), FetchResponse, version=4)
        batches = split_batches(answer.responses[0].partitions[0].records or b"")
        return {int.from_bytes((record.value or b"")[:2], "big") for record in decode_records(batches[-1])}

    fake_cluster.group("before").seed(members=1, topics=["orders"])
    assert last_value_versions() == {1}
    fake_cluster.broker(1).upgrade("2.2")
    fake_cluster.group("between").seed(members=1, topics=["orders"])
    assert last_value_versions() == {2}
    fake_cluster.broker(1).upgrade("2.8")
    fake_cluster.group("after").seed(members=1, topics=["orders"])
    assert last_value_versions() == {3}
    assert [group.state for group in fake_cluster.groups()] == ["Stable"] * 3
