"""Clusters with a data directory: what later ones continue with, full and failed disks, checkpoints."""

import errno
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fakebroker import AclRule, ConfigError, FakeCluster, MemberSeed
from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.logs.producer_state import AbortedTransaction
from fakebroker.cluster.storage import checkpoint
from fakebroker.errors import DataDirectoryError, DiskFullError, ErrorCode
from fakebroker.protocol.compiler import MIN_PART_BYTES
from fakebroker.protocol.frames import request_frame
from fakebroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from fakebroker.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from fakebroker.protocol.messages.heartbeat import HeartbeatResponse
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitResponse
from fakebroker.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from fakebroker.protocol.schema import replaced
from fakebroker.server import persistence
from fakebroker.server.data_directory import directory as directories
from fakebroker.server.data_directory.directory import DataDirectory
from fakebroker.server.data_directory.file_operations import FileOperations
from fakebroker.server.fake_cluster import internals
from tests.support.cluster.cluster_harness import batch
from tests.support.cluster.stored_clusters import durable
from tests.support.group_requests import commit_request, heartbeat_request
from tests.support.groups_over_tcp import stable_group
from tests.support.mount_namespaces import in_mount_namespace
from tests.support.wire_client import TIMEOUT_S, WireClient

FETCH = FetchRequest(
    replica_id=-1,
    max_wait_ms=0,
    min_bytes=0,
    topics=[
        FetchTopic(topic="orders", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10**6)])
    ],
)


def cluster_in(path: Path, **changed: Any) -> FakeCluster:
    arguments: dict[str, Any] = {"topics": {"orders": 6}, "data_dir": path, "seed": 1} | changed
    return FakeCluster(**arguments)


def size_of(path: Path) -> int:
    return sum(file.stat().st_size for file in path.iterdir())


def produce_request(value: bytes) -> ProduceRequest:
    partition = PartitionProduceData(index=0, records=batch(value))
    return ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="orders", partition_data=[partition])]
    )


def produced(wire: WireClient, value: bytes = b"x") -> tuple[int, int]:
    """Produce a record to orders-0, and return the error and the base offset."""
    answer = wire.ask(produce_request(value), ProduceResponse, 9).responses[0].partition_responses[0]
    return answer.error_code, answer.base_offset


def created(wire: WireClient, name: str) -> int:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    return wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), CreateTopicsResponse, 5).topics[0].error_code


def leader_of_orders(cluster: FakeCluster) -> BrokerNode:
    topic = internals(cluster).cluster.topics.get("orders")
    assert topic is not None
    return internals(cluster).cluster.brokers[topic.partitions[0].leader_id]


def test_a_later_cluster_continues(tmp_path: Path) -> None:
    rule = AclRule(principal="User:a", operation="READ", topic="orders")
    with cluster_in(tmp_path, acls=[rule]) as first:
        first.topic("orders").produce(["a", "b"], partition=0)
        first.group("g").seed([MemberSeed(client_id="app", instance_id="one")], topics=["orders"], lag=0)
        first.transaction("t").seed(records={"orders-1": 1}, state="Ongoing")
        first.acls.deny("User:x", "READ", topic="orders")
        member, transaction = first.group("g").describe().members[0], first.transaction("t").describe()
        before = internals(first).run(lambda: durable(internals(first).cluster))
    with cluster_in(tmp_path) as second:
        assert internals(second).run(lambda: durable(internals(second).cluster)) == before
        assert second.group("g").describe().members[0] == member
        assert (second.transaction("t").describe().state, second.transaction("t").describe().producer_id) == (
            "Ongoing",
            transaction.producer_id,
        )
        assert second.topic("orders").produce(["c"], partition=0) == [(0, 2)]


def test_what_is_done_before_the_start_is_stored(tmp_path: Path) -> None:
    first = cluster_in(tmp_path, acls=[])
    first.topic("more").create()
    first.acls.deny("User:x", "READ", topic="orders")
    with first:
        pass
    with cluster_in(tmp_path) as second:
        assert [topic.name for topic in internals(second).cluster.topics] == ["orders", "more"]
        assert [acl.principal for acl in internals(second).cluster.acls or ()] == ["User:x"]


def test_what_a_start_completes_is_stored(tmp_path: Path) -> None:
    with cluster_in(tmp_path) as first:
        first.transaction("t").hold_markers()
        first.transaction("t").seed(records={"orders-0": 1}, state="PrepareAbort")
    for offset in (2, 3):
        with cluster_in(tmp_path) as later:
            assert later.transaction("t").describe().state == "CompleteAbort"
            assert later.topic("orders").produce(["after the marker"], partition=0) == [(0, offset)]
    with cluster_in(tmp_path) as last:
        topic = internals(last).cluster.topics.get("orders")
        assert topic is not None
        log = topic.partitions[0].log
        assert log.log_end_offset == 4
        assert log.producers.aborted_in(0, 4) == [AbortedTransaction(0, 0, 1)]


def test_superseded_records_do_not_displace_others_after_a_start(tmp_path: Path) -> None:
    with cluster_in(tmp_path, clock="manual") as first:
        first.topic("state").create(configs={"cleanup.policy": "compact,delete", "retention.bytes": "1000"})
        first.topic("state").produce(["oldest"], key="a")
        for _ in range(20):
            first.topic("state").produce([bytes(100)], key="b")
            first.advance(60)
        before = first.topic("state").records()
    assert before[0].value == b"oldest"
    with cluster_in(tmp_path, clock="manual") as second:
        assert second.topic("state").records() == before


def test_ids_do_not_repeat_with_the_same_seed(tmp_path: Path) -> None:
    found = set()
    for name in ("a", "b", "c"):
        with cluster_in(tmp_path) as cluster:
            found.add(stable_group(cluster, name))
            cluster.topic(name).create()
            topic = internals(cluster).cluster.topics.get(name)
            assert topic is not None
            found.add(topic.topic_id.hex())
            found.add(internals(cluster).cluster.cluster_id)
    assert len(found) == 3 + 3 + 1
    with FakeCluster(topics={"orders": 6}, seed=1) as other, cluster_in(tmp_path / "new") as new:
        assert internals(other).cluster.cluster_id == internals(new).cluster.cluster_id


def test_brokers_and_topics_can_be_added(tmp_path: Path) -> None:
    with cluster_in(tmp_path, brokers=1):
        pass
    with cluster_in(tmp_path, brokers=3, topics={"orders": 6, "more": 3}) as cluster:
        assert [broker.node_id for broker in cluster.brokers] == [1, 2, 3]
        led = {topic.name: {each.leader_id for each in topic.partitions} for topic in internals(cluster).cluster.topics}
    assert led == {"orders": {1}, "more": {1, 2, 3}}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"brokers": 2}, r"node ids: brokers='1, 2': expected all that are stored in data_dir: 1, 2, 3"),
        ({"first_node_id": 0}, r"node ids: brokers='0, 1, 2': expected all that are stored in data_dir: 1, 2, 3"),
        ({"topics": {"orders": 7}}, "topics.orders=7: expected 6, the number of partitions"),
        ({"proposals": ["rewrite"]}, "groups of the proposal 'rewrite' are not stored"),
        ({"data_dir": 5}, "data_dir=5: expected the path of a directory"),
        ({"data_dir": "a\0b"}, r"data_dir='a\\x00b': expected the path of a directory"),
        ({"data_dir": None, "fsync": "always"}, "fsync='always': expected a data_dir, too"),
        ({"port": 70_000}, "port=70000"),
    ],
)  # fmt: skip
def test_a_directory_can_be_used_after_an_error(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    with cluster_in(tmp_path):
        pass
    with pytest.raises(ConfigError, match=message) as _error:  # Keeps the frames alive, as an `except` clause does.
        cluster_in(tmp_path, **arguments)
    with cluster_in(tmp_path), pytest.raises(DataDirectoryError, match="in use by process"):
        cluster_in(tmp_path)


def test_restores_and_resets_are_stored(tmp_path: Path) -> None:
    with cluster_in(tmp_path) as cluster:
        cluster.topic("orders").produce(["a"], partition=0)
        kept = cluster.snapshot()
        cluster.topic("orders").produce(["b"], partition=0)
        cluster.restore(kept)
        cluster.topic("orders").produce(["c"], partition=0)
        cluster.group("g").seed(topics=["orders"], lag=0)
    with cluster_in(tmp_path) as cluster:
        assert [record.value for record in cluster.topic("orders").records(0)] == [b"a", b"c"]
        cluster.reset()
        cluster.topic("orders").produce(["d"], partition=0)
    with cluster_in(tmp_path) as cluster:
        assert [record.value for record in cluster.topic("orders").records(0)] == [b"d"]
        assert cluster.groups() == []


@pytest.mark.parametrize("restores", [False, True])
def test_a_crash_leaves_the_state_before_or_after_a_replacement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restores: bool
) -> None:
    kept, write = tmp_path / "kept", checkpoint.write

    def crash(*arguments: Any) -> None:
        shutil.copytree(tmp_path / "used", kept)
        write(*arguments)

    for _ in range(2):  # In the second one, a reset makes topics with other ids.
        with cluster_in(tmp_path / "used") as cluster:
            snapshot = cluster.snapshot()
            cluster.topic("orders").produce(["a"], partition=0)
            cluster.group("g").seed(topics=["orders"], lag=0)
            before = internals(cluster).run(lambda: durable(internals(cluster).cluster))
            monkeypatch.setattr(checkpoint, "write", crash)
            if restores:
                cluster.restore(snapshot)
            else:
                cluster.reset()
            monkeypatch.setattr(checkpoint, "write", write)
        with cluster_in(kept) as cluster:
            assert internals(cluster).run(lambda: durable(internals(cluster).cluster)) == before
        shutil.rmtree(kept)


def test_a_full_disk_refuses_changes_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster_in(tmp_path, clock="manual") as cluster:
        member_id = stable_group(cluster)
        leader, coordinator = leader_of_orders(cluster), cluster.group("g").coordinator()
        with WireClient(leader) as wire, WireClient(coordinator) as groups:
            assert produced(wire) == (ErrorCode.NONE, 0)
            with monkeypatch.context() as full:
                full.setattr(DataDirectory, "reserve", lambda *_: False)
                assert produced(wire) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
                assert created(wire, "more") == ErrorCode.KAFKA_STORAGE_ERROR
                commit = groups.ask(commit_request(43, 2, "g", member_id, 1), OffsetCommitResponse, 9)
                assert commit.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
                beat = groups.ask(heartbeat_request("g", member_id, 1), HeartbeatResponse)
                assert beat.error_code == ErrorCode.NONE
                assert fetched(wire) > 0
                wanted = [MetadataRequestTopic(name="unknown")]
                unknown = wire.ask(MetadataRequest(topics=wanted), MetadataResponse, 8)
                assert unknown.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                with pytest.raises(DiskFullError, match=r"data_dir=.*: the disk is full: expected free space"):
                    cluster.topic("more").create()
            assert produced(wire) == (ErrorCode.NONE, 1)
            assert created(wire, "more") == ErrorCode.NONE
            committed = groups.ask(commit_request(43, 2, "g", member_id, 1), OffsetCommitResponse, 9)
            assert committed.topics[0].partitions[0].error_code == ErrorCode.NONE
    with cluster_in(tmp_path) as cluster:
        assert [topic.name for topic in internals(cluster).cluster.topics] == ["orders", "__consumer_offsets", "more"]
        assert cluster.group("g").offsets()["orders", 2].offset == 43


def fetched(wire: WireClient) -> int:
    return len(wire.ask(FETCH, FetchResponse, 6).responses[0].partitions[0].records or b"")


def test_a_transaction_is_not_ended_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster_in(tmp_path, brokers=1) as cluster:
        cluster.transaction("t").seed(records={"orders-0": 1}, state="Ongoing")
        view = cluster.transaction("t").describe()
        end = EndTxnRequest(
            transactional_id="t", producer_id=view.producer_id, producer_epoch=view.producer_epoch, committed=True
        )
        with WireClient(leader_of_orders(cluster)) as wire:
            with monkeypatch.context() as full:
                full.setattr(DataDirectory, "reserve", lambda *_: False)
                assert wire.ask(end, EndTxnResponse, 3).error_code == ErrorCode.NOT_COORDINATOR
            assert cluster.transaction("t").describe().state == "Ongoing"
            assert wire.ask(end, EndTxnResponse, 3).error_code == ErrorCode.NONE


def test_a_transaction_ends_when_the_disk_has_space_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster_in(tmp_path, clock="manual") as cluster:
        with monkeypatch.context() as full:
            with cluster.transaction("t").hold_markers():
                cluster.transaction("t").seed(records={"orders-0": 1}, state="PrepareCommit")
                full.setattr(DataDirectory, "reserve", lambda *_: False)
            cluster.advance(60)
            assert cluster.transaction("t").describe().state == "PrepareCommit"
        cluster.advance(60)
        assert cluster.transaction("t").describe().state == "CompleteCommit"


def test_a_failed_disk_ends_the_cluster_and_nothing_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    cluster, stopped = cluster_in(tmp_path), list[bool]()
    internals(cluster).server.on_stop.append(lambda: stopped.append(True))
    cluster.__enter__()
    with WireClient(leader_of_orders(cluster)) as wire:
        assert produced(wire, b"kept") == (ErrorCode.NONE, 0)
        with monkeypatch.context() as failing:
            failing.setattr(FileOperations, "write", fail)
            with pytest.raises(ConnectionError, match="closed after 0 of 4 bytes"):
                produced(wire, b"lost")
    with pytest.raises(DataDirectoryError, match="Input/output error"):
        cluster.__exit__(None, None, None)
    assert stopped == [True]
    assert "the cluster has stopped: data_dir=" in caplog.text
    with cluster_in(tmp_path) as later:
        assert [record.value for record in later.topic("orders").records(0)] == [b"kept"]


def test_a_disk_that_fails_before_a_write_ends_the_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    cluster = cluster_in(tmp_path)
    cluster.__enter__()
    with WireClient(leader_of_orders(cluster)) as wire, monkeypatch.context() as failing:
        assert produced(wire, bytes(1_000_000)) == (ErrorCode.NONE, 0)
        failing.setattr(FileOperations, "allocate", fail)
        with pytest.raises(ConnectionError, match="closed after 0 of 4 bytes"):
            [produced(wire, bytes(1_000_000)) for _ in range(3)]  # Until more space has to be allocated.
    with pytest.raises(DataDirectoryError, match="Read-only file system"):
        cluster.__exit__(None, None, None)


def test_a_fetch_returns_no_records_that_are_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    cluster = cluster_in(tmp_path)
    cluster.__enter__()
    with WireClient(leader_of_orders(cluster)) as wire, monkeypatch.context() as failing:
        assert produced(wire, bytes(MIN_PART_BYTES)) == (ErrorCode.NONE, 0)  # A Fetch of so much is sent at once.
        failing.setattr(FileOperations, "write", fail)
        unanswered = request_frame(replaced(produce_request(b"lost"), acks=0), 9, 0, "wire")
        wire.socket.sendall(unanswered + request_frame(FETCH, 6, 0, "wire"))
        with pytest.raises(ConnectionError, match="closed after 0 of 4 bytes"):
            wire.receive_frame()
    with pytest.raises(DataDirectoryError, match="Input/output error"):
        cluster.__exit__(None, None, None)


def test_a_reset_that_cannot_be_stored_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    cluster = cluster_in(tmp_path)
    cluster.__enter__()
    cluster.topic("orders").produce(["kept"], partition=0)
    with monkeypatch.context() as full:
        full.setattr(FileOperations, "rename", fail)
        with pytest.raises(DiskFullError, match="No space left on device"):
            cluster.reset()
        with pytest.raises(DiskFullError, match="No space left on device"):
            cluster.__exit__(None, None, None)
    assert not list(tmp_path.glob("*.tmp"))
    with cluster_in(tmp_path) as later:
        assert [record.value for record in later.topic("orders").records(0)] == [b"kept"]


class ImmediateThread:
    """Runs the target in `start`."""

    def __init__(self, target: Callable[..., None], args: tuple[Any, ...], name: str) -> None:
        self._run = partial(target, *args)

    def start(self) -> None:
        self._run()

    def join(self) -> None:
        return


def test_checkpoints_bound_the_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directories, "MIN_LOG_BYTES", 100_000)
    monkeypatch.setattr(persistence, "Thread", ImmediateThread)
    monkeypatch.setattr(FileOperations, "sync", lambda *_: None)
    with cluster_in(tmp_path, config={"log.retention.bytes": 50_000}) as cluster:
        stable_group(cluster)
        with WireClient(leader_of_orders(cluster)) as wire:
            for number in range(100):
                assert produced(wire, b"%d" % number * 10_000)[0] == ErrorCode.NONE
        before = internals(cluster).run(lambda: durable(internals(cluster).cluster))
    assert size_of(tmp_path) < 400_000, "of 2 MB that were written"
    with cluster_in(tmp_path) as cluster:
        assert internals(cluster).run(lambda: durable(internals(cluster).cluster)) == before
        assert cluster.group("g").describe().state == "Stable"


def test_a_checkpoint_makes_space_on_a_small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allocate = FileOperations.allocate

    def allocate_if_free(operations: FileOperations, fd: int, offset: int, size_bytes: int) -> None:
        if size_of(tmp_path) + size_bytes > 5_000_000:
            raise OSError(errno.ENOSPC, "No space left on device")
        allocate(operations, fd, offset, size_bytes)

    monkeypatch.setattr(FileOperations, "allocate", allocate_if_free)
    monkeypatch.setattr(persistence, "Thread", ImmediateThread)
    with (
        cluster_in(tmp_path, config={"log.retention.bytes": 200_000}) as cluster,
        WireClient(leader_of_orders(cluster)) as wire,
    ):
        for number in range(200):
            assert produced(wire, bytes(100_000)) == (ErrorCode.NONE, number)
        before = internals(cluster).run(lambda: durable(internals(cluster).cluster))
    with cluster_in(tmp_path) as cluster:
        assert internals(cluster).run(lambda: durable(internals(cluster).cluster)) == before


def test_a_restore_that_does_not_fit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reserve = DataDirectory.reserve
    with cluster_in(tmp_path) as cluster:
        cluster.topic("orders").produce([bytes(300_000)], partition=0)
        snapshot = cluster.snapshot()
        cluster.topic("orders").produce(["after"], partition=0)
        with monkeypatch.context() as full:
            full.setattr(DataDirectory, "reserve", lambda self, size: size < 1_300_000 and reserve(self, size))
            with pytest.raises(DiskFullError, match="the disk is full"):
                cluster.restore(snapshot)
            cluster.topic("orders").produce(["goes on"], partition=0)
        cluster.restore(snapshot)
        assert len(cluster.topic("orders").records(0)) == 1


def test_a_start_on_a_full_disk_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster_in(tmp_path):
        pass
    with monkeypatch.context() as full:
        full.setattr(DataDirectory, "reserve", lambda *_: False)
        with pytest.raises(DiskFullError, match="the disk is full: expected free space for the state of a start"):
            cluster_in(tmp_path)
    with cluster_in(tmp_path):
        pass


def test_one_sync_for_all_requests_of_a_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs: list[int] = []
    with cluster_in(tmp_path, fsync="always") as cluster, WireClient(leader_of_orders(cluster)) as wire:
        monkeypatch.setattr(FileOperations, "sync", lambda _, fd: syncs.append(fd))
        requests = [produce_request(b"%d" % number) for number in range(20)]
        wire.socket.sendall(b"".join(request_frame(request, 9, 0, "wire") for request in requests))
        for _ in requests:
            wire.receive_frame()
        assert len(syncs) == 1
    assert len(syncs) == 2, "the last one is that of the end"


def test_with_an_interval_the_disk_is_synced_although_nothing_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_synced = threading.Event()
    monkeypatch.setattr(directories, "SYNC_INTERVAL_MS", 1)
    with cluster_in(tmp_path) as cluster, WireClient(leader_of_orders(cluster)) as wire:
        monkeypatch.setattr(FileOperations, "sync", lambda *_: is_synced.set())
        assert produced(wire) == (ErrorCode.NONE, 0)
        assert is_synced.wait(TIMEOUT_S)


FULL_DISK = """
import os
from fakebroker import FakeCluster
from fakebroker.errors import DiskFullError

def start():
    return FakeCluster(1, {"orders": 1}, data_dir=DIRECTORY + "/data", fsync="always")

with start() as cluster:
    count = 0
    try:
        while count < 1_000:
            cluster.topic("orders").produce([bytes(100_000)])
            count += 1
    except DiskFullError as error:
        print(error)
    try:
        cluster.topic("wide").create(100_000)
    except DiskFullError:
        print("no topic with 1.5 MB of partitions")
    assert len(cluster.topic("orders").records()) == count
    os.remove(DIRECTORY + "/other")
    cluster.topic("orders").produce([b"there is space again"])
    cluster.topic("more").create()
with start() as cluster:
    assert len(cluster.topic("orders").records()) == count + 1
    print(count, "records before, topics", *(topic.name for topic in cluster.topics()))
"""


@pytest.mark.slow
def test_a_cluster_on_a_full_file_system_continues_when_there_is_space(tmp_path: Path) -> None:
    other = f"open({str(tmp_path / 'other')!r}, 'wb').write(bytes(2_000_000))\n"
    script = other + FULL_DISK.replace("DIRECTORY", repr(str(tmp_path)))
    ran = in_mount_namespace(script, f"-t tmpfs -o size=8m none {tmp_path}")
    assert not ran.returncode, ran.stderr
    full, wide, end = ran.stdout.splitlines()
    assert wide.startswith("no topic")
    assert full.startswith(f"data_dir='{tmp_path}/data': the disk is full")
    count, _, topics = end.partition(" records before, topics ")
    assert 30 < int(count) < 60
    assert topics == "orders more"


FAILING_DISK = """
import errno, os, sys
from fakebroker.cli.main import main
from fakebroker.server.data_directory.file_operations import FileOperations

write = FileOperations.write

def write_or_fail(self, fd, data):
    if os.path.exists(FAILS):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    return write(self, fd, data)

FileOperations.write = write_or_fail
main()
"""


@pytest.mark.slow
def test_serve_ends_with_an_error_if_the_disk_fails(tmp_path: Path) -> None:
    fails, directory = tmp_path / "fails", tmp_path / "data"
    options = ["serve", "--port", "0", "--brokers", "1", "--topic", "orders:1", "--data-dir", str(directory)]
    command = [sys.executable, "-c", FAILING_DISK.replace("FAILS", repr(str(fails))), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        host, _, port = process.stdout.readline().strip().removeprefix("bootstrap.servers=").partition(":")
        with WireClient(Place(host, int(port))) as wire:
            assert produced(wire) == (ErrorCode.NONE, 0)
            fails.touch()
            with pytest.raises(ConnectionError):
                produced(wire)
        _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 1
    assert errors.splitlines()[-1].startswith(f"fakebroker: data_dir='{directory}': ")
    assert "Traceback" not in errors


class Place(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int
