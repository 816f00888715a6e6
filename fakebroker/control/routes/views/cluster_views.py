"""Clusters and brokers as JSON. Read-only; must run in the cluster's thread."""

from collections import Counter
from typing import TypedDict

import msgspec

from fakebroker.cluster.inspect.transaction_views import count_by_state
from fakebroker.cluster.inspect.views import BrokerView, GroupType
from fakebroker.control.clusters import ServedCluster
from fakebroker.control.stats.group_index import GROUP_STATES, Counts
from fakebroker.control.stats.rates import Rates
from fakebroker.control.steps import Steps
from fakebroker.server.clock import ManualClock, RealClock


class BrokerRow(BrokerView, frozen=True, kw_only=True):
    """One broker; `as_version` is the release of Kafka that it emulates, `offsets_partitions` those that it leads."""

    as_version: str
    connections: int
    groups: int
    members: int
    offsets_partitions: list[int]
    requests_per_s: float


class ClockView(TypedDict):
    """The brokers' clock: real, scaled or manual."""

    now_ms: float
    kind: str


class JournalSize(TypedDict):
    """The number of requests in the journal, and of those it has dropped."""

    size: int
    dropped: int


class ListenerRow(TypedDict):
    """A listener of all brokers, and `bootstrap.servers` for its clients."""

    name: str
    protocol: str
    bootstrap_servers: str


class Overview(TypedDict):
    """The state of a cluster; `waiting_markers` are markers of transactions that partitions cannot take yet."""

    name: str
    bootstrap_servers: str
    listeners: list[ListenerRow]
    seed: int
    clock: ClockView
    brokers: list[BrokerRow]
    groups_by_state: dict[str, int]
    groups_by_type: dict[GroupType, int]
    members: int
    transactions_by_state: dict[str, int]
    waiting_markers: int
    connections: int
    journal: JournalSize
    rates: Rates
    faults: int
    rebalances: int


def overview(served: ServedCluster) -> Steps[Overview]:
    """Return the current state of a cluster."""
    counts = yield from served.index.counts()
    core, rates = served.core, served.rates()
    return {
        "name": served.name,
        "bootstrap_servers": served.cluster.bootstrap_servers,
        "listeners": [
            {
                "name": each.name,
                "protocol": each.protocol,
                "bootstrap_servers": served.cluster.bootstrap_servers_of(each.name),
            }
            for each in core.listeners
        ],
        "seed": served.cluster.seed,
        "clock": clock_view(served),
        "brokers": broker_rows(served, rates, counts),
        "groups_by_state": dict(counts.by_state),
        "groups_by_type": {group_type: counts.count_of(group_type) for group_type in GROUP_STATES},
        "members": counts.members.total(),
        "transactions_by_state": dict(count_by_state(core)),
        "waiting_markers": len(core.transactions.waiting),
        "connections": len(served.server.reactor.connections.values()),
        "journal": {"size": len(core.journal), "dropped": core.journal.dropped},
        "rates": rates,
        "faults": core.faults.count(served.now_ms()),
        "rebalances": served.meter.rebalances.total(),
    }


def clock_view(served: ServedCluster) -> ClockView:
    """Return the brokers' clock."""
    clock = served.server.clock
    kind = "manual" if isinstance(clock, ManualClock) else "real" if isinstance(clock, RealClock) else "scaled"
    return {"now_ms": clock.now_ms(), "kind": kind}


def broker_rows(served: ServedCluster, rates: Rates, counts: Counts) -> list[BrokerRow]:
    """Return all brokers."""
    core = served.core
    connections = Counter(connection.broker.node_id for connection in served.server.reactor.connections.values())
    led: dict[int, list[int]] = {node_id: [] for node_id in core.brokers}
    for partition in core.topics.offsets_topic.partitions:
        led.setdefault(partition.leader_id, []).append(partition.index)
    request_rates = {rate["node_id"]: rate["requests_per_s"] for rate in rates["by_broker"]}
    return [
        BrokerRow(
            **msgspec.structs.asdict(BrokerView.of(broker)),
            as_version=str(broker.release),
            connections=connections[node_id],
            groups=len(broker.coordinator.groups.classic.values()) + len(broker.coordinator.groups.consumer),
            members=counts.members_at[node_id],
            offsets_partitions=led[node_id],
            requests_per_s=request_rates.get(node_id, 0.0),
        )
        for node_id, broker in core.brokers.items()
    ]
