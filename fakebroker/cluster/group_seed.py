"""Groups that are to be there without any client ever having been: what one can say of them, and what that comes to.

What a seed leaves open is filled in as consumers of Kafka would have it. Changes nothing.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from fakebroker.cluster.cluster import Cluster, uuid_text
from fakebroker.cluster.consumer_protocol import Place, assignment_bytes, share_out, subscription_bytes
from fakebroker.cluster.topics import Partition
from fakebroker.coordinator.group.classic.states import CONSUMER_PROTOCOL_TYPE, GroupState
from fakebroker.coordinator.group.offsets import CommittedOffset
from fakebroker.coordinator.group.records import GroupRecord, GroupValue, MemberValue, OffsetRecord, Record
from fakebroker.errors import ConfigError, ErrorCode

PlaceName = str | Place
"""A partition as a test may write it: "orders-0" or ("orders", 0)."""

Offsets = Mapping[str, int] | Mapping[Place, int]
"""A number for each of some partitions."""

MAX_MEMBERS = 100_000
"""How many members one group may begin with."""

_STATES = {state.value: state for state in GroupState}
_WITHOUT_MEMBERS = (GroupState.EMPTY, GroupState.DEAD)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSeed:
    """One member of a seeded group.

    Attributes:
        client_id: What it calls itself; by default `consumer-` and the group's id and its place in the group.
        member_id: By default as Kafka makes them, out of the instance id or client id and a UUID.
        instance_id: `group.instance.id` of a static member.
    """

    client_id: str | None = None
    member_id: str | None = None
    instance_id: str | None = None
    client_host: str = "/127.0.0.1"
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSeed:
    """One group to be.

    Attributes:
        members: How many; or a seed or client id for each, the leader first. Their sessions begin when they are seeded,
            and run out unless a client goes on under a member's id.
        topics: What all members subscribe to; by default the topics of `assignment` and of the offsets.
        generation: The generation that the group is in; one being completed is the 2nd at least, by default.
        state: Kafka's name; by default Stable with members, Empty without. Dead is a group that has been deleted.
        offsets: What it has committed, by partition.
        lag: How far the committed offsets are behind the ends of the logs as they are: one number for all partitions of
            `topics`, or one for each partition. `offsets` goes before it.
        protocol: The name of the assignor: `range` gives each member a run of each topic's partitions, with any other
            they are dealt out in turn.
        assignment: The partitions of members by client id, instance id or member id; by default all of `topics`.
    """

    group_id: str
    members: int | Sequence[MemberSeed | str] = 0
    topics: Sequence[str] | None = None
    generation: int | None = None
    state: str | None = None
    offsets: Offsets | None = None
    lag: int | Offsets | None = None
    protocol: str = "range"
    assignment: Mapping[str, Sequence[PlaceName]] | None = None


class SeedPlan:
    """A seed that has been found to be possible, and what it leaves open.

    Raises:
        ConfigError: It is not.
    """

    def __init__(self, cluster: Cluster, seed: GroupSeed) -> None:
        self._cluster = cluster
        self._seed = seed
        self.group_id = seed.group_id
        self.partition = cluster.offsets_partition_of(seed.group_id)
        self._members = _member_seeds(seed)
        self.state = self._checked_state()
        self.generation = self._checked_generation()
        self._check_place()
        self._check_ids()
        assigned = {name: [self._place(each) for each in names] for name, names in (seed.assignment or {}).items()}
        self.offsets = self._offsets()
        topics = seed.topics
        if topics is None:
            topics = [topic for places in (*assigned.values(), self.offsets) for topic, _ in places]
        self._topics = list(dict.fromkeys(topics))
        self._assignments = self._assign(assigned)

    # Checks

    def _fault(self, sentence: str) -> ConfigError:
        return ConfigError(f"group {self.group_id!r}: {sentence}")

    def _checked_state(self) -> GroupState:
        has_members = bool(self._members)
        name = self._seed.state or (GroupState.STABLE if has_members else GroupState.EMPTY).value
        state = _STATES.get(name)
        if state is None:
            raise self._fault(f"state {name!r}: expected one of {', '.join(_STATES)}")
        if (state in _WITHOUT_MEMBERS) == has_members:
            raise self._fault(
                f"state {name} with {len(self._members)} members: expected {'none' if has_members else 'some'}"
            )
        return state

    def _checked_generation(self) -> int:
        lowest = {GroupState.COMPLETING_REBALANCE: 2}.get(self.state, 1 if self._members else 0)
        generation = max(lowest, 1) if self._seed.generation is None else self._seed.generation
        if not lowest <= generation < 2**31:
            raise self._fault(f"generation {generation} in state {self.state.value}: expected {lowest} or more")
        return generation

    def _check_place(self) -> None:
        if not self.group_id and self._members:
            raise self._fault("members: expected a group id that is not empty")
        broker = self._cluster.leader_of(self.partition)
        coordinator = None if broker is None else broker.coordinator
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE if coordinator is None else coordinator.error_for(self.group_id)
        if error and self.state not in (GroupState.STABLE, GroupState.EMPTY):
            raise self._fault(f"state {self.state.value}: expected a coordinator that is at work, not {error.name}")
        if coordinator is not None and coordinator.group(self.group_id) is not None:
            raise self._fault("it is there already")

    def _check_ids(self) -> None:
        ids = [each for member in self._members for each in (member.member_id, member.instance_id) if each is not None]
        twice = [each for each, count in Counter(ids).items() if count > 1]
        if twice:
            raise self._fault(f"id {twice[0]!r}: expected each member id and instance id once")

    # What is open

    def _offsets(self) -> dict[Place, int]:
        lag = self._seed.lag
        if isinstance(lag, int):
            if self._seed.topics is None:
                raise self._fault(f"lag={lag}: expected topics with it, or a lag for each partition")
            partitions = [each for name in self._seed.topics for each in self._topic_partitions(name)]
            lags = {(each.topic.name, each.index): lag for each in partitions}
        else:
            lags = {self._place(name): behind for name, behind in (lag or {}).items()}
        found = {place: self._behind_end(place, behind) for place, behind in lags.items()}
        return found | {self._place(name): offset for name, offset in (self._seed.offsets or {}).items()}

    def _behind_end(self, place: Place, lag: int) -> int:
        end = self._topic_partitions(place[0])[place[1]].log.log_end_offset
        if not 0 <= lag <= end:
            raise self._fault(f"lag={lag} of {place[0]}-{place[1]}: expected 0 to {end}, the end of its log")
        return end - lag

    def _topic_partitions(self, name: str) -> list[Partition]:
        topic = self._cluster.topics.get(name)
        if topic is None:
            known = ", ".join(each.name for each in self._cluster.visible_topics())
            raise self._fault(f"no topic {name!r}: expected one of {known}")
        return topic.partitions

    def _place(self, name: PlaceName) -> Place:
        topic, _, number = name.rpartition("-") if isinstance(name, str) else (name[0], "", str(name[1]))
        if not topic or not number.isdecimal():
            raise self._fault(f"partition {name!r}: expected a topic and a number, such as 'orders-0'")
        count = len(self._topic_partitions(topic))
        if int(number) >= count:
            raise self._fault(f"partition {topic}-{number}: expected 0 to {count - 1}")
        return topic, int(number)

    # Members

    def _assign(self, assigned: Mapping[str, list[Place]]) -> list[list[Place]]:
        """The partitions of each member, in their order."""
        names = [_names_of(member) for member in self._members]
        for name in assigned:
            if sum(name in each for each in names) != 1:
                raise self._fault(f"assignment of {name!r}: expected one member's client id, instance id or member id")
        if assigned:
            return [[place for name in each for place in assigned.get(name, ())] for each in names]
        counts = {name: len(self._topic_partitions(name)) for name in self._topics}
        return share_out(self._seed.protocol, counts, len(self._members))

    # What is written

    def records(self, now_ms: float) -> Iterable[Record]:
        """The group as the log is to have it."""
        is_empty = self.state in _WITHOUT_MEMBERS
        members = tuple(self._member_values())
        generation = self.generation - (self.state is GroupState.COMPLETING_REBALANCE)
        value = GroupValue(
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            generation_id=generation,
            protocol_name=None if is_empty else self._seed.protocol,
            leader=None if is_empty else members[0].member_id,
            state_timestamp_ms=int(now_ms),
            members=members,
        )
        yield GroupRecord(self.group_id, value)
        for (topic, index), offset in self.offsets.items():
            committed = CommittedOffset(offset=offset, commit_timestamp_ms=int(now_ms))
            yield OffsetRecord(self.group_id, topic, index, committed)

    def _member_values(self) -> Iterable[MemberValue]:
        subscription = subscription_bytes(tuple(self._topics))
        for member, places in zip(self._members, self._assignments, strict=True):
            client_id = member.client_id or ""
            yield MemberValue(
                member_id=member.member_id or f"{member.instance_id or client_id}-{uuid_text(self._cluster.new_id())}",
                instance_id=member.instance_id,
                client_id=client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.session_timeout_ms,
                subscription=subscription,
                assignment=assignment_bytes(tuple(places)),
            )


def _member_seeds(seed: GroupSeed) -> list[MemberSeed]:
    members: list[MemberSeed] = []
    count = seed.members if isinstance(seed.members, int) else len(seed.members)
    if not 0 <= count <= MAX_MEMBERS:
        raise ConfigError(f"group {seed.group_id!r}: members={count}, expected 0 to {MAX_MEMBERS}")
    given = [MemberSeed()] * count if isinstance(seed.members, int) else seed.members
    for number, member in enumerate(given, 1):
        if isinstance(member, str):
            member = MemberSeed(client_id=member)
        elif not isinstance(member, MemberSeed):
            member = _member_of(member, f"group {seed.group_id!r}: member {number}")
        if member.client_id is None:
            member = replace(member, client_id=f"consumer-{seed.group_id}-{number}")
        members.append(member)
    return members


def _member_of(told: object, where: str) -> MemberSeed:
    """A member as JSON and TOML tell it.

    Raises:
        ConfigError: It is not told like this.
    """
    if not isinstance(told, Mapping):
        raise ConfigError(f"{where}={told!r}, expected a client id or a table")
    kinds = {each.name: int if each.name.endswith("_ms") else str for each in fields(MemberSeed)}
    for name, value in told.items():
        if name not in kinds:
            raise ConfigError(f"{where}: unknown {name}={value!r}, expected one of {', '.join(kinds)}")
        if type(value) is not kinds[name]:
            expected = "a whole number" if kinds[name] is int else "text"
            raise ConfigError(f"{where}: {name}={value!r}, expected {expected}")
    return MemberSeed(**told)


def _names_of(member: MemberSeed) -> list[str]:
    return [name for name in (member.client_id, member.instance_id, member.member_id) if name is not None]
