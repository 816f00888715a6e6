"""One running broker: its address, its release, its group coordinator and its fetch sessions. Plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fakebroker.cluster.listeners import Endpoint, Listener
from fakebroker.cluster.logs.fetch_sessions import FetchSessions
from fakebroker.coordinator.group_coordinator import Coordinator
from fakebroker.coordinator.transaction.coordinator import TransactionCoordinator
from fakebroker.protocol.registry import API_BY_KEY, Api
from fakebroker.protocol.releases import Release
from fakebroker.protocol.schema import Versions

if TYPE_CHECKING:
    from fakebroker.cluster.proposed_groups import ProposedCoordinator


@dataclass(slots=True, eq=False)
class BrokerNode:
    """One broker of a running cluster; `fakebroker.Broker` has the settings of a broker.

    A new field also needs a line in `snapshot._restored`.

    Attributes:
        node_id: Kafka's `broker.id`.
        host: The advertised host.
        port: The advertised port of its first listener; -1 before the broker listens.
        coordinator: Its group coordinator, which serves the partitions of __consumer_offsets that the broker leads.
        transaction_coordinator: Its transaction coordinator, which serves the partitions of __transaction_state.
        fetch_sessions: The fetch sessions of its clients (KIP-227).
        release: The Kafka release that the broker emulates.
        versions: The supported versions, by API key. An API that is missing is not supported.
        up: Whether the broker runs.
        rack: Its `broker.rack`; None if it has none.
        configs: The broker's dynamic configs, set by AlterConfigs.
        log_levels: Changed log levels; None for a logger whose level was removed. They end when the broker stops.
        registered: Whether the controller knows the broker; see UnregisterBroker.
        registered_as_controller: Whether it knows the node as a controller; see UnregisterController.
        stops: How often it has been stopped. Requests that were received before a stop are not handled after it.
        apis: The APIs that proposals have in place of Kafka's, by key and version.
        proposed: The coordinator of groups of a proposal; None if no proposal has its own.
        ports: The advertised ports by listener; empty if there is only one.
    """

    node_id: int
    host: str
    port: int
    coordinator: Coordinator
    transaction_coordinator: TransactionCoordinator
    fetch_sessions: FetchSessions
    release: Release
    versions: Mapping[int, Versions]
    up: bool = True
    rack: str | None = None
    configs: Mapping[str, str] = field(default_factory=dict)
    log_levels: Mapping[str, str | None] = field(default_factory=dict)
    registered: bool = True
    registered_as_controller: bool = True
    stops: int = 0
    apis: Mapping[tuple[int, int], Api] = field(default_factory=dict)
    proposed: "ProposedCoordinator | None" = None
    ports: Mapping[str, int] = field(default_factory=dict)

    def endpoint(self, listener: Listener) -> Endpoint:
        """Return the advertised address of a listener; of the first one if the broker has no listener of this name."""
        return Endpoint(self.host, self.ports.get(listener.name, self.port))

    def api(self, key: int, version: int) -> Api | None:
        """Return the API of a request, supported or not: the API of a proposal, else Kafka's."""
        return self.apis.get((key, version)) or API_BY_KEY.get(key)

    @property
    def groups(self) -> "Coordinator | ProposedCoordinator":
        """The coordinator whose groups move with the partitions of __consumer_offsets."""
        return self.coordinator if self.proposed is None else self.proposed
