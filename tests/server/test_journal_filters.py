"""Filters of requests by topic, partition, member, instance id, version and fault, with messages and without."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakebroker import FakeCluster, read_journal
from fakebroker.cluster.inspect.journal_queries import JournalQueries
from fakebroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitResponse
from fakebroker.server.fake_cluster import internals
from tests.support.cluster.cluster_harness import batch
from tests.support.group_requests import commit_request
from tests.support.groups_over_tcp import heartbeat, join_and_sync
from tests.support.wire_client import WireClient

BY_NAME, BY_ID = 12, 13
"""Versions of Fetch that name topics by their name and by their id (KIP-516)."""


def fetch(wire: WireClient, topic_id: bytes | None, *indexes: int, session: tuple[int, int] = (0, -1)) -> Any:
    """Fetch partitions of "orders", by id if it is given; none in a session (KIP-227)."""
    partitions = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000) for index in indexes]
    named = FetchTopic(topic="orders" if topic_id is None else "", partitions=partitions)
    if topic_id is not None:
        named.topic_id = topic_id
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=[named] if indexes else [], forgotten_topics_data=[],
        session_id=session[0], session_epoch=session[1],
    )  # fmt: skip
    return wire.ask(request, FetchResponse, BY_NAME if topic_id is None else BY_ID)


@pytest.fixture(params=["full", "headers"])
def filled(request: pytest.FixtureRequest) -> Iterator[FakeCluster]:
    """A cluster with requests that name topics, and with those of a static member."""
    with (
        FakeCluster(brokers=1, topics={"orders": 3, "news": 1}, journal=request.param) as cluster,
        WireClient(cluster.brokers[0], "app") as wire,
    ):
        topic = internals(cluster).cluster.topics.get("orders")
        assert topic is not None
        wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), MetadataResponse)
        wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name="news")]), MetadataResponse)
        fetch(wire, None, 0, 1)
        fetch(wire, topic.topic_id, 2)
        wire.ask(commit_request(1, partition=2), OffsetCommitResponse, 8)
        static = HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id="i")
        wire.ask(static, HeartbeatResponse)
        with cluster.inject_fault("Heartbeat", error="NOT_COORDINATOR"):
            heartbeat(wire, version=3)
        yield cluster


FILTERED: list[tuple[dict[str, Any], list[str]]] = [
    ({"topic": "orders"}, ["Metadata", "Fetch", "Fetch", "OffsetCommit"]),
    ({"topic": "news"}, ["Metadata"]),
    ({"topic": "nothing"}, []),
    ({"topic": "orders", "partition": 2}, ["Fetch", "OffsetCommit"]),
    ({"partition": "orders-2"}, ["Fetch", "OffsetCommit"]),
    ({"partition": "orders-2", "topic": "orders"}, ["Fetch", "OffsetCommit"]),
    ({"partition": 0}, ["Fetch"]),
    ({"partition": "news-0"}, []),
    ({"instance_id": "i"}, ["Heartbeat"]),
    ({"member": "i"}, ["Heartbeat"]),
    ({"member": "m"}, ["Heartbeat", "Heartbeat"]),
    ({"member": "app"}, ["Heartbeat", "Heartbeat"]),
    ({"member": "other"}, []),
    ({"version": BY_ID}, ["Metadata", "Metadata", "Fetch"]),
    ({"version": 3}, ["Heartbeat"]),
    ({"fault": True}, ["Heartbeat"]),
    ({"fault": False, "member": "m"}, ["Heartbeat"]),
]


def test_filters(filled: FakeCluster, tmp_path: Path, subtests: pytest.Subtests) -> None:
    filled.topic("orders").delete()  # Requests with its id still match.
    filled.journal.export(tmp_path / "journal.jsonl")
    journals: list[JournalQueries] = [filled.journal, read_journal(tmp_path / "journal.jsonl")]
    for journal in journals:
        for filters, apis in FILTERED:
            with subtests.test(journal=type(journal).__name__, **filters):
                assert [call.api.name for call in journal.requests(**filters)] == apis
                assert journal.count(**filters) == len(apis)


def test_waits_have_the_filters(filled: FakeCluster, subtests: pytest.Subtests) -> None:
    for filters, apis in FILTERED:
        if apis:
            with subtests.test(**filters):
                assert len(filled.wait(filled.requested(**filters, count=len(apis)), timeout_s=0)) == len(apis)


def test_a_fetch_of_a_session_matches_the_topics_of_its_response() -> None:
    with FakeCluster(brokers=1, topics={"orders": 1}) as cluster, WireClient(cluster.brokers[0]) as wire:
        session_id = fetch(wire, None, 0, session=(0, 0)).session_id
        assert session_id
        fetch(wire, None, session=(session_id, 1))
        assert cluster.journal.count("Fetch", topic="orders") == 1  # The second response has no changes.
        internals(cluster).run(lambda: _append(cluster))
        fetch(wire, None, session=(session_id, 2))
        assert cluster.journal.count("Fetch", partition="orders-0") == 2


def _append(cluster: FakeCluster) -> None:
    topic = internals(cluster).cluster.topics.get("orders")
    assert topic is not None
    topic.partitions[0].log.append(batch(b"x"), 0)


def test_names_of_configs_are_no_topics() -> None:
    with FakeCluster(brokers=1) as cluster, WireClient(cluster.brokers[0]) as wire:
        topic = CreatableTopic(name="orders", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        wire.ask(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse)
        assert cluster.journal.count(topic="orders") == 1
        assert cluster.journal.count(topic="retention.ms") == 0


def test_an_administrator_names_members_by_instance_id() -> None:
    with FakeCluster(brokers=1) as cluster, WireClient(cluster.brokers[0], "admin") as wire:
        join_and_sync(wire)
        leave = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="", group_instance_id="i")])
        wire.ask(leave, LeaveGroupResponse)
        assert (
            cluster.journal.count("LeaveGroup", member="i") == cluster.journal.count("LeaveGroup", instance_id="i") == 1
        )
