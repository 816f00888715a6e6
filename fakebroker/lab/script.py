"""What happens in one run of the lab: groups, their members, and the events of members, brokers and topics. Plain data.

The same script is run with each design. Times are in milliseconds from the start of the run.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from fakebroker.lab.design import CoordinatorSettings

MemberDo = Literal["start", "leave", "crash", "vanish", "pause", "slow", "cut", "lose_request", "lose_response"]
"""Events of a member:

- start: its process starts, for the first time or again.
- leave: it leaves the group, and its process ends.
- crash: its process ends, and its connections are closed.
- vanish: its host is gone; its connections are not closed.
- pause: its process does nothing for `for_ms`, as in a garbage collection.
- slow: its messages take `extra_ms` longer for `for_ms`.
- cut: its connections break.
- lose_request, lose_response: its connection breaks while the next request, or message from the coordinator, is on the
  way.
"""

BrokerDo = Literal["start", "stop", "vanish"]
"""Events of a broker: its process starts; its process stops and its connections are closed; its host is gone."""


class MemberEvent(msgspec.Struct, frozen=True):
    """An event of one member; see `MemberDo`."""

    at_ms: float
    member: int
    do: MemberDo
    for_ms: float = 0.0
    extra_ms: float = 0.0


class BrokerEvent(msgspec.Struct, frozen=True):
    """An event of one broker; see `BrokerDo`."""

    at_ms: float
    node_id: int
    do: BrokerDo


class TopicEvent(msgspec.Struct, frozen=True):
    """A topic is created, or gets more partitions."""

    at_ms: float
    topic: str
    partitions: int


class GroupPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A group and its members.

    Attributes:
        group_id: The group.
        topics: The topics to which all members subscribe.
        members: The numbers of the members, consecutive in a run; each is started by an event.
        session_timeout_ms, heartbeat_interval_ms, rebalance_timeout_ms, commit_interval_ms, retry_backoff_ms, assignor:
            Settings of its members; see `client.member.member_settings.MemberSettings`.
    """

    group_id: str
    topics: tuple[str, ...]
    members: range
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    rebalance_timeout_ms: int = 300_000
    commit_interval_ms: int = 5_000
    retry_backoff_ms: int = 100
    assignor: str = "range"

    @property
    def configs(self) -> Mapping[str, int]:
        """Its session timeout and heartbeat interval under Kafka's names of configs of groups."""
        return {
            "consumer.session.timeout.ms": self.session_timeout_ms,
            "consumer.heartbeat.interval.ms": self.heartbeat_interval_ms,
        }


class ClusterPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The brokers, the network, and how long things take.

    Attributes:
        brokers: Number of brokers; their node ids start at 1.
        topics: Partition counts by name.
        coordinator: Settings of the coordinators.
        latency_ms: The time of a message from one side to the other.
        connect_timeout_ms: After this time a member gives up connecting to a host that is gone.
        request_timeout_ms: After this time a look-up of a coordinator or of metadata without an answer is repeated at
            another broker.
        append_ms: The time of an append to the offsets topic, until it is replicated.
        registry_ms: The time of an operation of the registry, there and back.
        detect_ms: The time after which the controller notices that a broker's host is gone.
        elect_ms: The time from noticing that a broker is gone to new leaders of its partitions.
        propagate_ms: The time after an election until other brokers return the new coordinators.
        load_ms: The time to load an offsets partition.
        load_ms_per_group: The time to load each group in it.
        records_per_s: Records that are produced to each partition.
        metadata_max_age_ms: How often members refresh metadata, if their design relies on it.
    """

    brokers: int = 3
    topics: Mapping[str, int] = msgspec.field(default_factory=dict)
    coordinator: CoordinatorSettings = msgspec.field(default_factory=CoordinatorSettings)
    latency_ms: float = 0.5
    connect_timeout_ms: float = 10_000
    request_timeout_ms: float = 30_000
    append_ms: float = 2.0
    registry_ms: float = 5.0
    detect_ms: float = 9_000
    elect_ms: float = 50.0
    propagate_ms: float = 20.0
    load_ms: float = 100.0
    load_ms_per_group: float = 0.05
    records_per_s: float = 100.0
    metadata_max_age_ms: float = 300_000


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """One run.

    Attributes:
        cluster: The cluster.
        groups: The groups.
        events: The events of members, brokers and topics, ordered by time.
        duration_ms: When the run ends.
        seed: The seed of all ids and random choices in the run.
    """

    cluster: ClusterPlan
    groups: tuple[GroupPlan, ...]
    events: tuple[MemberEvent | BrokerEvent | TopicEvent, ...]
    duration_ms: float
    seed: int
