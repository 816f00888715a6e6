"""Explanations of consumer groups (KIP-848) in English: epochs, holders of awaited partitions, deadlines."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.inspect.deadlines import offsets_removal
from fakebroker.cluster.inspect.phrases import MAX_NAMES, counted, listed, lower_first, seconds_text
from fakebroker.cluster.inspect.timeline_layout import partition_ranges
from fakebroker.cluster.inspect.timelines import with_names
from fakebroker.cluster.inspect.views import AwaitedPartition, ConsumerGroupReader, member_names
from fakebroker.coordinator.consumer.member import JOINING_EPOCH, LEAVING_STATIC_EPOCH, ConsumerGroupMember
from fakebroker.coordinator.consumer.states import (
    STABLE,
    UNRELEASED_PARTITIONS,
    UNREVOKED_PARTITIONS,
    ConsumerGroupState,
)
from fakebroker.coordinator.consumer.subscriptions import MIN_REFRESH_INTERVAL_MS
from fakebroker.coordinator.group_controls import GroupControls
from fakebroker.coordinator.group_history import Moment
from fakebroker.topic_partition import TopicPartition, partition_names


class ConsumerGroupExplanation:
    """The explanation of a consumer group that exists at its coordinator.

    Args:
        reader: The group.
        moments: Its history, oldest first.
        now_ms: The time by the brokers' clock.
    """

    def __init__(self, reader: ConsumerGroupReader, moments: Sequence[Moment], now_ms: float) -> None:
        self.reader, self.group, self.now_ms = reader, reader.group, now_ms
        self.controls = reader.cluster.group_controls.get(reader.group.group_id) or GroupControls()
        here = [moment for moment in moments if moment.coordinator_id == reader.broker.node_id]
        self.last_transition = next((moment for moment in reversed(here) if moment.is_transition), None)
        mentioned = (*self.last_transition.members, *self.last_transition.left) if self.last_transition else ()
        self.names = member_names(self.group, mentioned, moments)

    def sentences(self) -> Iterator[str]:
        group, last = self.group, self.last_transition
        if last is None:
            yield f"{group.group_id} is in {group.state.value}."
            yield f"The cause is not known: {self.reader.cluster.history.dropped_of(group.group_id)}."
        else:
            since = seconds_text(self.now_ms - last.at_ms)
            yield f"{group.group_id} has been in {group.state.value} for {since}. Cause: {self._named(last.cause)}."
        yield from _BY_STATE[group.state](self)
        yield from self._held()
        yield from self._unresolved()
        yield from self._classic()
        yield from self._silent()
        yield from offsets_in_transactions(self.reader.broker, group.group_id)

    def empty(self) -> Iterator[str]:
        offsets = counted(len(list(self.group.offsets)), "committed offset")
        yield f"It is a consumer group without members, in epoch {self.group.group_epoch}, and has {offsets}."
        if removal := offsets_removal(self.group, self.reader.broker):
            yield f"In {self._left(removal.at_ms)}: {lower_first(removal.text)}"

    def assigning(self) -> Iterator[str]:
        group = self.group
        members = counted(len(group.members), "member")
        epochs = f"in epoch {group.group_epoch}; its target is that of epoch {group.assignment_epoch}"
        yield f"It is a consumer group of {members} {epochs}."
        interval_ms = self.reader.broker.coordinator.groups.consumer.assignment_interval_ms(group.group_id)
        if ConsumerGroupState.ASSIGNING in self.controls.held_states:
            yield "The assignor is held until it is released."
        elif self.now_ms < (at_ms := group.next_target_ms(interval_ms)):
            yield (
                f"Targets are at least {seconds_text(interval_ms)} apart (group.consumer.assignment.interval.ms): "
                f"the first heartbeat in {self._left(at_ms)} runs the assignor."
            )
        else:
            yield "The next heartbeat of a member runs the assignor."
        yield from self._revoking()

    def reconciling(self) -> Iterator[str]:
        group = self.group
        behind = [each for each in group.members.values() if not each.is_reconciled_to(group.assignment_epoch)]
        reached = len(group.members) - len(behind)
        members = counted(len(group.members), "member")
        yield f"It is a consumer group in epoch {group.group_epoch}; {reached} of {members} have their target."
        awaited = {each.member_id: self.reader.awaited_by(each) for each in behind}
        wanted = {(each.holder_id, each.topic, each.partition) for some in awaited.values() for each in some}
        holders = {holder_id for holder_id, _, _ in wanted}
        for member in behind[:MAX_NAMES]:
            yield from self._waiting(member, awaited[member.member_id], is_holder=member.member_id in holders)
        if behind[MAX_NAMES:]:
            yield f"{counted(len(behind) - MAX_NAMES, 'more member')} do not have their target."
        yield from self._revoking(wanted)

    def stable(self) -> Iterator[str]:
        group = self.group
        size = counted(len(group.members), "member")
        yield f"Epoch {group.group_epoch} with assignor {self.reader.assignor!r} has {size}."

    def _waiting(
        self, member: ConsumerGroupMember, awaited: Sequence[AwaitedPartition], *, is_holder: bool
    ) -> Iterator[str]:
        """Yield sentences on partitions that a member waits for and their holders, or on its session or heartbeat."""
        name = self._describe(member)
        if member.member_epoch == LEAVING_STATIC_EPOCH:
            kept = self._partitions(self.reader.named(member.assigned))
            yield f"{name} has left for a while and keeps {kept}, for {self._session(member)} more."
        elif member.member_epoch == JOINING_EPOCH:
            yield f"{name} was fenced, and is removed in {self._session(member)} unless it rejoins."
        elif member.state is UNRELEASED_PARTITIONS and not awaited:
            yield f"{name} gets the rest of its partitions with its next heartbeat."
        elif member.state is STABLE and not awaited and not is_holder:
            yield f"{name} learns of its new target with its next heartbeat."
        for (holder_id, is_revoked), some in groupby(awaited, key=lambda each: (each.holder_id, each.is_revoked)):
            partitions = list(some)
            what = self._partitions([(each.topic, each.partition) for each in partitions])
            verb, them = ("is", "it") if len(partitions) == 1 else ("are", "them")
            holder, left = self.names[holder_id], self._left(partitions[0].until_ms)
            still = f"{name} waits for {what}, which {verb} still with {holder}"
            if self.group.members[holder_id].member_epoch == LEAVING_STATIC_EPOCH:
                yield f"{still}; {holder} has left for a while, and is removed in {left} unless it returns."
            elif is_revoked:
                yield f"{still}; {holder} has {left} to give {them} up."
            else:
                yield (
                    f"{still}; {holder} has to give {them} up from its next heartbeat on, and is removed in {left} "
                    + ("if it sends none.")
                )

    def _revoking(
        self, wanted: frozenset[tuple[str, str, int]] | set[tuple[str, str, int]] = frozenset()
    ) -> Iterator[str]:
        """Yield what members have to give up that is not mentioned yet, because no member waits for it."""
        revoking = [each for each in self.group.members.values() if each.state is UNREVOKED_PARTITIONS]
        for member in revoking[:MAX_NAMES]:
            pending = self.reader.named(member.pending_revocation)
            unwanted = [each for each in pending if (member.member_id, *each) not in wanted]
            if unwanted:
                left = self._left(self.reader.removed_ms(member, is_revoked=True))
                yield f"{self._describe(member)} has {left} to give up {self._partitions(unwanted)}."

    def _unresolved(self) -> Iterator[str]:
        """Yield when regular expressions are resolved that are new, or that a new topic may match."""
        subscriptions = self.group.subscriptions
        first = next(iter(subscriptions.resolved.values()), None)
        new = [repr(regex) for regex in subscriptions.regexes if regex not in subscriptions.resolved]
        if new:
            what = f"The topics of {listed(new)} are not known yet"
        elif first is not None and first.version < self.reader.cluster.topics.created_version:
            what = "A topic was created since the regular expressions of members were resolved"
        else:
            return
        due_ms = 0 if first is None else first.timestamp_ms + MIN_REFRESH_INTERVAL_MS
        which = "next heartbeat" if due_ms < self.now_ms else f"first heartbeat after {self._left(due_ms)}"
        yield f"{what}: the {which} resolves all of them."

    def _classic(self) -> Iterator[str]:
        """Yield what members that use the classic protocol have to do, and until when."""
        for deadlines, task in (
            (self.group.join_deadlines, "has {} to rejoin"),
            (self.group.sync_deadlines, "has {} to send its SyncGroup"),
        ):
            for member_id in list(deadlines)[:MAX_NAMES]:
                left = self._left(deadlines[member_id])
                yield f"{self.names[member_id]}, which uses the classic protocol, {task.format(left)}."
            if len(deadlines) > MAX_NAMES:
                yield f"So has {counted(len(deadlines) - MAX_NAMES, 'more member')}."

    def _held(self) -> Iterator[str]:
        """Yield a sentence on members that are not believed to have given up partitions."""
        held = [each for each in self.group.members.values() if each.state is UNREVOKED_PARTITIONS]
        held = [each for each in held if self.controls.holds_revocation_of(each.member_id, each.instance_id)]
        if held:
            names = listed(self.names[each.member_id] for each in held)
            yield f"What {names} must give up is held until it is released."

    def _silent(self) -> Iterator[str]:
        """Yield a sentence on the member whose session expires first, once more than half of its session has passed.

        No sentence if that member is a static member that has left for a while.
        """
        deadlines = self.group.session_deadlines
        member_id = min(deadlines, key=deadlines.__getitem__, default=None)
        member = None if member_id is None else self.group.members[member_id]
        if member_id is None or member is None or member.member_epoch == LEAVING_STATIC_EPOCH:
            return
        if deadlines[member_id] - self.now_ms < self.reader.session_timeout_of(member) / 2:
            left = self._left(deadlines[member_id])
            yield f"If {self.names[member_id]} sends no heartbeat, it is removed in {left}: its session expires."

    def _describe(self, member: ConsumerGroupMember) -> str:
        name = self.names[member.member_id]
        return name if member.instance_id is None else f"{name} (static {member.instance_id!r})"

    def _session(self, member: ConsumerGroupMember) -> str:
        return self._left(self.group.session_deadlines[member.member_id])

    def _left(self, deadline_ms: float) -> str:
        return seconds_text(deadline_ms - self.now_ms)

    def _named(self, text: str) -> str:
        return with_names(text, self.names)

    def _partitions(self, partitions: Sequence[TopicPartition]) -> str:
        return partition_ranges(partition_names(partitions))


_BY_STATE = {
    ConsumerGroupState.EMPTY: ConsumerGroupExplanation.empty,
    ConsumerGroupState.ASSIGNING: ConsumerGroupExplanation.assigning,
    ConsumerGroupState.RECONCILING: ConsumerGroupExplanation.reconciling,
    ConsumerGroupState.STABLE: ConsumerGroupExplanation.stable,
}


def offsets_in_transactions(broker: BrokerNode, group_id: str) -> Iterator[str]:
    """Yield a sentence on the partitions whose committed offsets may change at the end of a transaction."""
    pending = broker.coordinator.offsets.pending_of(group_id)
    if not pending:
        return
    places = listed(dict.fromkeys(partition_names((each.topic, each.partition) for each in pending)))
    producers = dict.fromkeys(str(each.producer_id) for each in pending)
    noun = "transaction of producer" if len(producers) == 1 else "transactions of producers"
    yield f"Offsets for {places} are pending until the end of the {noun} {listed(producers)}."
