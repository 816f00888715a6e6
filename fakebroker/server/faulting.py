"""What a test lets go wrong: faults that requests meet, and brokers that clients hardly reach."""

from dataclasses import replace
from types import TracebackType
from typing import Self, TypedDict, Unpack

from fakebroker.cluster.faults.injection import ActiveFault
from fakebroker.cluster.faults.rule import Fault
from fakebroker.errors import ConfigError, ErrorCode
from fakebroker.server.lifecycle import RunningCluster
from fakebroker.server.network_faults import ACCEPTS, Accept, Reach


class FaultOptions(TypedDict, total=False):
    """What is met and what goes wrong; see `fakebroker.cluster.faults.rule.Fault`."""

    versions: str | None
    broker: int | None
    client_id: str | None
    group: str | None
    member_id: str | None
    instance_id: str | None
    topic: str | None
    partition: str | None
    nth: int | None
    every: int | None
    probability: float | None
    after_s: float
    for_s: float | None
    times: int | None
    error: ErrorCode | str | None
    delay_s: float | tuple[float, float] | None
    drop: bool
    silent: bool
    stale: bool
    twice: bool
    cut_bytes: int | None
    garble_bytes: int | None
    throttle_time_ms: int | None
    handles: bool | None


class FaultHandle:
    """A fault in force. As a context manager it is removed at the end.

    Attributes:
        fault: What it does.
    """

    def __init__(self, cluster: "Faulting", rule: ActiveFault) -> None:
        self._cluster = cluster
        self._rule = rule
        self.fault = rule.fault

    @property
    def hits(self) -> int:
        """How many requests it did its work on."""
        return self._rule.hits

    def is_of(self, rule: ActiveFault) -> bool:
        """Whether this is the handle of a rule."""
        return self._rule is rule

    def remove(self) -> None:
        """End it; answers that it holds back still go out when they are due."""
        self._cluster.remove_fault(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<{self.fault!r}, {self.hits} hits>"


class Faulting(RunningCluster):
    """A cluster in which things go wrong on purpose."""

    def fail(self, api: str | None, **options: Unpack[FaultOptions]) -> FaultHandle:
        """Let requests meet a fault: `cluster.fail("OffsetCommit", group="g", error="NOT_COORDINATOR", times=2)`.

        Args:
            api: The API by Kafka's name; None is any.
            options: Which of its requests, and what goes wrong; see `fakebroker.cluster.faults.rule.Fault`.

        Raises:
            ConfigError: It can never do anything: the API, version, broker, error or name is none, or it contradicts
                itself.
        """
        return self.add_fault(Fault(api=api, **options))

    def add_fault(self, fault: Fault) -> FaultHandle:
        """Let requests meet a fault.

        Raises:
            ConfigError: As `fail` does.
        """
        return FaultHandle(self, self._call(lambda: self.cluster.faults.add(fault, self.clock.now_ms())))

    @property
    def faults(self) -> list[FaultHandle]:
        """The faults in force, in the order in which they were added; those that are used up, too."""
        return [FaultHandle(self, rule) for rule in self._call(lambda: list(self.cluster.faults.active))]

    def remove_fault(self, handle: FaultHandle) -> None:
        """End a fault, if it is still in force."""
        self._call(lambda: self.cluster.faults.remove(handle._rule))

    def clear_faults(self) -> None:
        """End all faults; answers that they hold back still go out when they are due."""
        self._call(lambda: self.cluster.faults.active.clear())

    def set_broker(
        self,
        node_id: int,
        *,
        accept: Accept | None = None,
        accept_delay_s: float | None = None,
        round_trip_s: float | None = None,
    ) -> None:
        """Change how clients reach a broker, until it is stopped; what is not given stays as it is.

        All of it goes by the clients' time.

        Args:
            node_id: The broker.
            accept: How it takes new connections. "normal": at once; "slow": it takes them up after
                `accept_delay_s` seconds; "half_open": it takes them, reads and never answers, also when others are
                taken normally again; "refuse": not at all. Connections that are there stay as they are.
            accept_delay_s: For "slow", more than 0.
            round_trip_s: So much later each of its answers comes, in order; 0 or more.

        Raises:
            ConfigError: There is no such broker, or it is down; or one of the values cannot be.
        """
        if accept is not None and accept not in ACCEPTS:
            raise ConfigError(f"accept={accept!r}: expected one of {', '.join(ACCEPTS)}")
        if (accept == "slow") != (accept_delay_s is not None and accept_delay_s > 0):
            expected = "accept='slow' with more than 0, and no delay else"
            raise ConfigError(f"accept_delay_s={accept_delay_s} with accept={accept!r}: expected {expected}")
        if round_trip_s is not None and round_trip_s < 0:
            raise ConfigError(f"round_trip_s={round_trip_s}: expected 0 or more")

        def change() -> None:
            broker = self.cluster.brokers.get(node_id)
            if broker is None or not broker.up:
                up = ", ".join(str(each.node_id) for each in self.cluster.brokers.values() if each.up)
                raise ConfigError(f"no broker {node_id} is up: expected one of {up}")
            reaches = self._reactor.detours.reach
            reach = reaches.get(node_id, Reach())
            if accept is not None:
                reach = replace(reach, accept=accept, accept_delay_ms=(accept_delay_s or 0.0) * 1000)
                self._refuse(broker, accept == "refuse")
            if round_trip_s is not None:
                reach = replace(reach, round_trip_ms=round_trip_s * 1000)
            reaches[node_id] = reach

        self._call(change)
