"""Seeded groups: groups that are created without clients.

A `GroupSeed` describes a group; its defaults are the defaults of Kafka's consumers. `seed_groups` writes groups to
__consumer_offsets, loads them into their coordinators, and then brings them to the requested states.
"""

import sys
from collections import Counter
from collections.abc import Callable, Container, Generator, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from fakebroker.cluster.cluster import Cluster, uuid_text
from fakebroker.cluster.seeding.consumer_group_seed import SeededMember, group_records, member_id_of
from fakebroker.cluster.seeding.seed_lag import Commit, MissingRecords, resolved
from fakebroker.cluster.topics import OFFSETS_TOPIC, Partition
from fakebroker.coordinator import controls
from fakebroker.coordinator.classic.group import Group
from fakebroker.coordinator.classic.rebalance import reject_waiting
from fakebroker.coordinator.classic.states import CONSUMER_PROTOCOL_TYPE, GroupState
from fakebroker.coordinator.consumer.config import ConsumerGroupConfig
from fakebroker.coordinator.consumer.states import ConsumerGroupState
from fakebroker.coordinator.persistence import replay
from fakebroker.coordinator.records import CoordinatorRecord, KeyedRecord, group_of
from fakebroker.errors import ConfigError, ErrorCode, one_of, shown
from fakebroker.protocol.consumer_protocol import encode_assignment, encode_subscription
from fakebroker.protocol.messages.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from fakebroker.topic_partition import (
    LEGAL_NAME,
    MAX_INT64,
    PartitionName,
    TopicPartition,
    format_partitions,
    is_legal_name,
    is_offset,
    parse_partition,
)

if TYPE_CHECKING:
    Offsets = Mapping[str, int] | Mapping[TopicPartition, int]
else:  # msgspec supports one mapping in a union; keys are validated as names of partitions.
    Offsets = Mapping[Any, int]
"""Offsets by partition."""

Timeout = Annotated[int, Meta(ge=1, le=2**31 - 1)]

MAX_MEMBERS = 100_000
"""The largest number of members of a seeded group."""

_MAX_STRING_BYTES = 2**15 - 1
_UUID_LENGTH = 37  # The end of a generated member id: a hyphen and a UUID.
_CONSUMER_GROUP_STATES = (ConsumerGroupState.STABLE, ConsumerGroupState.ASSIGNING, GroupState.EMPTY, GroupState.DEAD)
_STATES_OF: Mapping[str, Mapping[str, GroupState | ConsumerGroupState]] = {
    "classic": {state.value: state for state in GroupState},
    "consumer": {state.value: state for state in _CONSUMER_GROUP_STATES},
}
"""The states of seeded groups, by type."""
_LOADED_STATES = (GroupState.STABLE, ConsumerGroupState.STABLE, GroupState.EMPTY)
_WITHOUT_MEMBERS = (GroupState.EMPTY, GroupState.DEAD)
_MAX_BATCH = 20  # Groups that `seed_in_steps` creates in one step, so that requests do not wait long.

# Cached, because similar groups share most subscriptions and assignments.
_subscription_bytes = lru_cache(1024)(encode_subscription)
_assignment_bytes = lru_cache(1024)(encode_assignment)


class MemberSeed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One member of a seeded group.

    Attributes:
        client_id: Client id; by default `consumer-GROUP-N`, with the group id and the number of the member.
        member_id: Member id; by default generated as in Kafka, from the instance id or client id and a UUID.
        instance_id: The `group.instance.id` of a static member.
        client_host: Address of the client, as Kafka reports it.
        session_timeout_ms: Session timeout; the session starts when the group is seeded.
        rebalance_timeout_ms: Rebalance timeout.
    """

    client_id: str | None = None
    member_id: str | None = None
    instance_id: str | None = None
    client_host: str = "/127.0.0.1"
    session_timeout_ms: Timeout = 45_000
    rebalance_timeout_ms: Timeout = 300_000


class GroupSeed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A group to create.

    Attributes:
        group_id: Id of the group.
        members: Number of members; or a list with a client id, a `MemberSeed` or a table of its fields for each
            member, the leader first. Their sessions start when the group is seeded, and expire unless a client
            continues with the member's id.
        topics: Topics that all members subscribe to, which must exist; by default the topics of `assignment`, `offsets`
            and `lag`.
        generation: Generation id; by default 1, or 2 in state CompletingRebalance.
        state: State, by Kafka's name; by default Stable with members, Empty without. Dead is a deleted group.
        offsets: Committed offsets by partition, such as {"orders-0": 5}, up to the ends of the logs.
        lag: Number of records from the committed offset to the end of the log: one number for all partitions of
            `topics`, or a number by partition. Records that are missing are produced; their keys and values are their
            offsets, as text. With an offset in `offsets` as well, the log must end at offset + lag, or earlier, and
            gets the missing records. Otherwise the committed offset is the end of the log minus the lag.
        protocol: Name of the assignor. `range`, the default, assigns consecutive partitions of each topic to each
            member; any other name distributes partitions round-robin. Of a consumer group, the assignor that all
            members name; by default they name none, and the first of `group.consumer.assignors` is used.
        assignment: Assigned partitions by client id, instance id or member id; by default, `protocol` distributes all
            partitions of `topics`.
        type: "classic", or "consumer" for a consumer group (KIP-848). `generation` is then the epoch of the group, of
            its target assignment and of its members, and `state` is Stable, Assigning, Empty or Dead. The session
            timeout is a config of the group.
    """

    group_id: str
    members: int | Sequence[MemberSeed | str] = 0
    topics: Sequence[str] | None = None
    generation: int | None = None
    state: str | None = None
    offsets: Offsets | None = None
    lag: int | Offsets | None = None
    protocol: str | None = None
    assignment: Mapping[str, Sequence[PartitionName]] | None = None
    type: Literal["classic", "consumer"] = "classic"


GroupTable = Annotated[GroupSeed, Meta(examples=[{"group_id": "g", "members": 1}])]
"""A `GroupSeed`, with an example for error messages."""


class SeedPlan:
    """A seed that has been validated against the cluster, with all defaults applied. Does not change the cluster.

    Attributes:
        group_id: Id of the group.
        partition: Its partition of __consumer_offsets.
        state: Its state after seeding.
        generation: Its generation id after seeding.
        commits: Its committed offsets, which depend on the ends of the logs after seeding.
        offsets: Its committed offsets by partition, set by `resolve_offsets`.

    Raises:
        ConfigError: The group cannot be created with these options.
    """

    def __init__(self, cluster: Cluster, seed: GroupSeed) -> None:
        self._cluster = cluster
        self._seed = seed
        self.group_id = seed.group_id
        self._check_strings("group_id", [seed.group_id])
        if seed.type not in _STATES_OF:
            raise self._error("type", seed.type, one_of(_STATES_OF, seed.type))
        self.is_consumer_group = seed.type == "consumer"
        self._protocol = seed.protocol or "range"
        self._check_strings("protocol", [seed.protocol])
        self._check_assignor()
        self.partition = cluster.offsets_partition_of(seed.group_id)
        self._members = _member_seeds(seed)
        self.state = self._checked_state()
        self.generation = self._checked_generation()
        self.check_coordinator()
        self._check_ids()
        assigned = {
            name: [self._topic_partition(each) for each in names] for name, names in (seed.assignment or {}).items()
        }
        self.commits = self._commits()
        self.offsets: Mapping[TopicPartition, int] = {}
        topics = seed.topics
        if topics is None:
            topics = [topic for partitions in assigned.values() for topic, _ in partitions]
            topics += [commit.partition.topic.name for commit in self.commits]
        self._topics = list(dict.fromkeys(topics))
        self._check_strings("topics", self._topics)
        for topic in self._topics:
            self._topic_partitions(topic)
        self._assignments = self._assign(assigned)

    # Checks

    def _error(self, field: str, value: object, expected: str) -> ConfigError:
        return ConfigError.of(field, value, expected, where=f"group {shown(self.group_id)}")

    def _check_assignor(self) -> None:
        assignor = self._seed.protocol
        if self.is_consumer_group and assignor is not None and assignor not in self._consumer_config.assignors:
            raise self._error("protocol", assignor, one_of(self._consumer_config.assignors, assignor))

    @property
    def _consumer_config(self) -> ConsumerGroupConfig:
        """The settings of consumer groups, which all coordinators share."""
        return next(iter(self._cluster.brokers.values())).coordinator.config.consumer

    def _checked_state(self) -> GroupState | ConsumerGroupState:
        has_members = bool(self._members)
        name = self._seed.state or (GroupState.STABLE if has_members else GroupState.EMPTY).value
        states = _STATES_OF[self._seed.type]
        state = states.get(name)
        if state is None:
            raise self._error("state", name, one_of(states, name))
        if (state in _WITHOUT_MEMBERS) == has_members:
            expected = "none" if has_members else "at least 1"
            raise self._error("members", len(self._members), f"{expected} in state {name}")
        return state

    def _checked_generation(self) -> int:
        lowest = {GroupState.COMPLETING_REBALANCE: 2, ConsumerGroupState.ASSIGNING: 2}.get(
            self.state, 1 if self._members or self.is_consumer_group else 0
        )
        generation = max(lowest, 1) if self._seed.generation is None else self._seed.generation
        if not lowest <= generation < 2**31:
            expected = f"{lowest} to {2**31 - 1}" if generation >= lowest else f"{lowest} or more"
            raise self._error("generation", generation, f"{expected} in state {self.state.value}")
        return generation

    def recheck(self) -> None:
        """Repeat the checks whose result requests and commands may have changed since the plan was made.

        Raises:
            ConfigError: The group exists, its coordinator is not available, or a topic of `offsets` does not exist.
        """
        self.check_coordinator()
        for commit in self.commits:
            self._topic_partition((commit.partition.topic.name, commit.partition.index))

    def check_coordinator(self) -> None:
        """Check that the group can be created now.

        Raises:
            ConfigError: The group exists, or has no coordinator that can bring it to its state.
        """
        if not self.group_id and self._members:
            raise self._error("group_id", "", "an id that is not empty for a group with members")
        broker = self._cluster.leader_of(self.partition)
        coordinator = None if broker is None else broker.coordinator
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE if coordinator is None else coordinator.error_for(self.group_id)
        if self._cluster.offsets_partition_of(self.group_id) is not self.partition:
            raise self._error("cluster", None, "a cluster that is not reset or restored while groups are seeded")
        if error and self.state not in _LOADED_STATES:
            raise self._error("state", self.state.value, f"Stable or Empty: its coordinator answers {error.name}")
        if coordinator is not None and self.group_id in coordinator.groups:
            raise ConfigError.of("group_id", self.group_id, "a group that does not exist yet")

    def _check_strings(self, field: str, strings: Iterable[str | None], most: int = _MAX_STRING_BYTES) -> None:
        for text in strings:
            if text is not None and not _is_encodable(text, most):
                raise self._error(field, text, f"at most {most} bytes of UTF-8")

    def _check_ids(self) -> None:
        for member in self._members:
            self._check_strings("members", _ids_of(member))
            self._check_strings("client_host", [member.client_host])
            if member.instance_id is not None and not is_legal_name(member.instance_id):
                raise self._error("instance_id", member.instance_id, LEGAL_NAME)
            if member.member_id is None:
                most = _MAX_STRING_BYTES - _UUID_LENGTH
                self._check_strings("members", [member.instance_id or member.client_id], most)
        ids = [each for member in self._members for each in (member.member_id, member.instance_id) if each is not None]
        twice = [each for each, count in Counter(ids).items() if count > 1]
        if twice:
            raise self._error("members", twice[0], "each member id and instance id once")

    # Offsets

    def _commits(self) -> list[Commit]:
        lags, offsets = self._lags(), dict[TopicPartition, int]()
        for name, offset in (self._seed.offsets or {}).items():
            topic, index = partition = self._topic_partition(name)
            if not is_offset(offset):
                raise self._error(f"offsets.{topic}-{index}", offset, f"an integer from 0 to {MAX_INT64}")
            self._check_once("offsets", offsets, partition)
            offsets[partition] = offset
        return [
            Commit(
                self.group_id,
                self._topic_partitions(topic)[index],
                offsets.get((topic, index)),
                lags.get((topic, index)),
            )
            for topic, index in dict.fromkeys([*lags, *offsets])
        ]

    def _lags(self) -> dict[TopicPartition, int]:
        lag = self._seed.lag
        if lag is None:
            return {}
        if isinstance(lag, int):
            if self._seed.topics is None:
                raise self._error("lag", lag, "topics to be given as well, or a lag for each partition")
            if lag < 0:
                raise self._error("lag", lag, "an integer >= 0")
            partitions = [each for name in self._seed.topics for each in self._topic_partitions(name)]
            return {(each.topic.name, each.index): lag for each in partitions}
        lags: dict[TopicPartition, int] = {}
        for name, number in lag.items():
            topic, index = partition = self._topic_partition(name)
            if number < 0:
                raise self._error(f"lag.{topic}-{index}", number, "an integer >= 0")
            self._check_once("lag", lags, partition)
            lags[partition] = number
        return lags

    def _check_once(self, field: str, known: Container[TopicPartition], partition: TopicPartition) -> None:
        if partition in known:
            raise self._error(field, format_partitions([partition]), "each partition once")

    def resolve_offsets(self, missing: MissingRecords) -> None:
        """Compute the committed offsets from the ends that the logs will have.

        Raises:
            ConfigError: An offset is beyond the end of the log, or contradicts the lag.
        """
        self.offsets = resolved(self.commits, missing)

    def _topic_partitions(self, name: str) -> list[Partition]:
        topic = self._cluster.topics.get(name)
        if topic is None:
            known = [each.name for each in self._cluster.topics]
            raise self._error("topic", name, one_of(known, name, none="an existing topic; there is none"))
        return topic.partitions

    def _topic_partition(self, name: PartitionName) -> TopicPartition:
        topic, index = parse_partition(name, where=f"group {self.group_id!r}")
        count = len(self._topic_partitions(topic))
        if index >= count:
            raise self._error("partition", f"{topic}-{index}", f"a partition from 0 to {count - 1}")
        return topic, index

    # Members

    def _assign(self, assigned: Mapping[str, list[TopicPartition]]) -> list[list[TopicPartition]]:
        """Return the partitions of each member, in the order of the members."""
        ids = [_ids_of(member) for member in self._members]
        for name in assigned:
            if sum(name in each for each in ids) != 1:
                raise self._error("assignment", name, "the client id, instance id or member id of one member")
        if assigned and self.is_consumer_group:
            owners = Counter(partition for partitions in assigned.values() for partition in partitions)
            twice = [partition for partition, count in owners.items() if count > 1]
            if twice:
                raise self._error("assignment", format_partitions(twice[:1]), "each partition once")
        if assigned:
            return [[partition for name in each for partition in assigned.get(name, ())] for each in ids]
        counts = {name: len(self._topic_partitions(name)) for name in self._topics}
        if self.is_consumer_group:  # The assignor runs when the ids of members are known.
            return [[] for _ in self._members]
        return assign_partitions(self._protocol, counts, len(self._members))

    # Records

    def records(self, now_ms: float) -> Iterable[KeyedRecord]:
        """Return the records that create the group, Stable or Empty, in __consumer_offsets."""
        yield from self._consumer_group_records() if self.is_consumer_group else [self._group_record(now_ms)]
        for (topic, index), offset in self.offsets.items():
            key = OffsetCommitKey(group=self.group_id, topic=topic, partition=index)
            yield CoordinatorRecord(key, OffsetCommitValue(offset=offset, metadata="", commit_timestamp=int(now_ms)))

    def _consumer_group_records(self) -> Iterable[KeyedRecord]:
        is_assigned = self._seed.assignment is not None
        members = [
            SeededMember(
                member_id=member.member_id or member_id_of(self._cluster.new_id()),
                instance_id=member.instance_id,
                client_id=member.client_id or "",
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                assigned=partitions if is_assigned else None,
            )
            for member, partitions in zip(self._members, self._assignments, strict=True)
        ]
        epoch = self.generation - (self.state is ConsumerGroupState.ASSIGNING)
        assignor = self._seed.protocol
        return group_records(self.group_id, epoch, members, self._topics, assignor, self._consumer_config)

    def _group_record(self, now_ms: float) -> KeyedRecord:
        is_empty = self.state in _WITHOUT_MEMBERS
        members = list(self._member_values())
        generation = self.generation - (self.state is GroupState.COMPLETING_REBALANCE)
        value = GroupMetadataValue(
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            generation=generation,
            protocol=None if is_empty else self._protocol,
            leader=None if is_empty else members[0].member_id,
            current_state_timestamp=_whole_ms(now_ms),
            members=members,
        )
        return CoordinatorRecord(GroupMetadataKey(group=self.group_id), value)

    def _member_values(self) -> Iterable[MemberMetadata]:
        subscription = _subscription_bytes(tuple(self._topics))
        for member, partitions in zip(self._members, self._assignments, strict=True):
            client_id = member.client_id or ""
            yield MemberMetadata(
                member_id=member.member_id or f"{member.instance_id or client_id}-{uuid_text(self._cluster.new_id())}",
                group_instance_id=member.instance_id,
                client_id=client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=subscription,
                assignment=_assignment_bytes(tuple(partitions)),
            )


def seed_groups(cluster: Cluster, seeds: Iterable[GroupSeed], now_ms: float) -> None:
    """Create groups, with one record batch for each partition of __consumer_offsets that they need.

    Raises:
        ConfigError: A group exists already, or cannot be created with these options; no group is created then.
    """
    for _ in seed_in_steps(cluster, seeds, lambda: now_ms, max_batch=sys.maxsize):
        pass


def seed_in_steps(
    cluster: Cluster, seeds: Iterable[GroupSeed], now_ms: Callable[[], float], max_batch: int = _MAX_BATCH
) -> Generator[None, None, None]:
    """Create groups like `seed_groups`, as a generator: the cluster can handle requests wherever it yields.

    All groups are validated before the first one is created, and again immediately before they are created. If a group
    cannot be created any more, such as after a client has created it, the groups created so far are removed.

    Args:
        cluster: The cluster.
        seeds: The groups.
        now_ms: Returns the brokers' time in milliseconds.
        max_batch: The largest number of groups in one record batch; each record batch is one step.

    Raises:
        ConfigError: As `seed_groups`.
    """
    cluster.first_use.finish(OFFSETS_TOPIC, now_ms())
    planned: dict[str, tuple[SeedPlan, list[KeyedRecord]]] = {}
    for seed in seeds:
        plan = SeedPlan(cluster, seed)
        if plan.group_id in planned:
            raise ConfigError.of("group_id", plan.group_id, "each group once")
        planned[plan.group_id] = plan, []
        yield
    commits = [commit for plan, _ in planned.values() for commit in plan.commits]
    missing = MissingRecords(cluster, commits)
    for plan, _ in planned.values():
        plan.resolve_offsets(missing)
        yield
    yield from missing.prepare(now_ms())
    by_partition: dict[int, list[SeedPlan]] = {}
    for plan, records in planned.values():
        records += plan.records(now_ms())
        by_partition.setdefault(plan.partition.index, []).append(plan)
        yield
    created: list[SeedPlan] = []
    try:
        yield from missing.produce(now_ms())
        for index, plans in by_partition.items():
            for start in range(0, len(plans), max_batch):
                batch = plans[start : start + max_batch]
                for plan in batch:
                    plan.recheck()
                batch_records = [record for plan in batch for record in planned[plan.group_id][1]]
                created += batch
                _load(cluster, cluster.offsets_partition(index), batch_records, now_ms())
                yield
        for plan, _ in planned.values():
            _enter_state(cluster, plan, now_ms())
            yield
    except Exception:
        for plan in created:
            if cluster.offsets_partition(plan.partition.index) is plan.partition:
                _remove(cluster, plan, planned[plan.group_id][1], now_ms())
            yield
        missing.undo()
        raise


def _load(cluster: Cluster, partition: Partition, records: list[KeyedRecord], now_ms: float) -> None:
    """Write records, and load them into the coordinator. If it is loading, it reads them from the log later."""
    cluster.now_ms = now_ms
    cluster.append_records(partition, records)
    broker = cluster.leader_of(partition)
    if broker is not None and not broker.coordinator.error_for(group_of(records[0])):
        loaded = replay(records, partition.index, broker.release)
        broker.coordinator.groups.add_loaded(loaded, now_ms)


def _remove(cluster: Cluster, plan: SeedPlan, records: Sequence[KeyedRecord], now_ms: float) -> None:
    """Remove a group that was created by records, with the members and offsets that it has now."""
    cluster.now_ms = now_ms
    broker = cluster.leader_of(plan.partition)
    group = None if broker is None else broker.coordinator.groups.get(plan.group_id)
    if broker is None or group is None:
        written: Sequence[Any] = records
        cluster.append_records(
            plan.partition, [msgspec.structs.replace(each, value=None) for each in reversed(written)]
        )
        return
    cluster.append_records(plan.partition, broker.coordinator.offsets.tombstones(group))
    broker.coordinator.groups.drop(group, "not all groups could be seeded", now_ms)
    if isinstance(group, Group):
        reject_waiting(group, ErrorCode.UNKNOWN_MEMBER_ID)


@lru_cache(1)
def _whole_ms(now_ms: float) -> int:
    """Return a time in whole milliseconds: one number for all groups that are seeded then."""
    return int(now_ms)


def _enter_state(cluster: Cluster, plan: SeedPlan, now_ms: float) -> None:
    """Bring a group that was loaded as Stable or Empty to the state of its plan."""
    if plan.state in _LOADED_STATES:
        return
    broker = cluster.leader_of(plan.partition)
    if broker is None:
        raise ConfigError.of("state", plan.state.value, "a coordinator for the group", where=f"group {plan.group_id!r}")
    coordinator = broker.coordinator
    if plan.state is GroupState.DEAD:
        coordinator.delete_groups([plan.group_id], now_ms)
        return
    group = controls.group_of(coordinator, plan.group_id)
    controls.force_rebalance(coordinator, group, now_ms)
    if plan.state is GroupState.COMPLETING_REBALANCE:
        controls.rejoin_all(coordinator, controls.classic_group(group), now_ms)


def _member_seeds(seed: GroupSeed) -> list[MemberSeed]:
    count = seed.members if isinstance(seed.members, int) else len(seed.members)
    if not 0 <= count <= MAX_MEMBERS:
        raise ConfigError.of("members", count, f"0 to {MAX_MEMBERS}", where=f"group {seed.group_id!r}")
    given = [MemberSeed()] * count if isinstance(seed.members, int) else seed.members
    members = [MemberSeed(client_id=member) if isinstance(member, str) else member for member in given]
    return [
        member
        if member.client_id is not None
        else msgspec.structs.replace(member, client_id=f"consumer-{seed.group_id}-{number}")
        for number, member in enumerate(members, 1)
    ]


def _is_encodable(text: str, most: int) -> bool:
    try:
        return len(text.encode()) <= most
    except UnicodeEncodeError:  # a surrogate
        return False


def _ids_of(member: MemberSeed) -> list[str]:
    return [each for each in (member.client_id, member.instance_id, member.member_id) if each is not None]


def assign_partitions(protocol: str, counts: Mapping[str, int], members: int) -> list[list[TopicPartition]]:
    """Assign the partitions of topics to members that all subscribe to them.

    Args:
        protocol: "range" assigns consecutive partitions of each topic to each member, like Kafka's `RangeAssignor`; any
            other name distributes partitions round-robin.
        counts: Number of partitions by topic.
        members: Number of members.

    Returns:
        The partitions of each member.
    """
    if not members:
        return []
    return _range(counts, members) if protocol == "range" else _round_robin(counts, members)


def _range(counts: Mapping[str, int], members: int) -> list[list[TopicPartition]]:
    assigned: list[list[TopicPartition]] = [[] for _ in range(members)]
    for topic, count in counts.items():
        size, extra = divmod(count, members)
        start = 0
        for rank, partitions in enumerate(assigned):
            stop = start + size + (rank < extra)
            partitions += [(topic, index) for index in range(start, stop)]
            start = stop
    return assigned


def _round_robin(counts: Mapping[str, int], members: int) -> list[list[TopicPartition]]:
    partitions = [(topic, index) for topic, count in counts.items() for index in range(count)]
    return [partitions[rank::members] for rank in range(members)]
