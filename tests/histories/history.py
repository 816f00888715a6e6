"""A history as data and as text, and the messages of its steps.

A history is a list of steps. As text, a step is one line:

    A JoinGroup 9 {"group_id": "%g", "member_id": "$A.member_id", "protocols": [{"name": "range", "metadata": "x"}]}
    wait 1500

`A` is the client. `%` becomes a name that only this run of the history has, so `%g` is a group of its own. Fields that
are missing have their defaults. A value may refer to an earlier answer:

| value | meaning |
|---|---|
| `$A.member_id`, `$A.epoch`, `$A.owned` | member id, generation or member epoch, and partitions of A |
| `$A.epoch+1` | a number that is off by one |
| `$A.producer_id`, `$A.producer_epoch` | of A's last InitProducerId or EndTxn |
| `$A.session_id`, `$A.session_epoch` | of A's fetch session |
| `$id:news` | the id of a topic |
| `$former:news` | the id that the topic had before it was created again |
| `$own:1` | a client instance id (telemetry) that only this run has |
| `$topics:news,sport` | bytes: the subscription to topics |
| `$partitions:news-0,news-1` | bytes: an assignment |
| `{"producer": "A", "values": ["x"], "sequence": 1}` | records: a batch; its sequence number is one too large |
| `{"values": ["x", "x"], "compression": "GZIP"}` | records: a compressed batch |
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import md5
from typing import Any

from fakebroker.cluster.logs.producer_state import SEQUENCES
from fakebroker.cluster.topics import OFFSETS_TOPIC
from fakebroker.protocol.compression import Compression
from fakebroker.protocol.consumer_protocol import encode_assignment, encode_subscription
from fakebroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from fakebroker.protocol.messages.end_txn import EndTxnResponse
from fakebroker.protocol.messages.fetch import FetchResponse
from fakebroker.protocol.messages.init_producer_id import InitProducerIdResponse
from fakebroker.protocol.messages.join_group import JoinGroupResponse
from fakebroker.protocol.messages.produce import ProduceRequest, ProduceResponse
from fakebroker.protocol.records import Record, RecordBatch, encode_batch
from fakebroker.protocol.registry import API_BY_NAME
from fakebroker.protocol.schema import Field, Message, Struct
from fakebroker.protocol.types import BYTES, RECORDS, UUID, Primitive
from fakebroker.topic_partition import parse_partition

Fields = Mapping[str, Any]
SHARED_TOPICS = {"news": 3, "sport": 2}
"""Topics that all histories may read and subscribe to. No history writes to them."""

NO_TOPIC_ID = b"\x07" * 16
"""An id that no topic has."""

_MEMBER_ID_REQUIRED = 79
_TIMESTAMP_MS = 1_000


@dataclass(frozen=True)
class Step:
    """A request of a client, or a wait.

    Attributes:
        client: The name of the client; "" for a wait.
        api: Kafka's name of the API.
        version: The version of the request.
        fields: The fields of the request, as in JSON.
        wait_ms: How long the wait takes, in milliseconds.
    """

    client: str = ""
    api: str = ""
    version: int = 0
    fields: Fields = field(default_factory=dict)
    wait_ms: int = 0

    def __str__(self) -> str:
        if not self.client:
            return f"wait {self.wait_ms}"
        return f"{self.client} {self.api} {self.version} {json.dumps(self.fields)}"


History = tuple[Step, ...]


def is_alone(history: History) -> bool:
    """Return whether a history changes what all histories share: whether the log of the groups accepts writes."""
    return any(step.api == "IncrementalAlterConfigs" and OFFSETS_TOPIC in str(step) for step in history)


def to_text(history: Iterable[Step]) -> str:
    return "".join(f"{step}\n" for step in history)


def from_text(text: str) -> History:
    """Parse a history. Lines that begin with `#` are comments; those with `=` are of a recording (recording.py)."""
    steps = []
    for line in text.splitlines():
        if not line or line.startswith(("#", "=")):
            continue
        if line.startswith("wait "):
            steps.append(Step(wait_ms=int(line.split()[1])))
        else:
            client, api, version, fields = line.split(" ", 3)
            steps.append(Step(client, api, int(version), json.loads(fields)))
    return tuple(steps)


@dataclass
class Client:
    """What a cluster has told a client."""

    member_id: str = ""
    epoch: int = -1
    owned: list[dict[str, Any]] = field(default_factory=list)
    producer_id: int = -1
    producer_epoch: int = -1
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)
    session_id: int = 0
    session_epoch: int = 0

    def receive(self, request: Message, response: Message) -> None:
        """Take over what a response says."""
        match response:
            case JoinGroupResponse() if response.error_code in (0, _MEMBER_ID_REQUIRED):
                self.member_id = response.member_id
                if not response.error_code:
                    self.epoch = response.generation_id
            case ConsumerGroupHeartbeatResponse() if not response.error_code:
                self.member_id, self.epoch = response.member_id or "", response.member_epoch
                if response.assignment is not None:
                    self.owned = [
                        {"topic_id": each.topic_id, "partitions": list(each.partitions)}
                        for each in response.assignment.topic_partitions
                    ]
            case InitProducerIdResponse() | EndTxnResponse() if not response.error_code and response.producer_id >= 0:
                new = response.producer_id, response.producer_epoch
                if new != (self.producer_id, self.producer_epoch):
                    self.sequences = {}
                self.producer_id, self.producer_epoch = new
            case FetchResponse() if not response.error_code:
                self.session_epoch = self.session_epoch + 1 if response.session_id == self.session_id else 1
                self.session_id = response.session_id
            case ProduceResponse():
                assert isinstance(request, ProduceRequest)
                results = {
                    (topic.name, topic.topic_id, each.index): each.error_code
                    for topic in response.responses
                    for each in topic.partition_responses
                }
                for topic in request.topic_data:
                    for data in topic.partition_data:
                        if results.get((topic.name, topic.topic_id, data.index)) == 0 and data.records:
                            self._written(topic.name or topic.topic_id.hex(), data.index, RecordBatch(data.records))

    def _written(self, topic: str, index: int, batch: RecordBatch) -> None:
        if (batch.producer_id, batch.producer_epoch) == (self.producer_id, self.producer_epoch):
            end = batch.base_sequence + batch.last_offset_delta + 1
            known = self.sequences.get((topic, index), 0)
            self.sequences[topic, index] = max(known, end) if end < SEQUENCES else end - SEQUENCES


class Clients:
    """The clients of a history on one cluster.

    Args:
        run: The name of this run of the history, which takes the place of `%`.

    Attributes:
        topic_ids: The ids of topics by name.
        names: The names of topics by id, also of former ones.
    """

    def __init__(self, run: str) -> None:
        self.run = run
        self.topic_ids: dict[str, bytes] = {}
        self.names: dict[bytes, str] = {}
        self._clients: dict[str, Client] = {}

    def learn(self, topic_ids: Mapping[str, bytes]) -> None:
        self.topic_ids = dict(topic_ids)
        self.names.update({topic_id: name for name, topic_id in topic_ids.items()})

    def __getitem__(self, name: str) -> Client:
        return self._clients.setdefault(name, Client())

    def message(self, step: Step) -> Message:
        """Return the request of a step."""
        found: Message = self._struct(API_BY_NAME[step.api].request, step.fields, step.version)
        return found

    def _struct(self, cls: type[Struct], fields: Fields, version: int) -> Any:
        values: dict[str, Any] = {}
        for each in cls.FIELDS:
            if version not in each.versions:
                values[each.name] = each.default_value()
            elif each.name in fields:
                values[each.name] = self._value(each, fields[each.name], version)
            elif each.name == "topic_id" and (name := fields.get("name", fields.get("topic"))):
                # Newer versions of some requests have ids in place of names.
                is_named = any(other.name in ("name", "topic") and version in other.versions for other in cls.FIELDS)
                values["topic_id"] = bytes(16) if is_named else self._topic_id(self._text(name))
            else:
                values[each.name] = each.default_value()
        return cls(**values)

    def _value(self, described: Field, value: Any, version: int) -> Any:
        if isinstance(value, str) and value.startswith("$") and value.endswith(".owned"):
            value = self[value[1:].partition(".")[0]].owned
        if value is None:
            return value if version in described.nullable else described.default_value()
        if described.is_array:
            return [self._item(described, each, version) for each in value]
        return self._item(described, value, version)

    def _item(self, described: Field, value: Any, version: int) -> Any:
        kind = described.type
        if not isinstance(kind, Primitive):
            return self._struct(kind, value, version)
        if kind is RECORDS:
            return self._records(value)
        if isinstance(value, bytes):
            return value
        if kind is UUID and value.startswith("$own:"):
            return md5(f"{self.run}{value}".encode()).digest()
        if kind is UUID and value.startswith("$former:"):
            return self._former_id(self._text(value.removeprefix("$former:")))
        if kind is UUID:
            return self._topic_id(self._text(value.removeprefix("$id:")))
        if isinstance(value, str):
            value = self._reference(value) if value.startswith("$") else self._text(value)
            return value.encode() if kind is BYTES and isinstance(value, str) else value
        return value

    def _text(self, text: str) -> str:
        return text.replace("%", self.run)

    def _topic_id(self, name: str) -> bytes:
        """Return the id of a topic; for a name without one an id that no topic has."""
        return self.topic_ids.get(name, NO_TOPIC_ID) if name else bytes(16)

    def _former_id(self, name: str) -> bytes:
        """Return the last id of a topic that is not its id any more; without one, an id that no topic has."""
        ids = [each for each, known in self.names.items() if known == name and each != self.topic_ids.get(name)]
        return ids[-1] if ids else NO_TOPIC_ID

    def _reference(self, text: str) -> Any:
        kind, _, rest = text[1:].partition(":")
        if kind == "topics":
            return encode_subscription([self._text(each) for each in rest.split(",") if each])
        if kind == "partitions":
            return encode_assignment([parse_partition(self._text(each)) for each in rest.split(",") if each])
        matched = re.fullmatch(r"\$(\w+)\.(\w+)([+-]\d+)?", text)
        assert matched is not None, text
        value = getattr(self[matched[1]], matched[2])
        return value + int(matched[3]) if matched[3] else value

    def _records(self, described: Fields) -> bytes:
        """Return a batch, with the next sequence number of a producer."""
        values = described.get("values", ["x"])
        records = [
            Record(index, described.get("timestamp", _TIMESTAMP_MS) + index, None, each.encode())
            for index, each in enumerate(values)
        ]
        compression = Compression[described.get("compression", "NONE")]
        name = described.get("producer")
        if not name:
            return encode_batch(records, compression=compression)
        client = self[name]
        place = described["at"]
        topic, index = parse_partition(self._text(place))
        topic_id = self.topic_ids.get(topic, b"").hex()
        at = max(client.sequences.get((topic, index), 0), client.sequences.get((topic_id, index), 0))
        return encode_batch(
            records,
            compression=compression,
            producer_id=client.producer_id,
            producer_epoch=max(-1, client.producer_epoch + described.get("epoch", 0)),
            base_sequence=described["exact"] if "exact" in described else at + described.get("sequence", 0),
            is_transactional=described.get("transactional", False),
            is_control=described.get("control", False),
        )
