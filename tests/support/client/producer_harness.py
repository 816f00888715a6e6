"""A transactional producer without a driver: tests take its effects and write the responses."""

from typing import Any, TypeVar

from fakebroker.client.member.requests import Identity
from fakebroker.client.producer.effects import Discover, Effect, ProducerRequest, ProducerResponse, Send
from fakebroker.client.producer.producer import Producer, ProducerSettings
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from fakebroker.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from fakebroker.protocol.messages.end_txn import EndTxnResponse
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from fakebroker.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from fakebroker.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from fakebroker.protocol.records import Record
from tests.support.virtual_time import START_MS

CONSUMER = Identity("g", None, "m", 3)
P0, P1 = ("payments", 0), ("payments", 1)

E = TypeVar("E", bound=Effect)


def response_to(request: ProducerRequest, error: int = 0) -> ProducerResponse:
    """Return a response with one error for everything; without an error, as a coordinator of release 3.9 answers."""
    match request:
        case InitProducerIdRequest():
            return InitProducerIdResponse(error_code=error, producer_id=-1 if error else 7, producer_epoch=0)
        case AddPartitionsToTxnRequest():
            return AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=[
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
                            for index in topic.partitions
                        ],
                    )
                    for topic in request.v3_and_below_topics
                ]
            )
        case ProduceRequest():
            ((topic,), (data,)) = request.topic_data, request.topic_data[0].partition_data
            row = PartitionProduceResponse(index=data.index, error_code=error, base_offset=-1 if error else 40)
            return ProduceResponse(responses=[TopicProduceResponse(name=topic.name, partition_responses=[row])])
        case AddOffsetsToTxnRequest():
            return AddOffsetsToTxnResponse(error_code=error)
        case TxnOffsetCommitRequest():
            return TxnOffsetCommitResponse(
                topics=[
                    TxnOffsetCommitResponseTopic(
                        name=topic.name,
                        partitions=[
                            TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error)
                            for each in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
            )
    return EndTxnResponse(error_code=error)


class ProducerHarness:
    """A producer with the id "t", and a clock that changes only in `advance`.

    Args:
        level: The level of `transaction.version`.
        raises_epoch: Whether InitProducerId can raise an epoch.
        settings: Settings of the producer other than the defaults.
    """

    def __init__(self, level: int = 0, *, raises_epoch: bool = True, **settings: Any) -> None:
        self.producer = Producer(ProducerSettings(**{"transactional_id": "t"} | settings))
        self.producer.offer_version(level, raises_epoch=raises_epoch)
        self.now_ms = START_MS

    def effects(self) -> list[Effect]:
        """Take the effects since the last call; look-ups succeed at once and are left out."""
        found: list[Effect] = []
        while self.producer.effects:
            effects, self.producer.effects = self.producer.effects, []
            for effect in effects:
                if isinstance(effect, Discover):
                    self.producer.discovered(effect.destination, self.now_ms)
                else:
                    found.append(effect)
        return found

    def only(self, kind: type[E]) -> E:
        """Take the effects, and return the only one, which must be of this class."""
        effects = self.effects()
        assert [type(effect) for effect in effects] == [kind], effects
        effect = effects[0]
        assert isinstance(effect, kind)
        return effect

    def answer(self, error: int = 0, **fields: Any) -> ProducerRequest:
        """Answer the only request, and return it; `fields` are set in the response."""
        send = self.only(Send)
        response = response_to(send.request, error)
        for name, value in fields.items():
            setattr(response, name, value)
        self.producer.answered(send.request, response, self.now_ms)
        return send.request

    def answer_until(self, kind: type[ProducerRequest]) -> None:
        """Answer requests without an error; the next one is of this class."""
        for _ in range(9):
            (send,) = (
                (each for each in self.producer.effects if isinstance(each, Send)) if self._has_send() else (None,)
            )
            if send is not None and isinstance(send.request, kind):
                return
            self.answer()
        raise AssertionError(f"no {kind.__name__}")

    def _has_send(self) -> bool:
        self.producer.effects = self.effects()
        return any(isinstance(each, Send) for each in self.producer.effects)

    def advance(self, by_ms: float) -> None:
        """Advance the clock, and call `tick`."""
        self.now_ms += by_ms
        self.producer.tick(self.now_ms)

    def initialized(self) -> "ProducerHarness":
        """Get producer id 7 and epoch 0."""
        self.producer.initialize(self.now_ms)
        self.answer()
        self.effects()
        return self

    def begun(self) -> "ProducerHarness":
        """Begin a transaction and send a batch of two records to each of two partitions, and offsets."""
        if self.producer.identity.producer_id < 0:
            self.initialized()
        self.producer.begin(self.now_ms)
        records = [Record(index, 1_000, None, b"v") for index in range(2)]
        self.producer.send({P0: records, P1: records}, self.now_ms)
        self.producer.send_offsets({("orders", 0): 5}, CONSUMER, self.now_ms)
        return self

    def error_at(self, kind: type[ProducerRequest], error: ErrorCode) -> "ProducerHarness":
        """Commit, and answer the first request of a class with an error."""
        self.producer.commit(self.now_ms)
        self.answer_until(kind)
        self.answer(error)
        return self
