"""Limits of connections: their number by broker, listener and address, the rate of new ones, and idle connections.

Kafka's settings, with its meaning (ConnectionQuotas, Selector.IdleExpiryManager). All times are real time, also with a
manual clock: the rate of new connections and idleness are properties of clients. Does not depend on sockets.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from heapq import nsmallest
from math import inf

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.configs.listener_settings import LISTENER_PREFIX, MAX_CONNECTION_RATE, MAX_CONNECTIONS
from fakebroker.cluster.configs.settings import MAX_CONNECTIONS_PER_IP, MAX_IDLE, SETTINGS
from fakebroker.cluster.listeners import Listener
from fakebroker.cluster.quotas import WINDOW_MS, Rate
from fakebroker.coordinator.timers import Rank, TimedValue, Timers
from fakebroker.server.connections.connection import Connection, client_host

RETRY_MS = 100
"""How often a listener that does not accept connections tries again, because limits may have been changed."""

_LOOPBACK = (client_host("127.0.0.1"), client_host("::1"))
_UNLIMITED = SETTINGS[MAX_CONNECTIONS].default
_CHECKS = 16
"""How often idle connections are looked for within the time after which they are closed, at most."""


class ConnectionLimits:
    """Counts the connections of one cluster, and selects the connections that exceed a limit.

    If brokers have several listeners, their listener PLAINTEXT is for connections between brokers
    (`inter.broker.listener.name`). It accepts connections beyond the broker's `max.connections`: a connection to
    another listener is closed instead.

    Args:
        cluster: The cluster.
        close_idle: Called with the time when there may be idle connections; it calls `idle`.
    """

    def __init__(self, cluster: Cluster, close_idle: Callable[[float], None]) -> None:
        self._cluster = cluster
        self._next_check = TimedValue("idle connections")
        self._timers: Timers[TimedValue[str]] = cluster.wire_timers.service(
            Rank.NETWORK, lambda timer, due_ms, now_ms: close_idle(now_ms), 1
        )
        self._idle_ms = cluster.config.number(MAX_IDLE)
        # By node id, with the name of a listener, the address of a client, or "" for all.
        self._counts: Counter[tuple[int, str]] = Counter()
        self._rates: dict[tuple[int, str], Rate] = {}

    @property
    def next_check_ms(self) -> float:
        """When to look for idle connections; infinite without connections."""
        return self._next_check.scheduled_ms

    def wait_ms(self, broker: BrokerNode, listener: Listener, now_ms: float) -> float:
        """Return 0 if a connection to a listener may be accepted now, or else after what time to ask again."""
        node_id, prefix = broker.node_id, f"{LISTENER_PREFIX}{listener.name.lower()}."
        shared = [""] if not self._is_protected(listener) else []
        if self._counts[node_id, listener.name] >= self._limit(broker, prefix + MAX_CONNECTIONS):
            return RETRY_MS
        if shared and self._counts[node_id, ""] >= self._limit(broker, MAX_CONNECTIONS):
            return RETRY_MS
        limits = {name: self._limit(broker, name + MAX_CONNECTION_RATE) for name in [*shared, prefix]}
        limited = [name for name, limit in limits.items() if limit != _UNLIMITED]
        return max((self._rate_wait_ms(node_id, name, limits[name], now_ms) for name in limited), default=0)

    def _rate_wait_ms(self, node_id: int, name: str, limit: int, now_ms: float) -> float:
        """Return for how long the rate would be too high with one more connection."""
        rate = self._rates.setdefault((node_id, name), Rate())
        rate.record(1, now_ms)
        wait_ms = rate.throttle_ms(limit, now_ms) if limit else WINDOW_MS
        rate.record(-1, now_ms)
        return min(WINDOW_MS, wait_ms)

    def opened(self, connection: Connection, now_ms: float) -> str | None:
        """Count a connection. Return why it must be closed at once; None if it may stay."""
        broker, host = connection.broker, connection.client_host
        for name in ("", connection.listener.name, host):
            self._counts[broker.node_id, name] += 1
        for name in ("", f"{LISTENER_PREFIX}{connection.listener.name.lower()}."):
            if (broker.node_id, name) in self._rates:
                self._rates[broker.node_id, name].record(1, now_ms)
        connection.active_ms = now_ms
        if self.next_check_ms == inf and self._idle_ms >= 0:
            self._timers.schedule(self._next_check, now_ms + self._idle_ms)
        limit = self._limit_of_address(broker, host)
        if self._counts[broker.node_id, host] > limit:
            return f"more than {limit} connections from its address ({MAX_CONNECTIONS_PER_IP})"
        return None

    def closed(self, connection: Connection) -> None:
        """Count a connection no longer."""
        for name in ("", connection.listener.name, connection.client_host):
            key = connection.broker.node_id, name
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]

    def excess(self, broker: BrokerNode, connections: Iterable[Connection]) -> list[Connection]:
        """Return the connections to close because a broker has more than its limit, the least recently used first.

        As in Kafka (Processor.closeExcessConnections), only `max.connections` of the whole broker closes connections
        that were accepted. The limits of a listener and of a client's address apply only to new connections.
        """
        number = self._counts[broker.node_id, ""] - self._limit(broker, MAX_CONNECTIONS)
        if number <= 0:
            return []
        others = (
            each
            for each in connections
            if each.broker.node_id == broker.node_id and not self._is_protected(each.listener)
        )
        return nsmallest(number, others, key=_last_active_ms)

    def idle(self, connections: Iterable[Connection], now_ms: float) -> list[Connection]:
        """Return the connections that have been idle for too long, the least recently used first.

        A request that waits for its response does not keep a connection from being idle, as in Kafka.
        """
        by_time = sorted((_last_active_ms(each), each.connection_id, each) for each in connections)
        since_ms = now_ms - self._idle_ms
        idle = [each for active_ms, _, each in by_time if active_ms <= since_ms]
        self._timers.cancel(self._next_check)
        if len(idle) < len(by_time):
            soonest_ms = now_ms + self._idle_ms / _CHECKS
            self._timers.set(self._next_check, max(soonest_ms, by_time[len(idle)][0] + self._idle_ms))
        return idle

    def _is_protected(self, listener: Listener) -> bool:
        return listener.name == "PLAINTEXT" and len(self._cluster.listeners) > 1

    def _limit(self, broker: BrokerNode, name: str) -> int:
        """Return the value of a limit, which may be changed while the broker runs."""
        for configs in (broker.configs, self._cluster.broker_configs):
            if name in configs:
                return int(configs[name])
        config = self._cluster.config
        if name.startswith(LISTENER_PREFIX) and name not in config.overrides:
            return int(_UNLIMITED or 0)
        return config.number(name)

    def _limit_of_address(self, broker: BrokerNode, host: str) -> int:
        name = f"{MAX_CONNECTIONS_PER_IP}.overrides"
        overrides = broker.configs.get(name, self._cluster.broker_configs.get(name, self._cluster.config.text(name)))
        for item in (overrides or "").split(","):
            address, _, number = item.strip().rpartition(":")
            hosts = _LOOPBACK if address == "localhost" else (f"/{address}", _normalized(address))
            if address and host in hosts:
                return int(number)
        return self._limit(broker, MAX_CONNECTIONS_PER_IP)


def _normalized(address: str) -> str:
    """Return an address as `Connection.client_host`, or "" if it is none."""
    try:
        return client_host(address)
    except ValueError:
        return ""


def _last_active_ms(connection: Connection) -> float:
    return max(connection.active_ms, connection.read_ms)
