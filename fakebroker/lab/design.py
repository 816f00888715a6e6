"""What a design of group coordination consists of: a member, a coordinator, and the messages between them.

A design is pure: its objects are called with messages, deadlines and the time, and act through a port. `world` has the
ports of a simulation in virtual time. Does not depend on sockets or clocks.

`now_ms` is the current time in milliseconds since the Unix epoch, in all methods.
"""

from collections.abc import Callable, Collection, Hashable, Mapping
from math import inf
from typing import Any, Protocol, TypeVar

import msgspec

from fakebroker.client.member.member_settings import MemberSettings
from fakebroker.proposals.consumer_rewrite.registry import Registry
from fakebroker.protocol.schema import Message
from fakebroker.topic_partition import TopicPartition

T = TypeVar("T")

Records = Mapping[Hashable, Any]
"""Records of an offsets partition by key, oldest first; only the last record of a key is kept. None deletes a key."""


class Link(Protocol):
    """A connection of a member to a broker. Both sides use it as a key; messages in one direction arrive in order.

    Attributes:
        node_id: The broker.
        number: Unique in a simulation, in the order of connecting.
    """

    @property
    def node_id(self) -> int: ...

    @property
    def number(self) -> int: ...


class CoordinatorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the coordinators, for all designs. Each design ignores those that it has no use for.

    Attributes:
        offsets_partitions: Number of partitions of the offsets topic.
        initial_rebalance_delay_ms: Kafka's `group.initial.rebalance.delay.ms`.
        max_session_timeout_ms: Members with longer session timeouts are rejected.
        rebalancer_threads: Threads that run the rebalances of one coordinator (options 1.b and 1.c).
        rebalance_phase_timeout_ms: How long a rebalancer waits for the responses of one phase (options 1.b and 1.c).
        expired_heartbeats: After this number of heartbeats in a row without a response a consumer has failed (option
            1.b).
    """

    offsets_partitions: int = 50
    initial_rebalance_delay_ms: int = 3_000
    max_session_timeout_ms: int = 1_800_000
    rebalancer_threads: int = 4
    rebalance_phase_timeout_ms: int = 10_000
    expired_heartbeats: int = 1


class Beat(msgspec.Struct, frozen=True):
    """A message that a member and its coordinator repeat while nothing changes, with its response.

    Attributes:
        due_ms: When it is sent next. If the coordinator sends it, `Coordinator.next_beats` counts instead.
        period_ms: Time from one to the next.
        request, response: Samples, for their sizes.
        is_from_coordinator: Whether the coordinator sends it, and the member responds.
        is_commit: Whether it commits the member's positions.
    """

    due_ms: float
    period_ms: float
    request: Message
    response: Message
    is_from_coordinator: bool = False
    is_commit: bool = False


class Idle(msgspec.Struct, frozen=True):
    """A member that only repeats beats.

    Attributes:
        beats: The repeated beats.
        until_ms: When it has something else to do; infinite if never.
    """

    beats: tuple[Beat, ...]
    until_ms: float = inf


class MemberPort(Protocol):
    """What a member can do.

    Attributes:
        metadata_max_age_ms: Kafka's `metadata.max.age.ms`: how often members that rely on metadata refresh it.
    """

    metadata_max_age_ms: float

    def find_coordinator(self) -> None:
        """Ask a broker for the coordinator of the group; `Member.found` is called with the answer."""

    def fetch_metadata(self) -> None:
        """Ask a broker for the partition counts of all topics; `Member.metadata` is called with them."""

    def connect(self, node_id: int) -> Link:
        """Start to connect to a broker; then `connected` or `disconnected` is called."""

    def send(self, link: Link, message: Message) -> None:
        """Send a message; it is lost if the connection is."""

    def close(self, link: Link) -> None:
        """Close a connection; `disconnected` is not called."""

    def assigned(self, partitions: Mapping[TopicPartition, int | None]) -> None:
        """Own exactly these partitions from now on, possibly none, as the result of a completed rebalance.

        Args:
            partitions: The offset at which to start. None: continue at the present position, or, for a partition that
                the member did not own, consume nothing until another call with an offset.
        """

    def stopped(self, keep: Collection[TopicPartition] = ()) -> None:
        """Own only these partitions, until the next call of `assigned` ends the rebalance."""

    def positions(self) -> dict[TopicPartition, int]:
        """Return the offsets after the last consumed records of the owned partitions."""

    def identified(self, member_id: str) -> None:
        """Report the id by which the coordinator knows the member, each time it changes."""

    def new_id(self) -> str:
        """Return a unique id."""

    def failed(self, why: str) -> None:
        """The member has stopped because of an error that it cannot handle."""


class Member(Protocol):
    """One consumer of a group, created when it starts. A crash is not a call: the object is dropped."""

    def start(self, now_ms: float) -> None: ...

    def leave(self, now_ms: float) -> None:
        """Leave the group in the way that the design has for it, without waiting for responses."""

    def found(self, node_id: int | None, now_ms: float) -> None:
        """The answer to `find_coordinator`: the coordinator; None if there is none, or if no broker has answered."""

    def metadata(self, partition_counts: Mapping[str, int], now_ms: float) -> None:
        """The answer to `fetch_metadata`: the partition counts by topic."""

    def connected(self, link: Link, now_ms: float) -> None: ...

    def disconnected(self, link: Link, now_ms: float) -> None:
        """The broker has closed a connection, or it could not be opened."""

    def received(self, link: Link, message: Message, now_ms: float) -> None: ...

    def next_deadline(self) -> float:
        """Return when `tick` is due; infinite without deadlines."""

    def tick(self, now_ms: float) -> None: ...

    def idle(self) -> Idle | None:
        """Return what the member repeats; None if it does not only repeat beats, or if a response is pending."""

    def beats_skipped(self, beat: Beat, next_due_ms: float, last_ms: float) -> None:
        """Beats were exchanged without calls of this object, and all succeeded.

        Args:
            beat: The beat, as returned by `idle`.
            next_due_ms: When it is due next.
            last_ms: When the member received the last message of it.
        """


class CoordinatorPort(Protocol):
    """What the coordinator of one broker can do.

    Attributes:
        node_id: The broker.
    """

    node_id: int

    def reply(self, link: Link, message: Message) -> None:
        """Answer the oldest request of a connection that has no answer yet."""

    def send(self, link: Link, message: Message) -> None:
        """Send a message that is not the answer to a request."""

    def close(self, link: Link) -> None:
        """Close a connection; `disconnected` is not called."""

    def append(self, partition: int, records: Records, done: Callable[[bool], None]) -> None:
        """Append records to an offsets partition; `done` is called with whether they are stored.

        They are not if this broker no longer leads the partition. A broker that stops before `done` loses them.
        """

    def store(self, partition: int, records: Records) -> None:
        """Append records to an offsets partition, for a coordinator that does not wait for them.

        The replies to members of the partition's groups are held until the records are stored. If this broker no longer
        leads the partition then, or has stopped, the replies are dropped.
        """

    def access(self, operation: Callable[[Registry[Any]], T], done: Callable[[T], None]) -> None:
        """Run an operation on the registry; `done` is called with its result after a round trip."""

    def partition_counts(self) -> Mapping[str, int]:
        """Return the partition counts by topic, as this broker knows them."""

    def group_config(self, group_id: str, name: str) -> int | None:
        """Return a config of a group in milliseconds, for designs in which the broker has the settings of members.

        Args:
            group_id: The group.
            name: `consumer.session.timeout.ms` or `consumer.heartbeat.interval.ms`.
        """

    def now_ms(self) -> float:
        """Return the present time, which callbacks of `append` and `access` do not get as an argument."""

    def new_id(self) -> str:
        """Return a unique id."""

    def expelled(self, group_id: str, member_id: str) -> None:
        """Report that a member was removed from its group because it seemed to have failed.

        Args:
            group_id: The group.
            member_id: As in `MemberPort.identified`; the member may learn it later.
        """


class Coordinator(Protocol):
    """The coordinator of one broker, created when the broker starts. It coordinates the groups of the partitions of the
    offsets topic that the broker leads.
    """

    def elected(self, partition: int, now_ms: float) -> None:
        """The broker leads an offsets partition now; its records are being loaded."""

    def loaded(self, partition: int, records: Records, now_ms: float) -> None:
        """The records of a partition are loaded."""

    def topics_changed(self, now_ms: float) -> None:
        """`partition_counts` returns other counts than before."""

    def received(self, link: Link, message: Message, now_ms: float) -> None:
        """A message of a member has arrived. Requests of one connection arrive one by one, after each `reply`, if the
        design is `has_replies`."""

    def disconnected(self, link: Link, now_ms: float) -> None:
        """A member has closed its connection, or its process has ended."""

    def next_deadline(self) -> float:
        """Return when `tick` is due; infinite without deadlines."""

    def tick(self, now_ms: float) -> None: ...

    def is_steady(self, group_id: str, links: int) -> bool:
        """Return whether a group has this number of members, and all of them only repeat beats."""

    def next_beats(self, group_id: str) -> Mapping[Link, float]:
        """Return when the next beat is sent to each member of a steady group; empty if members send all beats."""

    def rest(self, group_id: str) -> None:
        """Suspend the failure detection of a steady group: its beats are exchanged without calls of this object."""

    def wake(self, group_id: str, last_ms: Mapping[Link, float]) -> None:
        """Resume the failure detection of a group.

        Args:
            group_id: The group.
            last_ms: For each member, when its last beat arrived; when it was sent, if the coordinator sends the beats.
        """


def _never(message: Message) -> bool:
    return False


class Design(msgspec.Struct, frozen=True, kw_only=True):
    """A design of group coordination.

    Attributes:
        name: Its name in commands and reports.
        summary: Its description, in one line.
        member: Makes a member.
        coordinator: Makes the coordinator of a broker.
        has_replies: Whether a broker reads the next request of a connection only after `CoordinatorPort.reply`.
        beats: The classes of messages that are repeated while nothing changes. Other messages mark a rebalance.
        is_change: Whether a message of these classes marks a rebalance, too.
        guarantees: The invariants that it promises, by their names in `invariants.INVARIANTS`.
    """

    name: str
    summary: str
    member: Callable[[MemberSettings, MemberPort], Member]
    coordinator: Callable[[CoordinatorSettings, CoordinatorPort], Coordinator]
    has_replies: bool = True
    beats: frozenset[type[Message]] = frozenset()
    is_change: Callable[[Message], bool] = _never
    guarantees: frozenset[str] = frozenset()

    def is_beat(self, message: Message) -> bool:
        """Return whether a message is repeated while nothing changes."""
        return type(message) in self.beats and not self.is_change(message)
