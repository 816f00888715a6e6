"""The requests of transactional producers in transcripts. Does not depend on a cluster."""

from dataclasses import dataclass
from typing import Any

from fakebroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from fakebroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from fakebroker.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from fakebroker.protocol.schema import Message
from fakebroker.topic_partition import by_topic, parse_partition
from tests.support.transcripts.parser import Step

NEWEST_OF_COORDINATORS = {
    "init": 5,
    "add": 3,  # The newest of clients.
    "add-offsets": 4,
    "end": 5,
}
"""The version of a request to a transaction coordinator without `v...`."""

_FIELDS = ("transactional_id", "producer_id", "producer_epoch")


@dataclass(slots=True)
class TranscriptProducer:
    """The transactional producer of a member: its id, and the producer id and epoch according to the answers."""

    transactional_id: str = "t"
    producer_id: int = -1
    epoch: int = -1

    def sent(self, step: Step) -> tuple[str, int, int]:
        """Return the transactional id, producer id and epoch of a request, which the options of its step may change."""
        options = step.options
        id_, producer_id = options.get("id", self.transactional_id), options.get("pid", self.producer_id)
        return "" if id_ == '""' else id_, producer_id, options.get("epoch", self.epoch)

    def request(self, step: Step, group_id: str) -> Message:
        """Return a request to the transaction coordinator."""
        transactional_id, producer_id, epoch = self.sent(step)
        producer: dict[str, Any] = {
            "transactional_id": transactional_id,
            "producer_id": producer_id,
            "producer_epoch": epoch,
        }
        match step.verb:
            case "init":
                if "resume" not in step.options:
                    producer |= {"producer_id": -1, "producer_epoch": -1}
                self.transactional_id = transactional_id
                return InitProducerIdRequest(transaction_timeout_ms=step.options.get("timeout", 60_000), **producer)
            case "add":
                topics = by_topic(map(parse_partition, step.words)).items()
                return AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=transactional_id,
                    v3_and_below_producer_id=producer_id,
                    v3_and_below_producer_epoch=epoch,
                    v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=each) for name, each in topics],
                )
            case "add-offsets":
                return AddOffsetsToTxnRequest(group_id=group_id, **producer)
        return EndTxnRequest(committed=step.words[0] == "commit", **producer)

    def receive(self, response: InitProducerIdResponse | EndTxnResponse) -> None:
        """Take over the producer id and the epoch of an answer, if it has them."""
        if not response.error_code and response.producer_id >= 0:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
