"""What the commands of a cluster need besides its state: turns of a loop, a clock, listeners and network conditions.

`fakebroker.server.lifecycle` implements it with sockets and real time, `fakebroker.replay.simulation` in virtual time.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar, get_args

from fakebroker.cluster.broker import BrokerNode

T = TypeVar("T")

Accept = Literal["normal", "slow", "half_open", "refuse"]
ACCEPTS: tuple[Accept, ...] = get_args(Accept)


@dataclass(frozen=True, slots=True)
class NetworkConditions:
    """The network between clients and one broker. All times are wall-clock time.

    Attributes:
        accept: How the broker takes new connections; see `ClusterCommands.set_broker`.
        accept_delay_ms: With "slow": how long a new connection waits until its requests are read.
        round_trip_ms: Latency added to each response.
    """

    accept: Accept = "normal"
    accept_delay_ms: float = 0.0
    round_trip_ms: float = 0.0


class Environment(Protocol):
    """Where a cluster runs."""

    def run(self, step: Callable[[], T]) -> T:
        """Run one step of a command between two requests, then everything that is due. Calls may be nested."""
        ...

    def now_ms(self) -> float:
        """Return the brokers' time: milliseconds since the Unix epoch."""
        ...

    def advance(self, seconds: float) -> None:
        """Advance the brokers' clock.

        Raises:
            ConfigError: The clock cannot be advanced.
        """
        ...

    def open_listener(self, broker: BrokerNode) -> None:
        """Accept connections for a broker, at the port that it had, if any; sets its host and port.

        Raises:
            ListenError: The address or port is not available.
        """
        ...

    def close_listener(self, broker: BrokerNode, *, keep_port: bool) -> None:
        """Close a broker's listener and all of its connections, and reset its network conditions.

        Args:
            broker: The broker.
            keep_port: Whether the port stays reserved, and refuses connections, until the broker is started again.
        """
        ...

    def network_conditions(self, broker: BrokerNode) -> NetworkConditions:
        """Return the network conditions of a broker."""
        ...

    def set_network_conditions(self, broker: BrokerNode, conditions: NetworkConditions) -> None:
        """Change the network conditions of a broker that is up; existing connections remain."""
        ...

    def replacing_brokers(self, brokers: Mapping[int, BrokerNode], *, cut_all: bool) -> AbstractContextManager[None]:
        """Adapt listeners while the brokers of the cluster are replaced, as `restore` and `reset` do.

        On entering, close the listeners of brokers that will be down or gone, and reset all network conditions; on
        leaving, open those of all brokers that are up.

        Args:
            brokers: The brokers that the cluster will have, by node id.
            cut_all: Whether all connections are closed, not only those to brokers that will be down or gone.
        """
        ...


def random_uuids(random_bits: Callable[[int], int]) -> Callable[[], bytes]:
    """Return a source of version 4 UUIDs, 16 bytes each, that are as reproducible as the random bits."""

    def new_uuid() -> bytes:
        bits = random_bits(128) & ~(0xF000 << 64 | 0xC000 << 48) | 4 << 76 | 0x8000 << 48
        return bits.to_bytes(16, "big")

    return new_uuid
