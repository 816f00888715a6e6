"""The "Group management protocol" of the consumer rewrite design: the coordinator of
`proposals.consumer_rewrite`, and the member of `client.member.rewrite`.

Group metadata is in the registry, offsets are in the offsets topic. What the document leaves open is listed there.
"""

from collections.abc import Hashable, Mapping
from math import inf
from typing import Any

from fakebroker.client.member.member_settings import MemberSettings
from fakebroker.client.member.rewrite.rewrite_member import RewriteMember
from fakebroker.client.member.rewrite.rewrite_settings import RewriteSettings
from fakebroker.coordinator.partitions import partition_for
from fakebroker.errors import ErrorCode
from fakebroker.lab.design import CoordinatorPort, CoordinatorSettings, Design, Link, MemberPort, Records
from fakebroker.lab.designs.effects_member import ALIVE, EffectsMember
from fakebroker.lab.designs.offset_responses import commit_response, committed_partitions, fetch_response
from fakebroker.lab.invariants import INVARIANTS
from fakebroker.proposals.consumer_rewrite.api import GroupMetadata, JoinAnswer, JoinRequest, RewriteConfig, Stored
from fakebroker.proposals.consumer_rewrite.coordinator import RewriteCoordinator
from fakebroker.proposals.consumer_rewrite.group import Consumer
from fakebroker.proposals.consumer_rewrite.group_store import GroupStore
from fakebroker.proposals.consumer_rewrite.messages import (
    RewriteJoinGroupRequest,
    RewriteJoinGroupResponse,
    RewriteOwnedTopic,
)
from fakebroker.proposals.consumer_rewrite.registry import Registry
from fakebroker.proposals.consumer_rewrite.states import STEADY
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest
from fakebroker.protocol.schema import Message
from fakebroker.topic_partition import by_topic


class RewriteLabMember(EffectsMember):
    """A consumer of the rewrite design; a `lab.design.Member`.

    Args:
        settings: Its settings; it has no rebalance timeout.
        port: Carries out its actions.
    """

    def __init__(self, settings: MemberSettings, port: MemberPort) -> None:
        assert isinstance(settings.assignor, str)
        rewrite = RewriteSettings(
            group_id=settings.group_id,
            client_id=settings.client_id,
            topics=settings.topics,
            strategy=settings.assignor,
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_frequency=settings.session_timeout_ms / settings.heartbeat_interval_ms,
            commit_interval_ms=settings.commit_interval_ms,
            retry_backoff_ms=settings.retry_backoff_ms,
        )
        self._rewrite = RewriteMember(rewrite)
        super().__init__(self._rewrite, port, rewrite.heartbeat_interval_ms, rewrite.commit_interval_ms)

    @property
    def _consumes(self) -> bool:
        return self._rewrite.is_in_generation


class RewriteLabCoordinator:
    """The coordinator of one broker; a `lab.design.Coordinator`.

    Args:
        settings: Its settings.
        port: Carries out its actions.
    """

    def __init__(self, settings: CoordinatorSettings, port: CoordinatorPort) -> None:
        self._port, self._partitions = port, settings.offsets_partitions
        self._coordinator = RewriteCoordinator(
            RewriteConfig(max_session_timeout_ms=settings.max_session_timeout_ms),
            new_id=port.new_id,
            partition_count=lambda topic: port.partition_counts().get(topic, 0),
            store=self._store,
            shard_of=self._partition_of,
            disconnect=self._disconnect,
            on_expiry=self._on_expiry,
        )
        self._group_store: GroupStore | None = None
        self._offsets: dict[int, dict[Hashable, int]] = {}  # By offsets partition, then group and partition.

    def _partition_of(self, group_id: str) -> int:
        return partition_for(group_id, self._partitions)

    # lab.design.Coordinator

    def elected(self, partition: int, now_ms: float) -> None:
        self._coordinator.elect(partition)

    def loaded(self, partition: int, records: Records, now_ms: float) -> None:
        self._offsets[partition] = dict(records)
        self._port.access(
            lambda registry: self._stored_groups(registry).read(partition),
            lambda groups: self._coordinator.load(partition, groups, self._port.now_ms()),
        )

    def topics_changed(self, now_ms: float) -> None:
        for topic in self._port.partition_counts():
            self._coordinator.topic_changed(topic, now_ms)

    def received(self, link: Any, message: Message, now_ms: float) -> None:
        match message:
            case HeartbeatRequest(group_id=group_id, generation_id=generation_id, member_id=consumer_id):
                error = self._coordinator.heartbeat(group_id, generation_id, consumer_id, now_ms, link)
                self._port.reply(link, HeartbeatResponse(error_code=error) if error else ALIVE)
            case RewriteJoinGroupRequest():
                self._join(link, message, now_ms)
            case OffsetCommitRequest():
                self._commit(link, message)
            case OffsetFetchRequest():
                self._fetch(link, message)

    def disconnected(self, link: Link, now_ms: float) -> None:
        """Failures are detected by missing heartbeats only."""

    def next_deadline(self) -> float:
        due_ms = self._coordinator.queue.next_deadline()
        return inf if due_ms is None else due_ms

    def tick(self, now_ms: float) -> None:
        self._coordinator.queue.run(now_ms)

    def is_steady(self, group_id: str, links: int) -> bool:
        group = self._coordinator.group(group_id)
        return group is not None and group.state is STEADY and len(group.consumers) == links

    def next_beats(self, group_id: str) -> Mapping[Link, float]:
        return {}

    def rest(self, group_id: str) -> None:
        for consumer in self._consumers(group_id):
            consumer.deadline_ms = inf

    def wake(self, group_id: str, last_ms: Mapping[Link, float]) -> None:
        for consumer in self._consumers(group_id):
            heard_ms = last_ms[consumer.connection]  # type: ignore[index]  # connections are links
            deadline_ms = heard_ms + consumer.session_timeout_ms
            if consumer.deadline_ms < inf:  # A heartbeat has arrived during the rest.
                deadline_ms = max(deadline_ms, consumer.deadline_ms)
            self._coordinator.resume_session(consumer, deadline_ms)

    def _consumers(self, group_id: str) -> list[Consumer]:
        group = self._coordinator.group(group_id)
        assert group is not None, f"group {group_id!r}: expected a group that rests"
        return list(group.consumers.values())

    # Requests

    def _join(self, link: Any, request: RewriteJoinGroupRequest, now_ms: float) -> None:
        def done(answer: JoinAnswer) -> None:
            topics = [
                RewriteOwnedTopic(topic_name=topic, partitions=indexes)
                for topic, indexes in by_topic(answer.partitions).items()
            ]
            response = RewriteJoinGroupResponse(
                error_code=answer.error,
                group_generation_id=answer.generation_id,
                consumer_id=answer.consumer_id,
                partitions_to_own=topics,
            )
            self._port.reply(link, response)

        join = JoinRequest(
            group_id=request.group_id,
            consumer_id=request.consumer_id,
            session_timeout_ms=request.session_timeout_ms,
            topics=tuple(request.topics),
            strategy=request.partition_assignment_strategy,
            connection=link,
        )
        self._coordinator.join_group(join, now_ms, done)

    def _commit(self, link: Link, request: OffsetCommitRequest) -> None:
        error = self._coordinator.error_of_commit(
            request.group_id, request.generation_id_or_member_epoch, request.member_id
        )
        if error:
            self._port.reply(link, commit_response(request, error))
            return
        partition = self._partition_of(request.group_id)
        offsets: dict[Hashable, int] = {
            (request.group_id, (topic.name, each.partition_index)): each.committed_offset
            for topic in request.topics
            for each in topic.partitions
        }

        def stored(is_stored: bool) -> None:
            if is_stored:
                self._offsets[partition].update(offsets)
            self._port.reply(link, commit_response(request, 0 if is_stored else ErrorCode.NOT_COORDINATOR))

        self._port.append(partition, offsets, stored)

    def _fetch(self, link: Link, request: OffsetFetchRequest) -> None:
        group_id = request.groups[0].group_id
        stored = self._offsets.get(self._partition_of(group_id))
        error = ErrorCode.NOT_COORDINATOR if stored is None else ErrorCode.NONE
        wanted = committed_partitions(request) if stored is not None else ()
        offsets = {each: (stored or {}).get((group_id, each), -1) for each in wanted}
        self._port.reply(link, fetch_response(request, offsets, error))

    # What the coordinator does

    def _stored_groups(self, registry: Registry[Any]) -> GroupStore:
        if self._group_store is None:
            self._group_store = GroupStore(registry)
        return self._group_store

    def _store(self, group_id: str, metadata: GroupMetadata, done: Stored) -> None:
        assert self._group_store is not None, "the shard was read"
        write = self._group_store.prepared_write(self._partition_of(group_id), group_id, metadata)
        self._port.access(lambda registry: write(), lambda error: done(error, self._port.now_ms()))

    def _disconnect(self, connection: Any) -> None:
        self._port.close(connection)

    def _on_expiry(self, consumer: Consumer) -> None:
        self._port.expelled(consumer.group.group_id, consumer.consumer_id)


DESIGN = Design(
    name="rewrite",
    summary="The consumer rewrite design: one JoinGroup, the coordinator assigns, group metadata in a registry",
    member=RewriteLabMember,
    coordinator=RewriteLabCoordinator,
    beats=frozenset({HeartbeatRequest, HeartbeatResponse, OffsetCommitRequest, OffsetCommitResponse}),
    guarantees=frozenset(INVARIANTS),
)
