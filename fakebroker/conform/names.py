"""Translation between the names in a transcript and the names in a real cluster. Does not depend on sockets.

In a transcript a group is `g`, a topic `news`, a transactional id `t`, the first producer id 0. In a cluster, the topic
becomes `conform1f2e3a.17.news`: the prefix of the run, then the number of the transcript. So transcripts can be played
at the same time, and everything with the prefix can be removed afterwards. The names of groups and transactional ids
contain one more number, as in `conform1f2e3a.17.4.g`. It is chosen so that the right broker coordinates them.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from fakebroker.cluster.topics import OFFSETS_TOPIC
from fakebroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse, AddPartitionsToTxnTopicResult
from fakebroker.protocol.messages.end_txn import EndTxnResponse
from fakebroker.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from fakebroker.protocol.messages.init_producer_id import InitProducerIdResponse
from fakebroker.protocol.messages.list_groups import ListGroupsResponse
from fakebroker.protocol.messages.list_transactions import ListTransactionsResponse
from fakebroker.protocol.records import crc32c, split_batches
from fakebroker.protocol.schema import Message, Struct, replaced
from fakebroker.protocol.types import Primitive

_TOPICS = {"topic", "topic_name", "topic_names", "subscribed_topic_names"}
_GROUPS = {"group_id", "group_ids", "groups", "groups_names"}
_TRANSACTIONAL_IDS = {"transactional_id", "transactional_ids", "v3_and_below_transactional_id"}
_PRODUCER_IDS = {"producer_id", "v3_and_below_producer_id", "producer_id_filters"}
_PAYLOADS = {"metadata", "assignment", "member_metadata", "member_assignment"}
_UNKNOWN_PRODUCER_ID = 2**48
"""Added to a producer id that a transcript names, such as 99, but that the cluster has not assigned in it."""

_CRC_AT, _CHECKED_FROM, _PRODUCER_ID_AT = 17, 21, 43
"""Positions in a record batch."""


S = TypeVar("S", bound=Struct)


class Names:
    """The names of one transcript.

    Args:
        base: The start of all names of the transcript in the cluster.
        nodes: Node ids in the cluster, by node id in the transcript.
        uses_empty_group: Whether the transcript uses the group "". All transcripts share this group, so lists of groups
            contain it only for transcripts that use it.

    Attributes:
        offsets_partition: The partition of `__consumer_offsets` in the cluster that has the transcript's groups. In the
            transcript it is partition 0.
    """

    def __init__(self, base: str, nodes: dict[int, int], *, uses_empty_group: bool = False) -> None:
        self.base, self.nodes, self.uses_empty_group = base, nodes, uses_empty_group
        self.offsets_partition = 0
        self._node_names = {real: name for name, real in nodes.items()}
        self._topics: dict[str, str] = {}
        self._groups: dict[str, str] = {}
        self._transactional_ids: dict[str, str] = {}
        self._producer_ids: dict[int, int] = {}
        self._topic_names: dict[str, str] = {}
        self._group_names: dict[str, str] = {}
        self._transactional_id_names: dict[str, str] = {}

    @property
    def topics(self) -> list[str]:
        """The topics in the cluster."""
        return list(self._topic_names)

    @property
    def groups(self) -> list[str]:
        """The groups in the cluster."""
        return list(self._group_names)

    @property
    def transactional_ids(self) -> list[str]:
        """The transactional ids in the cluster."""
        return list(self._transactional_id_names)

    # From the transcript to the cluster

    def topic(self, name: str) -> str:
        if name == "" or name.startswith("__"):
            return name
        if name not in self._topics:
            self._topics[name] = f"{self.base}.{name}"
            self._topic_names[self._topics[name]] = name
        return self._topics[name]

    def group(self, name: str) -> str:
        return self._groups[name] if name else name

    def transactional_id(self, name: str) -> str:
        return self._transactional_ids[name] if name else name

    def _is_own(self, real: str) -> bool:
        """Return whether a group belongs to this transcript, or is the group "" that it uses."""
        return real in self._group_names or (real == "" and self.uses_empty_group)

    def is_missing(self, name: str, key_type: int) -> bool:
        """Return whether a group (type 0) or a transactional id (type 1) has no name in the cluster yet."""
        return name != "" and name not in (self._transactional_ids if key_type else self._groups)

    def add(self, name: str, key_type: int, real: str) -> None:
        """Set the name of a group or a transactional id in the cluster."""
        (self._transactional_ids if key_type else self._groups)[name] = real
        (self._transactional_id_names if key_type else self._group_names)[real] = name

    def missing(self, message: Message) -> list[tuple[str, int]]:
        """Return the groups and transactional ids in a request that have no name yet, with their types."""
        kind = message.key_type if isinstance(message, FindCoordinatorRequest) else 0
        found: dict[tuple[str, int], None] = {}

        def collect(struct: Struct, name: str, value: Any) -> Any:
            key_type = 0 if name in _GROUPS else 1 if name in _TRANSACTIONAL_IDS else None
            if name in ("key", "coordinator_keys"):
                key_type = kind
            if key_type is not None:
                names = value if isinstance(value, list) else [value]
                found.update({(each, key_type): None for each in names if self.is_missing(each, key_type)})
            return value

        _changed(message, collect)
        return list(found)

    def _swapped(self, partition: int) -> int:
        """Exchange partition 0 of `__consumer_offsets`, as in transcripts, and the partition of the groups."""
        return {0: self.offsets_partition, self.offsets_partition: 0}.get(partition, partition)

    def _producer_id(self, number: int) -> int:
        if number < 0:
            return number
        for real, known in self._producer_ids.items():
            if known == number:
                return real
        return number + _UNKNOWN_PRODUCER_ID

    def request(self, message: Message) -> Message:
        """Return a request with the names of the cluster."""
        find = {0: self.group, 1: self.transactional_id}
        kind = find.get(message.key_type, self.group) if isinstance(message, FindCoordinatorRequest) else self.group

        def change(struct: Struct, name: str, value: Any) -> Any:
            if _is_topic(struct, name):
                return _each(self.topic, value)
            if name in _GROUPS:
                return _each(self.group, value)
            if name in _TRANSACTIONAL_IDS:
                return _each(self.transactional_id, value)
            if name == "v3_and_below_producer_id" and getattr(struct, "transactions", None):
                return value  # a version that does not have this field
            if name in _PRODUCER_IDS:
                return _each(self._producer_id, value)
            if name == "partitions" and getattr(struct, "name", None) == OFFSETS_TOPIC:
                return _each(self._swapped, value)
            if name in ("key", "coordinator_keys"):
                return _each(kind, value)
            if name == "subscribed_topic_regex" and value:
                return f"{_quoted(self.base)}\\.(?:{value})"
            if name == "transactional_id_pattern" and value:
                return f"{_quoted(self.base)}\\.[0-9]+\\.(?:{value})"
            if name == "records":
                return with_producer_ids(value, self._producer_id)
            if name in _PAYLOADS and isinstance(value, bytes):
                for topic, real in self._topics.items():
                    value = value.replace(_prefixed(topic), _prefixed(real))
            return value

        return _changed(message, change)

    # From the cluster to the transcript

    def producer_number(self, producer_id: int) -> int:
        """Return the producer id in the transcript."""
        if producer_id >= _UNKNOWN_PRODUCER_ID:
            return producer_id - _UNKNOWN_PRODUCER_ID
        return self._producer_ids.get(producer_id, producer_id)

    def response(self, message: Message) -> Message:
        """Return a response with the names of the transcript, without groups and transactions of other transcripts."""
        match message:
            case InitProducerIdResponse() | EndTxnResponse() if message.producer_id >= 0:
                self._producer_ids.setdefault(message.producer_id, len(self._producer_ids))
            case ListGroupsResponse():
                own = [
                    each for each in message.groups if each.group_id in self._group_names or self._is_own(each.group_id)
                ]
                message = replaced(message, groups=own)
            case ListTransactionsResponse():
                listed = message.transaction_states
                own_ids = [each for each in listed if each.transactional_id in self._transactional_id_names]
                message = replaced(message, transaction_states=own_ids)
            case AddPartitionsToTxnResponse():
                message = self._with_offsets_partition(message)

        def change(struct: Struct, name: str, value: Any) -> Any:
            if _is_topic(struct, name):
                return _each(self.topic_name, value)
            if name in _GROUPS:
                return _each(lambda real: self._group_names.get(real, real), value)
            if name in _TRANSACTIONAL_IDS:
                return _each(lambda real: self._transactional_id_names.get(real, real), value)
            if name in _PRODUCER_IDS:
                return _each(self.producer_number, value)
            if name == "partitions" and getattr(struct, "topic", None) == OFFSETS_TOPIC:
                return _each(self._swapped, value)
            if name == "node_id" and isinstance(struct, Coordinator | FindCoordinatorResponse):
                return self._node_names.get(value, value)
            if name == "subscribed_topic_regex" and value:
                return value.removeprefix(f"{_quoted(self.base)}\\.(?:").removesuffix(")")
            if name == "records":
                return with_producer_ids(value, self.producer_number)
            if name in _PAYLOADS and isinstance(value, bytes):
                for topic, real in self._topics.items():
                    value = value.replace(_prefixed(real), _prefixed(topic))
            return value

        return _changed(message, change)

    def _with_offsets_partition(self, message: AddPartitionsToTxnResponse) -> AddPartitionsToTxnResponse:
        """Return the response with partition 0 of `__consumer_offsets` in place of the partition of the groups."""

        def swapped(topics: list[AddPartitionsToTxnTopicResult]) -> list[AddPartitionsToTxnTopicResult]:
            return [
                replaced(
                    topic,
                    results_by_partition=[
                        replaced(each, partition_index=self._swapped(each.partition_index))
                        for each in topic.results_by_partition
                    ],
                )
                if topic.name == OFFSETS_TOPIC
                else topic
                for topic in topics
            ]

        return replaced(
            message,
            results_by_topic_v3_and_below=swapped(message.results_by_topic_v3_and_below),
            results_by_transaction=[
                replaced(each, topic_results=swapped(each.topic_results)) for each in message.results_by_transaction
            ],
        )

    def topic_name(self, real: str) -> str:
        """Return the name of a topic in the transcript."""
        return self._topic_names.get(real, real)

    def node_name(self, real: int) -> int:
        """Return the node id in the transcript."""
        return self._node_names.get(real, real)


def _quoted(base: str) -> str:
    """Return a regular expression for the start of names: letters, digits, hyphens and dots. Only dots are escaped."""
    return base.replace(".", "\\.")


def _is_topic(struct: Struct, name: str) -> bool:
    kind = type(struct).__name__
    return name in _TOPICS or (name == "name" and "Topic" in kind and "Config" not in kind)


def _each(change: Callable[[Any], Any], value: Any) -> Any:
    return [change(each) for each in value] if isinstance(value, list) else change(value)


def _prefixed(name: str) -> bytes:
    """Return a name as subscriptions and assignments contain it: its length in two bytes, then the name."""
    return len(name).to_bytes(2, "big") + name.encode()


def _changed(struct: S, change: Callable[[Struct, str, Any], Any]) -> S:
    """Return a copy of a struct whose primitive values are changed; the struct itself if none is."""
    changes: dict[str, Any] = {}
    for field in struct.FIELDS:
        value = getattr(struct, field.name)
        if value is None:
            continue
        if isinstance(field.type, Primitive):
            new = change(struct, field.name, value)
        elif field.is_array:
            new = [_changed(each, change) for each in value]
        else:
            new = _changed(value, change)
        if new != value:
            changes[field.name] = new
    return replaced(struct, **changes) if changes else struct


def with_producer_ids(data: bytes, change: Callable[[int], int]) -> bytes:
    """Return record batches with changed producer ids and recomputed checksums."""
    made = bytearray()
    for batch in split_batches(data):
        changed = bytearray(batch.data)
        changed[_PRODUCER_ID_AT : _PRODUCER_ID_AT + 8] = change(batch.producer_id).to_bytes(8, "big", signed=True)
        changed[_CRC_AT:_CHECKED_FROM] = crc32c(bytes(changed[_CHECKED_FROM:])).to_bytes(4, "big")
        made += changed
    return bytes(made)
