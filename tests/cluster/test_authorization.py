"""What clients may do with ACLs, in each API: the table of permissions, what is hidden, and authorized operations."""

import re
from collections.abc import Sequence
from typing import Any

import pytest

from fakebroker.cluster.call import Peer
from fakebroker.cluster.configs.settings import REBALANCE_PROTOCOLS
from fakebroker.cluster.faults.error_catalog import error_places
from fakebroker.errors import ErrorCode
from fakebroker.proposals.consumer_rewrite.messages import RewriteJoinGroupRequest
from fakebroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from fakebroker.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from fakebroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from fakebroker.protocol.messages.delete_groups import DeleteGroupsRequest
from fakebroker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from fakebroker.protocol.messages.describe_cluster import DescribeClusterRequest
from fakebroker.protocol.messages.describe_groups import DescribeGroupsRequest
from fakebroker.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from fakebroker.protocol.messages.describe_transactions import DescribeTransactionsRequest
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest
from fakebroker.protocol.messages.list_groups import ListGroupsRequest
from fakebroker.protocol.messages.list_transactions import ListTransactionsRequest
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fakebroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from fakebroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fakebroker.protocol.registry import API_BY_NAME
from fakebroker.protocol.schema import Message
from fakebroker.security.acls import (
    CLUSTER_NAME,
    Acl,
    AclOperation,
    AclPermission,
    AclStore,
    ResourcePattern,
    ResourceType,
)
from tests.support.cluster.cluster_harness import NOT_REQUESTED, ClusterHarness, batch, carried, response
from tests.support.cluster.permissions import (
    CLUSTER,
    FREE,
    GROUP,
    LEFT_OUT,
    ROWS,
    TOPIC,
    TRANSACTIONAL_ID,
    Found,
    Need,
    Row,
    authorization_errors,
)

ALICE = "User:alice"
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY


def permit(harness: ClusterHarness, *acls: Acl) -> None:
    """Give the cluster an authorizer with these ACLs."""
    harness.cluster.acls = AclStore(acls)


def peer_of(harness: ClusterHarness, principal: str = ALICE) -> Peer:
    peer = harness.peer()
    peer.principal = principal
    return peer


def harness_with_groups() -> ClusterHarness:
    """Return a cluster with the consumer group "consumers", whose only member has the topic "news"."""
    harness = ClusterHarness()
    join = ConsumerGroupHeartbeatRequest(
        group_id="consumers", member_id="m", member_epoch=0, rebalance_timeout_ms=1000,
        subscribed_topic_names=["news"], topic_partitions=[],
    )  # fmt: skip
    assert harness.ask(join, 0).error_code == ErrorCode.NONE
    return harness


def allow(operation: str, kind: ResourceType, name: str) -> Acl:
    return Acl(ResourcePattern(kind, name), ALICE, "*", AclOperation[operation], ALLOW)


def ask(harness: ClusterHarness, request: Message, version: int) -> Any:
    """Send a request of alice, and return its response."""
    return response(harness.send(request, version, peer=peer_of(harness)))


def errors_of(row: Row, version: int, allowed: Sequence[Need], topics: dict[str, int] | None = None) -> set[Found]:
    """Return the authorization errors for a client that has these permissions only."""
    harness = harness_with_groups() if topics is None else ClusterHarness(topics)
    permit(harness, *(need.acl(ALLOW, ALICE) for need in allowed))
    news_id = harness.topic().topic_id if topics is None else bytes(16)
    call = harness.send(row.request(version, news_id), version, peer=peer_of(harness))
    assert not call.closes_connection
    return set() if call.response is None else authorization_errors(carried(call.response, version))


# The table


def test_each_api_has_its_permissions_in_the_table() -> None:
    assert {row.api for row in ROWS} | set(LEFT_OUT) | FREE == set(API_BY_NAME)


def test_faults_can_inject_the_errors_of_the_table() -> None:
    """The catalog of errors has the authorization errors of each API, in the versions that return them."""
    missing = {
        (row.api, version, code)
        for row in ROWS
        for version in row.tested_versions
        for need in row.needs
        for _, code in need.errors(version)
        if not any(code in place.errors and version in place.versions for place in error_places(API_BY_NAME[row.api]))
    }
    assert missing == set()


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.api}-{index}" for index, row in enumerate(ROWS)])
def test_permissions(row: Row, subtests: pytest.Subtests) -> None:
    for version in row.tested_versions:
        with subtests.test(version=version):
            assert errors_of(row, version, list(row.needs)) == set(), "all permissions"
            for missing in row.needs:
                others = [need for need in row.needs if need is not missing]
                # The permission to create or alter something may imply the missing one.
                if not any(implied(missing, each) for each in others):
                    assert errors_of(row, version, others) == missing.errors(version), missing


def test_messages_name_the_missing_permission(subtests: pytest.Subtests) -> None:
    """Those of requests that Kafka refuses as a whole because of the cluster; other errors have Kafka's fixed texts."""
    named = set()
    for row in ROWS:
        if row.needs[0].kind is CLUSTER:
            version = row.tested_versions[-1]
            harness = ClusterHarness()
            permit(harness)
            refused = ask(harness, row.request(version, harness.topic().topic_id), version)
            with subtests.test(api=row.api):
                texts = set(re.findall(r"Expected permission (\w+) on the cluster", str(refused)))
                assert texts <= {row.needs[0].operation.name}
                named |= {row.api} if texts else set()
    assert named == {
        "AlterPartitionReassignments",
        "AlterUserScramCredentials",
        "CreateAcls",
        "DeleteAcls",
        "DescribeAcls",
        "ElectLeaders",
        "ListPartitionReassignments",
        "UnregisterBroker",
        "UnregisterController",
        "UpdateFeatures",
    }


@pytest.mark.parametrize(
    ("as_version", "error"), [("4.1", ErrorCode.INVALID_REQUEST), (None, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]
)
def test_a_broker_checks_permission_before_its_configs(as_version: str | None, error: ErrorCode) -> None:
    harness = ClusterHarness(as_version=as_version)
    permit(harness)
    config = AlterableConfig(name="log.retention.ms", config_operation=0, value="x")
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
    (found,) = ask(harness, IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1).responses
    assert found.error_code == error
    assert (found.error_message is None) == (error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def test_refused_markers_name_their_producers() -> None:
    harness = ClusterHarness()
    permit(harness)
    row = next(row for row in ROWS if row.api == "WriteTxnMarkers")
    assert [each.producer_id for each in ask(harness, row.request(1, b""), 1).markers] == [1]


def implied(need: Need, other: Need) -> bool:
    acl = other.acl(ALLOW, ALICE)
    return acl.pattern == need.acl(ALLOW, ALICE).pattern and acl.covers(need.operation)


# Alternatives


def test_a_permission_for_the_cluster_stands_for_those_of_topics(subtests: pytest.Subtests) -> None:
    for api, operation in (
        ("CreateTopics", "CREATE"),
        ("DeleteTopics", "DELETE"),
        ("OffsetForLeaderEpoch", "CLUSTER_ACTION"),
    ):
        (row, *_) = [row for row in ROWS if row.api == api]
        by_cluster = cluster_need(operation)
        others = [need for need in row.needs if need.operation is AclOperation.DESCRIBE_CONFIGS]
        for version in row.tested_versions:
            with subtests.test(api=api, version=version):
                assert errors_of(row, version, [by_cluster, *others]) == set()


def test_a_new_topic_in_metadata_is_created_with_a_permission_for_the_cluster() -> None:
    row = next(row for row in ROWS if row.api == "Metadata" and len(row.needs) == 2)
    assert errors_of(row, 13, [row.needs[0], cluster_need("CREATE")]) == set()


def cluster_need(operation: str) -> Need:
    return Need(AclOperation[operation], ResourceType.CLUSTER, {})


def test_idempotent_producers_need_the_permission_to_write_to_any_topic_since_2_8(subtests: pytest.Subtests) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    for release, expected in (("2.7", ErrorCode.CLUSTER_AUTHORIZATION_FAILED), ("2.8", ErrorCode.NONE)):
        with subtests.test(release=release):
            harness = ClusterHarness(as_version=release)
            permit(harness, allow("WRITE", TOPIC, "other"))
            assert ask(harness, request, 4).error_code == expected


def test_markers_may_be_written_by_admins_since_3_8(subtests: pytest.Subtests) -> None:
    row = next(row for row in ROWS if row.api == "WriteTxnMarkers")
    for release, is_allowed in (("3.7", False), ("3.8", True)):
        with subtests.test(release=release):
            harness = ClusterHarness(as_version=release)
            permit(harness, allow("ALTER", CLUSTER, CLUSTER_NAME))
            response = ask(harness, row.request(1, b""), 1)
            assert (authorization_errors(response) == set()) is is_allowed


def test_topics_of_consumer_groups_are_checked_since_4_0(subtests: pytest.Subtests) -> None:
    row = next(row for row in ROWS if row.api == "ConsumerGroupHeartbeat")
    for release, expected in (("3.9", ErrorCode.NONE), ("4.0", ErrorCode.TOPIC_AUTHORIZATION_FAILED)):
        with subtests.test(release=release):
            harness = ClusterHarness(as_version=release, config={REBALANCE_PROTOCOLS: "classic,consumer"})
            permit(harness, allow("READ", GROUP, "new"))
            assert ask(harness, row.request(0, b""), 0).error_code == expected


def test_regular_expressions_find_only_topics_that_the_client_may_describe() -> None:
    harness = ClusterHarness({"news": 2, "orders": 1})
    permit(harness, allow("READ", GROUP, "g"), allow("DESCRIBE", TOPIC, "news"))
    joining = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="a",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_regex=".*",
        topic_partitions=[],
    )
    assert ask(harness, joining, 1).error_code == ErrorCode.NONE
    staying = ConsumerGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=1)
    (assigned,) = ask(harness, staying, 1).assignment.topic_partitions
    assert assigned.topic_id == harness.topic("news").topic_id


def test_without_acks_a_refused_batch_closes_the_connection() -> None:
    harness = ClusterHarness()
    permit(harness)
    data = [PartitionProduceData(index=0, records=batch(b"x"))]
    request = ProduceRequest(acks=0, timeout_ms=1, topic_data=[TopicProduceData(name="news", partition_data=data)])
    call = harness.send(request, 9, peer=peer_of(harness))
    assert (call.response, call.closes_connection) == (None, True)
    assert harness.partition().log.log_end_offset == 0


# Permission comes before existence


MISSING_TOPIC_APIS = (
    "CreatePartitions",
    "DeleteRecords",
    "DeleteTopics",
    "DescribeConfigs",
    "DescribeProducers",
    "DescribeTopicPartitions",
    "Fetch",
    "IncrementalAlterConfigs",
    "ListOffsets",
    "OffsetCommit",
    "OffsetFetch",
    "OffsetForLeaderEpoch",
    "Produce",
    "TxnOffsetCommit",
)


@pytest.mark.parametrize("api", MISSING_TOPIC_APIS)
def test_a_missing_topic_looks_like_a_hidden_one(api: str) -> None:
    """By name, the same error is returned whether or not the topic exists."""
    row = next(row for row in ROWS if row.api == api)
    version = row.tested_versions[0]
    without_topic = [need for need in row.needs if need.kind is not ResourceType.TOPIC]
    refused = errors_of(row, version, without_topic, topics={"other": 1})
    assert refused == errors_of(row, version, without_topic) != set()
    assert {code for _, code in refused} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}


def test_an_unknown_topic_id_is_not_a_secret() -> None:
    harness = ClusterHarness()
    permit(harness)
    unknown = b"x" * 16
    metadata = ask(harness, MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=unknown)]), 13)
    partitions = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)]
    topics = [FetchTopic(topic_id=unknown, partitions=partitions)]
    fetched = ask(harness, FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics), 13)
    assert metadata.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert fetched.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_hidden_topic_in_metadata_has_no_id_and_no_partitions() -> None:
    harness = ClusterHarness()
    permit(harness)
    by_name = ask(harness, MetadataRequest(topics=[MetadataRequestTopic(name="news")]), 12).topics[0]
    topic_id = harness.topic().topic_id
    by_id = ask(harness, MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic_id)]), 12).topics[0]
    assert (by_name.error_code, by_name.name, by_name.topic_id, by_name.partitions) == (29, "news", bytes(16), [])
    assert (by_id.error_code, by_id.name, by_id.topic_id, by_id.partitions) == (29, None, topic_id, [])


def test_a_topic_that_may_not_be_created_is_not_created() -> None:
    harness = ClusterHarness()
    permit(harness, allow("DESCRIBE", TOPIC, "new"))
    ask(harness, MetadataRequest(topics=[MetadataRequestTopic(name="new")]), 9)
    assert harness.cluster.topics.get("new") is None


def test_a_deleted_topic_is_named_only_to_those_who_may_see_it() -> None:
    harness = ClusterHarness()
    topic_id = harness.topic().topic_id
    request = DeleteTopicsRequest(timeout_ms=1, topics=[DeleteTopicState(name=None, topic_id=topic_id)])
    for acls, name in (((), None), ((allow("DESCRIBE", TOPIC, "news"),), "news")):
        permit(harness, *acls)
        (result,) = ask(harness, request, 6).responses
        assert (result.error_code, result.name, result.topic_id) == (29, name, topic_id)
    assert "news" in harness.cluster.topics


# What is left out


def test_lists_leave_out_what_the_client_may_not_describe() -> None:
    harness = ClusterHarness({"news": 1, "other": 1})
    for group_id in ("a", "b"):
        commit = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
        topics = [OffsetCommitRequestTopic(name=name, partitions=[commit]) for name in ("news", "other")]
        harness.ask(OffsetCommitRequest(group_id=group_id, topics=topics), 2)
    for transactional_id in ("t", "u"):
        harness.cluster.transaction_coordinator_of(transactional_id)
        harness.ask(InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1000), 4)
    permit(
        harness,
        allow("DESCRIBE", GROUP, "a"),
        allow("DESCRIBE", TOPIC, "news"),
        allow("DESCRIBE", TRANSACTIONAL_ID, "t"),
    )
    assert [each.group_id for each in ask(harness, ListGroupsRequest(), 4).groups] == ["a"]
    assert [each.name for each in ask(harness, MetadataRequest(topics=None), 9).topics] == ["news"]
    assert [each.name for each in ask(harness, MetadataRequest(topics=[]), 0).topics] == ["news"]
    assert [each.name for each in ask(harness, DescribeTopicPartitionsRequest(topics=[]), 0).topics] == ["news"]
    listed = ask(harness, ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 0)
    assert [each.transactional_id for each in listed.transaction_states] == ["t"]
    fetched = ask(harness, OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="a", topics=None)]), 8)
    assert [each.name for each in fetched.groups[0].topics] == ["news"]

    permit(harness, allow("DESCRIBE", CLUSTER, CLUSTER_NAME))
    assert [each.group_id for each in ask(harness, ListGroupsRequest(), 4).groups] == ["a", "b"]


def test_described_transactions_leave_out_hidden_topics() -> None:
    harness = ClusterHarness({"news": 1, "other": 1})
    harness.cluster.transaction_coordinator_of("t")
    made = harness.ask(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000), 4)
    harness.ask(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t",
            v3_and_below_producer_id=made.producer_id,
            v3_and_below_producer_epoch=made.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in ("news", "other")],
        ),
        3,
    )
    permit(harness, allow("DESCRIBE", TRANSACTIONAL_ID, "t"), allow("WRITE", TOPIC, "other"))
    (state,) = ask(harness, DescribeTransactionsRequest(transactional_ids=["t"]), 0).transaction_states
    assert [each.topic for each in state.topics] == ["other"]


def test_good_parts_of_a_request_succeed_beside_refused_ones() -> None:
    harness = ClusterHarness({"news": 1, "other": 1})
    permit(harness, allow("READ", GROUP, "g"), allow("READ", TOPIC, "news"))
    commit = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name=name, partitions=[commit]) for name in ("news", "other")]
    committed = ask(harness, OffsetCommitRequest(group_id="g", topics=topics), 2)
    assert {each.name: each.partitions[0].error_code for each in committed.topics} == {"news": 0, "other": 29}
    deleted = ask(harness, DeleteGroupsRequest(groups_names=["g", "h"]), 0)
    assert [(each.group_id, each.error_code) for each in deleted.results] == [("g", 30), ("h", 30)]


def test_a_delayed_fetch_is_not_checked_again() -> None:
    harness = ClusterHarness()
    permit(harness, allow("READ", TOPIC, "news"))
    partitions = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)]
    request = FetchRequest(max_wait_ms=100, min_bytes=1, topics=[FetchTopic(topic="news", partitions=partitions)])
    delayed = harness.send(request, 4, peer=peer_of(harness))
    permit(harness)
    harness.advance(100)
    assert delayed.response.responses[0].partitions[0].error_code == ErrorCode.NONE
    refused = ask(harness, request, 4).responses[0].partitions[0]
    assert (refused.error_code, refused.high_watermark) == (29, -1)


# Authorized operations


def bits(*names: str) -> int:
    return sum(1 << AclOperation[name] for name in names)


def test_authorized_operations() -> None:
    harness = harness_with_groups()
    permit(
        harness,
        allow("READ", TOPIC, "news"),
        allow("DELETE", GROUP, "consumers"),
        allow("ALTER", CLUSTER, CLUSTER_NAME),
    )
    named = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in ("news", "hidden")],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    metadata = ask(harness, named, 8)
    assert [each.topic_authorized_operations for each in metadata.topics] == [bits("READ", "DESCRIBE"), NOT_REQUESTED]
    assert metadata.cluster_authorized_operations == bits("ALTER", "DESCRIBE")
    described = ask(harness, DescribeTopicPartitionsRequest(topics=[TopicRequest(name="news")]), 0)
    assert described.topics[0].topic_authorized_operations == bits("READ", "DESCRIBE")
    cluster = ask(harness, DescribeClusterRequest(include_cluster_authorized_operations=True), 0)
    assert cluster.cluster_authorized_operations == bits("ALTER", "DESCRIBE")
    group_ids = ["consumers", "hidden"]
    groups = ask(
        harness, ConsumerGroupDescribeRequest(group_ids=group_ids, include_authorized_operations=True), 0
    ).groups
    assert [each.authorized_operations for each in groups] == [bits("DELETE", "DESCRIBE"), NOT_REQUESTED]


def test_a_client_that_may_not_describe_the_cluster_has_no_operations() -> None:
    harness = ClusterHarness()
    permit(harness, allow("CREATE", CLUSTER, CLUSTER_NAME))
    cluster = ask(harness, DescribeClusterRequest(include_cluster_authorized_operations=True), 0)
    assert cluster.cluster_authorized_operations == 0


def test_groups_have_configs_since_4_0() -> None:
    for release, expected in (("3.9", 328), ("4.0", 3400)):
        harness = ClusterHarness(as_version=release)
        request = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
        assert harness.ask(request, 5).groups[0].authorized_operations == expected


# Clients of proposals


def test_members_of_the_rewrite_proposal_need_to_read_the_group(subtests: pytest.Subtests) -> None:
    commit = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name="news", partitions=[commit])]
    requests: list[tuple[Message, int]] = [
        (
            RewriteJoinGroupRequest(
                group_id="g", session_timeout_ms=10_000, consumer_id="", topics=["news"],
                partition_assignment_strategy="range",
            ),
            0,
        ),
        (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 0),
        (OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=1, member_id="m", topics=topics), 1),
    ]  # fmt: skip
    for request, version in requests:
        for operation, is_allowed in (("READ", True), ("DELETE", False)):
            with subtests.test(request=type(request).__name__, operation=operation):
                harness = ClusterHarness(proposals=["rewrite"])
                permit(harness, allow(operation, GROUP, "g"), allow("READ", TOPIC, "news"))
                call = harness.send(request, version, peer=peer_of(harness))
                errors = set() if call.response is None else authorization_errors(carried(call.response, version))
                assert (errors == set()) is is_allowed
                assert is_allowed or {code for _, code in errors} == {ErrorCode.GROUP_AUTHORIZATION_FAILED}
