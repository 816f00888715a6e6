"""The producers, readers and admins of a transcript about transactions: their state, their requests, and the responses.

Does not depend on a cluster. Producer ids are those of the cluster, which counts them from 0.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from fakebroker.cluster.logs.transactions_topic import record_key, record_value
from fakebroker.cluster.topics import TRANSACTIONS_TOPIC
from fakebroker.coordinator.transaction.records import TransactionValue
from fakebroker.coordinator.transaction.states import TransactionState
from fakebroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from fakebroker.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from fakebroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from fakebroker.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from fakebroker.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from fakebroker.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState as DescribedTransaction,
)
from fakebroker.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from fakebroker.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from fakebroker.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from fakebroker.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from fakebroker.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from fakebroker.protocol.records import Record, RecordBatch, decode_records, encode_batch, split_batches
from fakebroker.protocol.schema import Message
from fakebroker.protocol.transaction_markers import AbortedBatches, marker_in
from fakebroker.topic_partition import TopicPartition, by_topic, parse_partition
from tests.support.transcripts.parser import Step
from tests.support.transcripts.response_text import error_text

NEWEST = {
    "init": 5,
    "add": 3,
    "addgroup": 4,
    "write": 12,  # The newest with topic names.
    "end": 5,
    "read": 12,
    "offset": 10,
    "producers": 0,
    "transactions": 2,
    "transaction": 0,
    "mark": 2,
    "trim": 2,
    "locate": 6,
    "features": 4,
    "store": 12,
}
"""The version of a request without `v...`."""

AT_THE_LEADER = ("write", "read", "offset", "producers", "mark", "trim")
"""The requests that are sent to the leader of their first partition."""

AT_ANY_BROKER = ("locate", "features")

ADMIN_CLIENT_ID = "__admin_client"
"""The only client id that may write to internal topics."""

_POSITIONS = {"latest": -1, "earliest": -2, "max": -3}
_PARTITION, _HELD_PARTITION = "news-0", "news-1"


@dataclass(slots=True)
class TranscriptProducer:
    """One producer: what it knows from answers.

    Attributes:
        sequences: The next sequence number by partition, in the epoch of the producer.
        ids: How many transactional ids it has used for steps with `in=`.
    """

    name: str
    transactional_id: str | None = ""
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[TopicPartition, int] = field(default_factory=dict)
    ids: int = 0

    def use(self, producer_id: int, epoch: int) -> None:
        """Continue with this producer id and epoch; in a new epoch sequence numbers start again."""
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = producer_id, epoch
            self.sequences.clear()


def steps_to(step: Step) -> Iterator[Step]:
    """Yield the steps that bring a new transactional id to the state `in=` of a step: in epoch 2, after epochs 0 and 1.

    In the states Prepare* the transaction has the partition news-1, whose leader has to be down.
    """
    state = step.options["in"]
    base = replace(step, words=(), version=None)
    yield replace(base, verb="init", options={})
    yield replace(base, verb="init", options={"own": True})
    yield replace(base, verb="init", options={"own": True})
    if state != "Empty":
        place = _HELD_PARTITION if state.startswith("Prepare") else _PARTITION
        yield replace(base, verb="add", words=(place,), options={})
    if state.endswith(("Commit", "Abort")):
        version = step.version if step.verb == "end" else 4
        outcome = "commit" if state.endswith("Commit") else "abort"
        yield replace(base, verb="end", words=(outcome,), version=version, options={})


class Producers:
    """The producers of one transcript."""

    def __init__(self) -> None:
        self._producers: dict[str, TranscriptProducer] = {}
        self._records = count()

    def producer(self, name: str) -> TranscriptProducer:
        """Return a producer, which is added if it is new."""
        return self._producers.setdefault(name, TranscriptProducer(name))

    def begin(self, step: Step) -> TranscriptProducer:
        """Return the producer of a step, with the transactional id of the step: `id=`, a new one for `in=`, or `t`."""
        assert step.actor is not None
        producer = self.producer(step.actor)
        if "in" in step.options:
            producer.ids += 1
            producer.transactional_id = f"{producer.name.lower()}-{producer.ids}"
            producer.use(-1, -1)
        elif "id" in step.options:
            name = step.options["id"]
            producer.transactional_id = None if name == "none" else "" if name == '""' else name
        elif producer.transactional_id == "":
            producer.transactional_id = "t"
        return producer

    def request(self, producer: TranscriptProducer, step: Step) -> tuple[Message, int]:
        """Return the request of a step and its version."""
        version = NEWEST[step.verb] if step.version is None else step.version
        return self._build(producer, step, version), version

    def _build(self, producer: TranscriptProducer, step: Step, version: int) -> Message:
        options, name = step.options, producer.transactional_id
        producer_id, epoch = _identity(producer, step)
        match step.verb:
            case "init":
                sends = "own" in options or "epoch" in options or "pid" in options
                return InitProducerIdRequest(
                    transactional_id=name,
                    transaction_timeout_ms=options.get("timeout", 60_000),
                    producer_id=producer_id if sends else -1,
                    producer_epoch=epoch if sends else -1,
                )
            case "add":
                return _added(step, name or "", producer_id, epoch, version)
            case "addgroup":
                return AddOffsetsToTxnRequest(
                    transactional_id=name or "", producer_id=producer_id, producer_epoch=epoch, group_id=step.words[0]
                )
            case "end":
                return EndTxnRequest(
                    transactional_id=name or "",
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    committed=step.words == ("commit",),
                )
            case "write":
                return self._write(producer, step, producer_id, epoch)
            case "store":
                return self._store(step, producer_id, epoch)
            case "locate":
                if version < 4:
                    return FindCoordinatorRequest(key_type=1, key=name or "")
                return FindCoordinatorRequest(key_type=1, coordinator_keys=[name or ""])
            case "mark":
                return _marked(step, producer_id, epoch)
        return _asked(step)

    def _write(self, producer: TranscriptProducer, step: Step, producer_id: int, epoch: int) -> ProduceRequest:
        data: dict[str, list[PartitionProduceData]] = {}
        for word in step.words:
            place, _, text = word.partition("=")
            topic, index = parse_partition(place)
            records = self._batch(producer, step, (topic, index), text.split(","), producer_id, epoch)
            data.setdefault(topic, []).append(PartitionProduceData(index=index, records=records))
        transactional_id = None if "plain" in step.options else producer.transactional_id
        return ProduceRequest(
            transactional_id=transactional_id,
            acks=step.options.get("acks", -1),
            timeout_ms=1_000,
            topic_data=[TopicProduceData(name=topic, partition_data=parts) for topic, parts in data.items()],
        )

    def _batch(
        self,
        producer: TranscriptProducer,
        step: Step,
        place: TopicPartition,
        values: Sequence[str],
        producer_id: int,
        epoch: int,
    ) -> bytes:
        records = [
            Record(index, 1_000 + next(self._records), None, value.encode()) for index, value in enumerate(values)
        ]
        return encode_batch(
            records,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=step.options.get("seq", producer.sequences.get(place, 0) if producer_id >= 0 else -1),
            is_transactional="plain" not in step.options,
            is_control="control" in step.options,
        )

    def _store(self, step: Step, producer_id: int, epoch: int) -> ProduceRequest:
        """Return the request that writes a record to __transaction_state, which a coordinator loads when it moves."""
        value = TransactionValue(
            producer_id=producer_id,
            epoch=epoch,
            timeout_ms=60_000,
            state=TransactionState(step.options["state"]),
            partitions=tuple(map(parse_partition, step.words[1:])),
            last_update_ms=1_000,
            start_ms=1_000,
        )
        record = Record(0, 1_000, record_key(step.words[0]), record_value(value, 1))
        data = [PartitionProduceData(index=0, records=encode_batch([record]))]
        topics = [TopicProduceData(name=TRANSACTIONS_TOPIC, partition_data=data)]
        return ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1_000, topic_data=topics)

    def receive(self, producer: TranscriptProducer, request: Message, response: Message) -> None:
        """Update a producer from an answer: its producer id, epoch and sequence numbers."""
        match response:
            case InitProducerIdResponse() | EndTxnResponse() if response.producer_id >= 0:
                producer.use(response.producer_id, response.producer_epoch)
            case ProduceResponse():
                assert isinstance(request, ProduceRequest)
                for sent, topic in zip(request.topic_data, response.responses, strict=True):
                    for data, result in zip(sent.partition_data, topic.partition_responses, strict=True):
                        batch = RecordBatch(data.records or b"")
                        if not result.error_code and batch.producer_epoch == producer.epoch:
                            place = topic.name, result.index
                            end = batch.base_sequence + batch.last_offset_delta + 1
                            producer.sequences[place] = max(producer.sequences.get(place, 0), end)


def _identity(producer: TranscriptProducer, step: Step) -> tuple[int, int]:
    """Return the producer id and the epoch of a step; `e-1` is relative to the epoch of the producer."""
    producer_id = step.options.get("pid", producer.producer_id)
    epoch = step.options.get("epoch", producer.epoch)
    if isinstance(epoch, str):
        epoch = producer.epoch + int(epoch.removeprefix("e") or 0)
    if "plain" in step.options and "pid" not in step.options:
        return -1, -1
    return producer_id, epoch


def _added(step: Step, name: str, producer_id: int, epoch: int, version: int) -> AddPartitionsToTxnRequest:
    places = by_topic(map(parse_partition, step.words)).items()
    topics = [AddPartitionsToTxnTopic(name=topic, partitions=indexes) for topic, indexes in places]
    if version < 4:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=topics,
        )
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=name,
        producer_id=producer_id,
        producer_epoch=epoch,
        verify_only="verify" in step.options,
        topics=topics,
    )
    return AddPartitionsToTxnRequest(transactions=[transaction])


def _marked(step: Step, producer_id: int, epoch: int) -> WriteTxnMarkersRequest:
    places = by_topic(map(parse_partition, step.words)).items()
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result="commit" in step.options,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=indexes) for topic, indexes in places],
        coordinator_epoch=step.options.get("coordinator", 0),
        transaction_version=step.options.get("tv", 0),
    )
    return WriteTxnMarkersRequest(markers=[marker])


def _asked(step: Step) -> Message:
    """Return the request of a reader or an admin."""
    options = step.options
    isolation = int("committed" in options)
    match step.verb:
        case "read":
            topic, index = parse_partition(step.words[0])
            fetched = FetchPartition(partition=index, fetch_offset=options.get("from", 0), partition_max_bytes=2**20)
            return FetchRequest(
                max_wait_ms=60_000 if "wait" in options else 0,
                min_bytes=options.get("min", 1) if "wait" in options else 0,
                isolation_level=isolation,
                topics=[FetchTopic(topic=topic, partitions=[fetched])],
            )
        case "offset":
            topic, index = parse_partition(step.words[0])
            at = options.get("at", "latest")
            listed = ListOffsetsPartition(
                partition_index=index, timestamp=_POSITIONS[at] if at in _POSITIONS else int(at)
            )
            topics = [ListOffsetsTopic(name=topic, partitions=[listed])]
            return ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
        case "producers":
            places = by_topic(map(parse_partition, step.words)).items()
            return DescribeProducersRequest(
                topics=[TopicRequest(name=topic, partition_indexes=indexes) for topic, indexes in places]
            )
        case "transactions":
            return ListTransactionsRequest(
                state_filters=options.get("states", []),
                producer_id_filters=options.get("pids", []),
                duration_filter=options.get("duration", -1),
                transactional_id_pattern=options.get("pattern"),
            )
        case "transaction":
            return DescribeTransactionsRequest(transactional_ids=["" if each == '""' else each for each in step.words])
        case "features":
            return ApiVersionsRequest(client_software_name="transcripts", client_software_version="1")
        case "trim":
            place, _, offset = step.words[0].partition("=")
            topic, index = parse_partition(place)
            before = [DeleteRecordsPartition(partition_index=index, offset=int(offset))]
            return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=before)], timeout_ms=1_000)
    raise AssertionError(step.verb)


# Responses


def response_text(response: Message) -> str:
    """Return the text of a response. Leaves out times."""
    match response:
        case InitProducerIdResponse() | EndTxnResponse():
            if response.error_code or response.producer_id < 0:
                return error_text(response.error_code)
            return f"pid {response.producer_id}, epoch {response.producer_epoch}"
        case AddPartitionsToTxnResponse():
            return _added_text(response)
        case AddOffsetsToTxnResponse():
            return error_text(response.error_code)
        case ProduceResponse():
            rows = [(topic.name, each) for topic in response.responses for each in topic.partition_responses]
            return ", ".join(_produced_text(name, each) for name, each in rows)
        case FetchResponse():
            return ", ".join(_fetched_text(each) for topic in response.responses for each in topic.partitions)
        case ListOffsetsResponse():
            return ", ".join(_offset_text(each) for topic in response.topics for each in topic.partitions)
        case FindCoordinatorResponse():
            found = response.coordinators[0] if response.coordinators else response
            return error_text(found.error_code) if found.error_code else f"broker {found.node_id}"
    return _described_text(response)


def _described_text(response: Message) -> str:
    match response:
        case DescribeProducersResponse():
            return "; ".join(
                error_text(each.error_code)
                if each.error_code
                else ", ".join(map(_producer_text, each.active_producers)) or "no producers"
                for topic in response.topics
                for each in topic.partitions
            )
        case DescribeTransactionsResponse():
            return "; ".join(map(_transaction_text, response.transaction_states))
        case ListTransactionsResponse():
            if response.error_code:
                return error_text(response.error_code)
            found = [f"{each.transactional_id} {each.transaction_state}" for each in response.transaction_states]
            unknown = [f"unknown state {each}" for each in response.unknown_state_filters]
            return ", ".join([*(found or ["no transactions"]), *unknown])
        case WriteTxnMarkersResponse():
            return ", ".join(
                f"{topic.name}-{each.partition_index} {error_text(each.error_code)}"
                for result in response.markers
                for topic in result.topics
                for each in topic.partitions
            )
        case DeleteRecordsResponse():
            return ", ".join(
                error_text(each.error_code) if each.error_code else f"starts at {each.low_watermark}"
                for topic in response.topics
                for each in topic.partitions
            )
        case ApiVersionsResponse():
            levels = {each.name: each.max_version_level for each in response.finalized_features}
            return f"transaction.version {levels.get('transaction.version', 'not finalized')}"
    raise AssertionError(response)


def _added_text(response: AddPartitionsToTxnResponse) -> str:
    rows = [*response.results_by_topic_v3_and_below]
    rows += [topic for each in response.results_by_transaction for topic in each.topic_results]
    return ", ".join(
        f"{topic.name}-{each.partition_index} {error_text(each.partition_error_code)}"
        for topic in rows
        for each in topic.results_by_partition
    ) or error_text(response.error_code)


def _produced_text(topic: str, row: PartitionProduceResponse) -> str:
    outcome = error_text(row.error_code) if row.error_code else f"at {row.base_offset}"
    return f"{topic}-{row.index} {outcome}" + (", with a message" if row.error_code and row.error_message else "")


def _fetched_text(data: PartitionData) -> str:
    if data.error_code:
        return f"{error_text(data.error_code)}, stable {data.last_stable_offset}"
    batches = split_batches(data.records or b"")
    parts = [" ".join(_batch_text(each) for each in batches) or "nothing"]
    parts.append(f"stable {data.last_stable_offset}, end {data.high_watermark}")
    if data.aborted_transactions:
        listed = " ".join(f"{each.producer_id}@{each.first_offset}" for each in data.aborted_transactions)
        skipped = AbortedBatches(data.aborted_transactions)
        kept = [each for each in batches if not skipped.contain(each) and not each.is_control]
        parts += [f"aborted {listed}", f"visible {' '.join(map(_batch_text, kept)) or 'nothing'}"]
    return ", ".join(parts)


def _batch_text(batch: RecordBatch) -> str:
    if (marker := marker_in(batch)) is not None:
        return f"{'COMMIT' if marker.is_commit else 'ABORT'}/{batch.producer_epoch}@{batch.base_offset}"
    return " ".join(f"{(each.value or b'').decode()}@{each.offset}" for each in decode_records(batch))


def _offset_text(row: ListOffsetsPartitionResponse) -> str:
    return error_text(row.error_code) if row.error_code else f"offset {row.offset}"


def _producer_text(producer: ProducerState) -> str:
    text = f"pid {producer.producer_id} epoch {producer.producer_epoch} sequence {producer.last_sequence}"
    text += f" coordinator {producer.coordinator_epoch}"
    start = producer.current_txn_start_offset
    return text if start < 0 else f"{text} open at {start}"


def _transaction_text(found: DescribedTransaction) -> str:
    if found.error_code:
        return error_text(found.error_code)
    places = [f"{topic.topic}-{index}" for topic in found.topics for index in topic.partitions]
    return " ".join([found.transaction_state, f"pid {found.producer_id}", f"epoch {found.producer_epoch}", *places])
