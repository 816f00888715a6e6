"""The text of responses to producers, readers and admins of transactions in transcripts. Leaves out times."""

from fakebroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from fakebroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from fakebroker.protocol.messages.api_versions import ApiVersionsResponse
from fakebroker.protocol.messages.delete_records import DeleteRecordsResponse
from fakebroker.protocol.messages.describe_producers import DescribeProducersResponse, ProducerState
from fakebroker.protocol.messages.describe_transactions import (
    DescribeTransactionsResponse,
    TransactionState as DescribedTransaction,
)
from fakebroker.protocol.messages.end_txn import EndTxnResponse
from fakebroker.protocol.messages.fetch import FetchResponse, PartitionData
from fakebroker.protocol.messages.init_producer_id import InitProducerIdResponse
from fakebroker.protocol.messages.list_offsets import ListOffsetsPartitionResponse, ListOffsetsResponse
from fakebroker.protocol.messages.list_transactions import ListTransactionsResponse
from fakebroker.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from fakebroker.protocol.messages.write_txn_markers import WriteTxnMarkersResponse
from fakebroker.protocol.records import RecordBatch, decode_records, split_batches
from fakebroker.protocol.schema import Message
from fakebroker.protocol.transaction_markers import AbortedBatches, marker_in
from tests.support.transcripts.error_text import error_text


def transaction_text(response: Message) -> str:
    """Return the text of a response to a producer, a reader or an admin of transactions; "" for others."""
    match response:
        case InitProducerIdResponse() | EndTxnResponse():
            if response.error_code or response.producer_id < 0:
                return error_text(response.error_code)
            return f"producer {response.producer_id}, epoch {response.producer_epoch}"
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
    return ""


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
    text = f"producer {producer.producer_id} epoch {producer.producer_epoch} sequence {producer.last_sequence}"
    text += f" coordinator {producer.coordinator_epoch}"
    start = producer.current_txn_start_offset
    return text if start < 0 else f"{text} open at {start}"


def _transaction_text(found: DescribedTransaction) -> str:
    if found.error_code:
        return error_text(found.error_code)
    places = [f"{topic.topic}-{index}" for topic in found.topics for index in topic.partitions]
    return " ".join(
        [found.transaction_state, f"producer {found.producer_id}", f"epoch {found.producer_epoch}", *places]
    )
