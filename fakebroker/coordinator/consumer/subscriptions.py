"""What members subscribe to: names and regular expressions, and the topics of the cluster that these are.

A group notices changes of topics by a hash of their metadata.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from struct import pack
from typing import NamedTuple, Protocol

from fakebroker.assignment import java_order
from fakebroker.coordinator.consumer.member import ConsumerGroupMember
from fakebroker.coordinator.consumer.xxh3 import xxh3


class TopicMetadata(NamedTuple):
    """A topic: its id of 16 bytes, its name, and its number of partitions."""

    topic_id: bytes
    name: str
    partition_count: int


class TopicImage(Protocol):
    """The topics of the cluster.

    Attributes:
        version: Rises whenever a topic is created or deleted, or gets partitions or other replicas.
        created_version: The version when a topic was created last.
    """

    @property
    def version(self) -> int: ...

    @property
    def created_version(self) -> int: ...

    def names(self) -> Iterable[str]:
        """Return the names of all topics."""

    def named(self, name: str) -> TopicMetadata | None:
        """Return a topic, or None if there is none with this name now."""

    def hash_of(self, name: str) -> int:
        """Return the hash of a topic that exists (see `topic_hash`)."""

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic, or None if there is none with this id now."""


class _NoTopics:
    """A cluster without topics."""

    version = 0
    created_version = 0

    def names(self) -> Iterable[str]:
        return ()

    def named(self, name: str) -> TopicMetadata | None:
        return None

    def hash_of(self, name: str) -> int:
        raise KeyError(name)

    def name_of(self, topic_id: bytes) -> str | None:
        return None


NO_TOPICS = _NoTopics()


def metadata_hash(names: Iterable[str], topics: TopicImage) -> int:
    """Return a hash of the topics with these names, 64 bits, signed; 0 if there are none.

    Source: `ModernGroup.computeMetadataHash`, `Utils.computeGroupHash`.
    """
    hashes = [topics.hash_of(name) for name in sorted(names) if topics.named(name) is not None]
    if not hashes:
        return 0
    hash_ = xxh3(pack(f"<{len(hashes)}Q", *hashes))
    return hash_ - (hash_ >> 63 << 64)


def topic_hash(topic: TopicMetadata, racks: Iterable[Iterable[str]]) -> int:
    """Return the hash of one topic, from 0 to 2**64 - 1 (`Utils.computeTopicHash`).

    Args:
        topic: The topic.
        racks: For each partition, the racks of its replicas. Replicas without a rack are left out.
    """
    data = bytearray((_HASH_VERSION,))
    data += topic.topic_id[7::-1] + topic.topic_id[:7:-1]
    data += _string(topic.name) + _int(topic.partition_count)
    for index, each in enumerate(racks):
        data += _int(index)
        for rack in sorted(each, key=java_order):
            encoded = _string(rack)
            data += encoded[-_INT_SIZE:] + encoded
    return xxh3(bytes(data))


_HASH_VERSION, _INT_SIZE = 0, 4


def _int(value: int) -> bytes:
    return value.to_bytes(_INT_SIZE, "little")


def _string(text: str) -> bytes:
    """Encode a text as hash4j's `putString` does: its characters, then their number."""
    characters = text.encode("utf-16-le")
    return characters + _int(len(characters) // 2)


# What the members of a group subscribe to: names of topics, and regular expressions with their topics


MIN_REFRESH_INTERVAL_MS = 10_000
"""The least time between two resolutions of the regular expressions of a group."""

Matcher = Callable[[str], bool]
"""Returns whether the whole name of a topic matches."""


class InvalidRegexError(Exception):
    """A regular expression cannot be used. The message is for the client."""


def unsupported_regex(pattern: str) -> Matcher:
    """Reject every regular expression: the coordinator was not given a library for them."""
    raise InvalidRegexError(f"SubscribedTopicRegex `{pattern}` is not supported: only names of topics are.")


class ResolvedRegex(NamedTuple):
    """The topics that match a regular expression (Kafka's `ResolvedRegularExpression`).

    Attributes:
        version: The version of the cluster's topics that were searched (`TopicImage.version`).
        timestamp_ms: When they were searched.
    """

    topics: frozenset[str]
    version: int
    timestamp_ms: int


NOT_RESOLVED = ResolvedRegex(frozenset(), -1, -1)


@dataclass(slots=True)
class Subscriptions:
    """The subscriptions of the members of a group. No count is zero.

    Attributes:
        names: The number of members that subscribe to each topic by its name.
        regexes: The number of members that subscribe to each regular expression.
        resolved: The topics of regular expressions; one that is new is not resolved yet, and matches none.
    """

    names: Counter[str] = field(default_factory=Counter)
    regexes: Counter[str] = field(default_factory=Counter)
    resolved: dict[str, ResolvedRegex] = field(default_factory=dict)

    def topics(self) -> set[str]:
        """Return the names of all topics that a member subscribes to, also of those that do not exist."""
        return set(self.names).union(*(each.topics for each in self.resolved.values()))

    def __contains__(self, topic: object) -> bool:
        return topic in self.names or any(topic in each.topics for each in self.resolved.values())

    def topics_of(self, member: ConsumerGroupMember) -> frozenset[str]:
        """Return the names of the topics that a member subscribes to, by name or regular expression."""
        found = self.resolved.get(member.subscribed_topic_regex) if member.subscribed_topic_regex else None
        return member.subscribed_topic_names if found is None else member.subscribed_topic_names | found.topics

    def is_homogeneous(self, member_count: int) -> bool:
        """Whether all members have the same subscription: the same names, or one regular expression and no names."""
        if not self.regexes:
            return all(count == member_count for count in self.names.values())
        return [*self.regexes.values()] == [member_count] and not self.names

    def after(self, former: Iterable[ConsumerGroupMember], members: Iterable[ConsumerGroupMember]) -> "Subscriptions":
        """Return the subscriptions with some members replaced. Regular expressions without members lose their topics.

        Args:
            former: The members as they are, or that leave.
            members: The members as they will be.
        """
        changed = Subscriptions(self.names.copy(), self.regexes.copy(), self.resolved)
        for member in former:
            changed.remove(member)
        for member in members:
            changed.add(member)
        changed.resolved = {regex: found for regex, found in self.resolved.items() if regex in changed.regexes}
        return changed

    def add(self, member: ConsumerGroupMember) -> None:
        """Count the subscription of a member."""
        self.names.update(member.subscribed_topic_names)
        if member.subscribed_topic_regex:
            self.regexes[member.subscribed_topic_regex] += 1

    def remove(self, member: ConsumerGroupMember) -> None:
        """Stop counting the subscription of a member."""
        for name in member.subscribed_topic_names:
            decrement(self.names, name)
        if member.subscribed_topic_regex:
            decrement(self.regexes, member.subscribed_topic_regex)

    def must_refresh(self, regexes: Collection[str], now_ms: float, created_version: int, interval_ms: int) -> bool:
        """Whether the regular expressions are to be resolved (again), all together (`maybeUpdateRegularExpressions`).

        Args:
            regexes: The regular expressions after the heartbeat that is being handled.
            now_ms: The time.
            created_version: The version of the cluster's topics when one was created last.
            interval_ms: `group.consumer.regex.refresh.interval.ms`.
        """
        first = next(iter(self.resolved.values()), None)
        if not regexes or first is None:
            return bool(regexes)
        if now_ms <= first.timestamp_ms + MIN_REFRESH_INTERVAL_MS:
            return False
        return (
            any(regex not in self.regexes for regex in regexes)
            or len(regexes) != len(self.resolved)
            or first.version < created_version
            or now_ms > first.timestamp_ms + interval_ms
        )


def decrement(counter: Counter[str], name: str) -> None:
    """Subtract 1 from a count, and remove it if it is zero then."""
    counter[name] -= 1
    if not counter[name]:
        del counter[name]
