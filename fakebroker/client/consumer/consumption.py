"""A whole consumer without sockets and clocks: a group member, the reading of its partitions, and what both ask for.

Calls and answers go in, requests come out in `asks`, time is an argument; what the application is to be called back
for comes out in `callbacks`, and waits there until it polls. It must not know what carries its requests.
"""

import re
from collections.abc import Iterable, Mapping

from fakebroker.client.consumer.consumer_errors import (
    CommitFailed,
    EmptySubscription,
    InitialOffsetUnknown,
    InvalidSubscription,
    PartitionsNotAssigned,
)
from fakebroker.client.consumer.decoding import ConsumerRecord
from fakebroker.client.consumer.engine import Engine
from fakebroker.client.consumer.group_offsets import Ticket
from fakebroker.client.consumer.subscribing import Subscribed, check_offsets, check_partitions, check_topics
from fakebroker.client.member.assignors import TopicPartition
from fakebroker.client.member.member import MemberState
from fakebroker.client.member.requests import Identity
from fakebroker.errors import ErrorCode


class Consumption(Engine):
    """One consumer; see `fakebroker.client.consumer.consumer.Consumer` for what the application sees."""

    # Subscriptions

    def subscribe(self, topics: Iterable[str] | re.Pattern[str], now_ms: float) -> None:
        """Read topics as a member of the group; the next poll joins it, and a member rejoins."""
        if self.settings.group_id is None:
            raise InvalidSubscription("group_id None: expected one to subscribe; without, partitions can be assigned")
        kind = Subscribed.PATTERN if isinstance(topics, re.Pattern) else Subscribed.TOPICS
        if isinstance(topics, re.Pattern):
            self._set_kind(kind)
            self._pattern, self._is_matched = topics, False
        else:
            names = check_topics(topics)
            self._set_kind(kind)
            if names != self.member.settings.topics:
                self.member.subscribe(names, now_ms)
        self._view.want_now(now_ms)
        self._settle(now_ms)

    def assign(self, partitions: Mapping[TopicPartition, int] | Iterable[TopicPartition], now_ms: float) -> None:
        """Read these partitions and no others, without a group."""
        offsets = partitions if isinstance(partitions, Mapping) else {}
        wanted = check_partitions(partitions)
        check_topics([topic for topic, _ in wanted])
        check_offsets(offsets)
        self._set_kind(Subscribed.PARTITIONS)
        self._fetching.forget([partition for partition in self._manual if partition not in wanted])
        self._drop_initial()
        self._manual, self._placeless = wanted, {}
        self._commit_ms = now_ms + self.settings.commit_interval_ms
        for partition, offset in offsets.items():
            self._fetching.start(partition, offset)
        self._view.want_now(now_ms)
        self._settle(now_ms)

    def _set_kind(self, kind: Subscribed) -> None:
        if self._subscribed not in (None, kind):
            raise InvalidSubscription(
                f"subscription to {kind.value}: there is one to {self._subscribed.value}, expected unsubscribe first"
            )
        self._subscribed = kind

    def unsubscribe(self, now_ms: float, *, commits: bool = True) -> None:
        """Leave the group, and read nothing any more.

        Args:
            now_ms: The time.
            commits: What the last poll gave has been consumed.
        """
        if commits and self._subscribed is not None:
            self._consumed()
            self._commit_manual(now_ms)
        self.member.leave(now_ms)
        self._settle(now_ms)
        self._fetching.forget(self._manual)
        self._subscribed, self._pattern, self._is_matched, self._manual = None, None, False, ()
        self._group_topics, self._poll_until_ms = None, None
        self._drop_initial()
        self._placeless.clear()
        self._failures.clear()
        self.callbacks.clear()

    def _drop_initial(self) -> None:
        if self._initial is not None:
            self._offsets.give_up(self._initial)
            self._initial = None

    def check_subscribed(self) -> None:
        """Raises `EmptySubscription` if nothing is."""
        if self._subscribed is None:
            raise EmptySubscription("nothing is subscribed to or assigned, expected subscribe or assign before this")

    # The application's turn

    def polled(self, now_ms: float) -> None:
        """The application polls: what it was given before is consumed, and it is in its group from here on."""
        self.check_subscribed()
        self._poll_until_ms = now_ms + self.settings.max_poll_interval_ms
        self._consumed()
        if self._commit_ms <= now_ms:
            self._commit_manual(now_ms)
        self._join(now_ms)
        self._settle(now_ms)

    def joined(self, now_ms: float) -> None:
        """Be in the group without a poll.

        Raises:
            FakebrokerError: What went wrong since the last time, if it is not in it.
        """
        self.check_subscribed()
        if self._failures and not self.is_assigned:
            raise self._failures.popleft()
        self._join(now_ms)
        self._settle(now_ms)

    def _join(self, now_ms: float) -> None:
        """Be in the group; not yet where a pattern's topics are not known, nor before a failure was told."""
        knows_topics = self._subscribed is Subscribed.TOPICS or self._is_matched
        if knows_topics and self.member.state is MemberState.DOWN and not self._failures:
            self.member.start(now_ms)

    def waits(self) -> None:
        """The application waits in a poll: that does not count as not polling."""
        self._poll_until_ms = None

    def waits_no_more(self, now_ms: float) -> None:
        """The application has news, or has given up to wait, and may never poll again."""
        self._poll_until_ms = now_ms + self.settings.max_poll_interval_ms

    def called_back(self, now_ms: float) -> None:
        """All callbacks have been run; a rebalance that waited for that goes on."""
        self.member.revoked(now_ms)
        self._settle(now_ms)

    def take(self, now_ms: float) -> list[ConsumerRecord]:
        """What there is for the application.

        Raises:
            FakebrokerError: What went wrong since the last time.
        """
        if self._failures:
            raise self._failures.popleft()
        if (failure := self._fetching.take_failure()) is not None:
            self._settle(now_ms)
            raise failure
        if placeless := [partition for partition in self._placeless if partition in self.assigned]:
            raise InitialOffsetUnknown(placeless)
        records = self._fetching.take(self.settings.max_poll_records)
        self._settle(now_ms)
        return records

    def seek(self, partition: TopicPartition, offset: int, now_ms: float) -> None:
        """Go on at this offset; what was fetched ahead is dropped."""
        self._check_assigned([partition])
        check_offsets({partition: offset})
        self._fetching.start(partition, offset)
        self._placeless.pop(partition, None)
        if self._subscribed is not Subscribed.PARTITIONS:
            self.member.positions[partition] = offset
        self._settle(now_ms)

    def position(self, partition: TopicPartition) -> int | None:
        """The offset of the next record; None while it is looked up."""
        self._check_assigned([partition])
        if partition in self._placeless:
            raise InitialOffsetUnknown([partition])
        return self._fetching.positions().get(partition)

    @property
    def is_assigned(self) -> bool:
        """Whether it is known what it has."""
        return self._subscribed is Subscribed.PARTITIONS or self.member.is_in_generation

    def commit(self, offsets: Mapping[TopicPartition, int] | None, now_ms: float) -> Ticket | None:
        """Commit these offsets, or where the application stands; None if there is nothing to commit."""
        self.check_subscribed()
        who = self._committer()
        if offsets is None:
            self._consumed()
            positions = self._fetching.positions()
            offsets = {partition: positions[partition] for partition in self.assigned if partition in positions}
        self._check_assigned(offsets)
        check_offsets(offsets)
        ticket = self._offsets.commit(who, offsets) if offsets else None
        self._settle(now_ms)
        return ticket

    def committed(self, partitions: Iterable[TopicPartition] | None, now_ms: float) -> Ticket:
        """Ask what is committed for these partitions, or for those that it has."""
        self.check_subscribed()
        wanted = self.assigned if partitions is None else check_partitions(partitions)
        ticket = self._offsets.look_up(self._group(), wanted)
        self._settle(now_ms)
        return ticket

    def give_up(self, ticket: Ticket) -> None:
        """Nobody waits for its answer any more."""
        self._offsets.give_up(ticket)

    def _committer(self) -> Identity:
        """Who commits: a member of a generation, or nobody in particular where partitions are assigned by hand."""
        group = self._group()
        if self._subscribed is Subscribed.PARTITIONS:
            return group
        if not self.member.is_in_generation:
            left = self.member.state is MemberState.DOWN
            error = ErrorCode.UNKNOWN_MEMBER_ID if left else ErrorCode.REBALANCE_IN_PROGRESS
            raise CommitFailed(error, group.group_id)
        return self.member.identity

    def _check_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        self.check_subscribed()
        if others := [partition for partition in partitions if partition not in self.assigned]:
            raise PartitionsNotAssigned(others, self.assigned)

    def _consumed(self) -> None:
        """What the application was given is consumed: the member's commits may tell of it."""
        if self._subscribed is not Subscribed.PARTITIONS:
            owned = frozenset(self.member.assigned)
            positions = self._fetching.positions().items()
            self.member.positions.update((partition, offset) for partition, offset in positions if partition in owned)

    def _commit_manual(self, now_ms: float) -> None:
        """What a member does by itself, for partitions that are assigned by hand."""
        if self._subscribed is Subscribed.PARTITIONS and self.settings.group_id and self.settings.commit_interval_ms:
            self._commit_ms = now_ms + self.settings.commit_interval_ms
            if positions := self._fetching.positions():
                self._offsets.commit(self._group(), positions)
