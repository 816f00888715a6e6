"""Kafka's command-line tools: each does something to a cluster, and prints it."""

import json
import subprocess
from typing import Any

import pytest

from fakebroker import FakeCluster
from fakebroker.cluster.topics import Partition
from fakebroker.server.fake_cluster import internals
from tests.support.kafka_clients.driver import KAFKA, client_jars, java
from tests.support.kafka_clients.helpers import numbered
from tests.support.kafka_clients.java_client import JavaProducer, run_tool

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("java", "javac", "mvn"),
    pytest.mark.fake_cluster(topics={"orders": 3}, config={"group.consumer.heartbeat.interval.ms": 100}),
]


def run(cluster: FakeCluster, main_class: str, *arguments: str, stdin: str = "") -> str:
    """Run a tool; return its output."""
    return run_tool(main_class, "--bootstrap-server", cluster.bootstrap_servers, *arguments, stdin=stdin)


def rows(output: str) -> list[list[str]]:
    """Return the words of each line of a table."""
    return [line.split() for line in output.splitlines() if line.strip()]


def events(output: str, name: str) -> list[dict[str, Any]]:
    """Return the events with a name, one per line, of a verifiable client."""
    found = [json.loads(line) for line in output.splitlines()]
    return [each for each in found if each["name"] == name]


def committed(cluster: FakeCluster, group_id: str) -> dict[tuple[str, int], int]:
    return {place: offset.offset for place, offset in cluster.group(group_id).offsets().items()}


def partitions(cluster: FakeCluster, topic: str) -> list[Partition]:
    found = internals(cluster).cluster.topics.find(topic, b"", by_id=False)
    assert found is not None
    return list(found.partitions)


def test_console_producer_and_console_consumer(fake_cluster: FakeCluster) -> None:
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    run(fake_cluster, "ConsoleProducer", "--topic", "orders", *keyed, stdin="a:1\nb:2\nc:3\n")
    found = [(each.key, each.value) for each in fake_cluster.topic("orders").records()]
    assert sorted(found) == [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]

    arguments = ("--topic", "orders", "--group", "console", "--from-beginning", "--max-messages", "3")
    printed = run(fake_cluster, "consumer.ConsoleConsumer", *arguments, "--formatter-property", "print.key=true")
    assert sorted(row for row in rows(printed) if len(row) == 2) == [["a", "1"], ["b", "2"], ["c", "3"]]
    assert "Processed a total of 3 messages" in printed
    assert sum(committed(fake_cluster, "console").values()) == 3
    assert fake_cluster.group("console").describe().state == "Empty"


def test_consumer_groups(fake_cluster: FakeCluster) -> None:
    tool = "consumer.group.ConsumerGroupCommand"
    fake_cluster.topic("orders").produce([b"a"] * 5, partition=0)
    fake_cluster.group("billing").seed(members=2, topics=["orders"], lag={"orders-0": 2})
    fake_cluster.group("idle").seed(members=0, topics=["orders"], lag={"orders-0": 2})

    assert sorted(rows(run(fake_cluster, tool, "--list", "--state"))[1:]) == [["billing", "Stable"], ["idle", "Empty"]]
    ((member, *_),) = [row[6:] for row in rows(run(fake_cluster, tool, "--describe", "--group", "billing"))[1:2]]
    assert member in {each.member_id for each in fake_cluster.group("billing").describe().members}
    described = rows(run(fake_cluster, tool, "--describe", "--group", "idle"))
    assert described[-1][:6] == ["idle", "orders", "0", "3", "5", "2"]
    members = rows(run(fake_cluster, tool, "--describe", "--group", "billing", "--members"))[1:]
    assert sorted(row[4] for row in members) == ["1", "2"]
    state = rows(run(fake_cluster, tool, "--describe", "--group", "billing", "--state"))[1]
    home = fake_cluster.group("billing").coordinator()
    assert state[1:3] == [f"{home.host}:{home.port}", f"({home.node_id})"]
    assert state[-2:] == ["Stable", "2"]

    to_earliest = ("--reset-offsets", "--group", "idle", "--topic", "orders", "--to-earliest", "--execute")
    assert rows(run(fake_cluster, tool, *to_earliest))[1:] == [
        ["idle", "orders", str(number), "0"] for number in range(3)
    ]
    assert committed(fake_cluster, "idle") == {("orders", number): 0 for number in range(3)}
    run(fake_cluster, tool, "--delete-offsets", "--group", "idle", "--topic", "orders:0")
    assert ("orders", 0) not in fake_cluster.group("idle").offsets()
    assert "was successful" in run(fake_cluster, tool, "--delete", "--group", "idle")
    assert [group.group_id for group in fake_cluster.groups()] == ["billing"]
    refused = run(fake_cluster, tool, "--delete", "--group", "billing")
    assert "GroupNotEmptyException" in refused


def test_topics(fake_cluster: FakeCluster) -> None:
    create = ("--create", "--topic", "new", "--partitions", "2", "--replication-factor", "3")
    assert "Created topic new." in run(fake_cluster, "TopicCommand", *create, "--config", "retention.ms=1000")
    run(fake_cluster, "TopicCommand", "--alter", "--topic", "new", "--partitions", "4")
    described = run(fake_cluster, "TopicCommand", "--describe", "--topic", "new")
    assert "PartitionCount: 4\tReplicationFactor: 3\tConfigs: min.insync.replicas=1,retention.ms=1000" in described
    leaders = [line.split("Leader: ")[1].split()[0] for line in described.splitlines()[1:]]
    assert leaders == [str(each.leader_id) for each in partitions(fake_cluster, "new")]
    run(fake_cluster, "TopicCommand", "--delete", "--topic", "new")
    assert rows(run(fake_cluster, "TopicCommand", "--list", "--exclude-internal")) == [["orders"]]


def test_configs(fake_cluster: FakeCluster) -> None:
    def configs(*arguments: str) -> str:
        return run(fake_cluster, "ConfigCommand", *arguments)

    topic = ("--entity-type", "topics", "--entity-name", "orders")
    configs("--alter", *topic, "--add-config", "retention.ms=5000,cleanup.policy=compact")
    configs("--alter", *topic, "--delete-config", "cleanup.policy")
    described = configs("--describe", *topic)
    assert "retention.ms=5000" in described
    assert "cleanup.policy" not in described
    group = ("--entity-type", "groups", "--entity-name", "billing")
    configs("--alter", *group, "--add-config", "consumer.session.timeout.ms=46000")
    assert "consumer.session.timeout.ms=46000" in configs("--describe", *group)
    user = ("--entity-type", "users", "--entity-name", "alice")
    configs("--alter", *user, "--add-config", "producer_byte_rate=1000")
    assert "producer_byte_rate=1000.0" in configs("--describe", *user)


@pytest.mark.fake_cluster(
    topics={"orders": 3},
    config={
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    },
)
def test_acls(fake_cluster: FakeCluster) -> None:
    grant = ("--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders", "--group", "billing")
    run(fake_cluster, "AclCommand", "--add", *grant)
    entry = "(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)"
    listed = run(fake_cluster, "AclCommand", "--list")
    assert listed.count(entry) == 2
    run(fake_cluster, "AclCommand", "--remove", "--force", "--topic", "orders")
    listed = run(fake_cluster, "AclCommand", "--list")
    assert listed.count(entry) == 1
    assert "resourceType=GROUP, name=billing" in listed


def test_transactions(fake_cluster: FakeCluster) -> None:
    tool = "TransactionsCommand"
    producer = JavaProducer(fake_cluster.bootstrap_servers, **{"transactional.id": "open"})
    producer.call("init")
    producer.call("begin")
    producer.produce("orders", numbered(range(1)))
    (record,) = fake_cluster.topic("orders").records()
    home = fake_cluster.transaction("open").describe()
    listed = rows(run(fake_cluster, tool, "list"))
    assert listed[1][0] == "open"
    assert listed[1][2:] == [str(home.producer_id), "Ongoing"]
    described = rows(run(fake_cluster, tool, "describe", "--transactional-id", "open"))[1]
    assert (described[1], described[-1]) == ("open", f"orders-{record.partition}")
    place = ("--topic", "orders", "--partition", str(record.partition))
    producers = rows(run(fake_cluster, tool, "describe-producers", *place))[1]
    assert (producers[0], producers[-1]) == (str(home.producer_id), str(record.offset))
    log = partitions(fake_cluster, "orders")[record.partition].log
    assert log.last_stable_offset == record.offset
    run(fake_cluster, tool, "abort", *place, "--start-offset", str(record.offset))
    assert log.last_stable_offset == record.offset + 2, "after the marker"
    producer.call("crash")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_verifiable_producer_and_verifiable_consumer(fake_cluster: FakeCluster, protocol: str) -> None:
    servers = ("--bootstrap-server", fake_cluster.bootstrap_servers)
    # A process of its own: it prints its results when Java ends.
    command = (
        java(),
        "-XX:TieredStopAtLevel=1",
        "-cp",
        f"{client_jars(KAFKA)}/*",
        "org.apache.kafka.tools.VerifiableProducer",
    )
    arguments = (*servers, "--topic", "orders", "--max-messages", "20", "--acks", "-1")
    produced = subprocess.run([*command, *arguments], capture_output=True, text=True, check=True).stdout
    sent = {(each["partition"], each["offset"]) for each in events(produced, "producer_send_success")}
    assert (len(sent), len(events(produced, "shutdown_complete"))) == (20, 1)
    assert sent == {(each.partition, each.offset) for each in fake_cluster.topic("orders").records()}

    arguments = ("--topic", "orders", "--group-id", "g", "--max-messages", "20", "--reset-policy", "earliest")
    consumed = run(fake_cluster, "VerifiableConsumer", *arguments, "--group-protocol", protocol)
    assert sum(each["count"] for each in events(consumed, "records_consumed")) == 20
    assert all(each["success"] for each in events(consumed, "offsets_committed"))
    assert sum(committed(fake_cluster, "g").values()) == 20
    assert fake_cluster.group("g").describe().state == "Empty"
    assert run(fake_cluster, "GroupsCommand", "--list").splitlines()[1].split() == ["g", protocol.title(), "consumer"]
