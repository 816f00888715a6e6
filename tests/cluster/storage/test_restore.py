"""Whatever happens to a cluster, what was written so far restores it as it was."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hypothesis import example, given, settings, strategies as st

from fakebroker.cluster.handles.cluster import ClusterHandle
from fakebroker.cluster.handles.local import Local
from fakebroker.errors import ConfigError
from fakebroker.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from fakebroker.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from fakebroker.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from fakebroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.cluster.cluster_harness import ClusterHarness, ClusterHarnessEnvironment
from tests.support.cluster.stored_clusters import continued, durable, leader_epochs, restored, stored
from tests.support.soak import examples, soak

BROKERS = 3
TOPICS = st.sampled_from(["a", "b", "c"])
SMALL = st.integers(0, 2)
NODE_IDS = st.integers(1, BROKERS)

Step = tuple[Any, ...]
STEPS: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.just("create_topic"), TOPICS, st.integers(1, 3), st.integers(1, 2)),
    st.tuples(st.just("create_partitions"), TOPICS, st.integers(2, 4)),
    st.tuples(st.just("delete_topic"), TOPICS),
    st.tuples(st.just("produce"), TOPICS, st.lists(st.binary(max_size=30), min_size=1, max_size=3)),
    st.tuples(st.just("delete_records"), TOPICS, SMALL, SMALL),
    st.tuples(st.just("seed_group"), st.sampled_from(["g", "h"]), SMALL, TOPICS),
    st.tuples(st.just("transaction"), TOPICS, st.booleans()),
    st.tuples(st.just("hanging_transaction"), TOPICS),
    st.tuples(st.just("lose_commits"), st.sampled_from(["g", "h"]), NODE_IDS, SMALL),
    st.tuples(st.just("stop_broker"), NODE_IDS),
    st.tuples(st.just("start_broker"), NODE_IDS),
    st.tuples(st.just("deny"), st.sampled_from(["User:x", "User:y"]), TOPICS),
    st.tuples(st.just("remove_acl"), st.sampled_from(["User:x", "User:y"]), TOPICS),
    st.tuples(st.just("alter_topic"), TOPICS, st.sampled_from(["1", "100", "1000000"])),
    st.tuples(st.just("alter_brokers"), st.sampled_from(["", "1"]), st.sampled_from(["1000", "2000"])),
    st.tuples(st.just("alter_quota"), st.sampled_from(["x", None]), st.sampled_from([1.0, 2.0])),
    st.tuples(st.just("set_scram"), st.sampled_from(["x", "y"]), st.integers(4096, 4098)),
    st.tuples(st.just("remove_scram"), st.sampled_from(["x", "y"])),
    st.tuples(st.just("checkpoint")),
    st.tuples(st.just("restart"), TOPICS),
)


ALL_LOGS: list[Step] = [
    ("produce", "a", [b"x", b"y", b"z", b"z"]),
    ("delete_records", "a", 0, 1),
    ("transaction", "a", False),
    ("checkpoint",),
    ("transaction", "a", True),
    ("alter_topic", "a", "1"),
    ("seed_group", "g", 2, "a"),
    ("seed_group", "h", 1, "a"),
    ("lose_commits", "g", 2, 1),
    ("lose_commits", "h", 3, 1),
]
"""Steps that change logs in all ways: start offsets, truncations, aborted transactions before a checkpoint."""


class Changes:
    """Performs steps on a cluster. Those that the cluster refuses have no effect."""

    def __init__(self, harness: ClusterHarness) -> None:
        self._harness = harness
        self._commands = ClusterHandle(
            Local(harness.cluster, ClusterHarnessEnvironment(harness), new_cluster=lambda: harness.cluster)
        )

    def perform(self, name: str, *arguments: Any) -> None:
        step: Callable[..., object] = getattr(self, name)
        with suppress(ConfigError):
            step(*arguments)

    def create_topic(self, topic: str, partitions: int, replication_factor: int) -> None:
        self._commands.topic(topic).create(partitions, replication_factor)

    def create_partitions(self, topic: str, total: int) -> None:
        self._commands.topic(topic).create_partitions(total)

    def delete_topic(self, topic: str) -> None:
        self._commands.topic(topic).delete()

    def produce(self, topic: str, values: list[bytes]) -> None:
        self._commands.topic(topic).produce(values)

    def delete_records(self, topic: str, index: int, offset: int) -> None:
        partition = DeleteRecordsPartition(partition_index=index, offset=offset)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=1000)
        for broker in range(1, BROKERS + 1):  # All but the leader refuse it.
            self._harness.send(request, 2, broker=broker)

    def seed_group(self, group_id: str, members: int, topic: str) -> None:
        self._commands.group(group_id).seed(members, topics=[topic], lag=0)

    def transaction(self, topic: str, is_committed: bool) -> None:
        state = "PrepareCommit" if is_committed else "PrepareAbort"
        self._commands.transaction(f"t-{topic}-{is_committed}").seed(records={f"{topic}-0": 2}, state=state)

    def hanging_transaction(self, topic: str) -> None:
        self._commands.topic(topic).partition(0).seed_hanging_transaction()

    def prepared_transaction(self, topic: str) -> None:
        self._commands.transaction("prepared").hold_markers()
        self._commands.transaction("prepared").seed(records={f"{topic}-0": 1}, state="PrepareAbort")

    def lose_commits(self, group_id: str, to: int, records: int) -> None:
        self._commands.group(group_id).move_coordinator(to, lose_tail=records)

    def stop_broker(self, node_id: int) -> None:
        self._commands.broker(node_id).stop()

    def start_broker(self, node_id: int) -> None:
        self._commands.broker(node_id).start()

    def deny(self, principal: str, topic: str) -> None:
        self._commands.acls.deny(principal, "READ", topic=topic)

    def remove_acl(self, principal: str, topic: str) -> None:
        self._commands.acls.remove(principal, "READ", "deny", topic=topic)

    def alter_topic(self, topic: str, size_bytes: str) -> None:
        self._alter(2, topic, "retention.bytes", size_bytes)

    def alter_brokers(self, node_id: str, value: str) -> None:
        self._alter(4, node_id, "message.max.bytes", value)

    def _alter(self, resource_type: int, name: str, config: str, value: str) -> None:
        change = AlterableConfig(name=config, config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=[change])
        self._harness.send(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)

    def alter_quota(self, user: str | None, value: float) -> None:
        entry = EntryData(
            entity=[EntityData(entity_type="user", entity_name=user)],
            ops=[OpData(key="producer_byte_rate", value=value, remove=False)],
        )
        self._harness.send(AlterClientQuotasRequest(entries=[entry], validate_only=False), 1)

    def set_scram(self, user: str, iterations: int) -> None:
        upsertion = ScramCredentialUpsertion(
            name=user, mechanism=1, iterations=iterations, salt=b"salt", salted_password=b"salted"
        )
        self._harness.send(AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]), 0)

    def remove_scram(self, user: str) -> None:
        deletion = ScramCredentialDeletion(name=user, mechanism=1)
        self._harness.send(AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[]), 0)


@soak
@settings(max_examples=examples(15, soak=2_000))
@example(steps=ALL_LOGS)
@given(steps=st.lists(STEPS, min_size=5, max_size=15))
@example([("create_topic", "b", 1, 1), ("produce", "b", [b"x"]), ("delete_records", "b", 0, 1), ("checkpoint",)])
def test_each_prefix_of_the_entries_restores_the_cluster_of_that_time(steps: list[Step]) -> None:
    harness = ClusterHarness({"a": 2}, BROKERS)
    storage, writer = stored(harness)
    changes = Changes(harness)
    for step in steps:
        if step == ("checkpoint",):
            storage.replace(harness.cluster, writer)
        elif step[0] == "restart":
            changes.perform("prepared_transaction", step[1])  # The start completes it.
            writer.write_changes()
            harness, writer = continued(storage, brokers=BROKERS)
            changes = Changes(harness)
            writer.write_changes()
        else:
            changes.perform(*step)
            writer.sections_may_differ = True
            writer.write_changes()
        twin = restored(storage.entries, brokers=BROKERS).cluster
        assert durable(twin) == durable(harness.cluster)
        assert leader_epochs(twin) == [epoch + 1 for epoch in leader_epochs(harness.cluster)]
