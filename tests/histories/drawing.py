"""Draws histories with Hypothesis.

Most steps are what a client sends that follows the protocol (`_TEMPLATES`). One in six has a wrong field: another value
of the pool of the field's name (`_POOLS`). Requests without a template are drawn from the declaration of the message
and the pools alone.
"""

from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st

from fakebroker.cluster.topics import OFFSETS_TOPIC
from fakebroker.protocol.registry import API_BY_NAME
from fakebroker.protocol.releases import RELEASES, Release
from fakebroker.protocol.schema import Field, Struct
from fakebroker.protocol.types import BOOLEAN, BYTES, FLOAT64, RECORDS, STRING, UUID, Primitive
from tests.histories.history import History, Step

Draw = Callable[..., Any]

CLIENTS = ("A", "B", "C")
MAX_STEPS = 25

_TOPICS = ("news", "sport", "%a", "%b", "%gone", "", "no/name")
_GROUPS = ("%g", "%g", "%g", "%h", "%gone", "")
_IDS = ("%t", "%t", "%u", "%gone", "")
_MEMBERS = ("$A.member_id", "$B.member_id", "$C.member_id", "", "mm", "unknown")
_INSTANCES = (None, "i0", "i1", "")
_EPOCHS = ("$A.epoch", "$B.epoch", "$A.epoch+1", "$A.epoch-1", 0, 1, 2, -1, -2)
_PRODUCERS = ("$A.producer_id", "$B.producer_id", -1, 999_999)
_PRODUCER_EPOCHS = ("$A.producer_epoch", "$A.producer_epoch+1", "$A.producer_epoch-1", "$B.producer_epoch", 0, -1)
_INDEXES = (0, 1, 2, 7, -1)
_OFFSETS = (0, 1, 3, 100, -1, -2)
_TOPIC_CONFIGS = (
    *("retention.ms", "cleanup.policy", "max.message.bytes", "min.insync.replicas", "compression.type", "no.config"),
    *("message.timestamp.type", "segment.bytes"),
)
_GROUP_CONFIGS = (
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.assignment.interval.ms",
)
_VALUES = ("1", "1000", "delete", "compact", "delete,compact", "gzip", "x", "", None, "-1", "LogAppendTime")

_POOLS: Mapping[str, tuple[Any, ...]] = {
    "group_id": _GROUPS,
    "group_ids": _GROUPS,
    "groups_names": _GROUPS,
    "coordinator_keys": _GROUPS,
    "key": _GROUPS,
    "key_type": (0, 0, 1, 2, 5, -1),
    "member_id": _MEMBERS,
    "group_instance_id": _INSTANCES,
    "instance_id": _INSTANCES,
    "generation_id": _EPOCHS,
    "member_epoch": _EPOCHS,
    "generation_id_or_member_epoch": _EPOCHS,
    "session_timeout_ms": (10_000, 0, -1, 2_000_000_000),
    "rebalance_timeout_ms": (60_000, -1, 0, 5_000),
    "protocol_type": ("consumer", "", "connect"),
    "protocol_name": ("range", "roundrobin", "", None),
    "topic": _TOPICS,
    "topic_name": _TOPICS,
    "topic_names": _TOPICS,
    "subscribed_topic_names": _TOPICS,
    "subscribed_topic_regex": (None, "", "news", "n.*|sport", "no(", "%a"),
    "server_assignor": (None, "uniform", "range", "other", ""),
    "topic_id": ("$id:news", "$id:%a", "$id:%gone", ""),
    "partition": _INDEXES,
    "index": _INDEXES,
    "partition_index": _INDEXES,
    "partition_indexes": _INDEXES,
    "partitions": _INDEXES,
    "current_leader_epoch": (-1, 0, 1, 9),
    "leader_epoch": (-1, 0, 1, 9),
    "last_fetched_epoch": (-1, 0, 1),
    "fetch_offset": _OFFSETS,
    "log_start_offset": (-1, 0, 1),
    "offset": _OFFSETS,
    "timestamp": (-1, -2, -3, -4, -5, -6, 0, 1_000, 5_000),
    "committed_offset": _OFFSETS,
    "committed_metadata": ("", None, "m"),
    "committed_leader_epoch": (-1, 0, 3),
    "transactional_id": _IDS,
    "transactional_ids": _IDS,
    "v3_and_below_transactional_id": _IDS,
    "producer_id": _PRODUCERS,
    "v3_and_below_producer_id": _PRODUCERS,
    "producer_id_filters": _PRODUCERS,
    "producer_epoch": _PRODUCER_EPOCHS,
    "v3_and_below_producer_epoch": _PRODUCER_EPOCHS,
    "transaction_timeout_ms": (60_000, 0, -1, 2_000_000_000),
    "isolation_level": (0, 1, 2),
    "acks": (-1, 1, 0, 2),
    "timeout_ms": (1_000,),
    "max_wait_ms": (0,),
    "min_bytes": (0, 1),
    "max_bytes": (2**20, 0, 100),
    "partition_max_bytes": (2**20, 0, 100),
    "session_id": (0, "$A.session_id", "$B.session_id", 77),
    "session_epoch": (-1, 0, "$A.session_epoch", "$A.session_epoch+1", 5),
    "states_filter": ("Stable", "empty", "Dead", "Other", "Assigning"),
    "types_filter": ("classic", "Consumer", "share", "other", ""),
    "state_filters": ("Empty", "Ongoing", "CompleteCommit", "Other"),
    "duration_filter": (-1, 0, 100_000),
    "transactional_id_pattern": (None, "", ".*%t", "no("),
    "reason": (None, "", "why"),
    "num_partitions": (1, 2, -1, 0),
    "replication_factor": (1, -1, 0, 2),
    "broker_ids": (1, 9, -1),
    "replicas": (1, 9, -1),
    "count": (1, 2, 3, 4, 0, -1),
    "resource_type": (2, 2, 32, 4, 16, 8, 0, 99),
    "resource_types": (2, 32, 16, 0, 99),
    "resource_name": ("%a", "%g", "%b", "news", "", "1", "9", "%a/name"),
    "configuration_keys": (*_TOPIC_CONFIGS, *_GROUP_CONFIGS),
    "config_operation": (0, 1, 2, 3, 7),
    "value": _VALUES,
    "path": ("/none", ""),
    "coordinator_epoch": (0, 1, -1),
    "election_type": (0, 1, 2),
    "endpoint_type": (1, 2, 3, 0),
    "feature": ("metadata.version", "group.version", "no.feature"),
    "entity_type": ("user", "client-id", "ip", "other"),
    "entity_name": ("%t", None, ""),
    "match": ("%t", None, ""),
    "match_type": (0, 1, 2, 3),
    "mechanism": ("PLAIN", "SCRAM-SHA-256", ""),
    "client_software_name": ("test", "", "no name"),
    "client_software_version": ("1", "", "1 2"),
    "response_partition_limit": (2_000, 1, 0, -1),
    "broker_id": (9, -1),
    "controller_id": (1, 9, -1),
    "metadata": ("$topics:news", "$topics:news,sport", "x", ""),
    "assignment": ("$partitions:news-0", "x", ""),
    "replica_id": (-1,),
    "user": ("alice",),
    "client_instance_id": ("$own:1", "$own:2", ""),
}
"""Values of fields by name. Those of an array are its items."""
_POOLS_OF_STRUCTS: Mapping[tuple[str, str], tuple[Any, ...]] = {
    ("DescribeGroupsRequest", "groups"): _GROUPS,
    ("JoinGroupRequestProtocol", "name"): ("range", "roundrobin", ""),
    ("AlterableConfig", "name"): (*_TOPIC_CONFIGS, *_GROUP_CONFIGS),
    ("CreatableTopicConfig", "name"): _TOPIC_CONFIGS,
    ("ScramCredentialUpsertion", "mechanism"): (1, 2, 0, 9),
    ("ScramCredentialDeletion", "mechanism"): (1, 2, 0, 9),
    ("ScramCredentialUpsertion", "name"): ("%t", ""),
    ("ScramCredentialDeletion", "name"): ("%t", ""),
    ("UserName", "name"): ("%t", ""),
    ("OpData", "key"): ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "other"),
    ("OpData", "value"): (0.0, 1_000.0, -1.0),
}

_TOPIC_ID_ONLY = ("DeleteTopicState",)
_SKIPPED_FIELDS = {
    # Of replicas, of proposals, or not sent by clients.
    *("replica_state", "replica_directory_id", "high_watermark", "cluster_id", "join_group_members", "enable2_pc"),
    *("keep_prepared_txn", "cursor", "rack_id", "forgotten_topics_data"),
}

# A few templates


def _other(draw: Draw, likely: Any, *others: Any) -> Any:
    """Draw the first value in three of four cases."""
    return likely if draw(st.integers(0, 3)) else draw(st.sampled_from(others))


def _topic_parts(draw: Draw, topics: tuple[str, ...], name: str = "name") -> tuple[str, list[int]]:
    return draw(st.sampled_from(topics)), draw(st.lists(st.sampled_from((0, 1)), min_size=1, max_size=2, unique=True))


def _join(draw: Draw, client: str, group: str) -> dict[str, Any]:
    names = draw(st.sampled_from((["range"], ["range"], ["roundrobin", "range"], ["roundrobin"])))
    metadata = draw(st.sampled_from(("$topics:news", "$topics:news,sport", "$topics:sport", "x")))
    return {
        "group_id": group,
        "session_timeout_ms": draw(st.sampled_from((10_000, 10_000, 10_000, 600))),
        "rebalance_timeout_ms": draw(st.sampled_from((60_000, 60_000, 60_000, 600, 2_000))),
        "member_id": _other(draw, f"${client}.member_id", ""),
        "group_instance_id": _other(draw, None, f"i{client}", "i0"),
        "protocol_type": "consumer",
        "protocols": [{"name": each, "metadata": metadata} for each in names],
    }


def _sync(draw: Draw, client: str, group: str) -> dict[str, Any]:
    given = draw(st.sampled_from(((), (client,), CLIENTS)))
    partitions = draw(st.sampled_from(("$partitions:news-0", "$partitions:news-0,sport-1", "x")))
    return {
        **_as_member(client, group),
        "protocol_type": "consumer",
        "protocol_name": _other(draw, "range", "roundrobin", None),
        "assignments": [{"member_id": f"${each}.member_id", "assignment": partitions} for each in given],
    }


def _as_member(client: str, group: str) -> dict[str, Any]:
    return {"group_id": group, "generation_id": f"${client}.epoch", "member_id": f"${client}.member_id"}


def _heartbeat(draw: Draw, client: str, group: str) -> dict[str, Any]:
    return {**_as_member(client, group), "group_instance_id": _other(draw, None, f"i{client}", "i0")}


def _leave(draw: Draw, client: str, group: str) -> dict[str, Any]:
    member = {
        "member_id": _other(draw, f"${client}.member_id", "", "mm"),
        "group_instance_id": _other(draw, None, f"i{client}", "i0"),
    }
    return {"group_id": group, "member_id": f"${client}.member_id", "members": [member]}


def _consume(draw: Draw, client: str, group: str) -> dict[str, Any]:
    kind = draw(st.sampled_from(("join", "join", "beat", "beat", "beat", "full", "leave", "rejoin")))
    member_id = _other(draw, f"${client}.member_id", "mm", f"m{client}")
    fields: dict[str, Any] = {"group_id": group, "member_id": member_id, "instance_id": None}
    if draw(st.integers(0, 3)) == 0:
        fields["instance_id"] = draw(st.sampled_from((f"i{client}", "i0", "i1")))
    if kind == "beat":
        acknowledged = draw(st.sampled_from((None, f"${client}.owned", f"${client}.owned", [])))
        return {
            **fields,
            "member_epoch": f"${client}.epoch",
            "rebalance_timeout_ms": -1,
            "subscribed_topic_names": None,
            "topic_partitions": acknowledged,
        }
    if kind == "leave":
        return {
            **fields,
            "member_epoch": _other(draw, -1, -2),
            "rebalance_timeout_ms": -1,
            "subscribed_topic_names": None,
            "topic_partitions": None,
        }
    names = draw(st.sampled_from((["news"], ["news"], ["news", "sport"], ["sport"], [], ["%gone"], ["%a"])))
    epoch = f"${client}.epoch" if kind == "full" else 0
    if kind == "join":
        fields["member_id"] = _other(draw, f"m{client}", f"${client}.member_id", "", "mm")
    regex = draw(st.sampled_from((None, None, None, "news", "n.*", "")))
    return {
        **fields,
        "member_epoch": epoch,
        "rebalance_timeout_ms": draw(st.sampled_from((60_000, 60_000, 1_000))),
        "subscribed_topic_names": names,
        "subscribed_topic_regex": regex,
        "server_assignor": _other(draw, None, "uniform", "range"),
        "topic_partitions": f"${client}.owned" if kind == "full" else [],
    }


def _consume_static(draw: Draw, client: str, group: str) -> dict[str, Any]:
    """Few member ids and instances, in any combination."""
    return {
        **_consume(draw, client, "%g"),
        "member_id": draw(st.sampled_from(("mm", "mm", "no"))),
        "instance_id": draw(st.sampled_from(("i0", "i0", "i1", None))),
        "member_epoch": draw(st.sampled_from((0, 0, 0, 1, 2, -1, -2, f"${client}.epoch"))),
    }


def _leave_static(draw: Draw, client: str, group: str) -> dict[str, Any]:
    instance = draw(st.sampled_from((None, None, "i0", "i1")))
    member_id = draw(st.sampled_from(("mm", "mm", "no", "")))
    return {
        "group_id": "%g",
        "member_id": member_id,
        "members": [{"member_id": member_id, "group_instance_id": instance}],
    }


def _commit(draw: Draw, client: str, group: str) -> dict[str, Any]:
    topic, indexes = _topic_parts(draw, ("news", "news", "sport", "%a", "%gone"))
    partitions = [
        {"partition_index": index, "committed_offset": draw(st.integers(0, 9)), "committed_metadata": "m"}
        for index in indexes
    ]
    outside = draw(st.integers(0, 2)) == 0
    epoch = _other(draw, f"${client}.epoch", *range(4))  # Older epochs are accepted by partition (KIP-1251).
    return {
        "group_id": group,
        "generation_id_or_member_epoch": -1 if outside else epoch,
        "member_id": "" if outside else f"${client}.member_id",
        "group_instance_id": _other(draw, None, f"i{client}"),
        "topics": [{"name": topic, "partitions": partitions}],
    }


def _fetch_offsets(draw: Draw, client: str, group: str) -> dict[str, Any]:
    topic, indexes = _topic_parts(draw, ("news", "sport", "%a", "%gone"))
    named = [{"name": topic, "partition_indexes": indexes}]
    topics = None if draw(st.booleans()) else named
    of_group = {"group_id": group, "member_id": None, "member_epoch": -1, "topics": topics}
    if draw(st.integers(0, 3)) == 0:
        of_group |= {"member_id": f"${client}.member_id", "member_epoch": f"${client}.epoch"}
    return {
        "group_id": group,
        "topics": named,
        "groups": [of_group],
        "require_stable": draw(st.booleans()),
    }


def _commit_in_transaction(draw: Draw, client: str, group: str) -> dict[str, Any]:
    fields = _commit(draw, client, group)
    return {
        **_of_producer(draw, client),
        "group_id": group,
        "generation_id_or_member_epoch": fields["generation_id_or_member_epoch"],
        "member_id": fields["member_id"],
        "group_instance_id": fields["group_instance_id"],
        "topics": fields["topics"],
    }


def _id_of(client: str) -> str:
    return "%u" if client == "B" else "%t"


def _of_producer(draw: Draw, client: str) -> dict[str, Any]:
    return {
        "transactional_id": _id_of(client),
        "producer_id": f"${client}.producer_id",
        "producer_epoch": f"${client}.producer_epoch",
    }


def _transaction(draw: Draw, release: Release) -> list[Step]:
    """Draw a transaction of one client, most of whose steps are there, in order, and in fitting versions."""
    client = draw(st.sampled_from(("A", "A", "B")))
    is_new = draw(st.booleans())  # KIP-890: brokers add partitions.
    writes = [("write", draw(st.sampled_from((12, 13) if is_new else (9, 10, 11))))] * draw(st.integers(0, 3))
    commits = [("txn-commit", draw(st.integers(5, 6) if is_new else st.integers(3, 4)))] * draw(st.integers(0, 2))
    planned = [
        *([("init", 5)] if draw(st.integers(0, 2)) == 0 else ()),
        *(() if is_new else (("add", 3), ("add-offsets", 3))),
        *(writes + commits if draw(st.booleans()) else commits + writes),
        *([("init", 5)] if draw(st.integers(0, 4)) == 0 else ()),
        ("end", 5 if is_new else draw(st.integers(1, 4))),
        *([("end", 5)] if draw(st.integers(0, 4)) == 0 else ()),
        *writes[:1],
    ]
    steps = []
    for kind, version in planned:
        if draw(st.integers(0, 7)):
            steps.append(_step(draw, release, kind, client, version if draw(st.integers(0, 9)) else None))
    return steps


def _init(draw: Draw, client: str, group: str) -> dict[str, Any]:
    fields = {"transactional_id": _other(draw, _id_of(client), None), "transaction_timeout_ms": 60_000}
    if draw(st.integers(0, 2)) == 0:
        fields |= {"producer_id": f"${client}.producer_id", "producer_epoch": f"${client}.producer_epoch"}
    return fields


def _add(draw: Draw, client: str, group: str) -> dict[str, Any]:
    topic, indexes = _topic_parts(draw, ("%a", "%a", "%a", "%b", "%gone"))
    topics = [{"name": topic, "partitions": indexes}]
    owner = _of_producer(draw, client)
    verify = draw(st.integers(0, 3)) == 0
    return {
        "v3_and_below_transactional_id": owner["transactional_id"],
        "v3_and_below_producer_id": owner["producer_id"],
        "v3_and_below_producer_epoch": owner["producer_epoch"],
        "v3_and_below_topics": topics,
        "transactions": [{**owner, "verify_only": verify, "topics": topics}],
    }


def _add_offsets(draw: Draw, client: str, group: str) -> dict[str, Any]:
    return {**_of_producer(draw, client), "group_id": group}


def _end(draw: Draw, client: str, group: str) -> dict[str, Any]:
    return {**_of_producer(draw, client), "committed": draw(st.booleans())}


def _write(draw: Draw, client: str, group: str) -> dict[str, Any]:
    """In a transaction."""
    return _produce(draw, client, group, is_transactional=True)


def _produce(draw: Draw, client: str, group: str, *, is_transactional: bool = False) -> dict[str, Any]:
    topic, indexes = _topic_parts(draw, ("%a", "%a", "%a", "%a", "%b", "%gone"))
    if not is_transactional or draw(st.booleans()):
        del indexes[1:]
    transactional = is_transactional or draw(st.booleans())
    partitions = [
        {
            "index": index,
            "records": _records(draw, _other(draw, client, "A") if number else client, topic, index, transactional),
        }
        for number, index in enumerate(indexes)
    ]
    return {
        "transactional_id": _id_of(client) if transactional else None,
        "acks": _other(draw, -1, 1),
        "timeout_ms": 1_000,
        "topic_data": [{"name": topic, "partition_data": partitions}],
    }


def _records(draw: Draw, client: str, topic: str, index: int, transactional: bool) -> dict[str, Any]:
    records: dict[str, Any] = {"values": draw(st.sampled_from((["x"], ["x", "y"])))}
    if transactional or draw(st.booleans()):
        records |= {"producer": client, "at": f"{topic}-{index}", "transactional": transactional}
        if draw(st.integers(0, 4)) == 0:
            records |= {"sequence": draw(st.sampled_from((1, -1, -2, 5)))}
        if draw(st.integers(0, 9)) == 0:
            records |= {"exact": draw(st.sampled_from((0, -1, 1, 2**31 - 1)))}
        if draw(st.integers(0, 6)) == 0:
            records |= {"epoch": draw(st.sampled_from((1, -1)))}
        if draw(st.integers(0, 30)) == 0:
            records |= {"control": True}
    return records


def _fetch(draw: Draw, client: str, group: str) -> dict[str, Any]:
    topic, indexes = _topic_parts(draw, ("%a", "%a", "%a", "%b", "news", "%gone"))
    partitions = [
        {"partition": index, "fetch_offset": draw(st.sampled_from((0, 0, 1, 2, 50))), "partition_max_bytes": 2**20}
        for index in indexes
    ]
    session = draw(st.sampled_from(("none", "none", "begin", "go on", "end")))
    fields: dict[str, Any] = {
        "max_wait_ms": 0,
        "min_bytes": 0,
        "isolation_level": draw(st.sampled_from((0, 1))),
        "session_id": 0,
        "session_epoch": {"none": -1, "begin": 0}.get(session, 0),
        "topics": [{"topic": topic, "partitions": partitions}],
    }
    if session in ("go on", "end"):
        fields |= {
            "session_id": f"${client}.session_id",
            "session_epoch": f"${client}.session_epoch" if session == "go on" else -1,
        }
        if draw(st.booleans()):
            fields["topics"] = []
        if draw(st.integers(0, 3)) == 0:
            fields["forgotten_topics_data"] = [{"topic": topic, "partitions": indexes}]
    return fields


def _create(draw: Draw, client: str, group: str) -> dict[str, Any]:
    name = draw(st.sampled_from(("%a", "%b")))
    configs = []
    if draw(st.integers(0, 3)) == 0:
        configs.append({"name": draw(st.sampled_from(_TOPIC_CONFIGS)), "value": draw(st.sampled_from(_VALUES))})
    topic = {"name": name, "num_partitions": 2, "replication_factor": 1, "configs": configs}
    return {"topics": [topic], "timeout_ms": 5_000, "validate_only": draw(st.integers(0, 6)) == 0}


def _delete_topics(draw: Draw, client: str, group: str) -> dict[str, Any]:
    name = draw(st.sampled_from(("%a", "%b", "%gone")))
    by_id = draw(st.booleans())
    topic = {"name": None, "topic_id": f"$id:{name}"} if by_id else {"name": name, "topic_id": ""}
    return {"topics": [topic], "topic_names": [name], "timeout_ms": 5_000}


def _list_offsets(draw: Draw, client: str, group: str) -> dict[str, Any]:
    topic, indexes = _topic_parts(draw, ("%a", "%a", "news", "%gone"))
    timestamp = draw(st.sampled_from((-1, -2, -3, 0, 1_001)))
    partitions = [{"partition_index": index, "timestamp": timestamp} for index in indexes]
    isolation = draw(st.sampled_from((0, 1)))
    return {"replica_id": -1, "isolation_level": isolation, "topics": [{"name": topic, "partitions": partitions}]}


def _trim(draw: Draw, client: str, group: str) -> dict[str, Any]:
    topic, indexes = _topic_parts(draw, ("%a", "%a", "%a", "%gone"))
    partitions = [{"partition_index": index, "offset": draw(st.sampled_from((0, 1, 2, -1, 9)))} for index in indexes]
    return {"topics": [{"name": topic, "partitions": partitions}], "timeout_ms": 1_000}


def _mark(draw: Draw, client: str, group: str) -> dict[str, Any]:
    topic, indexes = _topic_parts(draw, ("%a", "%a", "%b"))
    owner = _of_producer(draw, client)
    marker = {
        "producer_id": owner["producer_id"],
        "producer_epoch": draw(st.sampled_from((f"${client}.producer_epoch", f"${client}.producer_epoch+1"))),
        "transaction_result": draw(st.booleans()),
        "topics": [{"name": topic, "partition_indexes": indexes}],
        "coordinator_epoch": draw(st.sampled_from((0, 0, 1, -1))),
        "transaction_version": draw(st.sampled_from((0, 1, 2))),
    }
    return {"markers": [marker]}


def _group_configs(draw: Draw, client: str, group: str) -> dict[str, Any]:
    config = {
        "name": draw(st.sampled_from(_GROUP_CONFIGS)),
        "config_operation": draw(st.sampled_from((0, 0, 0, 1))),
        "value": draw(st.sampled_from(("600", "1000", "45000", "x"))),
    }
    return {"resources": [{"resource_type": 32, "resource_name": group, "configs": [config]}]}


def _refuse(draw: Draw, client: str, group: str) -> dict[str, Any]:
    """The log of the groups refuses writes from now on, or accepts them again."""
    refuses = draw(st.integers(0, 2)) > 0
    config = {"name": "min.insync.replicas", "config_operation": 0, "value": "2" if refuses else "1"}
    return {"resources": [{"resource_type": 2, "resource_name": OFFSETS_TOPIC, "configs": [config]}]}


_TEMPLATES: Mapping[str, tuple[str, Callable[[Draw, str, str], dict[str, Any]]]] = {
    "join": ("JoinGroup", _join),
    "sync": ("SyncGroup", _sync),
    "beat": ("Heartbeat", _heartbeat),
    "leave": ("LeaveGroup", _leave),
    "consume-static": ("ConsumerGroupHeartbeat", _consume_static),
    "leave-static": ("LeaveGroup", _leave_static),
    "consume": ("ConsumerGroupHeartbeat", _consume),
    "commit": ("OffsetCommit", _commit),
    "offsets": ("OffsetFetch", _fetch_offsets),
    "txn-commit": ("TxnOffsetCommit", _commit_in_transaction),
    "init": ("InitProducerId", _init),
    "add": ("AddPartitionsToTxn", _add),
    "add-offsets": ("AddOffsetsToTxn", _add_offsets),
    "end": ("EndTxn", _end),
    "write": ("Produce", _write),
    "produce": ("Produce", _produce),
    "fetch": ("Fetch", _fetch),
    "create": ("CreateTopics", _create),
    "delete-topics": ("DeleteTopics", _delete_topics),
    "list-offsets": ("ListOffsets", _list_offsets),
    "trim": ("DeleteRecords", _trim),
    "mark": ("WriteTxnMarkers", _mark),
    "refuse": ("IncrementalAlterConfigs", _refuse),
    "group-configs": ("IncrementalAlterConfigs", _group_configs),
}

_ADMIN = (
    *("DescribeGroups", "ListGroups", "DeleteGroups", "OffsetDelete", "ConsumerGroupDescribe", "FindCoordinator"),
)
_READS = ("ListTransactions", "DescribeTransactions", "DescribeProducers", "OffsetForLeaderEpoch", "ListOffsets")
_TRANSACTION_APIS = ("TxnOffsetCommit", "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn")
EVERY_API = (
    *(*_ADMIN, *_READS, "Metadata", "DescribeTopicPartitions", "DescribeConfigs", "AlterConfigs", "CreatePartitions"),
    *("IncrementalAlterConfigs", "CreateTopics", "DeleteTopics", "DeleteRecords", "ElectLeaders", "DescribeCluster"),
    *("AlterPartitionReassignments", "ListPartitionReassignments", "ListConfigResources", "ApiVersions"),
    *("DescribeAcls", "CreateAcls", "DeleteAcls", "DescribeUserScramCredentials", "AlterUserScramCredentials"),
    *("DescribeClientQuotas", "CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken"),
    *("DescribeDelegationToken", "UnregisterBroker", "UnregisterController", "SaslHandshake", "AlterReplicaLogDirs"),
    *("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetFetch", "ConsumerGroupHeartbeat"),
    *(*_TRANSACTION_APIS, "Produce", "Fetch", "WriteTxnMarkers", "AlterClientQuotas", "UpdateFeatures"),
    *("DescribeQuorum", "DescribeLogDirs", "SaslAuthenticate", "GetTelemetrySubscriptions", "PushTelemetry"),
)
"""APIs whose requests are also drawn without a template."""

_READING = frozenset(
    (
        *(*_ADMIN, *_READS, "Metadata", "DescribeTopicPartitions", "DescribeConfigs", "ElectLeaders", "Fetch"),
        *("ListPartitionReassignments", "JoinGroup", "SyncGroup", "OffsetCommit", "OffsetFetch"),
        *("ConsumerGroupHeartbeat", "TxnOffsetCommit"),
    )
)
"""The requests that may name shared topics and the broker, because they do not change them."""

PROFILES: Mapping[str, tuple[str, ...]] = {
    "classic": ("join", "join", "sync", "sync", "beat", "leave", "commit", "offsets", "wait", *_ADMIN[:5]),
    "consumer": (
        "consume",
        "consume",
        "consume",
        "consume",
        "commit",
        "offsets",
        "leave",
        "wait",
        "ConsumerGroupDescribe",
    ),
    "consumer-configs": ("consume", "consume", "consume", "group-configs", "wait", "wait"),
    "static": ("consume-static", "consume-static", "consume-static", "leave-static", "leave-static", "join", "commit"),
    "migration": (
        "join",
        "join",
        "sync",
        "consume",
        "consume",
        "consume",
        "beat",
        "leave",
        "commit",
        "wait",
        *_ADMIN[:5],
    ),
    "transactions": (
        *("init", "init", "add", "add", "add-offsets", "txn-commit", "txn-commit", "end", "end", "produce", "produce"),
        *("offsets", "fetch", "commit", "mark", "trim", *_READS, *["transaction"] * 6, *_TRANSACTION_APIS),
    ),
    "members-in-transactions": (
        "transaction",
        "join",
        "sync",
        "consume",
        "init",
        "add-offsets",
        "txn-commit",
        "txn-commit",
        "end",
        "offsets",
    ),
    "log": ("produce", "produce", "produce", "init", "fetch", "fetch", "list-offsets", "trim", "mark", "end", *_READS),
    "topics": ("create", "delete-topics", "produce", "fetch", "commit", "offsets", "consume", "join", "Metadata"),
    "log-refuses": ("refuse", "join", "join", "sync", "consume", "consume", "commit", "leave", "wait", "wait"),
    "admin": EVERY_API,
}
"""The steps of a kind of history: names of templates, or APIs."""

_BROKER_LOGGER = 8
_ONLY_VALIDATED = ("AlterClientQuotas", "UpdateFeatures")
"""APIs that would change what all histories share."""

ALONE = ("log-refuses",)
"""Profiles with histories that change what all histories share."""

_NEEDS_TOPICS = ("transactions", "members-in-transactions", "log")


@st.composite
def histories(draw: Draw, release: Release, profile: str | None = None) -> History:
    """Draw a history for a release of Kafka.

    Args:
        draw: Hypothesis's.
        release: Its versions of requests are drawn.
        profile: A key of `PROFILES`; drawn if None.
    """
    profile = profile or draw(st.sampled_from(sorted(PROFILES)))
    steps: list[Step] = []
    if profile in _NEEDS_TOPICS:
        # Kafka returns the records of one segment, and begins another one if the timestamps are years apart.
        configs = [{"name": "segment.ms", "value": str(2**63 - 1)}, {"name": "retention.ms", "value": "-1"}]
        topic = {"name": "%a", "num_partitions": 2, "replication_factor": 1, "configs": configs}
        steps.append(Step("A", "CreateTopics", 7, {"topics": [topic], "timeout_ms": 5_000}))
    if profile in ("transactions", "members-in-transactions"):
        steps += [
            Step(client, "InitProducerId", 5, {"transactional_id": _id_of(client), "transaction_timeout_ms": 60_000})
            for client in draw(st.sampled_from((("A",), ("A", "B"))))
        ]
    kinds = st.sampled_from(
        [each for each in PROFILES[profile] if each not in API_BY_NAME or each in RELEASES[release]]
    )
    for _ in range(draw(st.integers(2, MAX_STEPS))):
        kind = draw(kinds)
        steps += _transaction(draw, release) if kind == "transaction" else [_step(draw, release, kind)]
    return tuple(steps[: 2 * MAX_STEPS])


def _step(draw: Draw, release: Release, kind: str, client: str | None = None, version: int | None = None) -> Step:
    if kind == "wait":
        return Step(wait_ms=draw(st.sampled_from((300, 900, 1_500))))
    client = client or draw(st.sampled_from(CLIENTS))
    group = draw(st.sampled_from(("%g", "%g", "%g", "%g", "%h")))
    api, template = _TEMPLATES.get(kind, (kind, None))
    known = RELEASES[release][api]
    served = API_BY_NAME[api].versions
    first, last = max(known.first, served.first), min(known.last, served.last)
    if version is None or not first <= version <= last:
        version = last if draw(st.booleans()) else draw(st.integers(first, last))
    cls = API_BY_NAME[api].request
    fields = _drawn(draw, cls, version) if template is None else template(draw, client, group)
    if template is not None and kind != "refuse" and draw(st.integers(0, 5)) == 0:
        fields = _mutated(draw, cls, fields, version)
    if api in ("OffsetCommit", "TxnOffsetCommit") and fields["group_id"] == "":
        fields["group_id"] = "%gone"  # All histories share the group without a name.
    if api in _ONLY_VALIDATED:
        if "validate_only" not in {each.name for each in cls.FIELDS if version in each.versions}:
            version = last
        fields["validate_only"] = True
        if "entries" in fields:
            fields["entries"] = fields["entries"][:1]  # Kafka's order of several is that of a hash table.
    return Step(client, api, version, fields if api in _READING or kind == "refuse" else _own(fields))


def _own(value: Any) -> Any:
    """Return the fields of a request that changes something: without things that all histories share."""
    match value:
        case dict():
            # Kafka's brokers of the tests have a logging backend without levels.
            is_logger = value.get("resource_type") == _BROKER_LOGGER
            return {key: _own(each) for key, each in value.items()} | ({"resource_type": 99} if is_logger else {})
        case list():
            return [_own(each) for each in value]
        case "news" | "sport" | "$id:news" | "1" | "9":
            return "$id:%a" if str(value).startswith("$") else "%a"
    return value


def _drawn(draw: Draw, cls: type[Struct], version: int) -> dict[str, Any]:
    """Draw the fields of a message, or of a struct in it."""
    fields: dict[str, Any] = {}
    for each in cls.FIELDS:
        if version not in each.versions or each.name in _SKIPPED_FIELDS:
            continue
        if each.name == "topic_id" and any(
            other.name in ("name", "topic") and version in other.versions for other in cls.FIELDS
        ):
            continue  # by name
        if version in each.nullable and draw(st.integers(0, 3)) == 0:
            fields[each.name] = None
        elif each.is_array:
            # No topic at all asks for those of all histories, page by page.
            fewest = 1 if cls.__name__ == "DescribeTopicPartitionsRequest" else 0
            count = draw(st.sampled_from((1, 1, 1, 2, fewest)))
            fields[each.name] = [_value(draw, cls, each, version) for _ in range(count)]
        else:
            fields[each.name] = _value(draw, cls, each, version)
    return fields


def _value(draw: Draw, cls: type[Struct], described: Field, version: int) -> Any:
    kind = described.type
    if not isinstance(kind, Primitive):
        return _drawn(draw, kind, version)
    if kind is RECORDS:
        return {"values": ["x"]}
    pool = _pool(cls, described)
    if pool:
        value = draw(st.sampled_from(pool))
        if value is None and version not in described.nullable:
            return ""
        return value
    if kind is BOOLEAN:
        return draw(st.booleans())
    if kind in (STRING, BYTES):
        return draw(st.sampled_from(("", "x", "%t")))
    if kind is UUID:
        return draw(st.sampled_from(("", "$id:news", "$id:%gone")))
    if kind is FLOAT64:
        return draw(st.sampled_from((0.0, 1_000.0, -1.0)))
    return draw(st.sampled_from((0, 1, 2, -1)))


def _pool(cls: type[Struct], described: Field) -> tuple[Any, ...]:
    special = _POOLS_OF_STRUCTS.get((cls.__name__, described.name))
    if special is not None:
        return special
    if described.name == "name":
        return _TOPICS if described.type is STRING else ()
    return _POOLS.get(described.name, ())


def _mutated(draw: Draw, cls: type[Struct], fields: Mapping[str, Any], version: int) -> dict[str, Any]:
    """Return fields of which one has another value."""
    changed = dict(fields)
    candidates = [
        each
        for each in cls.FIELDS
        if each.name in fields and version in each.versions and each.name not in ("max_wait_ms", "min_bytes")
    ]
    if not candidates:
        return changed
    chosen = draw(st.sampled_from(candidates))
    value = fields[chosen.name]
    if isinstance(value, list) and value and isinstance(value[0], dict):
        assert not isinstance(chosen.type, Primitive)
        changed[chosen.name] = [_mutated(draw, chosen.type, value[0], version), *value[1:]]
    elif isinstance(chosen.type, Primitive) and chosen.type is not RECORDS:
        if chosen.is_array:
            changed[chosen.name] = [_value(draw, cls, chosen, version) for _ in range(draw(st.integers(0, 2)))]
        else:
            changed[chosen.name] = _value(draw, cls, chosen, version)
    return changed
