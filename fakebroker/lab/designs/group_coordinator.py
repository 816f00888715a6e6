"""What the coordinators of the classic and of the consumer protocol have in common in the lab: both are
`group_coordinator.Coordinator`, with one log and one way to commit and fetch offsets.
"""

from collections.abc import Hashable, Mapping
from math import inf

from fakebroker.coordinator.config import CoordinatorConfig
from fakebroker.coordinator.group_coordinator import Coordinator
from fakebroker.coordinator.group_history import ChangedGroup, discard_change
from fakebroker.coordinator.records import Record
from fakebroker.errors import ErrorCode
from fakebroker.lab.design import CoordinatorPort, Link, Records
from fakebroker.lab.designs.offset_responses import commit_response, committed_partitions, fetch_response
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse


class GroupCoordinator:
    """A part of `lab.design.Coordinator`: partitions, time, offsets, and the log.

    Args:
        config: The coordinator's settings.
        port: Carries out its actions.
    """

    def __init__(self, config: CoordinatorConfig, port: CoordinatorPort) -> None:
        self._port = port
        self._coordinator = Coordinator(config, port.new_id, self._append, on_change=self._on_change)
        self._links: dict[str, Link] = {}  # By member id.
        self._leaving: set[str] = set()

    # What the protocols differ in

    def _answer(self) -> None:
        """Answer the requests that were parked, if the protocol parks any."""

    def _key_of(self, record: Record) -> tuple[Hashable, bool]:
        """Return the key of a record in the log, and whether the record deletes it."""
        raise NotImplementedError

    def _removed(self, group: ChangedGroup) -> list[str]:
        """Return the members that the change of a group has removed, also those that have left."""
        raise NotImplementedError

    # lab.design.Coordinator

    def elected(self, partition: int, now_ms: float) -> None:
        self._coordinator.start_loading(partition)

    def loaded(self, partition: int, records: Records, now_ms: float) -> None:
        self._coordinator.finish_loading(partition, records.values(), now_ms)
        self._answer()

    def disconnected(self, link: Link, now_ms: float) -> None:
        """Kafka's coordinator does not know connections."""

    def next_deadline(self) -> float:
        due_ms = self._coordinator.queue.next_deadline()
        return inf if due_ms is None else due_ms

    def tick(self, now_ms: float) -> None:
        self._coordinator.queue.run(now_ms)
        self._answer()

    def next_beats(self, group_id: str) -> Mapping[Link, float]:
        return {}

    # Offsets

    def _commit(self, link: Link, request: OffsetCommitRequest, now_ms: float) -> None:
        offsets = [(topic.name, each) for topic in request.topics for each in topic.partitions]
        errors = self._coordinator.offsets.commit(request, offsets, now_ms)
        self._port.reply(link, commit_response(request, errors[0]))

    def _fetched(self, request: OffsetFetchRequest, now_ms: float) -> OffsetFetchResponse:
        group = request.groups[0]
        error = self._coordinator.offsets.check_fetch(group.group_id, group.member_id, group.member_epoch)
        if error:
            return fetch_response(request, {}, error)
        error, found = self._coordinator.offsets.fetch(group.group_id, committed_partitions(request))
        offsets = {(topic, index): each.offset for topic, index, each in found if each is not None}
        return fetch_response(request, offsets, error)

    # What the coordinator does

    def _append(self, partition: int, records: tuple[Record, ...]) -> ErrorCode:
        """Append records. The port holds the answers until they are stored, as a log that takes time."""
        keyed: dict[Hashable, Record | None] = {}
        for record in records:
            key, is_deletion = self._key_of(record)
            keyed[key] = None if is_deletion else record
        self._port.store(partition, keyed)
        return ErrorCode.NONE

    def _on_change(self, group: ChangedGroup, now_ms: float) -> None:
        removed = self._removed(group)
        discard_change(group, now_ms)
        for member_id in removed:
            self._links.pop(member_id, None)
            if member_id in self._leaving:
                self._leaving.discard(member_id)
            else:
                self._port.expelled(group.group_id, member_id)


def never(group_id: str) -> None:
    """The keeper of sessions that are suspended: no other timer of a group that rests expires."""
