"""The consumer groups of one coordinator: their requests, their timers, and the records that they append."""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Protocol

from fakebroker.coordinator.classic.group import join_error, sync_error
from fakebroker.coordinator.classic.rebalance import left
from fakebroker.coordinator.consumer import heartbeat, migration
from fakebroker.coordinator.consumer.config import ConsumerGroupConfig, MigrationPolicy
from fakebroker.coordinator.consumer.group import UPGRADED, ConsumerGroup
from fakebroker.coordinator.consumer.heartbeat import NO_NAMES, Step
from fakebroker.coordinator.consumer.member import (
    JOINING_EPOCH,
    LEAVING_STATIC_EPOCH,
    NO_PARTITIONS,
    ConsumerGroupMember,
    HeartbeatError,
)
from fakebroker.coordinator.consumer.records import current_assignment_record, group_epoch_record, regex_record
from fakebroker.coordinator.consumer.states import STABLE
from fakebroker.coordinator.consumer.subscriptions import (
    NOT_RESOLVED,
    Matcher,
    ResolvedRegex,
    TopicImage,
    metadata_hash,
)
from fakebroker.coordinator.context import RequestContext
from fakebroker.coordinator.group_controls import NO_CONTROLS, GroupControls
from fakebroker.coordinator.history import LOADED
from fakebroker.coordinator.partitions import Append
from fakebroker.coordinator.records import KeyedRecord, Record
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from fakebroker.protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

# Regular expressions: which topics match, and what that changes in the group. Kafka resolves them in another thread,
# between two requests. Here it is a step directly after the heartbeat that causes it. So in both the member gets the
# topics with a later heartbeat.


def resolve(
    regexes: Collection[str],
    topics: TopicImage,
    compile_regex: Callable[[str], Matcher],
    may_describe: Matcher | None,
    now_ms: float,
) -> dict[str, ResolvedRegex]:
    """Return the topics that match each of some regular expressions (`GroupMetadataManager.refreshRegularExpressions`).

    Args:
        regexes: Regular expressions, which are valid because members could subscribe to them.
        topics: The topics of the cluster, those that are internal to Kafka included.
        compile_regex: See `ConsumerGroupConfig`.
        may_describe: Whether the member that causes this may describe a topic; None if it may describe all.
        now_ms: The time.
    """
    matchers = {regex: compile_regex(regex) for regex in regexes}
    names = list(topics.names() if may_describe is None else filter(may_describe, topics.names()))
    return {
        regex: ResolvedRegex(frozenset(filter(matches, names)), topics.version, int(now_ms))
        for regex, matches in matchers.items()
    }


def resolution_records(
    group: ConsumerGroup, resolved: Mapping[str, ResolvedRegex], topics: TopicImage
) -> list[KeyedRecord]:
    """Return the records of resolved regular expressions, and of the next group epoch if their topics have changed.

    Regular expressions that no member has any more are ignored (`handleRegularExpressionsResult`).
    """
    before = group.subscriptions
    current = {regex: found for regex, found in resolved.items() if regex in before.regexes}
    records: list[KeyedRecord] = [regex_record(group.group_id, regex, found) for regex, found in current.items()]
    must_bump = any(before.resolved.get(regex, NOT_RESOLVED).topics != found.topics for regex, found in current.items())
    hash_ = metadata_hash(replace(before, resolved={**before.resolved, **current}).topics(), topics)
    if must_bump or hash_ != group.metadata_hash:
        records.append(group_epoch_record(group.group_id, group.group_epoch + 1, hash_))
    return records


_NONE = ErrorCode.NONE
_NOT_CONTROLLED = GroupControls()


class Downgrade(Protocol):
    """The part of a downgrade that is not in this package: the classic group."""

    def __call__(
        self,
        former: ConsumerGroup,
        members: Sequence[ConsumerGroupMember],
        records: Sequence[Record],
        now_ms: float,
        *,
        renamed: Mapping[str, str],
        rebalances: bool,
        cause: str,
    ) -> ErrorCode:
        """Replace a consumer group by a classic group with these members, after appending records and the new group.

        Args:
            former: The consumer group.
            members: The members of the classic group.
            records: The records that delete the consumer group.
            now_ms: The time.
            renamed: See `migration.downgrade`.
            rebalances: Whether the classic group rebalances.
            cause: Describes what causes it, for the histories.
        """


class ConsumerGroups:
    """The consumer groups of the offsets partitions that one broker leads.

    The methods do not check whether the partition is led, nor whether there is a classic group with the same id;
    `Coordinator` does both. After a call, it calls `Groups.changed`.

    Args:
        config: The settings. Replaced, not changed.
        new_uuid: Returns the text of a UUID.
        append: Appends records to an offsets partition.
        downgrade: Replaces a group by a classic one.
        controls: The manual settings by group id.
    """

    def __init__(
        self,
        config: ConsumerGroupConfig,
        new_uuid: Callable[[], str],
        append: Append[Record],
        downgrade: Downgrade,
        controls: Mapping[str, GroupControls] = NO_CONTROLS,
    ) -> None:
        self.config = config
        self._controls = controls
        self._new_uuid = new_uuid
        self._append = append
        self._downgrade = downgrade
        self._groups: dict[str, ConsumerGroup] = {}

    def get(self, group_id: str) -> ConsumerGroup | None:
        return self._groups.get(group_id)

    def __iter__(self) -> Iterator[ConsumerGroup]:
        return iter(self._groups.values())

    def __len__(self) -> int:
        return len(self._groups)

    def __getitem__(self, group_id: str) -> ConsumerGroup:
        return self._groups[group_id]

    def __contains__(self, group_id: object) -> bool:
        return group_id in self._groups

    def is_consumer(self, group_id: str, member_id: str) -> bool:
        """Whether a member uses the consumer protocol, so that it needs versions of requests with member epochs."""
        group = self._groups.get(group_id)
        member = None if group is None else group.members.get(member_id)
        return member is not None and member.classic is None

    def add(self, group: ConsumerGroup, now_ms: float) -> None:
        """Add a group from the log. All sessions start over, and the rebalance timers of members that need one.

        Here, sessions of classic members have the timeout of the group, too, as in Kafka (`onLoaded`).
        """
        self._groups[group.group_id] = group
        group.change.cause = LOADED
        for member in group.members.values():
            group.arm_session(member.member_id, now_ms + self.session_timeout_ms(group.group_id))
            group.arm_rebalance(member, now_ms)

    def drop(self, group: ConsumerGroup) -> None:
        """Remove a group. Its timers do not expire any more."""
        del self._groups[group.group_id]
        group.deadline_ms = group.scheduled_ms = inf

    # Requests

    def heartbeat(
        self,
        group: ConsumerGroup,
        request: ConsumerGroupHeartbeatRequest,
        client: RequestContext,
        now_ms: float,
        first: Sequence[Record] = (),
    ) -> ConsumerGroupHeartbeatResponse:
        """Handle a heartbeat of a member that joins, stays or leaves.

        Args:
            group: The group. A new group is added when the append has succeeded. If it replaces a classic group, it can
                have members with the classic protocol.
            request: The request, which `check_request` has checked.
            client: The context of the request.
            now_ms: The time.
            first: Records to append before the records of the heartbeat. They replace the former classic group.
        """
        try:
            if heartbeat.is_leaving(request):
                return self._leave(group, request, now_ms)
            step = self._step(group, request, client, now_ms)
            response = heartbeat.heartbeat(step, self._new_member_id)
            self._apply(step, first)
        except HeartbeatError as error:
            return ConsumerGroupHeartbeatResponse(error_code=error.error, error_message=error.message)
        return response

    def _apply(self, step: Step, first: Sequence[Record] = ()) -> None:
        """Append the records of a request, apply them, and restart the timers of the member.

        Raises:
            HeartbeatError: The append failed.
        """
        group, member, version = step.group, step.member, self.config.topics.version
        if step.records or first:
            error = self._append(group.partition, (*first, *step.records))
            if error:
                raise HeartbeatError(error)
        if group.group_id not in self._groups:
            self._groups[group.group_id] = group
            if group.members:  # of the classic group that it was
                for each in group.members.values():
                    self._arm(group, each, step.now_ms)
                group.change.cause = UPGRADED
                group.end_moment(step.now_ms)
        if step.records:
            group.change.cause = step.cause
        for record in step.records:
            group.replay(record)
        if step.checks_metadata:
            group.metadata_version = version
        if step.is_scripted:
            self._controls[group.group_id].next_assignment = None
        if step.unacknowledged is not None:
            group.unacknowledged[member.member_id] = step.unacknowledged
        elif group.unacknowledged:
            group.unacknowledged.pop(member.member_id, None)
        self._arm(group, member, step.now_ms)
        if step.has_moved:
            group.arm_rebalance(member, step.now_ms)
        group.unresolved = step.unresolved

    def extend_session(
        self, request: ConsumerGroupHeartbeatRequest, client: RequestContext, now_ms: float
    ) -> ConsumerGroupHeartbeatResponse | None:
        """Handle a heartbeat that reports nothing new, of a member that has all of its target.

        This is the most frequent request, so its path is short: the session is extended, and nothing else changes.

        Returns:
            The response; None if nothing was done, because the request may change or return more, or is to be rejected.
            Then `heartbeat` has to handle it.
        """
        if not heartbeat.is_bare(request) or (group := self._groups.get(request.group_id)) is None:
            return None
        member_id, instance_id = request.member_id, request.instance_id
        member = self.settled_member(group, member_id, request.member_epoch)
        if (
            member is None
            or (member.client_id, member.client_host) != (client.client_id, client.client_host)
            or (instance_id is not None and group.static_members.get(instance_id) != member_id)
            or (group.subscriptions.regexes and self._must_resolve(group, now_ms))
        ):
            return None
        deadline_ms = now_ms + self.session_timeout_ms(group.group_id)
        if deadline_ms < group.deadline_ms:  # The session timeout was shortened: timers have to be scheduled.
            return None
        group.session_deadlines[member_id] = deadline_ms
        return ConsumerGroupHeartbeatResponse(
            error_code=_NONE,
            member_id=member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval_ms=self.heartbeat_interval_ms(group.group_id),
        )

    def settled_member(self, group: ConsumerGroup, member_id: str, member_epoch: int) -> ConsumerGroupMember | None:
        """Return a member that has all of its target and sends its present epoch, in a group that needs no new target.

        None if there is no such member.
        """
        member = group.members.get(member_id)
        if (
            member is None
            or member_epoch != group.group_epoch
            or not member_epoch == member.member_epoch == group.assignment_epoch
            or member.state is not STABLE
            or member.classic is not None
            or (len(group.votes) > 1 and group.release >= (4, 4))  # Equal votes may begin an epoch.
            or group.metadata_version != self.config.topics.version
        ):
            return None
        return member

    def _must_resolve(self, group: ConsumerGroup, now_ms: float) -> bool:
        """Whether the next heartbeat resolves the regular expressions, even without a change of the subscription."""
        subscriptions, config = group.subscriptions, self.config
        created, interval_ms = config.topics.created_version, config.regex_refresh_interval_ms
        return subscriptions.must_refresh(subscriptions.regexes, now_ms, created, interval_ms)

    def resolve(self, group: ConsumerGroup, may_describe: Callable[[str], bool] | None, now_ms: float) -> None:
        """Resolve the `unresolved` regular expressions of a group on behalf of the member that caused it.

        If the append fails, a later heartbeat tries again.
        """
        regexes, group.unresolved = group.unresolved, ()
        if self._groups.get(group.group_id) is not group:
            return
        topics = self.config.topics
        version = topics.version
        resolved = resolve(regexes, topics, self.config.compile_regex, may_describe, now_ms)
        records = resolution_records(group, resolved, topics)
        if records and not self._append(group.partition, tuple(records)):
            group.change.cause = "regular expressions were resolved"
            self.replay(group, records)
            group.metadata_version = version

    def _leave(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, now_ms: float
    ) -> ConsumerGroupHeartbeatResponse:
        """Handle the last heartbeat of a member.

        Raises:
            HeartbeatError: The member is unknown, or has been replaced.
        """
        member = heartbeat.known_member(group, request.member_id, request.instance_id)
        if request.instance_id is not None and request.member_epoch == LEAVING_STATIC_EPOCH:
            records = heartbeat.leave_for_a_while(group, member)
            static = f"{member.member_id}, static {member.instance_id!r}"
            error = self._store(group, records, f"heartbeat of {static}, which leaves for a while")
        else:
            error = self.remove(group, [member.member_id], now_ms, f"heartbeat of {member.member_id}, which leaves")
        if error:
            return ConsumerGroupHeartbeatResponse(error_code=error)
        return ConsumerGroupHeartbeatResponse(
            error_code=_NONE, member_id=member.member_id, member_epoch=request.member_epoch
        )

    def _step(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, client: RequestContext, now_ms: float
    ) -> Step:
        return Step(
            group=group,
            request=request,
            client=client,
            config=self.config,
            controls=self._controls.get(group.group_id, _NOT_CONTROLLED),
            now_ms=now_ms,
            heartbeat_interval_ms=self.heartbeat_interval_ms(group.group_id),
            assignment_interval_ms=self.assignment_interval_ms(group.group_id),
        )

    def _new_member_id(self) -> str:
        """Return a new member id in the form of Kafka's `Uuid.toString`."""
        return urlsafe_b64encode(bytes.fromhex(self._new_uuid().replace("-", ""))).decode().rstrip("=")

    def remove(self, group: ConsumerGroup, member_ids: Collection[str], now_ms: float, cause: str) -> ErrorCode:
        """Remove members, which must be in the group, in one step. The group may become a classic group.

        Args:
            group: The group.
            member_ids: The members.
            now_ms: The time.
            cause: Describes why, for the history.
        """
        if not member_ids:
            return _NONE
        if migration.is_downgraded_without(group, member_ids, self.config):
            remaining = [member for member_id, member in group.members.items() if member_id not in member_ids]
            records: list[KeyedRecord] = heartbeat.tombstones(group)
            return self._downgrade(group, remaining, records, now_ms, renamed=NO_NAMES, rebalances=True, cause=cause)
        return self._store(group, heartbeat.remove(group, member_ids, self.config.topics), cause)

    def _store(self, group: ConsumerGroup, records: Sequence[KeyedRecord], cause: str) -> ErrorCode:
        """Append records, and apply them unless that fails; return NONE or the error."""
        group.change.cause = cause
        error = self._append(group.partition, tuple(records))
        if not error:
            self.replay(group, records)
        return error

    # Manual control

    def next_epoch(self, group: ConsumerGroup) -> None:
        """Start the next group epoch without a change of members or topics."""
        record = group_epoch_record(group.group_id, group.group_epoch + 1, group.metadata_hash)
        self._store(group, [record], "an assignment was forced")

    def forget_epoch(self, group: ConsumerGroup, member: ConsumerGroupMember, now_ms: float) -> None:
        """Set the epoch of a member back, so that its next heartbeat gets FENCED_MEMBER_EPOCH, and it can rejoin.

        A dynamic member loses its partitions; a static one keeps them, as if it had left for a while.
        """
        member_id = member.member_id
        if member.instance_id is not None:
            records: list[KeyedRecord] = heartbeat.leave_for_a_while(group, member)
        else:
            fenced = member.moved_to(STABLE, JOINING_EPOCH, NO_PARTITIONS, NO_PARTITIONS)
            records = [current_assignment_record(group.group_id, fenced, group.release)]
        if not self._store(group, records, f"epoch of {member_id} was fenced"):
            group.unacknowledged.pop(member_id, None)
            group.arm_rebalance(group.members[member_id], now_ms)

    # Members that use the classic protocol

    def join(
        self, group: ConsumerGroup, request: JoinGroupRequest, context: RequestContext, now_ms: float
    ) -> JoinGroupResponse:
        """Handle a JoinGroup to a group with members. The group may become a classic group."""
        allowed = migration.may_downgrade(self.config, len(group.members))
        if self.config.migration_policy is MigrationPolicy.DISABLED and self.config.release >= (4, 2):
            return join_error(context, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)  # KAFKA-20640, in 4.2.2
        said = migration.heartbeat_of(request)
        step = self._step(group, said, context, now_ms)
        try:
            join = migration.join(step, request, self._new_member_id, may_downgrade=allowed)
            if isinstance(join, JoinGroupResponse):
                return join
            if join.replaced is not None:
                self._downgrade_by(step, join, join.replaced)
            else:
                self._apply(step)
                group.arm_sync(step.member.member_id, now_ms + request.rebalance_timeout_ms)
        except HeartbeatError as error:
            return join_error(context, error.error)
        return migration.join_response(step.member)

    def _downgrade_by(self, step: Step, join: migration.Join, replaced: ConsumerGroupMember) -> None:
        """Replace a group by a classic one because a classic member replaces the last other one.

        Raises:
            HeartbeatError: The append failed.
        """
        group = step.group
        others = [member for member_id, member in group.members.items() if member_id != replaced.member_id]
        renamed = {replaced.member_id: step.member.member_id}
        records = [*step.records, *heartbeat.tombstones(group, renamed)]
        error = self._downgrade(
            group,
            [*others, step.member],
            records,
            step.now_ms,
            renamed=renamed,
            rebalances=join.rebalances,
            cause=step.cause,
        )
        if error:
            raise HeartbeatError(error)

    def sync(self, group: ConsumerGroup, request: SyncGroupRequest, now_ms: float) -> SyncGroupResponse:
        """Handle a SyncGroup."""
        try:
            return migration.sync(group, request, self.config.topics, now_ms)
        except HeartbeatError as error:
            return sync_error(error.error)

    def beat(self, group: ConsumerGroup, request: HeartbeatRequest, now_ms: float) -> ErrorCode:
        """Handle a Heartbeat; return NONE, REBALANCE_IN_PROGRESS or the error."""
        try:
            return migration.beat(group, request, now_ms)
        except HeartbeatError as error:
            return error.error

    def leave(self, group: ConsumerGroup, members: Sequence[MemberIdentity], now_ms: float) -> LeaveGroupResponse:
        """Handle a LeaveGroup of classic members or an administrator.

        Members of both protocols can be removed. A static member can be named by its instance id alone
        (`classicGroupLeaveToConsumerGroup`).
        """
        response = LeaveGroupResponse()
        leaving: dict[str, None] = {}
        for identity in members:
            member_id, instance_id, error = identity.member_id, identity.group_instance_id, _NONE
            try:
                member = group.members.get(member_id) if instance_id is None else group.static_member(instance_id)
            except HeartbeatError:
                member = None
            if instance_id is not None and member is not None and member_id not in ("", member.member_id):
                error = ErrorCode.FENCED_INSTANCE_ID
            response.members.append(left(identity, ErrorCode.UNKNOWN_MEMBER_ID if member is None else error))
            if member is not None and not error:
                leaving[member.member_id] = None
        failure = self.remove(group, leaving, now_ms, f"LeaveGroup of {', '.join(leaving)}")
        return LeaveGroupResponse(error_code=failure) if failure else response

    def expire(self, group: ConsumerGroup, now_ms: float) -> None:
        """Remove the members whose session or rebalance timer has expired, each in a step of its own, as in Kafka."""
        expired = group.expired_members(now_ms)
        if expired and group.keepers:
            next(iter(group.keepers.values()))(group.group_id)
        for member_id, cause in expired.items():
            if member_id in group.members and self.remove(group, [member_id], now_ms, cause):
                # As in Kafka, where the timer runs again after a failed append.
                group.retry_timers(member_id, now_ms, now_ms + _RETRY_MS)
            if self._groups.get(group.group_id) is not group:
                return  # It was downgraded.
            group.end_moment(now_ms)
        group.deadline_ms = group.earliest_deadline()

    def replay(self, group: ConsumerGroup, records: Sequence[KeyedRecord]) -> None:
        """Apply records that were appended."""
        for record in records:
            group.replay(record)

    def _arm(self, group: ConsumerGroup, member: ConsumerGroupMember, now_ms: float) -> None:
        own = member.classic
        timeout_ms = self.session_timeout_ms(group.group_id) if own is None else own.session_timeout_ms
        group.arm_session(member.member_id, now_ms + timeout_ms)

    # Settings

    def assignor_of(self, group: ConsumerGroup) -> str:
        """Return the name of the assignor that most members vote for, or the default."""
        return heartbeat.preferred_assignor(group.votes, self.config.assignors)

    def session_timeout_ms(self, group_id: str) -> int:
        """Return the session timeout of the members of a group."""
        own = self.config.group_config(group_id, "consumer.session.timeout.ms")
        return self.config.session_timeout_ms if own is None else own

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Return the heartbeat interval of the members of a group."""
        own = self.config.group_config(group_id, "consumer.heartbeat.interval.ms")
        return self.config.heartbeat_interval_ms if own is None else own

    def assignment_interval_ms(self, group_id: str) -> int:
        """Return the time between two targets of a group; 0 before KIP-1263."""
        if self.config.release < (4, 3):
            return 0
        own = self.config.group_config(group_id, "consumer.assignment.interval.ms")
        return self.config.assignment_interval_ms if own is None else own


_RETRY_MS = 500
"""When a timer whose append failed runs again (`CoordinatorRuntime`, TIMER_BACKOFF)."""
