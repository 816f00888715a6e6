"""Brokers and coordinators for the page: with loads and rates."""

from collections import Counter
from typing import TypedDict

from fakebroker.cluster.topics import TRANSACTIONS_TOPIC
from fakebroker.control.clusters import ServedCluster
from fakebroker.control.routes.operations import CLUSTER, operation
from fakebroker.control.routes.views.cluster_views import BrokerRow, broker_rows
from fakebroker.control.steps import Steps


class BrokerList(TypedDict):
    """All brokers, by node id."""

    brokers: list[BrokerRow]


@operation("GET", f"{CLUSTER}/brokers")
def list_brokers(served: ServedCluster) -> Steps[BrokerList]:
    """List all brokers."""
    counts = yield from served.index.counts()
    return {"brokers": broker_rows(served, served.rates(), counts)}


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


@operation("GET", f"{CLUSTER}/coordinators")
def list_coordinators(served: ServedCluster) -> CoordinatorList:
    """List the coordinators of all partitions of __consumer_offsets and __transaction_state."""
    core = served.core
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
