"""The report on a cluster when a test fails. It fits on a screen, and what may be the cause comes first.

    errors returned:
      12 x  OffsetCommit  GROUP_AUTHORIZATION_FAILED  'billing-service'  billing

      partition  records  end  group    committed  lag  fetched
      orders-0   2        2    billing  nothing    -    'billing-service' from 2

So nobody read the records 0 and 1. Groups, the last requests and timelines follow.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, groupby, islice

from msgspec.structs import replace

from fakebroker.cluster.call import Call
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.inspect.explain import explain
from fakebroker.cluster.inspect.explain_transaction import explain_transaction
from fakebroker.cluster.inspect.journal_queries import JournalView, view_journal
from fakebroker.cluster.inspect.phrases import columns, counted
from fakebroker.cluster.inspect.timelines import Timeline, TransactionTimeline, transaction_timeline_of
from fakebroker.cluster.inspect.transaction_views import view_transactions
from fakebroker.cluster.inspect.views import (
    GroupView,
    RecordView,
    batches_of,
    committed_offsets,
    record_count,
    timeline_of,
    view_groups,
)
from fakebroker.cluster.request_ids import TopicRef
from fakebroker.errors import ErrorCode, ProtocolError, and_more, cut_line, cut_lines, shown
from fakebroker.protocol.records import iterate_records, split_batches
from fakebroker.protocol.types import ZERO_UUID
from fakebroker.topic_partition import TopicPartition

_ERRORS, _PARTITIONS, _RECORDS, _REQUESTS, _GROUPS, _MEMBERS = 8, 16, 8, 16, 20, 20
"""Maximum number of lines of each part, of groups, and of members of a group."""
_OF_PARTITION = 4
"""Maximum number of records of a partition."""
_EXPLAINED = 3
"""Maximum number of groups, and of transactional ids, that are explained with a timeline."""
_MOMENTS = 8
"""Maximum number of entries of a timeline."""
_MAX_EXPLANATION = 2_000
"""Maximum number of characters of an explanation."""
_VALUES, _VALUE_LENGTH, _MAX_DECOMPRESSED_BYTES = 2, 30, 1_000_000
"""Maximum number of values that are shown of a Produce request, and of their characters; and of bytes to find them."""
_READS = 5
"""Maximum number of jumps of a reader."""

_USUAL = frozenset({ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS})
"""Errors of every group: a new member gets its id with the first, and learns of a rebalance with the second."""
_LEFT_OUT = frozenset({"ApiVersions", "Metadata"})
_IDLE = _LEFT_OUT | {"Heartbeat"}
"""APIs whose requests are left out or only counted, unless they have an error."""
_WAITS = {"Fetch": "waits for records", "JoinGroup": "waits for other members", "SyncGroup": "waits for the leader"}
_SPECIAL_TIMES = {-1: "latest", -2: "earliest", -3: "newest timestamp"}


def report(cluster: Cluster, seed: int, now_ms: float) -> str:
    """Return the text that is shown when a test with a cluster fails.

    It begins with the errors that brokers returned. Then come the partitions with their commits, the last records,
    the groups and transactions that changed last, the last requests without idle ones, and timelines. Times begin at
    the first request or change that the report has. Long lines are cut. The text mentions how many items it omits.
    """
    journal = view_journal(cluster)
    explained = list(_explained(cluster, now_ms))
    firsts = [timeline.moments[0].at_ms for _, timeline in explained if timeline.moments]
    start_ms = min([call.received_ms for call in journal.calls[:1]] + firsts, default=now_ms)
    answer = [
        [f"seed={seed}", *_errors(journal)],
        _partitions(cluster, journal),
        _last_records(cluster),
        _states(cluster, now_ms),
        _requests(journal, start_ms),
    ]
    cut = [cut_lines("\n".join(each)) for each in answer if each]
    return "\n\n".join([*cut, *(_timeline(text, timeline, start_ms) for text, timeline in explained)])


# Errors


def _errors(journal: JournalView) -> list[str]:
    """Return lines with the errors of responses, each with the number of such responses."""
    found: Counter[tuple[str, ...]] = Counter()
    usual: Counter[str] = Counter()
    for call in journal.calls:
        for error in call.errors if call.has_response else ():
            # Kafka's clients get this error on purpose: the broker is older than the client.
            if (call.api.name, error) == ("ApiVersions", ErrorCode.UNSUPPORTED_VERSION):
                continue
            if error in _USUAL and call.fault is None:
                usual[f"{call.api.name} {error.name}"] += 1
                continue
            names = ", ".join([*call.group_ids, *call.transactional_ids]) or _named(call, journal)
            fault = "by a fault" if call.fault is not None else ""
            found[call.api.name, error.name, repr(cut_line(call.client_id, 60)), cut_line(names, 60), fault] += 1
    usual_ones = "usual ones: " + ", ".join(f"{count} {what}" for what, count in usual.items())
    if not found:
        return [f"errors returned: none{f', except {usual_ones}' if usual else ''}"]
    cells = [(f"{count} x", *key) for key, count in islice(found.items(), _ERRORS)]
    return [
        "errors returned:",
        *columns(cells),
        *and_more(len(found), _ERRORS, "errors"),
        *([f"  {usual_ones}"] if usual else []),
    ]


# Partitions and records


def _partitions(cluster: Cluster, journal: JournalView) -> list[str]:
    """Return a table of the partitions that have records, commits or readers."""
    reads = _reads(journal)
    committed: dict[TopicPartition, dict[str, int]] = defaultdict(dict)
    asked = _asked(journal)
    for group_id in _group_ids(cluster):
        for place, offset in committed_offsets(cluster, group_id).items():
            committed[place][group_id] = offset.offset
    rows = []
    total = sum(len(topic.partitions) for topic in cluster.topics if not topic.is_internal)
    for topic in cluster.topics:
        for partition in topic.partitions if not topic.is_internal else ():
            key = topic.name, partition.index
            log = partition.log
            start, end = log.log_start_offset, log.log_end_offset
            is_unused = start == end == 0 and key not in committed and key not in reads
            if is_unused and total > _PARTITIONS:
                continue
            records, aborted, opened = _counts(cluster, *key)
            also = [f"{aborted} aborted"] if aborted else []
            also += [f"an open transaction from {log.last_stable_offset} on"] if opened else []
            counts = f"{records}" + (f" ({', '.join(also)})" if also else "")
            first = (f"{topic.name}-{partition.index}", counts, str(end))
            of_groups: list[tuple[str, str, str]] = [
                (group_id, str(offset), str(max(0, end - offset))) for group_id, offset in committed[key].items()
            ]
            of_groups += [(group_id, "nothing", "-") for group_id in asked[key] if group_id not in committed[key]]
            for number, row in enumerate(of_groups or [("-", "-", "-")]):
                rows.append((*(first if number == 0 else ("", "", "")), *row, "" if number else reads.get(key, "-")))
    if not rows:
        return ["partitions: none with records, commits or readers"]
    head = ("partition", "records", "end", "group", "committed", "lag", "fetched")
    return [*columns([head, *rows[:_PARTITIONS]]), *and_more(len(rows), _PARTITIONS, "partitions"), *_ended(journal)]


def _counts(cluster: Cluster, topic: str, partition: int) -> tuple[int, int, bool]:
    """Return the number of records of a partition, how many of them are aborted, and whether a transaction is open."""
    log = cluster.existing_topic(topic).partitions[partition].log
    records = record_count(cluster, topic, partition)
    after_stable = sum(
        1 for batch in batches_of(cluster, topic, partition, log.last_stable_offset) for _ in batch.records()
    )
    aborted = records - after_stable - record_count(cluster, topic, partition, committed=True)
    return records, aborted, log.last_stable_offset < log.log_end_offset


def _ended(journal: JournalView) -> list[str]:
    """Return a line with the number of transactions that producers have ended."""
    ended = Counter(
        f"{call.request.transactional_id} {'committed' if call.request.committed else 'aborted'}"
        for call in journal.calls
        if call.api.name == "EndTxn" and call.request is not None and not call.errors
    )
    return ["transactions ended: " + ", ".join(f"{count} x {what}" for what, count in ended.items())] if ended else []


def _group_ids(cluster: Cluster) -> list[str]:
    """Return the groups that changed last, and the first ones of those that never had a member."""
    groups = (broker.coordinator.groups for broker in cluster.brokers.values())
    first = islice(chain.from_iterable(each.classic for each in groups), _GROUPS)
    return list(dict.fromkeys([*cluster.history.newest(_GROUPS), *first]))[:_GROUPS]


def _asked(journal: JournalView) -> dict[TopicPartition, list[str]]:
    """Return by partition the groups whose members asked for the committed offset."""
    found: dict[TopicPartition, list[str]] = defaultdict(list)
    for call in journal.calls:
        if call.api.name == "OffsetFetch" and call.request is not None:
            for group_id in call.group_ids:
                for topic, index in call.partitions:
                    if index is not None and group_id not in (ids := found[_name(topic, journal), index]):
                        ids.append(group_id)
    return found


def _reads(journal: JournalView) -> dict[TopicPartition, str]:
    """Return by partition who read it, from which offset to which one, and each jump."""
    positions: dict[tuple[TopicPartition, str], list[list[int]]] = {}
    for call in journal.calls:
        for partition, offset in _fetched(call, journal):
            runs = positions.setdefault((partition, call.client_id), [])
            # The next fetch is after the records of the last one, or repeats it if there were none. Else it is a jump.
            if runs and (runs[-1][1] < offset <= runs[-1][2] or runs[-1][1] == offset == runs[-1][2]):
                runs[-1][1] = offset
            else:
                runs.append([offset, offset, offset])
            runs[-1][2] = max(offset, _end_of_response(call, partition, journal, offset))
    found: dict[TopicPartition, list[str]] = defaultdict(list)
    for (partition, client_id), runs in positions.items():
        named = [str(first) if first == last else f"{first} to {last}" for first, last, _ in runs]
        counts = [(name, len(list(same))) for name, same in groupby(named)]
        ranges = [name if count == 1 else f"{name} ({count} times)" for name, count in counts]
        more = f", ... and {len(ranges) - _READS} more" if len(ranges) > _READS else ""
        found[partition].append(f"{cut_line(client_id, 60)!r} from {', then '.join(ranges[:_READS])}{more}")
    return {partition: "; ".join(texts) for partition, texts in found.items()}


def _fetched(call: Call, journal: JournalView) -> Iterator[tuple[TopicPartition, int]]:
    if call.api.name == "Fetch" and call.request is not None and call.request.replica_id < 0:
        for topic in call.request.topics:
            name = _topic_name(topic, journal)
            for partition in topic.partitions:
                yield (name, partition.partition), partition.fetch_offset


def _end_of_response(call: Call, partition: TopicPartition, journal: JournalView, offset: int) -> int:
    """Return the offset after the records of a response; the end of the log if the response has none of them."""
    for topic in call.response.responses if call.response is not None else ():
        if _topic_name(topic, journal) == partition[0]:
            for each in topic.partitions:
                if each.partition_index == partition[1]:
                    return int(max(offset, each.high_watermark))
    return offset


def _last_records(cluster: Cluster) -> list[str]:
    """Return lines with the last records of each partition."""
    lines, total = list[str](), 0
    for topic in cluster.topics:
        for partition in topic.partitions if not topic.is_internal else ():
            batches = batches_of(cluster, topic.name, partition.index)
            total += record_count(cluster, topic.name, partition.index)
            stable = partition.log.last_stable_offset
            committed = batches_of(cluster, topic.name, partition.index, committed=True)
            visible = {each.batch.base_offset for each in committed}
            last: list[str] = []
            while batches and len(last) < _OF_PARTITION:
                batch = batches.pop()
                base = batch.batch.base_offset
                state = "  (aborted)" if base < stable else "  (not yet committed)"
                last = [*(_record_text(each) + ("" if base in visible else state) for each in batch.records()), *last]
            lines += last[-_OF_PARTITION:]
    if not lines:
        return []
    return ["last records:", *lines[:_RECORDS], *and_more(total, min(len(lines), _RECORDS), "records")]


def _record_text(record: RecordView) -> str:
    headers = ", ".join(f"{name}={shown(value)}" for name, value in record.headers) or "no headers"
    what = f"key {shown(record.key)}, value {shown(record.value)}, {headers}"
    return f"  {record.topic}-{record.partition} @{record.offset}  {what}"


# Groups and transactions


def _states(cluster: Cluster, now_ms: float) -> list[str]:
    """Return lines on the groups and transactional ids that changed last, and their first members."""
    groups, transactions = view_groups(cluster, now_ms), view_transactions(cluster, now_ms)
    latest = sorted(groups, key=_changed_ms, reverse=True)[:_GROUPS]
    shown_ids = {id(group) for group in latest}
    lines = [group.text(_MEMBERS) for group in groups if id(group) in shown_ids] or ["(no groups)"]
    lines += and_more(len(groups), len(latest), "groups, which changed earlier")
    changed = sorted(transactions, key=lambda each: each.last_update_ms, reverse=True)[:_GROUPS]
    lines += [each.text(_MEMBERS) for each in changed]
    return [*lines, *and_more(len(transactions), len(changed), "transactional ids, which changed earlier")]


def _changed_ms(group: GroupView) -> float:
    """Return when a group changed last, in milliseconds since the epoch."""
    return group.history.moments[-1].at_ms if group.history.moments else 0.0


def _explained(cluster: Cluster, now_ms: float) -> Iterator[tuple[str, Timeline | TransactionTimeline]]:
    """Yield the explanation and the timeline of each group and transactional id that changed recently."""
    for group_id in cluster.history.newest(_EXPLAINED):
        yield explain(cluster, group_id, now_ms), timeline_of(cluster, group_id, now_ms)
    for transactional_id in cluster.transactions.history.newest(_EXPLAINED):
        timeline = transaction_timeline_of(cluster, transactional_id, now_ms)
        yield explain_transaction(cluster, transactional_id, now_ms), timeline


def _timeline(explanation: str, timeline: Timeline | TransactionTimeline, start_ms: float) -> str:
    """Return an explanation with the end of the timeline."""
    text = f"{explanation[:_MAX_EXPLANATION]}{'...' * (len(explanation) > _MAX_EXPLANATION)}"
    end = replace(timeline, moments=timeline.moments[-_MOMENTS:]).text(start_ms)
    more = and_more(len(timeline.moments), _MOMENTS, "entries, which are earlier")
    return "\n".join([text, "", end, *more])


# Requests


def _requests(journal: JournalView, start_ms: float) -> list[str]:
    """Return a table of the last requests and their contents; a run of idle requests is one line."""
    if journal.mode == "off":
        return ["no requests: the journal is off"]
    positions: dict[tuple[int, TopicPartition], int] = {}
    kept = [(call, _is_idle(call, journal, positions)) for call in journal.calls]
    items: list[Call | Counter[str]] = []
    active = sum(not is_idle for _, is_idle in kept)
    for is_idle, run in groupby(kept, key=lambda each: each[1]):
        calls = [call for call, _ in run]
        if not is_idle:
            items += calls
        elif counts := Counter(
            f"{call.api.name} of {cut_line(call.client_id, 30)!r}" for call in calls if call.api.name not in _LEFT_OUT
        ):
            items.append(counts)
    head = ("at", "client", "broker", "request", "error", "what")
    rows = [
        ("", "", "", "...", "", ", ".join(f"{count} {api}" for api, count in each.items()))
        if isinstance(each, Counter)
        else _row(each, journal, start_ms)
        for each in items[-_REQUESTS:]
    ]
    lines = columns([head, *rows]) if rows else ["  (no requests)"]
    last = sum(isinstance(each, Call) for each in items[-_REQUESTS:])
    which = f"all {active}" if last == active else f"the last {last} of {active}"
    first = f"{which} requests that were not idle (without Metadata and ApiVersions; idle ones are counted):"
    return [first, *lines, *journal.warnings()]


def _is_idle(call: Call, journal: JournalView, positions: dict[tuple[int, TopicPartition], int]) -> bool:
    """Return whether a request changed nothing. Remember the position of each connection's fetches."""
    moved = False
    for partition, offset in _fetched(call, journal):
        moved |= positions.get((call.connection_id, partition)) != offset
        positions[call.connection_id, partition] = offset
    if call.fault is not None or call.errors:
        return False
    if call.api.name == "ConsumerGroupHeartbeat":
        return call.response is not None and call.response.assignment is None and call.request.member_epoch > 0
    return call.api.name in _IDLE or (call.api.name == "Fetch" and not moved)


def _row(call: Call, journal: JournalView, start_ms: float) -> tuple[str, ...]:
    waits = "" if call.has_response else f" ({_WAITS.get(call.api.name, 'no response yet')})"
    if call.latency_ms is not None and call.latency_ms >= 1_000:
        waits = f" (answered after {call.latency_ms / 1_000:.1f} s)"
    try:
        what = _what(call, journal)
    except ProtocolError:  # A record batch of the client cannot be read.
        what = ""
    return (
        f"{(call.received_ms - start_ms) / 1_000:.3f} s",
        repr(cut_line(call.client_id, 30)),
        str(call.node_id),
        call.api.name,
        ", ".join(error.name for error in call.errors) or "-",
        what + (" (fault)" if call.fault else "") + waits,
    )


def _what(call: Call, journal: JournalView) -> str:
    """Return in a few words what a request asks for, and what its response says."""
    request, response = call.request, call.response
    names = ", ".join([*call.group_ids, *(f"transaction {each}" for each in call.transactional_ids)])
    if request is None:
        return names
    match call.api.name:
        case "OffsetCommit" | "TxnOffsetCommit":
            said = [
                f"{_topic_name(topic, journal)}-{each.partition_index}={each.committed_offset}"
                for topic in request.topics
                for each in topic.partitions
            ]
        case "OffsetFetch":
            answered = [response] if response is not None and not response.groups else getattr(response, "groups", [])
            said = [
                f"{_topic_name(topic, journal)}-{each.partition_index}="
                + (str(each.committed_offset) if each.committed_offset >= 0 else "nothing")
                for group in answered
                for topic in group.topics
                for each in topic.partitions
            ]
        case "Produce":
            at = {
                (_topic_name(topic, journal), each.index): each.base_offset
                for topic in (response.responses if response is not None else ())
                for each in topic.partition_responses
                if not each.error_code
            }
            said = [
                f"{name}-{each.index} {_produced(each.records)} at {at.get((name, each.index), 'no offset')}"
                for topic in request.topic_data
                for name in [_topic_name(topic, journal)]
                for each in topic.partition_data
            ]
        case "Fetch":
            said = [f"{topic}-{index} from {offset}" for (topic, index), offset in _fetched(call, journal)]
        case "ListOffsets":
            asked = {
                (topic.name, each.partition_index): each.timestamp
                for topic in request.topics
                for each in topic.partitions
            }
            found = [
                (topic.name, each.partition_index, each.offset)
                for topic in (response.topics if response is not None else ())
                for each in topic.partitions
            ]
            said = [f"{name}-{index} {_time(asked.get((name, index)))}={offset}" for name, index, offset in found]
        case "EndTxn":
            said = ["commit" if request.committed else "abort"]
        case "JoinGroup":
            said = [f"generation {response.generation_id}"] if response is not None and not response.error_code else []
        case "ConsumerGroupHeartbeat":
            said = [f"epoch {request.member_epoch}"]
        case _:
            said = [_named(call, journal)] if not names else []
    return " ".join([names, ", ".join(said)]).strip()


def _time(timestamp: int | None) -> str:
    return _SPECIAL_TIMES.get(timestamp, f"at {timestamp}") if timestamp is not None else ""


def _produced(records: bytes | None) -> str:
    """Return the number of records that a producer has sent, and the values of the first ones."""
    batches = split_batches(records) if records else []
    count, values = sum(batch.record_count for batch in batches), list[str]()
    if batches:
        with suppress(ProtocolError):  # The records are malformed, or too many bytes.
            first = islice(iterate_records(batches[0], _MAX_DECOMPRESSED_BYTES), _VALUES)
            values = [shown(record.value) for record in first]
    values = [each if len(each) <= _VALUE_LENGTH else f"{each[: _VALUE_LENGTH - 3]}..." for each in values]
    more = ["..."] if count > len(values) else []
    return counted(count, "record") + (f" ({', '.join([*values, *more])})" if values else "")


def _named(call: Call, journal: JournalView) -> str:
    """Return the topics and partitions that a request names."""
    names = [
        (topic if isinstance(topic, str) else _name(topic, journal)) + ("" if index is None else f"-{index}")
        for topic, index in call.partitions
    ]
    return ", ".join(dict.fromkeys(names))


def _topic_name(topic: object, journal: JournalView) -> str:
    """Return the name of the topic of a request's or response's array, which has a name or an id."""
    topic_id = getattr(topic, "topic_id", ZERO_UUID)
    if topic_id != ZERO_UUID:
        return _name(topic_id, journal)
    return str(getattr(topic, "name", "") or getattr(topic, "topic", ""))


def _name(topic: TopicRef, journal: JournalView) -> str:
    return topic if isinstance(topic, str) else journal.topic_name(topic) or topic.hex()
