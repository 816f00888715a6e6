"""FakeCluster: start and stop, arguments, views of groups, offsets and the journal."""

import gc
import inspect
import os
import re
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
import trio

from fakebroker import Broker, ConfigError, FakeCluster, ListenError, read_journal
from fakebroker.cluster.handles.definition import DEFINITIONS
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.releases import NEWEST
from fakebroker.server.fake_cluster import internals
from tests.documents.markdown import entries
from tests.support.groups_over_tcp import stable_group
from tests.support.soak import examples, soak
from tests.support.wire_client import WireClient


@soak
def test_starts_and_stops_leak_no_threads_and_files() -> None:
    with FakeCluster():
        pass
    gc.collect()
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for _ in range(examples(20, soak=2000)):
        with FakeCluster(brokers=3) as cluster, WireClient(cluster.brokers[0]) as wire:
            wire.ask(HeartbeatRequest(group_id="g", generation_id=0, member_id=""), HeartbeatResponse)
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_async_starts_and_stops_leak_no_tasks_and_files() -> None:
    async def main() -> None:
        tasks = trio.lowlevel.current_statistics().tasks_living
        for _ in range(20):
            async with FakeCluster(brokers=2) as cluster:
                stream = await trio.open_tcp_stream(cluster.brokers[0].host, cluster.brokers[0].port)
                await stream.aclose()
        assert trio.lowlevel.current_statistics().tasks_living == tasks

    descriptors = len(os.listdir("/proc/self/fd"))
    trio.run(main)
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_an_error_in_async_with_is_raised() -> None:
    async def main() -> None:
        async with FakeCluster(brokers=1):
            raise KeyError("mine")

    with pytest.raises(BaseException) as caught:  # noqa: PT011  # trio raises either the error or a group that contains it
        trio.run(main)
    assert isinstance(caught.value, KeyError) or caught.group_contains(KeyError)


def test_a_cluster_in_a_thread_can_be_used_within_trio() -> None:
    async def main() -> str:
        with FakeCluster(topics={"orders": 6}) as cluster:
            cluster.topic("more").create()
            return cluster.group("g").describe().state

    assert trio.run(main) == "Dead"


@pytest.mark.fake_cluster(topics={"orders": 6})
def test_views_of_groups_members_and_offsets(fake_cluster: FakeCluster) -> None:
    member_id = stable_group(fake_cluster, "g")
    group = fake_cluster.group("g").describe()
    assert (group.state, group.generation_id, group.protocol_type, group.protocol_name) == (
        "Stable", 1, "consumer", "range",
    )  # fmt: skip
    assert group.leader_id == member_id
    (member,) = group.members
    assert (member.client_id, member.client_host, member.instance_id, member.assignment) == (
        "app", "/127.0.0.1", None, b"all",
    )  # fmt: skip
    assert fake_cluster.groups() == [group]
    offsets = fake_cluster.group("g").offsets()
    assert {key: (offset.offset, offset.metadata) for key, offset in offsets.items()} == {("orders", 2): (42, "note")}
    assert fake_cluster.group("other").describe().state == "Dead"
    assert fake_cluster.group("other").offsets() == {}


@pytest.mark.fake_cluster(topics={"orders": 6})
def test_the_journal_records_requests_and_responses(fake_cluster: FakeCluster) -> None:
    stable_group(fake_cluster, "g")
    assert [call.api.name for call in fake_cluster.journal.requests()] == [
        "JoinGroup", "JoinGroup", "SyncGroup", "OffsetCommit",
    ]  # fmt: skip
    first, second = fake_cluster.journal.requests("JoinGroup", client_id="app")
    assert first.response.error_code == 79
    assert second.request.member_id == first.response.member_id
    assert second.answered_ms is not None
    assert second.answered_ms >= second.received_ms
    assert fake_cluster.journal.requests(client_id="nobody") == []
    with pytest.raises(ConfigError, match="api='Join': expected one of Produce, "):
        fake_cluster.journal.requests("Join")


def test_the_journal_drops_old_requests_above_its_limits() -> None:
    with FakeCluster(brokers=1, journal_calls=10) as cluster, WireClient(cluster.brokers[0]) as wire:
        for number in range(25):
            wire.ask(HeartbeatRequest(group_id="g", generation_id=number, member_id=""), HeartbeatResponse)
        assert [call.request.generation_id for call in cluster.journal.requests()] == list(range(15, 25))
    with FakeCluster(brokers=1, journal_bytes=10_000) as cluster, WireClient(cluster.brokers[0]) as wire:
        for number in range(25):
            wire.ask(HeartbeatRequest(group_id="g" * 300, generation_id=number, member_id=""), HeartbeatResponse)
        assert [call.request.generation_id for call in cluster.journal.requests()] == [22, 23, 24]


@pytest.mark.parametrize("journal", ["full", "headers"])
def test_a_request_that_exceeds_the_journal_alone_is_kept_without_messages(journal: Any) -> None:
    with (
        FakeCluster(brokers=1, journal=journal, journal_bytes=20_000) as cluster,
        WireClient(cluster.brokers[0]) as wire,
    ):
        for group_id in ("first", "g" * 5_000, "last"):
            wire.ask(HeartbeatRequest(group_id=group_id, generation_id=1, member_id="m"), HeartbeatResponse)
        first, large, last = cluster.journal.requests()
        assert (cluster.journal.dropped, large.request, large.response) == (0, None, None)
        assert (large.group_ids, large.member_ids, large.errors) == (("g" * 5_000,), ("m",), first.errors)
        assert cluster.journal.count(group="g" * 5_000) == 1
        assert (first.group_ids, last.group_ids) == (("first",), ("last",))


def test_equal_seeds_give_equal_ids() -> None:
    def ids(seed: int | None) -> tuple[str, str]:
        with FakeCluster(topics={"orders": 6}, seed=seed) as cluster:
            return internals(cluster).cluster.cluster_id, stable_group(cluster, "g")

    assert ids(7) == ids(7)
    assert len({ids(7), ids(8), ids(None)}) == 3


@pytest.mark.fake_cluster(first_node_id=0, topics={"orders": 3})
def test_node_ids_start_at_the_given_one(fake_cluster: FakeCluster) -> None:
    assert [broker.node_id for broker in fake_cluster.brokers] == [0, 1, 2]
    stable_group(fake_cluster, "g")
    coordinator = fake_cluster.group("g").coordinator().node_id
    for node_id in (0, coordinator):
        fake_cluster.broker(node_id).stop() if fake_cluster.brokers[node_id].up else None
    assert fake_cluster.group("g").coordinator().node_id not in (0, coordinator)
    assert fake_cluster.brokers.add(Broker(rack="b")).node_id == 3
    fake_cluster.broker(0).remove()
    fake_cluster.reset()
    assert [(broker.node_id, broker.up, broker.rack) for broker in fake_cluster.brokers] == [
        (0, True, None),
        (1, True, None),
        (2, True, None),
    ]
    fake_cluster.group("g").move_coordinator(0)
    assert fake_cluster.group("g").coordinator().node_id == 0


@pytest.mark.fake_cluster(brokers=[Broker(rack="a"), Broker(), Broker(rack="b")])
def test_brokers_have_their_racks_after_restarts_removal_and_restore(fake_cluster: FakeCluster) -> None:
    racks = [broker.rack for broker in fake_cluster.brokers]
    assert racks == ["a", None, "b"]
    snapshot = fake_cluster.snapshot()
    fake_cluster.broker(1).upgrade("2.8")
    assert fake_cluster.brokers[0].rack == "a"
    fake_cluster.broker(3).remove()
    fake_cluster.restore(snapshot)
    assert [broker.rack for broker in fake_cluster.brokers] == racks


def test_topics_are_created_and_invalid_ones_rejected(fake_cluster: FakeCluster) -> None:
    fake_cluster.topic("orders").create(4)
    fake_cluster.topic("first.orders").create()
    topic = internals(fake_cluster).cluster.topics.get("orders")
    assert topic is not None
    assert [partition.leader_id for partition in topic.partitions] == [1, 2, 3, 1]
    for name, partitions, why in [
        ("orders", 1, "topic='orders': expected a topic that does not exist yet"),
        ("a/b", 1, "expected a name of 1 to 249 characters"),
        ("..", 1, "expected a name of 1 to 249 characters"),
        ("new", 0, "topic 'new': partitions=0: expected an integer from 1 to 100000"),
        ("first_orders", 1, r"topic='first_orders': expected a name that differs from topic 'first\.orders' in more"),
    ]:
        with pytest.raises(ConfigError, match=why):
            fake_cluster.topic(name).create(partitions)


def test_a_topic_is_created_with_configs(fake_cluster: FakeCluster) -> None:
    fake_cluster.topic("t").create(configs={"cleanup.policy": "compact", "retention.ms": 1000, "preallocate": True})
    topic = internals(fake_cluster).cluster.topics.get("t")
    assert topic is not None
    assert topic.configs == {"cleanup.policy": "compact", "retention.ms": "1000", "preallocate": "true"}
    invalid: list[tuple[dict[str, Any], str]] = [
        ({"retention.mss": 1}, "configs.retention.mss=1: unknown topic config; expected one of .* 'retention.ms'?"),
        ({"cleanup.policy": "shred"}, "configs.cleanup.policy='shred': expected one of compact, delete"),
        ({"retention.ms": -2}, "configs.retention.ms=-2: expected -1 to 9223372036854775807"),
        ({"preallocate": "maybe"}, "configs.preallocate='maybe': expected true or false"),
        ({"min.compaction.lag.ms": 2, "max.compaction.lag.ms": 1}, "configs=.*: expected consistent configs: .* > "),
        ({"message.format.version": "2.8"}, "configs.message.format.version='2.8': unknown topic config"),
    ]
    for configs, why in invalid:
        with pytest.raises(ConfigError, match=why):
            fake_cluster.topic("other").create(configs=configs)
    assert internals(fake_cluster).cluster.topics.get("other") is None


INVALID_ARGUMENTS: list[tuple[dict[str, Any], str]] = [
    ({"first_node_id": -1}, "first_node_id=-1: expected an integer from 0 to 2147482647"),
    ({"first_node_id": "0"}, "first_node_id='0': expected an integer"),
    ({"first_use": "slow"}, "first_use='slow': expected one of ready, kafka"),
    (
        {"first_use": "kafka", "topics": {"__consumer_offsets": 1, "__transaction_state": 1}},
        "first_use='kafka': expected 'ready' with the topics __consumer_offsets and __transaction_state",
    ),
    ({"brokers": [Broker(rack="")]}, "rack=''"),
    (
        {"config": {"replica.selector.class": "RackAwareReplicaSelector"}},
        "replica.selector.class='RackAwareReplicaSelector': expected one of",
    ),
    ({"brokers": 0}, "brokers=0: expected an integer from 1 to 1000"),
    ({"config": {"group.max.sise": 1}}, "group.max.sise=1: unknown setting; .* did you mean 'group.max.size'"),
    ({"config": {"group.max.size": 0}}, "group.max.size=0: expected an integer from 1 to 2147483647"),
    ({"config": {"group.max.size": "many"}}, "group.max.size='many': expected an integer"),
    ({"config": {"auto.create.topics.enable": "maybe"}}, "expected true or false"),
    (
        {"config": {"group.min.session.timeout.ms": 10, "group.max.session.timeout.ms": 9}},
        "=10: expected an integer <= ",
    ),
    ({"topics": {"a": 0}}, "topic 'a': partitions=0: expected"),
    ({"topics": {"a": "6"}}, r"^topics\.a='6': expected an integer$"),
    ({"topics": ["a"]}, r"^topics=\['a'\]: expected a table \(such as {'orders': 6}\) or none$"),
    ({"topics": {1: 1}}, r"^topics: key 1: expected a string$"),
    ({"topics": {"a.b": 1, "a_b": 1}}, r"^topic='a_b': expected a name that differs from topic 'a\.b' in more than"),
    ({"brokers": ["2.8"]}, r"^brokers\[0\]='2\.8': expected a table \(such as {'as_version': '2\.8'}\)$"),
    ({"brokers": [{"release": "2.8"}]}, r"^brokers\[0\]\.release='2\.8': unknown field; expected one of as_version, "),
    ({"brokers": "3"}, r"^brokers='3': expected an integer or a list$"),
    ({"as_version": 2.8}, r"^as_version=2\.8: expected a string \(such as '2\.8'\) or none$"),
    (
        {"api_versions": {"FindCoordinator": 3}},
        r"^api_versions\.FindCoordinator=3: expected a list of 2 \(such as \(0, 3\)\) or none$",
    ),
    ({"api_versions": {3: (0, 1)}}, r"^api_versions: key 3: expected a string$"),
    ({"clock": 3}, r"^clock=3: expected one of real, manual or a table \(such as {'factor': 10}\)$"),
    ({"port": 65535, "brokers": 2}, "2 brokers: port=65535: expected an integer from 0 to 65534"),
]


def test_invalid_arguments_are_rejected(subtests: pytest.Subtests) -> None:
    for arguments, error in INVALID_ARGUMENTS:
        with subtests.test(**arguments), pytest.raises(ConfigError, match=error):
            FakeCluster(**arguments)


def test_keys_of_handles_have_the_right_types(subtests: pytest.Subtests) -> None:
    cluster, wrong = FakeCluster(), (4, b"g", None)
    uses: list[tuple[str, Callable[[Any], object]]] = [
        ("group_id", cluster.group),
        ("topic", cluster.topic),
        ("transactional_id", cluster.transaction),
    ]
    for name, use in uses:
        for value in wrong:
            error = f"^{name}={re.escape(repr(value))}: expected a string$"
            with subtests.test(error), pytest.raises(ConfigError, match=error):
                use(value)
    for number in ("1", 1.5, True, None):
        with subtests.test("node_id", value=number), pytest.raises(ConfigError, match=r"^node_id=.*: expected an int"):
            cluster.broker(number)  # type: ignore[arg-type]  # wrong on purpose
        with subtests.test("partition", value=number), pytest.raises(ConfigError, match=r"^partition=.*: expected an "):
            cluster.topic("orders").partition(number)  # type: ignore[arg-type]  # wrong on purpose


def test_an_unknown_argument_is_an_error_that_names_the_function(fake_cluster: FakeCluster) -> None:
    with pytest.raises(TypeError, match=r"^FakeCluster\(\) got an unexpected keyword argument 'topic': .* 'topics'\?$"):
        FakeCluster(topic={"orders": 6})  # type: ignore[call-arg]  # The name is wrong on purpose.
    with pytest.raises(TypeError, match=r"^topic.create_partitions\(\) missing a required argument: 'total'$"):
        fake_cluster.topic("orders").create_partitions()  # type: ignore[call-arg]  # An argument is missing on purpose.
    with pytest.raises(TypeError, match=r"^topic.create\(\) got an .* argument 'partition': .* 'partitions'\?$"):
        fake_cluster.topic("orders").create(partition=1)  # type: ignore[call-arg]  # The name is wrong on purpose.


@pytest.mark.fake_cluster(brokers=1)
def test_numbers_are_not_paths(fake_cluster: FakeCluster) -> None:
    for function in (fake_cluster.journal.export, read_journal):
        with pytest.raises(ConfigError, match=r"^path=1000: expected the path of a file$"):
            function(1000)  # type: ignore[arg-type]  # a common mistake
    with pytest.raises(ConfigError, match=r"^api=5: expected a string or none$"):
        fake_cluster.requested(5)  # type: ignore[arg-type]  # The type is wrong on purpose.


def test_filters_of_faults_have_the_right_types(fake_cluster: FakeCluster) -> None:
    with pytest.raises(ConfigError, match=r"^versions=3: expected a string \(such as '0-3'\) or none$"):
        fake_cluster.inject_fault("Heartbeat", drop=True, versions=3)
    with pytest.raises(ConfigError, match=r"^group=4: expected a string or none$"):
        fake_cluster.inject_fault("Heartbeat", drop=True, group=4)


def test_every_argument_is_documented(subtests: pytest.Subtests) -> None:
    methods = dict(inspect.getmembers(FakeCluster, inspect.isfunction))
    documented: dict[str, Callable[..., Any]] = {"FakeCluster": FakeCluster}
    documented |= {name: each for name, each in methods.items() if not name.startswith("_") and "_async" not in name}
    documented |= {name: getattr(each.handle, each.method.__name__) for name, each in DEFINITIONS.items()}
    for name in ("broker", "group", "topic", "transaction"):  # Their names say what their argument is.
        del documented[name]
    for name, method in documented.items():
        with subtests.test(method=name):
            parameters = [each for each in inspect.signature(method).parameters if each != "self"]
            assert list(entries(method, "Args")) == parameters


def test_brokers_may_be_dictionaries() -> None:
    cluster = FakeCluster([{"as_version": "2.8"}, {}])  # type: ignore[list-item]  # Dictionaries are converted.
    assert [str(broker.release) for broker in internals(cluster).cluster.brokers.values()] == ["2.8", str(NEWEST)]


def test_a_port_in_use_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ListenError, match=f"cannot listen on 127.0.0.1:{port}: the port is in use"):
            FakeCluster(brokers=1, port=port).__enter__()


def test_an_unknown_host_is_an_error() -> None:
    with pytest.raises(ListenError, match="cannot listen on"):
        FakeCluster(brokers=1, host="no.such.host.invalid").__enter__()


def test_clients_get_the_advertised_host() -> None:
    with FakeCluster(brokers=2, advertised_host="localhost") as cluster:
        assert [server.split(":")[0] for server in cluster.bootstrap_servers.split(",")] == ["localhost"] * 2


@pytest.mark.parametrize("host", ["localhost:9092", ""])
def test_an_advertised_host_is_not_empty_and_has_no_port(host: str) -> None:
    expected = f"^advertised_host='{host}': expected a host name or an IP address, without a port$"
    with pytest.raises(ConfigError, match=expected):
        FakeCluster(advertised_host=host)


def test_state_can_be_read_after_the_cluster_stopped() -> None:
    with FakeCluster(topics={"orders": 6}) as cluster:
        stable_group(cluster, "g")
    assert cluster.group("g").describe().state == "Stable"
    assert "g: Stable, generation 1" in cluster.report()
