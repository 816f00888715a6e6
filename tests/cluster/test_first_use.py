"""The first use of internal topics with `first_use="kafka"`: errors by the brokers' clock, until all is as always."""

from collections.abc import Callable
from typing import Any

import pytest

from fakebroker.cluster.first_use import CREATION_MS, ELECTION_MS, LOADING_MS, PRODUCER_IDS_MS
from fakebroker.cluster.handles.cluster import LocalCluster
from fakebroker.cluster.handles.local import Local
from fakebroker.cluster.inspect.deadlines import pending_deadlines
from fakebroker.cluster.inspect.explain import explain
from fakebroker.cluster.inspect.explain_transaction import explain_transaction
from fakebroker.cluster.topics import INTERNAL_TOPICS, OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from fakebroker.protocol.messages.describe_groups import DescribeGroupsRequest
from fakebroker.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from fakebroker.protocol.messages.describe_transactions import DescribeTransactionsRequest
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest
from fakebroker.protocol.messages.list_groups import ListGroupsRequest
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.cluster.cluster_harness import ClusterHarness, ClusterHarnessEnvironment, versions
from tests.support.cluster.replicas import create_topics, new_topic
from tests.support.cluster.stored_clusters import continued, stored

GROUP, TRANSACTION = 0, 1
NONE, LOADING = ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
NO_COORDINATOR, NOT_COORDINATOR = ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR


def fresh(brokers: int = 3, **arguments: Any) -> ClusterHarness:
    return ClusterHarness(brokers=brokers, first_use="kafka", **arguments)


def commands_of(harness: ClusterHarness) -> LocalCluster:
    return LocalCluster(
        Local(
            harness.cluster,
            ClusterHarnessEnvironment(harness),
            new_cluster=lambda: fresh(len(harness.cluster.brokers)).cluster,
        )
    )


def find(harness: ClusterHarness, key: str = "g", key_type: int = GROUP, broker: int = 1) -> tuple[int, int]:
    """Return error and node id of the coordinator of a key."""
    request = FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type)
    (found,) = harness.ask(request, 4, broker=broker).coordinators
    return found.error_code, found.node_id


def group_errors(harness: ClusterHarness) -> set[int]:
    """Return the errors of all brokers to a request about a group."""
    return {group_error(harness, node_id, "g") for node_id in harness.cluster.brokers}


def group_error(harness: ClusterHarness, broker: int, group_id: str) -> int:
    (described,) = harness.ask(DescribeGroupsRequest(groups=[group_id]), 5, broker=broker).groups
    assert isinstance(described.error_code, int)
    return described.error_code


def transaction_errors(harness: ClusterHarness) -> set[int]:
    """Return the errors of all brokers to an InitProducerId."""
    request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=10_000)
    return {harness.ask(request, 5, broker=node_id).error_code for node_id in harness.cluster.brokers}


def internal_topics(harness: ClusterHarness) -> dict[str, set[int]]:
    """Return the errors of the partitions of the internal topics that clients see."""
    metadata = harness.ask(MetadataRequest(topics=None), 12)
    return {each.name: {one.error_code for one in each.partitions} for each in metadata.topics if each.is_internal}


def use(harness: ClusterHarness, key_type: int = GROUP) -> None:
    """Look for a coordinator, and wait until it is ready."""
    find(harness, key_type=key_type)
    harness.advance(CREATION_MS + ELECTION_MS + LOADING_MS)


def test_the_first_lookup_of_a_group_takes_its_time() -> None:
    harness = fresh()
    assert group_errors(harness) == {NOT_COORDINATOR}
    assert internal_topics(harness) == {}
    harness.advance(10_000)  # Nothing begins before a look-up.
    assert find(harness) == (NO_COORDINATOR, -1)
    harness.advance(CREATION_MS - 1)
    assert (find(harness, "h", broker=2), group_errors(harness)) == ((NO_COORDINATOR, -1), {NOT_COORDINATOR})
    assert internal_topics(harness) == {}
    harness.advance(1)
    error, node_id = find(harness)
    assert (error, group_errors(harness)) == (NONE, {NOT_COORDINATOR})
    assert internal_topics(harness) == {OFFSETS_TOPIC: {NONE}}
    harness.advance(ELECTION_MS - 1)
    assert group_errors(harness) == {NOT_COORDINATOR}
    assert harness.ask(ListGroupsRequest(), 5, broker=node_id).error_code == NONE
    harness.advance(1)
    assert group_errors(harness) == {NOT_COORDINATOR, LOADING}
    assert harness.ask(ListGroupsRequest(), 5, broker=node_id).error_code == LOADING
    harness.advance(LOADING_MS - 1)
    assert group_errors(harness) == {NOT_COORDINATOR, LOADING}
    harness.advance(1)
    assert (group_errors(harness), find(harness)) == ({NOT_COORDINATOR, NONE}, (NONE, node_id))


def test_the_first_lookup_of_a_transactional_id_takes_its_time() -> None:
    harness = fresh()
    use(harness)  # Groups have no part in it.
    assert transaction_errors(harness) == {NOT_COORDINATOR}
    assert find(harness, "t", TRANSACTION) == (NO_COORDINATOR, -1)
    harness.advance(CREATION_MS - 1)
    assert find(harness, "t", TRANSACTION, broker=3) == (NO_COORDINATOR, -1)
    harness.advance(1)
    error, node_id = find(harness, "t", TRANSACTION)
    assert (error, transaction_errors(harness)) == (NONE, {NOT_COORDINATOR})
    assert internal_topics(harness) == {OFFSETS_TOPIC: {NONE}, TRANSACTIONS_TOPIC: {NONE}}
    describe, places = (
        DescribeTransactionsRequest(transactional_ids=["t"]),
        AddPartitionsToTxnTopic(name="news", partitions=[0]),
    )
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=0,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[places],
    )

    def others() -> set[int]:
        (described,) = harness.ask(describe, 0, broker=node_id).transaction_states
        (added,) = harness.ask(add, 3, broker=node_id).results_by_topic_v3_and_below
        return {described.error_code, added.results_by_partition[0].partition_error_code}

    harness.advance(ELECTION_MS - 1)
    assert others() == {NOT_COORDINATOR}
    harness.advance(1)
    assert (transaction_errors(harness), others()) == ({NOT_COORDINATOR, LOADING}, {LOADING})
    harness.advance(LOADING_MS)
    assert (transaction_errors(harness), find(harness, "t", TRANSACTION)) == ({NOT_COORDINATOR, NONE}, (NONE, node_id))


def test_all_versions_and_keys_get_the_error(subtests: pytest.Subtests) -> None:
    for version in versions("FindCoordinator"):
        with subtests.test(version=version):
            harness = fresh()
            if version < 4:
                found = harness.ask(FindCoordinatorRequest(key="g"), version)
                assert (found.error_code, found.node_id, found.host, found.port) == (NO_COORDINATOR, -1, "", -1)
            else:
                found = harness.ask(FindCoordinatorRequest(coordinator_keys=["g", "h"]), version).coordinators
                expected = [(key, NO_COORDINATOR, -1, "", -1) for key in ("g", "h")]
                assert [(one.key, one.error_code, one.node_id, one.host, one.port) for one in found] == expected
            harness.advance(CREATION_MS)
            assert find(harness)[0] == NONE


def test_one_step_of_the_clock_may_be_long() -> None:
    harness = fresh()
    find(harness)
    harness.advance(CREATION_MS + ELECTION_MS + LOADING_MS)
    assert group_errors(harness) == {NOT_COORDINATOR, NONE}


def test_topics_are_hidden_from_all_requests_before() -> None:
    harness = fresh()
    for name in INTERNAL_TOPICS:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        assert harness.ask(request, 12).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        described = harness.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name)]), 0).topics
        assert described[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    harness.advance(1_000)
    assert internal_topics(harness) == {}


def test_metadata_creates_them_too(subtests: pytest.Subtests) -> None:
    for name in INTERNAL_TOPICS:
        with subtests.test(name):
            harness = fresh()
            request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
            assert harness.ask(request, 12).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            harness.advance(CREATION_MS)
            assert internal_topics(harness) == {name: {NONE}}


def test_a_topic_that_a_client_creates_has_no_coordinators_at_first() -> None:
    harness = fresh()
    (result,) = create_topics(harness, new_topic(OFFSETS_TOPIC, partitions=7, factor=2))
    assert (result.error_code, find(harness)[0], group_errors(harness)) == (NONE, NONE, {NOT_COORDINATOR})
    harness.advance(ELECTION_MS + LOADING_MS)
    assert group_errors(harness) == {NOT_COORDINATOR, NONE}


def test_topics_of_the_settings_are_ready() -> None:
    harness = fresh(topics={OFFSETS_TOPIC: 3})
    assert (find(harness)[0], group_errors(harness)) == (NONE, {NOT_COORDINATOR, NONE})
    assert find(harness, "t", TRANSACTION) == (NO_COORDINATOR, -1)


def test_brokers_that_stop_meanwhile() -> None:
    harness = fresh()
    commands = commands_of(harness)
    commands.broker(1).stop()
    assert group_errors(harness) == {NOT_COORDINATOR}
    assert find(harness, broker=2) == (NO_COORDINATOR, -1)
    harness.advance(CREATION_MS)
    commands.broker(2).stop()
    commands.broker(1).start()
    assert group_errors(harness) == {NOT_COORDINATOR}
    harness.advance(ELECTION_MS + LOADING_MS)
    for group_id in ("a", "b"):
        error, node_id = find(harness, group_id, broker=3)
        assert (error, group_error(harness, node_id, group_id)) == (NONE, NONE)


def test_commands_that_need_a_coordinator_have_it_at_once(subtests: pytest.Subtests) -> None:
    uses: dict[str, tuple[str, Callable[[LocalCluster], None]]] = {
        "group.seed": (OFFSETS_TOPIC, lambda commands: commands.group("g").seed(1)),
        "group.move_coordinator": (OFFSETS_TOPIC, lambda commands: commands.group("g").move_coordinator(2)),
        "transaction.seed": (TRANSACTIONS_TOPIC, lambda commands: commands.transaction("t").seed()),
        "transaction.move_coordinator": (
            TRANSACTIONS_TOPIC,
            lambda commands: commands.transaction("t").move_coordinator(2),
        ),
    }
    for name, (topic, command) in uses.items():
        for begun_ms in (None, 0.0, CREATION_MS, CREATION_MS + ELECTION_MS + LOADING_MS):
            with subtests.test(name, begun_ms=begun_ms):
                harness = fresh()
                if begun_ms is not None:
                    find(harness, key_type=INTERNAL_TOPICS.index(topic))
                    harness.advance(begun_ms)
                command(commands_of(harness))
                assert internal_topics(harness) == {topic: {NONE}}
                errors = group_errors(harness) if topic == OFFSETS_TOPIC else transaction_errors(harness)
                assert LOADING not in errors
                assert errors > {NOT_COORDINATOR}


def test_a_reset_and_an_older_snapshot_make_the_cluster_fresh_again() -> None:
    harness = fresh()
    commands = commands_of(harness)
    before = commands.snapshot()
    use(harness)
    for command, arguments in ((commands.restore, [before]), (commands.reset, [])):
        command(*arguments)
        assert (find(harness), internal_topics(harness)) == ((NO_COORDINATOR, -1), {})
        assert group_errors(harness) == {NOT_COORDINATOR}
        use(harness)
        assert group_errors(harness) == {NOT_COORDINATOR, NONE}


def test_a_snapshot_with_the_topic_is_ready_at_once() -> None:
    harness = fresh()
    commands = commands_of(harness)
    find(harness)
    harness.advance(CREATION_MS)
    commands.restore(commands.snapshot())
    assert group_errors(harness) == {NOT_COORDINATOR, NONE}


def test_a_used_topic_stays_used_after_a_restart() -> None:
    harness = fresh()
    storage, writer = stored(harness)
    use(harness)
    writer.write_changes()
    again, _ = continued(storage, brokers=3, first_use="kafka")
    assert (find(again)[0], group_errors(again)) == (NONE, {NOT_COORDINATOR, NONE})
    assert find(again, "t", TRANSACTION) == (NO_COORDINATOR, -1)


def test_a_broker_gets_its_first_producer_ids_later() -> None:
    harness = fresh()
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    for broker in (1, 2):
        assert harness.ask(request, 5, broker=broker).error_code == LOADING
        harness.advance(PRODUCER_IDS_MS - 1)
        assert harness.ask(request, 5, broker=broker).error_code == LOADING
        harness.advance(1)
        found = harness.ask(request, 5, broker=broker)
        assert (found.error_code, found.producer_id) == (NONE, broker - 1)


def test_explanations_and_deadlines() -> None:
    harness = fresh()

    def texts() -> tuple[str, str, list[str]]:
        now_ms = harness.now_ms
        deadlines = [each.text for each in pending_deadlines(harness.cluster, now_ms) if each.kind == "first_use"]
        return explain(harness.cluster, "g", now_ms), explain_transaction(harness.cluster, "t", now_ms), deadlines

    missing = (
        "has no coordinator yet: no client has looked for one, so that {} does not exist. "
        "FindCoordinator fails with COORDINATOR_NOT_AVAILABLE, other requests with NOT_COORDINATOR."
    )
    assert texts() == (f"g {missing.format(OFFSETS_TOPIC)}", f"t {missing.format(TRANSACTIONS_TOPIC)}", [])
    find(harness)
    of_group, of_id, deadlines = texts()
    assert of_group.startswith(f"g has no coordinator yet: {OFFSETS_TOPIC} is created in 0.1 s. FindCoordinator fails")
    assert (of_id, deadlines) == (f"t {missing.format(TRANSACTIONS_TOPIC)}", [f"{OFFSETS_TOPIC} is created."])
    harness.advance(CREATION_MS)
    new = (
        f"g has no coordinator yet: {OFFSETS_TOPIC} is new, and is loaded in 0.2 s. Requests fail with NOT_COORDINATOR."
    )
    assert texts()[::2] == (new, [f"The leaders of {OFFSETS_TOPIC} begin to load it."])
    harness.advance(ELECTION_MS)
    assert texts()[0].startswith("g is being loaded")
    assert texts()[2] == []


def test_by_default_nothing_is_noticed() -> None:
    harness = ClusterHarness(brokers=3)
    assert (find(harness)[0], group_errors(harness)) == (NONE, {NOT_COORDINATOR, NONE})
    assert (find(harness, "t", TRANSACTION)[0], transaction_errors(harness)) == (NONE, {NOT_COORDINATOR, NONE})
