"""`Environment`: the interface through which commands cause side effects.

It covers the event loop, the clock, listeners and network conditions. `fakebroker.server.lifecycle` implements it with
sockets and real time, `fakebroker.replay.simulation.virtual_cluster` without sockets in virtual time.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Literal, Protocol, TypeVar

import msgspec

from fakebroker.cluster.broker import BrokerNode
from fakebroker.errors import ConfigError

T = TypeVar("T")

Accept = Literal["normal", "slow", "half_open", "refuse"]
"""How a broker accepts new connections; see `BrokerHandle.set_network`."""

MAX_ADVANCE_S = 1_000_000_000
"""The longest advance of a clock, in seconds: about thirty years."""


class NetworkConditions(msgspec.Struct, frozen=True):
    """The network between clients and one broker. All times are wall-clock time.

    Attributes:
        accept: How the broker accepts new connections.
        accept_delay_ms: With "slow", how long a new connection waits until its requests are read.
        round_trip_ms: Latency added to each response.
    """

    accept: Accept = "normal"
    accept_delay_ms: float = 0.0
    round_trip_ms: float = 0.0


class Environment(Protocol):
    """The side effects of commands, and the time. All methods are called by the methods of handles."""

    def run(self, step: Callable[[], T]) -> T:
        """Run one step of a command between two requests, then process all timers that are due.

        A step may call `run` again.
        """
        ...

    def now_ms(self) -> float:
        """Return the brokers' time in milliseconds since the Unix epoch."""
        ...

    def advance(self, seconds: float) -> None:
        """Advance the brokers' clock, and process all timers that are due.

        Raises:
            ConfigError: The clock cannot be advanced.
        """
        ...

    def closed_connections(self) -> str:
        """Return why brokers have closed connections, as text; "" if they have closed none."""
        ...

    def open_listener(self, broker: BrokerNode) -> None:
        """Accept connections for a broker, on its previous port if it had one. Sets its host and port.

        Raises:
            ListenError: The address or port is not available.
        """
        ...

    def close_listener(self, broker: BrokerNode, *, keep_port: bool) -> None:
        """Close a broker's listener and all of its connections, and reset its network conditions.

        Args:
            broker: The broker.
            keep_port: Whether the port stays reserved, and refuses connections, until the broker starts again.
        """
        ...

    def network_conditions(self, broker: BrokerNode) -> NetworkConditions:
        """Return the network conditions of a broker."""
        ...

    def set_network_conditions(self, broker: BrokerNode, conditions: NetworkConditions) -> None:
        """Change the network conditions of a broker that is up. Existing connections stay open."""
        ...

    def renew_certificates(self, *, expired: bool) -> None:
        """Give the listeners new certificates, for new connections; see `BrokersHandle.renew_certificates`.

        Raises:
            ConfigError: No listener has TLS, or the certificates cannot be used or made.
        """
        ...

    def replacing_brokers(self, brokers: Mapping[int, BrokerNode], *, cut_all: bool) -> AbstractContextManager[None]:
        """Return a context manager in which the brokers of the cluster are replaced, as by `restore` and `reset`.

        On entry, close the listeners of brokers that will be stopped or removed, and reset all network conditions. On
        exit, open the listeners of all brokers that are up.

        Args:
            brokers: The brokers that the cluster will have, by node id.
            cut_all: Whether to close all connections, not only those to brokers that will be stopped or removed.
        """
        ...


def no_tls_error() -> ConfigError:
    """Return the error if certificates cannot be renewed because there are none."""
    return ConfigError.missing("tls", "tls=True, or a listener with SSL or SASL_SSL, whose certificates can be renewed")


def random_uuids(random_bits: Callable[[int], int]) -> Callable[[], bytes]:
    """Return a function that returns version 4 UUIDs of 16 bytes, made from `random_bits(128)`."""

    def new_uuid() -> bytes:
        bits = random_bits(128) & ~(0xF000 << 64 | 0xC000 << 48) | 4 << 76 | 0x8000 << 48
        return bits.to_bytes(16, "big")

    return new_uuid
