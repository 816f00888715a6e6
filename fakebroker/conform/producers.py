"""Producers, readers and admins of transactions in transcripts: their state, and the requests they send.

Does not depend on a cluster. A transcript contains the producer ids that the cluster assigns: 0, 1, 2 and so on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from fakebroker.cluster.logs.coordinator_records import record_key, record_value
from fakebroker.cluster.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from fakebroker.conform.transcript import Step, relative
from fakebroker.coordinator.transaction.transaction import TransactionState, TransactionValue, transaction_record
from fakebroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from fakebroker.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from fakebroker.protocol.messages.api_versions import ApiVersionsRequest
from fakebroker.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from fakebroker.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from fakebroker.protocol.messages.describe_transactions import DescribeTransactionsRequest
from fakebroker.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from fakebroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fakebroker.protocol.messages.list_transactions import ListTransactionsRequest
from fakebroker.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from fakebroker.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from fakebroker.protocol.records import Record, RecordBatch, encode_batch
from fakebroker.protocol.schema import Message
from fakebroker.topic_partition import TopicPartition, by_topic, parse_partition

PRODUCER_VERBS = frozenset(
    (
        *("init", "add", "add-offsets", "write", "end", "read", "offset", "producers", "transactions", "transaction"),
        *("mark", "trim", "locate", "features", "store"),
    )
)
"""The steps of producers, readers and admins of transactions."""

AT_THE_LEADER = ("write", "read", "offset", "producers", "mark", "trim", "store", "store-member")
"""The requests that are sent to the leader of their first partition."""

AT_ANY_BROKER = ("locate", "features")
"""The requests that are sent to the first broker that is up; others are sent to the transaction coordinator."""

ADMIN_CLIENT_ID = "__admin_client"
"""The only client id that may write to internal topics."""

_POSITIONS = {"latest": -1, "earliest": -2, "max": -3}
_PARTITION, _HELD_PARTITION = "news-0", "news-1"


def steps_to(step: Step) -> Iterator[Step]:
    """Yield the steps that bring a new transactional id to the state `in=` of a step: in epoch 2, after epochs 0 and 1.

    In the states Prepare* the transaction has the partition news-1, whose leader has to be down.
    """
    state = step.options["in"]
    base = replace(step, words=(), version=None)
    yield replace(base, verb="init", options={})
    yield replace(base, verb="init", options={"resume": True})
    yield replace(base, verb="init", options={"resume": True})
    if state != "Empty":
        place = _HELD_PARTITION if state.startswith("Prepare") else _PARTITION
        yield replace(base, verb="add", words=(place,), options={})
    if state.endswith(("Commit", "Abort")):
        version = step.version if step.verb == "end" else 4
        outcome = "commit" if state.endswith("Commit") else "abort"
        yield replace(base, verb="end", words=(outcome,), version=version, options={})


def first_partition(step: Step) -> TopicPartition:
    """Return the partition whose leader gets a request."""
    if step.verb in ("store", "store-member"):
        return (TRANSACTIONS_TOPIC if step.verb == "store" else OFFSETS_TOPIC), 0
    return parse_partition(step.words[0].partition("=")[0])


@dataclass(slots=True)
class TranscriptProducer:
    """The producer of a member: its id, and the producer id and epoch according to the answers.

    Attributes:
        timestamps: The timestamps of records, for all producers of a transcript.
        sequences: The next sequence number by partition, in the epoch of the producer.
        ids: How many transactional ids it has used for steps with `in=`.
    """

    timestamps: Iterator[int]
    transactional_id: str | None = "t"
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[TopicPartition, int] = field(default_factory=dict)
    ids: int = 0

    def begin(self, step: Step) -> None:
        """Use the transactional id of an InitProducerId, or a new one for a step with `in=`."""
        if "in" in step.options:
            self.ids += 1
            self.transactional_id = f"{(step.actor or '').lower()}-{self.ids}"
            self._use(-1, -1)
        elif step.verb == "init":
            self.transactional_id = self.id_of(step)

    def id_of(self, step: Step) -> str | None:
        """Return the transactional id of a step; None for `id=none`."""
        name: str | None = step.options.get("id", self.transactional_id)
        return {"none": None, '""': ""}.get(name or "", name)

    def sent(self, step: Step) -> tuple[str, int, int]:
        """Return the transactional id, producer id and epoch of a request, which the options of its step may change."""
        return self.id_of(step) or "", *self._identity(step)

    def _use(self, producer_id: int, epoch: int) -> None:
        """Continue with this producer id and epoch; in a new epoch sequence numbers start again."""
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = producer_id, epoch
            self.sequences.clear()

    def request(self, step: Step, group_id: str, version: int) -> Message:
        """Return the request of a step."""
        options, name = step.options, self.id_of(step)
        producer_id, epoch = self._identity(step)
        match step.verb:
            case "init":
                sends = "resume" in options or "epoch" in options or "pid" in options
                return InitProducerIdRequest(
                    transactional_id=name,
                    transaction_timeout_ms=options.get("timeout", 60_000),
                    producer_id=producer_id if sends else -1,
                    producer_epoch=epoch if sends else -1,
                )
            case "add":
                return _added(step, name or "", producer_id, epoch, version)
            case "add-offsets":
                return AddOffsetsToTxnRequest(
                    transactional_id=name or "", producer_id=producer_id, producer_epoch=epoch, group_id=group_id
                )
            case "end":
                return EndTxnRequest(
                    transactional_id=name or "",
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    committed=step.words == ("commit",),
                )
            case "write":
                return self._write(step, producer_id, epoch)
            case "store":
                return _stored(step, producer_id, epoch)
            case "locate":
                if version < 4:
                    return FindCoordinatorRequest(key_type=1, key=name or "")
                return FindCoordinatorRequest(key_type=1, coordinator_keys=[name or ""])
            case "mark":
                return _marked(step, producer_id, epoch)
        return _asked(step)

    def _write(self, step: Step, producer_id: int, epoch: int) -> ProduceRequest:
        data: dict[str, list[PartitionProduceData]] = {}
        for word in step.words:
            place, _, text = word.partition("=")
            topic, index = parse_partition(place)
            records = self._batch(step, (topic, index), text.split(","), producer_id, epoch)
            data.setdefault(topic, []).append(PartitionProduceData(index=index, records=records))
        transactional_id = None if "plain" in step.options else self.id_of(step)
        return ProduceRequest(
            transactional_id=transactional_id,
            acks=step.options.get("acks", -1),
            timeout_ms=1_000,
            topic_data=[TopicProduceData(name=topic, partition_data=parts) for topic, parts in data.items()],
        )

    def _batch(
        self,
        step: Step,
        place: TopicPartition,
        values: Sequence[str],
        producer_id: int,
        epoch: int,
    ) -> bytes:
        records = [Record(index, next(self.timestamps), None, value.encode()) for index, value in enumerate(values)]
        return encode_batch(
            records,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=step.options.get("seq", self.sequences.get(place, 0) if producer_id >= 0 else -1),
            is_transactional="plain" not in step.options,
            is_control="control" in step.options,
        )

    def _identity(self, step: Step) -> tuple[int, int]:
        """Return the producer id and the epoch of a step; `e-1` is relative to the epoch of the producer."""
        producer_id = step.options.get("pid", self.producer_id)
        epoch = relative(step.options.get("epoch", self.epoch), self.epoch)
        if "plain" in step.options and "pid" not in step.options:
            return -1, -1
        return producer_id, epoch

    def receive(self, request: Message, response: Message) -> None:
        """Use the producer id and the epoch that a response assigns, and count the records that were written."""
        match response:
            case InitProducerIdResponse() | EndTxnResponse() if not response.error_code and response.producer_id >= 0:
                self._use(response.producer_id, response.producer_epoch)
            case ProduceResponse():
                assert isinstance(request, ProduceRequest)
                for sent, topic in zip(request.topic_data, response.responses, strict=True):
                    for data, result in zip(sent.partition_data, topic.partition_responses, strict=True):
                        batch = RecordBatch(data.records or b"")
                        if not result.error_code and batch.producer_epoch == self.epoch:
                            place = topic.name, result.index
                            end = batch.base_sequence + batch.last_offset_delta + 1
                            self.sequences[place] = max(self.sequences.get(place, 0), end)


def _stored(step: Step, producer_id: int, epoch: int) -> ProduceRequest:
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
    written = transaction_record(step.words[0], value)
    record = Record(0, 1_000, record_key(written), record_value(written, transaction_version=1))
    data = [PartitionProduceData(index=0, records=encode_batch([record]))]
    topics = [TopicProduceData(name=TRANSACTIONS_TOPIC, partition_data=data)]
    return ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1_000, topic_data=topics)


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
