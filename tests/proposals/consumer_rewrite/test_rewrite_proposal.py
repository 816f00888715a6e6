"""The proposal `rewrite` in a cluster: which brokers support it, snapshots, upgrades, the layout of messages."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fakebroker.cluster import snapshot
from fakebroker.cluster.call import read_call
from fakebroker.cluster.emulation import Broker, EmulatedRelease
from fakebroker.cluster.handles.cluster import ClusterHandle
from fakebroker.cluster.handles.local import Local
from fakebroker.errors import ConfigError, ErrorCode, ProtocolError
from fakebroker.proposals.consumer_rewrite.errors import NAMES
from fakebroker.proposals.consumer_rewrite.messages import (
    RewriteJoinGroupRequest,
    RewriteJoinGroupResponse,
    RewriteOwnedTopic,
)
from fakebroker.protocol.codec import decode, encode
from fakebroker.protocol.frames import request_frame
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupRequest
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest
from fakebroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fakebroker.protocol.registry import API_BY_NAME
from fakebroker.protocol.schema import Message, Versions
from tests.support.cluster.cluster_harness import ClusterHarness, ClusterHarnessEnvironment, response


def join(consumer_id: str = "", group_id: str = "g", session_ms: int = 10_000) -> RewriteJoinGroupRequest:
    return RewriteJoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_ms,
        topics=["news"],
        consumer_id=consumer_id,
        partition_assignment_strategy="range",
    )


def beat(consumer_id: str, generation_id: int) -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", generation_id=generation_id, member_id=consumer_id)


class RewriteCluster:
    """A cluster with the proposal, whose group "g" is coordinated by broker 1."""

    def __init__(self, brokers: int = 2) -> None:
        self.harness = ClusterHarness(
            brokers=brokers, config={"offsets.topic.num.partitions": 1}, proposals=["rewrite"]
        )
        self.cluster = self.harness.cluster
        environment = ClusterHarnessEnvironment(self.harness)
        self.commands = ClusterHandle(
            Local(self.cluster, environment, new_cluster=lambda: RewriteCluster(brokers).cluster, proposals=["rewrite"])
        )

    @property
    def coordinator_id(self) -> int:
        broker = self.cluster.coordinator_of("g")
        assert broker is not None
        return broker.node_id

    def join(self, consumer_id: str = "") -> RewriteJoinGroupResponse:
        answer = self.harness.ask(join(consumer_id), 0, broker=self.coordinator_id)
        assert isinstance(answer, RewriteJoinGroupResponse)
        return answer

    def beat(self, consumer_id: str, generation_id: int) -> ErrorCode:
        answer = self.harness.ask(beat(consumer_id, generation_id), 0, broker=self.coordinator_id)
        return ErrorCode(answer.error_code)


# Brokers


def test_brokers_of_the_newest_release_replace_and_remove_apis() -> None:
    plain, emulated = EmulatedRelease.of(Broker()), EmulatedRelease.of(Broker(), ["rewrite"])
    keys = {name: API_BY_NAME[name].key for name in ("JoinGroup", "Heartbeat", "SyncGroup", "LeaveGroup")}
    expected = {key: versions for key, versions in plain.versions.items() if key not in keys.values()}
    assert emulated.versions == {**expected, keys["JoinGroup"]: Versions(0, 0), keys["Heartbeat"]: Versions(0, 0)}
    assert [each.name for each in emulated.proposals] == ["rewrite"]
    assert (plain.proposals, plain.apis) == ([], {})


def test_brokers_of_older_releases_do_not_support_the_proposal() -> None:
    emulated = EmulatedRelease.of(Broker(as_version="3.9"), ["rewrite"])
    assert emulated == EmulatedRelease.of(Broker(as_version="3.9"))
    assert emulated.proposals == []


def test_proposals_that_change_the_same_api_exclude_each_other() -> None:
    with pytest.raises(ConfigError) as caught:
        EmulatedRelease.of(Broker(), ["batch-join", "rewrite"])
    assert str(caught.value) == "proposals[1]='rewrite': expected no other proposal that changes JoinGroup"
    EmulatedRelease.of(Broker(), ["rewrite", "rewrite"])


def test_clusters_without_the_proposal_do_not_import_it() -> None:
    code = (
        "import sys; from tests.support.cluster.cluster_harness import ClusterHarness; "
        "harness = ClusterHarness(); harness.advance(1_000); assert harness.cluster.proposed is None; "
        "assert not [name for name in sys.modules if name.startswith('fakebroker.proposals.')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# Messages, byte by byte as the document lists their fields


@pytest.mark.parametrize(
    ("message", "version", "layout"),
    [
        (FindCoordinatorRequest(key="g"), 0, "0001 67"),
        (FindCoordinatorResponse(error_code=0, node_id=7, host="h", port=9), 0, "0000 00000007 0001 68 00000009"),
        (
            RewriteJoinGroupRequest(
                group_id="g",
                session_timeout_ms=5,
                topics=["t", "u"],
                consumer_id="c",
                partition_assignment_strategy="range",
            ),
            0,
            "0001 67 00000005 00000002 0001 74 0001 75 0001 63 0005 72616e6765",
        ),
        (
            RewriteJoinGroupResponse(
                error_code=0,
                group_generation_id=3,
                consumer_id="c",
                partitions_to_own=[RewriteOwnedTopic(topic_name="t", partitions=[4, 5])],
            ),
            0,
            "0000 00000003 0001 63 00000001 0001 74 00000002 00000004 00000005",
        ),
        (HeartbeatRequest(group_id="g", generation_id=3, member_id="c"), 0, "0001 67 00000003 0001 63"),
        (HeartbeatResponse(error_code=22), 0, "0016"),
        (
            OffsetCommitRequest(
                group_id="g",
                generation_id_or_member_epoch=3,
                member_id="c",
                topics=[
                    OffsetCommitRequestTopic(
                        name="t",
                        partitions=[
                            OffsetCommitRequestPartition(
                                partition_index=4, committed_offset=5, commit_timestamp=6, committed_metadata="m"
                            )
                        ],
                    )
                ],
            ),
            1,
            "0001 67 00000003 0001 63 00000001 0001 74 00000001 00000004 0000000000000005 0000000000000006 0001 6d",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Message) else "",
)
def test_messages_have_the_layout_of_the_document(message: Message, version: int, layout: str) -> None:
    encoded = bytes.fromhex(layout.replace(" ", ""))
    assert encode(message, version) == encoded
    assert decode(type(message), encoded, version) == message


def test_frames_are_decoded_with_the_messages_of_the_broker() -> None:
    cluster = RewriteCluster()
    call = read_call(cluster.harness.peer(1), request_frame(join(), 0, 1, "client")[4:])
    assert call.request == join()
    assert call.group_ids == ("g",)
    plain = ClusterHarness()
    with pytest.raises(ProtocolError):
        read_call(plain.peer(1), request_frame(join(), 0, 1, "client")[4:])


@pytest.mark.parametrize("request_class", [JoinGroupRequest, LeaveGroupRequest])
def test_requests_of_the_classic_protocol_are_not_supported(request_class: type[Message]) -> None:
    cluster = RewriteCluster()
    request: Message = (
        LeaveGroupRequest(group_id="g", member_id="m")
        if request_class is LeaveGroupRequest
        else JoinGroupRequest(
            group_id="g", session_timeout_ms=1, rebalance_timeout_ms=1, protocol_type="consumer", protocols=[]
        )
    )
    with pytest.raises(ProtocolError):
        read_call(cluster.harness.peer(1), request_frame(request, 1, 1, "client")[4:])


def test_the_example_in_the_document_joins_and_sends_a_heartbeat(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[3] / "scenarios" / "proposals" / "rewrite.md").read_text()
    (example,) = re.findall(r"## Example\n\n```python\n(.*?)```", page, re.DOTALL)
    exec(compile(example, "rewrite.md", "exec"), {})  # the document's own code
    assert capsys.readouterr().out == "0 1 True\n(0,)\n"


def test_the_document_lists_the_errors_with_their_numbers() -> None:
    page = (Path(__file__).parents[3] / "scenarios" / "proposals" / "rewrite.md").read_text()
    rows = re.findall(r"^\| (\w+) \| (\d+) \| (\w+)", page, re.MULTILINE)
    assert {(name, int(number), kafka) for name, number, kafka in rows} == {
        (name, error.value, error.name) for error, name in NAMES.items()
    }


# Connections


def test_the_connection_of_an_expired_consumer_is_broken() -> None:
    cluster = RewriteCluster()
    peer = cluster.harness.peer(1)
    member = response(cluster.harness.send(join(), 0, peer=peer))
    cluster.harness.advance(9_999)
    assert cluster.cluster.disconnected == []
    cluster.harness.advance(1)
    assert cluster.cluster.disconnected == [peer]
    other = cluster.harness.peer(1)
    assert response(cluster.harness.send(beat(member.consumer_id, 1), 0, peer=other)).error_code == 0
    cluster.harness.advance(10_000)
    assert cluster.cluster.disconnected == [peer, other]


# Snapshots, resets and upgrades


def test_a_snapshot_has_the_metadata_of_the_groups() -> None:
    cluster = RewriteCluster()
    one = cluster.join().consumer_id
    taken = snapshot.take(cluster.cluster)
    waiting = cluster.harness.send(join(), 0, broker=1)
    assert cluster.beat(one, 1) is ErrorCode.ILLEGAL_GENERATION
    snapshot.restore(cluster.cluster, taken, cluster.harness.now_ms)
    assert waiting.response.error_code == ErrorCode.NOT_COORDINATOR
    assert cluster.beat(one, 1) is ErrorCode.NONE
    assert cluster.join(one).group_generation_id == 2
    snapshot.restore(cluster.cluster, taken, cluster.harness.now_ms)
    assert cluster.beat(one, 2) is ErrorCode.ILLEGAL_GENERATION
    assert cluster.join(one).group_generation_id == 2  # the snapshot has not changed


def test_a_reset_forgets_all_groups() -> None:
    cluster = RewriteCluster()
    one = cluster.join().consumer_id
    cluster.commands.reset()
    assert cluster.beat(one, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert cluster.join().group_generation_id == 1


def test_a_broker_of_an_older_release_does_not_know_the_groups_and_a_newer_one_does_again() -> None:
    cluster = RewriteCluster()
    one = cluster.join().consumer_id
    cluster.commands.broker(2).upgrade("3.9")
    cluster.commands.group("g").move_coordinator(to=2)
    assert cluster.cluster.brokers[2].proposed is None
    classic = cluster.harness.ask(beat(one, 1), 4, broker=2)
    assert classic.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    cluster.commands.broker(2).upgrade(None)
    assert cluster.beat(one, 1) is ErrorCode.NONE


def test_an_added_broker_supports_the_proposal() -> None:
    cluster = RewriteCluster(1)
    one = cluster.join().consumer_id
    added = cluster.commands.brokers.add()
    cluster.commands.topic("__consumer_offsets").partition(0).move_leader(to=added.node_id)
    assert cluster.coordinator_id == added.node_id
    assert cluster.beat(one, 1) is ErrorCode.NONE
    cluster.commands.broker(1).remove()
    assert cluster.join(one).group_generation_id == 2


def test_a_new_offsets_topic_has_no_groups() -> None:
    cluster = ClusterHarness(config={"offsets.topic.num.partitions": 2}, proposals=["rewrite"])
    member = cluster.ask(join(), 0)
    for group_id in map(str, range(10)):
        cluster.ask(join(group_id=group_id), 0)
    cluster.cluster.add_topic("__consumer_offsets", [[1]] * 5)
    assert cluster.ask(beat(member.consumer_id, 1), 0).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert cluster.ask(join(), 0).group_generation_id == 1
    for group_id in map(str, range(10)):  # some of them are in a partition with the same number as before
        assert cluster.ask(join(group_id=group_id), 0).group_generation_id == 1
