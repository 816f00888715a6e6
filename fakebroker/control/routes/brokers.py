"""Brokers, topics and coordinators over HTTP."""

from collections import Counter
from collections.abc import Callable
from typing import TypedDict

import msgspec

from fakebroker.cluster.commands.cluster_commands import ClusterCommands
from fakebroker.cluster.commands.definition import Arguments, arguments_of
from fakebroker.cluster.emulation import Broker
from fakebroker.cluster.topics import TRANSACTIONS_TOPIC, Topic
from fakebroker.control.clusters import ServedCluster
from fakebroker.control.problems import Problem, not_found
from fakebroker.control.routes.operations import CLUSTER, Method, operation
from fakebroker.control.routes.views.cluster_views import BrokerRow, broker_rows
from fakebroker.control.steps import Steps, run as run_at_once
from fakebroker.errors import ConfigError
from fakebroker.server.fake_cluster import FakeCluster

BROKER = f"{CLUSTER}/brokers/{{node_id}}"
TOPIC = f"{CLUSTER}/topics/{{topic}}"


class BrokerList(TypedDict):
    """All brokers, by node id."""

    brokers: list[BrokerRow]


@operation("GET", f"{CLUSTER}/brokers")
def list_brokers(served: ServedCluster) -> Steps[BrokerList]:
    """List all brokers."""
    counts = yield from served.index.counts()
    return {"brokers": broker_rows(served, served.rates(), counts)}


@operation("POST", f"{CLUSTER}/brokers", status=201, body=Broker)
def add_broker(served: ServedCluster, body: Broker) -> BrokerRow:
    """Add a broker, on a free port."""
    return _row(served, served.cluster.add_broker(body).node_id)


def _row(served: ServedCluster, node_id: int) -> BrokerRow:
    """Return a broker.

    Raises:
        Problem: There is no such broker.
    """
    for row in broker_rows(served, served.rates(), run_at_once(served.index.counts())):
        if row.node_id == node_id:
            return row
    raise not_found("broker", node_id, f"one of {', '.join(map(str, served.cluster.cluster.brokers))}")


@operation("GET", BROKER)
def get_broker(served: ServedCluster, node_id: int) -> BrokerRow:
    """Get a broker."""
    return _row(served, node_id)


def _register_command(name: str, method: Method, path: str) -> None:
    """Register a method of `FakeCluster` that changes a broker as an operation."""
    command = getattr(FakeCluster, name)

    def run(served: ServedCluster, node_id: int, body: Arguments) -> BrokerRow:
        _row(served, node_id)
        command(served.cluster, node_id, **body.given())
        return _row(served, node_id)

    run.__name__, run.__doc__ = name, command.__doc__
    operation(method, path, body=arguments_of(getattr(ClusterCommands, name), "node_id"))(run)


_register_command("set_broker", "PATCH", BROKER)
_register_command("stop_broker", "POST", f"{BROKER}/stop")
_register_command("start_broker", "POST", f"{BROKER}/start")
_register_command("restart_broker", "POST", f"{BROKER}/restart")
_register_command("upgrade_broker", "POST", f"{BROKER}/upgrade")


@operation("DELETE", BROKER, status=204, body=arguments_of(ClusterCommands.remove_broker, "node_id"))
def remove_broker(served: ServedCluster, node_id: int, body: Arguments) -> None:
    """Remove a broker permanently; its replicas move to others."""
    _row(served, node_id)
    served.cluster.remove_broker(node_id, **body.given())


# Topics


class PartitionRow(TypedDict):
    """One partition; `leader` is -1 if there is none. A reassignment in progress adds and removes replicas."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    in_sync: list[int]
    adding: list[int]
    removing: list[int]
    log_start_offset: int
    log_end_offset: int


class TopicRow(TypedDict):
    """One topic."""

    name: str
    partitions: int
    is_internal: bool


class TopicDetail(TypedDict):
    """One topic with its partitions."""

    name: str
    partitions: list[PartitionRow]
    is_internal: bool


class TopicList(TypedDict):
    """All topics, in the order of their creation."""

    topics: list[TopicRow]


class PartitionCount(Arguments):
    """The new number of partitions of a topic."""

    partitions: int


@operation("GET", f"{CLUSTER}/topics")
def list_topics(served: ServedCluster) -> TopicList:
    """List all topics."""
    return {
        "topics": [
            {"name": each.name, "partitions": len(each.partitions), "is_internal": each.is_internal}
            for each in served.cluster.cluster.topics
        ]
    }


@operation("POST", f"{CLUSTER}/topics", status=201, body=arguments_of(ClusterCommands.create_topic))
def create_topic(served: ServedCluster, body: Arguments) -> TopicDetail:
    """Create a topic."""
    served.cluster.create_topic(**body.given())
    return _detail(served, _topic(served, body.given()["name"]))


def _topic(served: ServedCluster, name: str) -> Topic:
    topic = served.cluster.cluster.topics.get(name)
    if topic is None:
        raise not_found("topic", name, f"one of {', '.join(each.name for each in served.cluster.cluster.topics)}")
    return topic


def _detail(served: ServedCluster, topic: Topic) -> TopicDetail:
    core = served.cluster.cluster
    return {
        "name": topic.name,
        "partitions": [
            {
                "partition": each.index,
                "leader": each.leader_id,
                "leader_epoch": each.leader_epoch,
                "replicas": list(each.replicas),
                "in_sync": core.in_sync(each),
                "adding": list(each.adding),
                "removing": list(each.removing),
                "log_start_offset": each.log.log_start_offset,
                "log_end_offset": each.log.log_end_offset,
            }
            for each in topic.partitions
        ],
        "is_internal": topic.is_internal,
    }


@operation("GET", TOPIC)
def get_topic(served: ServedCluster, topic: str) -> TopicDetail:
    """Get a topic with its partitions."""
    return _detail(served, _topic(served, topic))


@operation("PATCH", TOPIC, body=PartitionCount)
def create_partitions(served: ServedCluster, topic: str, body: PartitionCount) -> TopicDetail:
    """Add partitions to a topic."""
    found = _topic(served, topic)
    try:
        served.cluster.create_partitions(topic, body.partitions)
    except ConfigError as error:
        if error.field != "total":
            raise
        raise ConfigError.of("partitions", error.value, error.expected or "", where=f"topic {topic!r}") from None
    return _detail(served, found)


@operation("DELETE", TOPIC, status=204)
def delete_topic(served: ServedCluster, topic: str) -> None:
    """Delete a topic with its records and committed offsets."""
    _topic(served, topic)
    served.cluster.delete_topic(topic)


# Coordinators


class CoordinatorRow(TypedDict):
    """One partition of __consumer_offsets, and so the coordinator of its groups; `leader` is -1 if there is none.

    `zombies` are the node ids of former coordinators that still respond.
    """

    partition: int
    leader: int
    epoch: int
    is_loading: bool
    zombies: list[int]
    groups: int
    members: int


class TransactionCoordinatorRow(TypedDict):
    """One partition of __transaction_state, and so the coordinator of its transactional ids; see `CoordinatorRow`."""

    partition: int
    leader: int
    epoch: int
    is_loading: bool
    zombies: list[int]
    transactions: int


class CoordinatorList(TypedDict):
    """All partitions of __consumer_offsets, and of __transaction_state if it exists."""

    offsets_partitions: list[CoordinatorRow]
    transaction_partitions: list[TransactionCoordinatorRow]


class Move(arguments_of(ClusterCommands.move_offsets_partition, "partition")):  # type: ignore[misc]  # generated from a method
    """The target of a move: of a group or a transactional id, with all others of its partition.

    `partition` is the number of a partition of __consumer_offsets.
    """

    transactional_id: str | msgspec.UnsetType = msgspec.UNSET
    group_id: str | msgspec.UnsetType = msgspec.UNSET
    partition: int | msgspec.UnsetType = msgspec.UNSET


@operation("GET", f"{CLUSTER}/coordinators")
def list_coordinators(served: ServedCluster) -> CoordinatorList:
    """List the coordinators of all partitions of __consumer_offsets and __transaction_state."""
    core = served.cluster.cluster
    transactions = Counter(each.partition for _, each in core.transactions.all())
    log = core.topics.get(TRANSACTIONS_TOPIC)
    moves = core.transactions.moves
    groups: dict[int, list[int]] = {}
    for broker in core.brokers.values():
        for group in broker.coordinator.groups:
            if core.offsets_partition(group.partition).leader_id == broker.node_id:
                groups.setdefault(group.partition, []).append(len(group.members))
    return {
        "offsets_partitions": [
            {
                "partition": each.index,
                "leader": each.leader_id,
                "epoch": each.leader_epoch,
                "is_loading": each.index in core.group_moves.loading,
                "zombies": core.group_moves.zombies(each.index),
                "groups": len(groups.get(each.index, ())),
                "members": sum(groups.get(each.index, ())),
            }
            for each in core.topics.offsets_topic.partitions
        ],
        "transaction_partitions": [
            {
                "partition": each.index,
                "leader": each.leader_id,
                "epoch": each.leader_epoch,
                "is_loading": each.index in moves.loading,
                "zombies": moves.zombies(each.index),
                "transactions": transactions[each.index],
            }
            for each in (() if log is None else log.partitions)
        ],
    }


@operation("POST", f"{CLUSTER}/coordinators/move", body=Move)
def move_coordinator(served: ServedCluster, body: Move) -> CoordinatorList:
    """Move a group, a transactional id, or all groups of a partition of __consumer_offsets, to another coordinator."""
    given = body.given()
    moves: dict[str, Callable[..., None]] = {
        "group_id": served.cluster.move_coordinator,
        "transactional_id": served.cluster.move_transaction_coordinator,
        "partition": served.cluster.move_offsets_partition,
    }
    named = [name for name in moves if name in given]
    if len(named) != 1:
        expected = f"one of {', '.join(moves)}"
        raise Problem(422, f"{', '.join(named or moves)}: expected {expected}", field="group_id", expected=expected)
    moves[named[0]](given.pop(named[0]), **given)
    return list_coordinators(served)


@operation("POST", f"{CLUSTER}/coordinators/finish_loading")
def finish_loading(served: ServedCluster) -> CoordinatorList:
    """Finish loading all coordinators that are loading."""
    served.cluster.finish_loading()
    return list_coordinators(served)


@operation("POST", f"{CLUSTER}/coordinators/stop_zombies")
def stop_zombies(served: ServedCluster) -> CoordinatorList:
    """Make all zombie coordinators resign."""
    served.cluster.stop_zombies()
    return list_coordinators(served)
