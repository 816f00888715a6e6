"""Requests that no client sends, with Kafka's answers: nothing about some topics, and failures of the broker."""

from typing import Any

import pytest

from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignableTopic,
)
from fakebroker.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from fakebroker.protocol.messages.api_versions import ApiVersionsRequest
from fakebroker.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from fakebroker.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from fakebroker.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from fakebroker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from fakebroker.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from fakebroker.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from fakebroker.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from fakebroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fakebroker.protocol.messages.list_transactions import ListTransactionsRequest
from fakebroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fakebroker.protocol.messages.unregister_broker import UnregisterBrokerRequest
from fakebroker.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from fakebroker.protocol.types import ZERO_UUID
from tests.support.cluster.cluster_harness import ClusterHarness, versions

FAILURE = ErrorCode.UNKNOWN_SERVER_ERROR


def list_offsets_request(**partitions: list[int]) -> ListOffsetsRequest:
    """Return a request for partitions of topics. A digit after a name lets the topic be named more than once."""
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name=name.rstrip("0123456789"),
                partitions=[ListOffsetsPartition(partition_index=index, timestamp=-1) for index in indexes],
            )
            for name, indexes in partitions.items()
        ],
    )


def rows(response: Any) -> list[tuple[str, list[tuple[int, int]]]]:
    """Return the name of each topic with its partitions and their errors."""
    return [
        (topic.name, [(each.partition_index, each.error_code) for each in topic.partitions])
        for topic in response.topics
    ]


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [
        ({"news": [], "gone": []}, []),
        ({"news1": [0], "gone": [], "news2": [1]}, [("news", [(0, 0), (1, 0)])]),
        ({"news1": [0], "news2": [0]}, [("news", [(0, ErrorCode.INVALID_REQUEST)])]),
        ({"gone": [0, 0, 1]}, [("gone", [(0, ErrorCode.INVALID_REQUEST), (1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)])]),
    ],
)
def test_list_offsets_names_topics_and_partitions_once(partitions: dict[str, list[int]], expected: object) -> None:
    assert rows(ClusterHarness({"news": 2}).ask(list_offsets_request(**partitions), 8)) == expected


def test_before_4_0_list_offsets_answers_what_is_asked() -> None:
    response = ClusterHarness({"news": 2}, as_version="3.9").ask(list_offsets_request(news1=[0], gone=[], news2=[1]), 8)
    assert rows(response) == [("news", [(0, 0)]), ("gone", []), ("news", [(1, 0)])]


@pytest.mark.parametrize("level", [2, -1])
def test_list_offsets_fails_with_an_unknown_isolation_level(level: int) -> None:
    request = list_offsets_request(news1=[0, 0], gone=[], news2=[1])
    request.isolation_level = level
    assert rows(ClusterHarness({"news": 2}).ask(request, 8)) == [
        ("news", [(0, FAILURE), (0, FAILURE)]),
        ("gone", []),
        ("news", [(1, FAILURE)]),
    ]


@pytest.mark.parametrize("level", [2, -1])
def test_fetch_fails_with_an_unknown_isolation_level_if_it_has_something_to_read(
    level: int, subtests: pytest.Subtests
) -> None:
    for version in versions("Fetch"):
        for topic in ("news", "gone"):
            with subtests.test(version=version, topic=topic):
                harness = ClusterHarness({"news": 1})
                found = harness.cluster.topics.get(topic)
                requested = FetchTopic(
                    topic=topic,
                    topic_id=found.topic_id if found else b"1" * 16,
                    partitions=[
                        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1) for index in (0, 9)
                    ],
                )
                response = harness.ask(
                    FetchRequest(max_wait_ms=0, min_bytes=0, isolation_level=level, session_id=7, topics=[requested]),
                    version,
                )
                errors = [each.error_code for topics in response.responses for each in topics.partitions]
                if topic == "gone" or version < 4:
                    assert (response.error_code, FAILURE in errors) == (ErrorCode.NONE, False)
                else:
                    assert response.error_code == (FAILURE if version >= 7 else ErrorCode.NONE)
                    assert response.session_id == (7 if version >= 7 else 0)
                    assert errors == ([FAILURE, FAILURE] if version < 13 else [])


@pytest.mark.parametrize("as_version", ["4.2", "4.3", None])
def test_a_fetch_can_fail_with_a_topic_that_has_no_id(as_version: str | None) -> None:
    harness = ClusterHarness({"news": 1}, as_version=as_version)

    def fetch(epoch: int, session_id: int, *topic_ids: bytes, forget: bytes | None = None) -> tuple[int, int, int]:
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
        response = harness.ask(
            FetchRequest(
                max_wait_ms=0,
                min_bytes=0,
                session_id=session_id,
                session_epoch=epoch,
                topics=[FetchTopic(topic_id=topic_id, partitions=[partition]) for topic_id in topic_ids],
                forgotten_topics_data=[ForgottenTopic(topic_id=forget, partitions=[0])] if forget else [],
            ),
            13,
        )
        return response.error_code, response.session_id, len(response.responses)

    news = harness.topic().topic_id
    assert fetch(-1, 0, ZERO_UUID, news) == (ErrorCode.NONE, 0, 2)
    assert fetch(-1, 0, b"1" * 16, ZERO_UUID) == (ErrorCode.NONE, 0, 2)
    assert fetch(-1, 0, ZERO_UUID, b"1" * 16) == (FAILURE, 0, 0)  # It is not the last one in the response.
    if as_version != "4.2":  # Sessions take such a topic since 4.3.
        assert fetch(0, 0, ZERO_UUID, news) == (ErrorCode.NONE, 1, 2)
        assert fetch(1, 1, forget=ZERO_UUID) == (ErrorCode.NONE, 1, 0)
        return
    assert fetch(0, 0, ZERO_UUID, news) == (FAILURE, 0, 0)
    assert fetch(0, 0, news) == (ErrorCode.NONE, 1, 1)
    assert fetch(1, 1, ZERO_UUID) == fetch(1, 1, forget=ZERO_UUID) == (FAILURE, 1, 0)
    assert fetch(1, 1) == (ErrorCode.NONE, 1, 0)  # The session is as before.


def test_delete_records_leaves_out_topics_without_partitions() -> None:
    requested = [("gone", []), ("news", [0])]
    topics = [
        DeleteRecordsTopic(
            name=name, partitions=[DeleteRecordsPartition(partition_index=index, offset=0) for index in indexes]
        )
        for name, indexes in requested
    ]
    response = ClusterHarness({"news": 1}).ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000), 2)
    assert rows(response) == [("news", [(0, 0)])]


def test_alter_replica_log_dirs_returns_each_partition_once() -> None:
    requested = [("/none", "gone", []), ("/none", "news", [0, 0]), ("/none", "news", [1])]
    dirs = [
        AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=name, partitions=indexes)])
        for path, name, indexes in requested
    ]
    (topic,) = ClusterHarness({"news": 2}).ask(AlterReplicaLogDirsRequest(dirs=dirs), 2).results
    assert topic.topic_name == "news"
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [
        (0, ErrorCode.LOG_DIR_NOT_FOUND),
        (1, ErrorCode.LOG_DIR_NOT_FOUND),
    ]


@pytest.mark.parametrize(
    ("names", "cursor", "expected"),
    [
        (["b", ""], None, [("b", FAILURE), ("", FAILURE)]),
        ([""], Cursor(topic_name="", partition_index=0), [("", ErrorCode.INVALID_TOPIC_EXCEPTION)]),
        (["b", ""], Cursor(topic_name="b", partition_index=0), [("b", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]),
        (["b", "a", "b"], Cursor(topic_name="x", partition_index=0), [(each, 42) for each in ("b", "a", "b")]),
    ],
)
def test_topics_to_describe(names: list[str], cursor: Cursor | None, expected: object) -> None:
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in names], cursor=cursor)
    assert [(each.name, each.error_code) for each in ClusterHarness().ask(request, 0).topics] == expected


def test_an_invalid_client_software_gets_no_versions(subtests: pytest.Subtests) -> None:
    for version in versions("ApiVersions")[3:]:
        with subtests.test(version=version):
            request = ApiVersionsRequest(client_software_name="", client_software_version="1")
            response = ClusterHarness().ask(request, version)
            assert (response.error_code, response.api_keys) == (ErrorCode.INVALID_REQUEST, [])
            assert (response.supported_features, response.finalized_features_epoch) == ([], -1)


def test_a_client_names_the_broker_that_it_expects(subtests: pytest.Subtests) -> None:
    """KIP-1242: the cluster and the broker, or neither; a client that has reached another one bootstraps again."""
    harness = ClusterHarness(brokers=2)
    right, other = harness.cluster.cluster_id, "another cluster"
    rebootstrap = ErrorCode.REBOOTSTRAP_REQUIRED
    for cluster_id, node_id, error in (
        (None, -1, ErrorCode.NONE),
        (right, 2, ErrorCode.NONE),
        (right, -1, ErrorCode.INVALID_REQUEST),
        (None, 2, ErrorCode.INVALID_REQUEST),
        (right, 1, rebootstrap),
        (right, 9, rebootstrap),
        (other, 2, rebootstrap),
        ("", 2, rebootstrap),
    ):
        with subtests.test(cluster_id=cluster_id, node_id=node_id):
            request = ApiVersionsRequest(
                client_software_name="t", client_software_version="1", cluster_id=cluster_id, node_id=node_id
            )
            response = harness.ask(request, 5, broker=2)
            assert (response.error_code, bool(response.api_keys)) == (error, not error)


def test_a_topic_that_is_only_validated_has_an_id_of_its_own() -> None:
    harness = ClusterHarness()
    topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    request = CreateTopicsRequest(topics=[topic], validate_only=True)
    ids = {harness.ask(request, 7).topics[0].topic_id for _ in range(2)}
    assert len(ids - {ZERO_UUID}) == 2
    assert "new" not in harness.cluster.topics


@pytest.mark.parametrize(
    ("names", "timeout_ms", "expected"),
    [
        ([None, None, "gone"], 1000, [(None, 42), (None, 42), ("gone", 3)]),
        (["gone", "gone", None], 1000, [("gone", 42), (None, 42)]),
        (["gone", "gone", None], 0, [("gone", 42), (None, 42)]),
        (["news", "gone", "gone", None, None], 0, [(each, 7) for each in ("news", "gone", "gone", None, None)]),
    ],
)
def test_topics_to_delete_that_are_named_twice_or_not_at_all(
    names: list[str | None], timeout_ms: int, expected: object
) -> None:
    harness = ClusterHarness({"news": 1})
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names], timeout_ms=timeout_ms
    )
    assert [(each.name, each.error_code) for each in harness.ask(request, 6).responses] == expected
    assert "news" in harness.cluster.topics


@pytest.mark.parametrize(
    ("owner_type", "owner", "expected"),
    [
        (None, "x", (FAILURE, "User", "ANONYMOUS")),
        ("", "x", (ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "", "x")),
        (None, "", (ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "User", "ANONYMOUS")),
    ],
)
def test_owners_of_tokens(owner_type: str | None, owner: str, expected: object) -> None:
    request = CreateDelegationTokenRequest(
        owner_principal_type=owner_type, owner_principal_name=owner, renewers=[], max_lifetime_ms=-1
    )
    response = ClusterHarness().ask(request, 3)
    assert (response.error_code, response.principal_type, response.principal_name) == expected


@pytest.mark.parametrize(
    "request_and_version",
    [
        (DescribeUserScramCredentialsRequest(users=None), 0),
        (DescribeClientQuotasRequest(components=[], strict=False), 1),
        (AlterPartitionReassignmentsRequest(timeout_ms=0, topics=[]), 1),
    ],
)
def test_successes_with_an_empty_message(request_and_version: tuple[Any, int]) -> None:
    response = ClusterHarness().ask(*request_and_version)
    assert (response.error_code, response.error_message) == (ErrorCode.NONE, "")


@pytest.mark.parametrize(("timeout_ms", "topics"), [(1000, []), (0, [ReassignableTopic(name="news", partitions=[])])])
def test_reassignments_that_do_nothing_allow_another_replication_factor(
    timeout_ms: int, topics: list[ReassignableTopic]
) -> None:
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=timeout_ms, allow_replication_factor_change=False, topics=topics
    )
    assert ClusterHarness({"news": 1}).ask(request, 1).allow_replication_factor_change


def test_commits_to_unknown_topics_without_partitions_are_answered(subtests: pytest.Subtests) -> None:
    requested: list[tuple[str, list[int]]] = [("news", [0]), ("gone", []), ("news", [9]), ("news", []), ("gone", [0])]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for version in range(2, 10):
        with subtests.test(version=version):
            topics = [
                OffsetCommitRequestTopic(
                    name=name,
                    partitions=[
                        OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="")
                        for index in indexes
                    ],
                )
                for name, indexes in requested
            ]
            response = ClusterHarness({"news": 1}).ask(OffsetCommitRequest(group_id="g", topics=topics), version)
            assert rows(response) == [("gone", [(0, unknown)]), ("news", [(9, unknown), (0, ErrorCode.NONE)])]
    by_id = [OffsetCommitRequestTopic(topic_id=b"1" * 16, partitions=[])]
    assert rows(ClusterHarness().ask(OffsetCommitRequest(group_id="g", topics=by_id), 10)) == [("", [])]


def test_an_unknown_type_of_a_quota_comes_before_its_repetition() -> None:
    component = ComponentData(entity_type="x", match_type=0, match="y")
    request = DescribeClientQuotasRequest(components=[component, component], strict=False)
    assert ClusterHarness().ask(request, 1).error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(("release", "is_valid", "has_message"), [("4.0", True, False), ("4.1", False, True)])
def test_small_segments_and_unknown_brokers_before_4_1(release: str, is_valid: bool, has_message: bool) -> None:
    harness = ClusterHarness(as_version=release)
    configs = [CreatableTopicConfig(name="segment.bytes", value="1000")]
    topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1, assignments=[], configs=configs)
    (result,) = harness.ask(CreateTopicsRequest(topics=[topic]), 7).topics
    assert result.error_code == (ErrorCode.NONE if is_valid else ErrorCode.INVALID_CONFIG)
    response = harness.ask(UnregisterBrokerRequest(broker_id=9), 0)
    assert (response.error_code, bool(response.error_message)) == (ErrorCode.BROKER_ID_NOT_REGISTERED, has_message)


def test_an_unknown_state_of_transactions_is_named_once() -> None:
    request = ListTransactionsRequest(state_filters=["Other", "Empty", "Other"], producer_id_filters=[])
    assert ClusterHarness().ask(request, 1).unknown_state_filters == ["Other"]


@pytest.mark.parametrize(("transaction_version", "error"), [(-2, 0), (-1, FAILURE), (0, 0), (127, 0)])
def test_markers_of_an_unknown_transaction_version(transaction_version: int, error: int) -> None:
    marker = WritableTxnMarker(
        producer_id=1,
        producer_epoch=0,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name="news", partition_indexes=[0, 9])],
        coordinator_epoch=0,
        transaction_version=transaction_version,
    )
    (row,) = ClusterHarness({"news": 1}).ask(WriteTxnMarkersRequest(markers=[marker]), 2).markers
    assert rows(row) == [("news", [(0, error), (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)])]
