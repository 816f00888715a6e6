"""Comparison of two answers, field by field.

Member ids, producer ids, topic ids and ids of fetch sessions differ between clusters. Two of them are equal if they
were always paired in this history. Some fields are not compared (`_NOT_COMPARED`), and some lists have no order.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from fakebroker.cluster.configs.changes import ResourceType
from fakebroker.conform.texts import error_text
from fakebroker.protocol.consumer_protocol import decode_assignment
from fakebroker.protocol.messages.api_versions import ApiVersionsResponse
from fakebroker.protocol.messages.describe_configs import DescribeConfigsResponse
from fakebroker.protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from fakebroker.protocol.messages.elect_leaders import ElectLeadersResponse
from fakebroker.protocol.messages.list_config_resources import ListConfigResourcesResponse
from fakebroker.protocol.messages.list_groups import ListGroupsResponse
from fakebroker.protocol.messages.list_transactions import ListTransactionsResponse
from fakebroker.protocol.messages.metadata import MetadataResponse
from fakebroker.protocol.records import decode_records, split_batches
from fakebroker.protocol.registry import API_BY_KEY
from fakebroker.protocol.schema import Field, Message, Struct, replaced
from fakebroker.protocol.types import RECORDS, UUID, Primitive
from tests.histories.history import NO_TOPIC_ID, SHARED_TOPICS

_NOT_COMPARED = {
    *("throttle_time_ms", "host", "port", "cluster_id", "controller_id", "client_host", "log_append_time_ms"),
    *("log_dir", "total_bytes", "usable_bytes", "partition_size", "offset_lag", "client_instance_id"),
    "subscription_id",
    *("transaction_start_time_ms", "last_timestamp", "issue_timestamp", "broker_epoch", "finalized_features_epoch"),
}
_STARTED_WITH = {
    *("advertised.listeners", "listeners"),
    *("listener.security.protocol.map", "controller.listener.names"),
    *("process.roles", "controller.quorum.voters"),
    *("log.dir", "log.dirs"),
    *("log.cleaner.dedupe.buffer.size", "num.io.threads"),
    *("num.network.threads", "auto.create.topics.enable"),
    *("auto.leader.rebalance.enable", "default.replication.factor"),
    *("offsets.topic.replication.factor", "transaction.state.log.replication.factor"),
    *("share.coordinator.state.topic.min.isr", "share.coordinator.state.topic.replication.factor"),
}
"""Brokers on this machine are started with other values of these configs than the fake cluster."""

_NOTHING = ("", bytes(16), NO_TOPIC_ID)
"""Ids that are the same on both sides, because no cluster chooses them."""

_KEYS = (
    *(
        "name",
        "topic",
        "topic_name",
        "topic_id",
        "group_id",
        "partition",
        "partition_index",
        "index",
        "transactional_id",
    ),
    *("resource_type", "resource_name", "entity_type", "key", "user", "producer_id", "member_id"),
)
"""Lists of items with such fields have no order: Kafka often returns them in the order of a hash table."""

_OF_MEMBERS = ("group_instance_id", "instance_id", "client_id", "member_metadata")
"""What tells members apart whose ids are not known."""

_ASSIGNMENTS = ("assignment", "member_assignment")
"""Encoded by Kafka in the order of a hash table."""

_YEAR_2001_MS = 10**12
"""Histories produce records with smaller timestamps."""

_TEXTS = ("error_message", "batch_index_error_message", "documentation")
"""Texts for people. Both sides have one, or an empty one, or none."""

_IDS = {
    "member_id": "member",
    "leader": "member",
    "producer_id": "producer",
    "producer_ids": "producer",
    "topic_id": "topic",
    "session_id": "session",
}


class Difference(NamedTuple):
    """Where two answers differ.

    Attributes:
        kind: The API and the field, such as "JoinGroup: members[].member_id", with errors by number.
        ours: What the fake cluster has answered.
        theirs: What Kafka has answered.
    """

    kind: str
    ours: str
    theirs: str

    def __str__(self) -> str:
        return f"{self.kind}: we {self.ours}, Kafka {self.theirs}"


class Pairs:
    """The ids of the two sides that belong together.

    Args:
        run: The name of the run; names of other histories are left out of lists.
    """

    def __init__(self, run: str) -> None:
        self.run = run
        self._theirs: dict[tuple[str, Any], Any] = {}
        self._ours: dict[tuple[str, Any], Any] = {}

    def pair(self, kind: str, ours: Any, theirs: Any) -> bool:
        """Return whether two ids may be the same one, and remember it."""
        if ours == theirs and isinstance(ours, int):
            return True
        least = 1 if kind == "session" else 0
        if isinstance(ours, int) and (ours < least or theirs < least):
            return False
        if (kind, ours) in self._theirs or (kind, theirs) in self._ours:
            return bool(self._theirs.get((kind, ours)) == theirs)
        if not isinstance(ours, int) and (ours in _NOTHING or theirs in _NOTHING):
            return bool(ours == theirs)
        self._theirs[kind, ours] = theirs
        self._ours[kind, theirs] = ours
        return True

    def text(self, theirs: str) -> str:
        """Return a text of theirs with our ids."""
        for (kind, known), ours in self._ours.items():
            if kind == "member" and known in theirs:
                theirs = theirs.replace(known, ours)
            elif kind == "producer":
                theirs = theirs.replace(f" {known} ", f" {ours} ")
        return theirs

    def difference(self, api: str, ours: Message, theirs: Message) -> Difference | None:
        """Return the first difference of two answers, in the order of the fields."""
        return next(self._struct(f"{api}", self.own(ours), self.own(theirs)), None)

    def own(self, message: Message) -> Message:
        """Leave out what belongs to other histories."""
        match message:
            case ListGroupsResponse():
                return replaced(message, groups=[each for each in message.groups if self._is_own(each.group_id)])
            case ListTransactionsResponse():
                own = [each for each in message.transaction_states if self._is_own(each.transactional_id)]
                return replaced(message, transaction_states=own)
            case DescribeConfigsResponse():
                results = []
                for each in message.results:
                    if each.resource_type == ResourceType.BROKER:
                        each = replaced(each, configs=[one for one in each.configs if one.name not in _STARTED_WITH])
                    if each.resource_type == ResourceType.BROKER_LOGGER:
                        each = replaced(each, configs=[])  # The brokers on this machine log without loggers.
                    results.append(each)
                return replaced(message, results=results)
            case MetadataResponse():
                return replaced(message, topics=[each for each in message.topics if self._is_own(each.name or "")])
            case ListConfigResourcesResponse():
                own_resources = [each for each in message.config_resources if self._is_own(each.resource_name)]
                return replaced(message, config_resources=own_resources)
            case ElectLeadersResponse():
                own_results = [each for each in message.replica_election_results if self._is_own(each.topic)]
                return replaced(message, replica_election_results=own_results)
            case DescribeLogDirsResponse():
                own_dirs = [
                    replaced(each, topics=[topic for topic in each.topics if self._is_own(topic.name)])
                    for each in message.results
                ]
                return replaced(message, results=own_dirs)
            case ApiVersionsResponse():
                # Kafka's quorum of controllers is static here, and so has no version.
                finalized = [each for each in message.finalized_features if each.name != "kraft.version"]
                known = [each for each in message.api_keys if each.api_key in API_BY_KEY]
                return replaced(message, api_keys=known, finalized_features=finalized)
        return message

    def _is_own(self, name: str) -> bool:
        return name.startswith(self.run) or name in SHARED_TOPICS

    def _struct(self, path: str, ours: Any, theirs: Any) -> Iterator[Difference]:
        for each in type(ours).FIELDS:
            if each.name in _NOT_COMPARED:
                continue
            mine, other = getattr(ours, each.name), getattr(theirs, each.name)
            where = f"{path}.{each.name}"
            if mine is None or other is None:
                if mine is not other:
                    yield _differs(where, mine, other)
            elif each.is_array:
                yield from self._list(where, each, mine, other)
            else:
                yield from self._item(where, each, mine, other)

    def _list(self, path: str, described: Field, ours: Sequence[Any], theirs: Sequence[Any]) -> Iterator[Difference]:
        if len(ours) != len(theirs):
            mine, other = [_brief(each) for each in ours], [_brief(each) for each in theirs]
            only_ours = [each for each in mine if each not in other]
            only_theirs = [each for each in other if each not in mine]
            yield Difference(
                f"{path}: length", f"{len(ours)}, alone {only_ours}", f"{len(theirs)}, alone {only_theirs}"
            )
            return
        if not isinstance(described.type, Primitive) and any(each.name in _KEYS for each in described.type.FIELDS):
            ours, theirs = sorted(ours, key=self._our_key), sorted(theirs, key=self._their_key)
        elif isinstance(described.type, Primitive):
            ours, theirs = sorted(ours), sorted(theirs)
        for mine, other in zip(ours, theirs, strict=True):
            yield from self._item(f"{path}[]", described, mine, other)

    def _our_key(self, item: Any) -> str:
        return self._key(item, "")

    def _their_key(self, item: Any) -> str:
        return self._key(item, "theirs")

    def _key(self, item: Any, side: str) -> str:
        """Return a text to sort by that is the same on both sides: with ids that are known, without others."""
        parts = []
        for name in _KEYS:
            value = getattr(item, name, None)
            if name in _IDS and value not in (bytes(16), NO_TOPIC_ID):
                kind = _IDS[name]
                if side:
                    value = self._ours.get((kind, value), "")
                elif (kind, value) not in self._theirs:
                    value = ""
            parts.append(str(value))
        # Members whose ids no answer has told yet.
        parts += (str(getattr(item, name, None)) for name in _OF_MEMBERS)
        return "|".join(parts)

    def _item(self, path: str, described: Field, ours: Any, theirs: Any) -> Iterator[Difference]:
        if isinstance(ours, Struct):
            yield from self._struct(path, ours, theirs)
            return
        kind = _IDS.get(described.name, "topic" if described.type is UUID else "")
        if described.type is RECORDS:
            yield from self._records(path, ours, theirs)
        elif kind:
            if not self.pair(kind, ours, theirs):
                yield Difference(f"{path}: other {kind}", _shown(ours), _shown(theirs))
        elif described.name in _ASSIGNMENTS and ours[:1] == theirs[:1] == b"\0":
            if set(decode_assignment(ours)) != set(decode_assignment(theirs)):
                yield _differs(path, ours, theirs)
        elif described.name == "timestamp" and ours > _YEAR_2001_MS and theirs > _YEAR_2001_MS:
            pass  # A marker has the time of its side's clock.
        elif described.name in _TEXTS:
            if bool(ours) != bool(theirs):
                yield _differs(path, ours, theirs)
        elif isinstance(ours, str):
            if ours != self.text(theirs):
                yield _differs(path, ours, theirs)
        elif ours != theirs:
            yield _differs(path, ours, theirs)

    def _records(self, path: str, ours: bytes, theirs: bytes) -> Iterator[Difference]:
        mine, other = split_batches(ours), split_batches(theirs)
        if len(mine) != len(other):
            yield Difference(f"{path}: batches", str(len(mine)), str(len(other)))
            return
        for a, b in zip(mine, other, strict=True):
            if not self.pair("producer", a.producer_id, b.producer_id):
                yield Difference(f"{path}: producer", str(a.producer_id), str(b.producer_id))
            for name in ("base_offset", "last_offset_delta", "producer_epoch", "base_sequence", "attributes"):
                if getattr(a, name) != getattr(b, name):
                    yield Difference(f"{path}: {name}", str(getattr(a, name)), str(getattr(b, name)))
            if a.is_control:
                continue  # The value of a marker has the epoch of the coordinator.
            if [each.value for each in decode_records(a)] != [each.value for each in decode_records(b)]:
                yield Difference(f"{path}: values", "other", "other")


def _differs(path: str, ours: Any, theirs: Any) -> Difference:
    """Return a difference whose kind has the two values, if these are errors."""
    if path.endswith(("error_code", "error_codes[]")):
        return Difference(f"{path} {error_text(ours)} / {error_text(theirs)}", error_text(ours), error_text(theirs))
    return Difference(path, _shown(ours), _shown(theirs))


def _brief(item: Any) -> str:
    if not isinstance(item, Struct):
        return str(item)
    return ", ".join(str(getattr(item, name)) for name in (*_KEYS, "api_key") if hasattr(item, name))[:120]


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 400 else f"{text[:400]}..."
