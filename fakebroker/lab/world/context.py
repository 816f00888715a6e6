"""What the parts of a run call of each other: the run, a broker and a member. `World`, `BrokerProcess` and
`MemberProcess` implement these interfaces.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Protocol, TypeVar

from fakebroker.lab.design import Coordinator, Design, Records
from fakebroker.lab.script import Script
from fakebroker.lab.world.ownership import Ownership
from fakebroker.proposals.consumer_rewrite.registry import Registry
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorResponse
from fakebroker.protocol.messages.metadata import MetadataResponse
from fakebroker.protocol.schema import Message
from fakebroker.replay.simulation.links import Links
from fakebroker.replay.simulation.scheduler import Scheduler

T = TypeVar("T")


class BrokerState(Enum):
    """UP: its process runs. STOPPED: its host refuses connections. VANISHED: its host does not answer."""

    UP = "up"
    STOPPED = "stopped"
    VANISHED = "vanished"


class MemberSide(Protocol):
    """The process of a member, as brokers use it.

    Attributes:
        number: Its number in the run.
        group_id: Its group.
        loses_response: Whether the next message from a broker breaks the connection.
    """

    number: int
    group_id: str
    loses_response: bool

    def plan(self) -> None:
        """Schedule the next deadline, or let the group rest."""

    def on_received(self, link: Any, message: Message) -> None:
        """A message has arrived."""

    def on_disconnected(self, link: Any) -> None:
        """A broker has closed a connection, or it could not be opened."""


class BrokerSide(Protocol):
    """The process of a broker, as members use it.

    Attributes:
        node_id: Its node id.
        state: Whether it runs.
        coordinator: Its coordinator, a new one for each start.
    """

    node_id: int
    state: BrokerState
    coordinator: Coordinator

    @property
    def is_up(self) -> bool:
        """Whether its process runs."""

    def accept(self, link: Any) -> None:
        """Open a connection at this side."""

    def receive(self, link: Any, message: Message) -> None:
        """A message has arrived."""

    def on_closed(self, link: Any) -> None:
        """The client has closed a connection, or its process has ended."""

    def plan(self) -> None:
        """Schedule the next deadline of the coordinator."""


class OffsetsTopicSide(Protocol):
    """The offsets topic, as brokers use it."""

    def append(self, node_id: int, partition: int, records: Records, done: Callable[[bool], None]) -> None:
        """Store records after the time of an append; see `CoordinatorPort.append`."""

    def partition_of(self, group_id: str) -> int:
        """Return the partition that has the records of a group."""


class IdleGroupsSide(Protocol):
    """The groups whose beats are skipped, as members use them."""

    def update(self, process: Any) -> bool:
        """Let the group of a member rest if possible; return whether the member is resting."""


class Run(Protocol):
    """One run, as its brokers and members use it.

    Attributes:
        design, script: What is run.
        scheduler, links: The virtual time and network.
        partition_counts: By topic.
        group_configs: See `CoordinatorPort.group_config`, by group id and name.
        ownership: The owners of partitions.
    """

    design: Design
    script: Script
    scheduler: Scheduler
    links: Links
    partition_counts: dict[str, int]
    group_configs: Mapping[str, Mapping[str, int]]
    ownership: Ownership

    @property
    def brokers(self) -> Mapping[int, BrokerSide]:
        """The brokers by node id."""

    @property
    def offsets_topic(self) -> OffsetsTopicSide:
        """The offsets topic."""

    @property
    def idle_groups(self) -> IdleGroupsSide:
        """The groups whose beats are skipped."""

    def now_ms(self) -> float:
        """Return the virtual time, in milliseconds since the Unix epoch."""

    def new_id(self) -> str:
        """Return a random UUID."""

    def next_link_number(self) -> int:
        """Return the number of the next connection."""

    def requested(self, node_id: int) -> None:
        """Count a request that a broker has received."""

    def sent(self, member: Any, message: Message, node_id: int, *, to_member: bool) -> None:
        """Count a message between a member and a broker."""

    def heard(self, member: Any, link: Any) -> None:
        """A member has received a message over a connection."""

    def identified(self, member: Any, member_id: str) -> None:
        """A member has reported its id."""

    def expelled(self, group_id: str, member_id: str) -> None:
        """A coordinator has removed a member that seemed to have failed."""

    def assignment_changed(self, member: Any) -> None:
        """A member has reported its partitions."""

    def failed(self, member: Any, why: str) -> None:
        """A member has stopped because of an error."""

    def access_registry(self, operation: Callable[[Registry[Any]], T], done: Callable[[T], None]) -> None:
        """Run an operation on the registry after half a round trip; `done` gets the result after the other half."""

    def coordinator_found(self, group_id: str) -> tuple[FindCoordinatorResponse, int | None]:
        """Return the response to a look-up of a coordinator, and the coordinator's node id."""

    def metadata_found(self) -> tuple[MetadataResponse, dict[str, int]]:
        """Return the response to a look-up of metadata, and the partition counts."""
