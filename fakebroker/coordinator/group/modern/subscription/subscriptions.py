"""What the members of a group subscribe to: names of topics, and regular expressions with their topics."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from fakebroker.coordinator.group.modern.member import ConsumerGroupMember

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
        version: The version of the cluster's topics among which they were found (`TopicImage.version`).
        timestamp_ms: When.
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
