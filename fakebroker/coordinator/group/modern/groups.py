"""The consumer groups of one coordinator: their requests and timers, and what they append to the log."""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Iterator, Sequence
from math import inf

from fakebroker.coordinator.group.modern import heartbeat
from fakebroker.coordinator.group.modern.config import ConsumerGroupConfig
from fakebroker.coordinator.group.modern.errors import HeartbeatError
from fakebroker.coordinator.group.modern.group import ConsumerGroup
from fakebroker.coordinator.group.modern.heartbeat import Context, Outcome
from fakebroker.coordinator.group.modern.member import ConsumerGroupMember
from fakebroker.coordinator.group.modern.records import ConsumerGroupRecord
from fakebroker.coordinator.group.modern.requests import ConsumerGroupHeartbeat, HeartbeatResult
from fakebroker.coordinator.group.modern.resolution import resolution_records, resolve
from fakebroker.coordinator.group.modern.states import STABLE
from fakebroker.coordinator.group.records import Procedure, Record
from fakebroker.coordinator.runtime.history import LOADED
from fakebroker.errors import ErrorCode

_NONE = ErrorCode.NONE


class ConsumerGroups:
    """The consumer groups of the offsets partitions that one broker leads.

    The methods that return a `Procedure` do not check whether the partition is led, nor whether there is a classic
    group with the same id; `Coordinator` does both, and runs them.

    Args:
        config: The settings. Replaced, not changed.
        new_uuid: Returns the text of a UUID.
    """

    def __init__(self, config: ConsumerGroupConfig, new_uuid: Callable[[], str]) -> None:
        self.config = config
        self._new_uuid = new_uuid
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

    def of_partition(self, partition: int) -> list[ConsumerGroup]:
        """Return the groups of an offsets partition."""
        return [group for group in self._groups.values() if group.partition == partition]

    def add(self, group: ConsumerGroup, now_ms: float) -> None:
        """Add a group from the log. All sessions start over, and the rebalance timers of members that need one."""
        self._groups[group.group_id] = group
        group.change.cause = LOADED
        for member in group.members.values():
            self._arm(group, member, now_ms)
            group.arm_rebalance(member, now_ms)

    def drop(self, group: ConsumerGroup) -> None:
        """Remove a group. Its timers do not expire any more."""
        del self._groups[group.group_id]
        group.deadline_ms = group.scheduled_ms = inf

    # Requests

    def heartbeat(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeat, now_ms: float, first: Sequence[Record] = ()
    ) -> Procedure[HeartbeatResult]:
        """Handle a heartbeat, also of a member that joins or leaves.

        Args:
            group: The group. It is added if it is new and the append succeeds.
            request: The request, which `requests.check` has checked.
            now_ms: The time.
            first: Records to append before: the tombstone of the classic group that the group replaces.
        """
        try:
            outcome = self._outcome(group, request, now_ms)
        except HeartbeatError as error:
            return HeartbeatResult(error.error, error.message)
        version = self.config.topics.version
        if outcome.records or first:
            group.change.cause = outcome.cause
            error_code = yield (*first, *outcome.records)
            if error_code:
                return HeartbeatResult(error_code)
        self._groups.setdefault(group.group_id, group)
        for record in outcome.records:
            group.replay(record)
        if outcome.checks_metadata:
            group.metadata_version = version
        if (member := outcome.member) is not None:
            self._arm(group, member, now_ms)
            if outcome.restarts_rebalance_timer:
                group.arm_rebalance(member, now_ms)
        group.is_resolving = group.is_resolving or bool(outcome.result.regexes_to_resolve)
        return outcome.result

    def extend_session(
        self,
        group_id: str,
        member_id: str,
        member_epoch: int,
        instance_id: str | None,
        client: tuple[str, str],
        now_ms: float,
    ) -> int | None:
        """Handle a heartbeat that reports nothing new, of a member that has all of its target.

        This is the most frequent request, so its path is short: the session is extended, and nothing else changes.

        Args:
            group_id: The group.
            member_id: The member.
            member_epoch: The epoch that the request has.
            instance_id: The instance id that the request has.
            client: The client's id and host.
            now_ms: The time.

        Returns:
            The heartbeat interval in milliseconds; None if nothing was done, because the request may change or return
            more, or is to be rejected. Then `heartbeat` has to handle it.
        """
        group = self._groups.get(group_id)
        member = None if group is None else group.members.get(member_id)
        if (
            group is None
            or member is None
            or member_epoch != group.group_epoch
            or not member_epoch == member.member_epoch == group.assignment_epoch
            or member.state is not STABLE
            or group.metadata_version != self.config.topics.version
            or (member.client_id, member.client_host) != client
            or (instance_id is not None and group.static_members.get(instance_id) != member_id)
            or (group.subscriptions.regexes and self._must_resolve(group, now_ms))
        ):
            return None
        deadline_ms = now_ms + self.session_timeout_ms(group_id)
        if deadline_ms < group.deadline_ms:  # The session timeout was shortened: timers have to be scheduled.
            return None
        group.session_deadlines[member_id] = deadline_ms
        return self.heartbeat_interval_ms(group_id)

    def _must_resolve(self, group: ConsumerGroup, now_ms: float) -> bool:
        """Whether the next heartbeat, if it does not change the subscription, resolves the regular expressions."""
        subscriptions, config = group.subscriptions, self.config
        created, interval_ms = config.topics.created_version, config.regex_refresh_interval_ms
        return not group.is_resolving and subscriptions.must_refresh(
            subscriptions.regexes, now_ms, created, interval_ms
        )

    def resolve(self, group: ConsumerGroup, regexes: Collection[str], now_ms: float) -> Procedure[None]:
        """Resolve regular expressions (`HeartbeatResult.regexes_to_resolve`).

        If the append fails, a later heartbeat tries again.
        """
        group.is_resolving = False
        if self._groups.get(group.group_id) is not group:
            return
        topics = self.config.topics
        version = topics.version
        records = resolution_records(group, resolve(regexes, topics, self.config.compile_regex, now_ms), topics)
        if records and not (yield tuple(records)):
            group.change.cause = "regular expressions were resolved"
            self.replay(group, records)
            group.metadata_version = version

    def _outcome(self, group: ConsumerGroup, request: ConsumerGroupHeartbeat, now_ms: float) -> Outcome:
        config = self.config
        if request.is_leaving:
            return heartbeat.leave(group, request, config.topics)
        context = Context(
            topics=config.topics,
            assignors=config.assignors,
            max_size=config.max_size,
            heartbeat_interval_ms=self.heartbeat_interval_ms(group.group_id),
            compile_regex=config.compile_regex,
            regex_refresh_interval_ms=config.regex_refresh_interval_ms,
            now_ms=now_ms,
        )
        return heartbeat.heartbeat(group, request, context, self._new_member_id)

    def _new_member_id(self) -> str:
        """Return a new member id in the form of Kafka's `Uuid.toString`."""
        return urlsafe_b64encode(bytes.fromhex(self._new_uuid().replace("-", ""))).decode().rstrip("=")

    def remove(self, group: ConsumerGroup, member_ids: Collection[str], cause: str) -> Procedure[ErrorCode]:
        """Remove members, which must be in the group, in one step; `cause` is for the history."""
        if not member_ids:
            return _NONE
        records = heartbeat.remove(group, member_ids, self.config.topics)
        group.change.cause = cause
        error = yield tuple(records)
        if not error:
            self.replay(group, records)
        return error

    def leave(
        self, group: ConsumerGroup, identities: Sequence[tuple[str, str | None]]
    ) -> Procedure[tuple[ErrorCode, list[ErrorCode]]]:
        """Handle a LeaveGroup of an administrator, with pairs of member id and instance id.

        A static member can be named by its instance id alone (`classicGroupLeaveToConsumerGroup`).
        """
        errors: list[ErrorCode] = []
        leaving: dict[str, None] = {}
        for member_id, instance_id in identities:
            error = _NONE
            if instance_id is None:
                member = group.members.get(member_id)
            else:
                member = group.static_member(instance_id)
                if member is not None and member_id not in ("", member.member_id):
                    error = ErrorCode.FENCED_INSTANCE_ID
            errors.append(ErrorCode.UNKNOWN_MEMBER_ID if member is None else error)
            if member is not None and not error:
                leaving[member.member_id] = None
        failure = yield from self.remove(group, leaving, f"LeaveGroup of {', '.join(leaving)}")
        return failure, [] if failure else errors

    def expire(self, group: ConsumerGroup, now_ms: float) -> Procedure[None]:
        """Remove the members whose session or rebalance timer has expired, each in a step of its own, as in Kafka."""
        for member_id, cause in group.expired_members(now_ms).items():
            if member_id in group.members and (yield from self.remove(group, [member_id], cause)):
                # As in Kafka, where the timer runs again after a failed append.
                group.arm_session(member_id, now_ms + _RETRY_MS)
            group.end_moment(now_ms)
        group.deadline_ms = group.earliest_deadline()

    def replay(self, group: ConsumerGroup, records: Sequence[ConsumerGroupRecord]) -> None:
        """Apply records that were appended."""
        for record in records:
            group.replay(record)

    def _arm(self, group: ConsumerGroup, member: ConsumerGroupMember, now_ms: float) -> None:
        group.arm_session(member.member_id, now_ms + self.session_timeout_ms(group.group_id))

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


_RETRY_MS = 500
"""When a timer whose append failed runs again (`CoordinatorRuntime`, TIMER_BACKOFF)."""
