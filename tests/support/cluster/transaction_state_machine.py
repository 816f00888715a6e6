"""A Hypothesis state machine of transactions: producers, zombies and failovers, with checks of what readers see.

Producers of both generations of the protocol write and end transactions, come back, and are replaced by others with the
same transactional id, while time passes, coordinators move, brokers stop, and records and markers are held. After every
step the invariants below are evaluated. In the end all is released, and every transaction has to be complete.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fakebroker.cluster.call import Call
from fakebroker.cluster.handles.cluster import ClusterHandle
from fakebroker.cluster.handles.local import Local
from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.cluster.topics import NO_LEADER, TRANSACTIONS_TOPIC, Partition
from fakebroker.coordinator.transaction.transaction import EMPTY, MAX_EPOCH, PREPARED, Transaction, TransactionValue
from fakebroker.errors import ConfigError, ErrorCode
from fakebroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from fakebroker.protocol.messages.end_txn import EndTxnRequest
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest
from fakebroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fakebroker.protocol.records import Record, decode_records, encode_batch
from fakebroker.protocol.schema import Message
from fakebroker.protocol.transaction_markers import AbortedBatches
from tests.support.cluster.cluster_harness import START_MS, ClusterHarness, ClusterHarnessEnvironment

IDS = ("payments", "orders", "audit")
NEAR_THE_END = "audit"
"""The id whose epochs are soon exhausted."""

PARTITIONS = 3
TIMEOUT_MS = 30_000
INDEXES = st.lists(st.integers(0, PARTITIONS - 1), min_size=1, max_size=3)
DISTURBANCES = (
    "move a leader",
    "move the coordinator",
    "stop a broker",
    "hold a record",
    "hold markers",
    "abort",
    "fence",
)
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")

NONE = ErrorCode.NONE
RETRIABLE = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)


@dataclass(eq=False)
class SimulatedTransaction:
    """One transaction: its values that are stored, by partition, and whether its end was confirmed to be a commit."""

    values: dict[int, list[int]] = field(default_factory=dict)
    is_begun: bool = False
    is_committed: bool = False


@dataclass(eq=False)
class SimulatedProducer:
    """One producer: its identity, its transaction, and the request that it waits for.

    Attributes:
        raises_epoch: Whether it uses the versions of KIP-890.
        outcome: Whether it commits or aborts, from its EndTxn until that is confirmed.
        is_aborting: Whether it may only abort, after an error.
        is_fenced: Whether it must not send anything any more, except InitProducerId with its epoch.
    """

    transactional_id: str
    raises_epoch: bool
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[int, int] = field(default_factory=dict)
    transaction: SimulatedTransaction = field(default_factory=SimulatedTransaction)
    outcome: bool | None = None
    is_aborting: bool = False
    is_fenced: bool = False
    waits: bool = False

    @property
    def is_initialized(self) -> bool:
        return self.producer_id >= 0

    def use(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = producer_id, epoch
            self.sequences.clear()


class PendingRequest(NamedTuple):
    """A request without a response: its call, how often its broker had been stopped, and what handles the response."""

    call: Call
    stops: int
    producer: SimulatedProducer
    receive: Callable[[Any], None]


class Transactions(RuleBasedStateMachine):
    """Three brokers; a topic with three partitions; three transactional ids in two partitions."""

    producers: list[SimulatedProducer]

    @initialize(release=st.sampled_from([None, "4.2", "4.0", "3.9"]))
    def start(self, release: str | None) -> None:
        """Start a cluster. One id is loaded with an epoch that is almost the last one."""
        config: dict[str, object] = {
            "transaction.state.log.num.partitions": 2,
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000,
        }
        self.harness = ClusterHarness({"news": PARTITIONS}, 3, config, release)
        self.cluster = self.harness.cluster
        self.commands = ClusterHandle(
            Local(self.cluster, ClusterHarnessEnvironment(self.harness), new_cluster=lambda: self.cluster)
        )
        self.has_kip_890 = release != "3.9"
        # Since 4.3, Kafka gives up a marker for a partition without a leader (KAFKA-20734): the transaction ends, but
        # stays open in this partition. The producer's next marker there ends both, so it may abort committed values.
        self.needs_leaders = release is None
        self.producers = []
        self.transactions: list[SimulatedTransaction] = []
        self.pending: list[PendingRequest] = []
        self.numbers = count(1)
        self.stable = [0] * PARTITIONS
        self.epochs: dict[tuple[str, int], int] = {}
        self.cluster.transaction_coordinator_of(NEAR_THE_END)  # creates the topic
        value = TransactionValue(
            producer_id=self.cluster.new_producer_id(),
            epoch=32_763,
            timeout_ms=TIMEOUT_MS,
            state=EMPTY,
            last_update_ms=int(START_MS),
        )
        assert self.cluster.transactions.store(NEAR_THE_END, value) is NONE
        self.commands.transaction(NEAR_THE_END).move_coordinator(to=1)
        self.commands.transaction(NEAR_THE_END).move_coordinator(to=2)
        for number, name in enumerate(IDS):
            self.new_producer(name, raises_epoch=number > 0)

    # Requests

    def ask(
        self,
        producer: SimulatedProducer,
        node_id: int,
        request: Message,
        version: int,
        receive: Callable[[Any], None],
    ) -> None:
        """Send a request; `receive` is called with the response, now or when it arrives."""
        if node_id == NO_LEADER or not self.cluster.brokers[node_id].up:
            return
        call = self.harness.send(request, version, broker=node_id)
        producer.waits = True
        self.pending.append(PendingRequest(call, call.broker.stops, producer, receive))
        self.collect()

    def collect(self) -> None:
        """Handle the responses that have arrived. Those of brokers that were stopped never do."""
        waiting, self.pending = self.pending, []
        for each in waiting:
            if each.call.response is not None:
                each.producer.waits = False
                each.receive(each.call.response)
            elif each.call.broker.stops == each.stops:
                self.pending.append(each)
            else:
                self.lose(each.producer)
        self.cluster.requests.answered.clear()

    def lose(self, producer: SimulatedProducer) -> None:
        """Handle a lost connection: the producer cannot know whether its request took effect, so it comes back."""
        producer.waits = False
        producer.is_fenced = True

    def coordinator(self, producer: SimulatedProducer) -> int:
        broker = self.cluster.transaction_coordinator_of(producer.transactional_id)
        return NO_LEADER if broker is None else broker.node_id

    def partition(self, index: int) -> Partition:
        return self.harness.partition(index)

    def fail(self, producer: SimulatedProducer, error: ErrorCode) -> None:
        """React to an error of a request in a transaction, as clients do."""
        if error in RETRIABLE:
            return
        if error is ErrorCode.INVALID_TXN_STATE or error in FENCED:
            # With KIP-890 a producer recovers if the coordinator has aborted its transaction.
            producer.is_fenced = not producer.raises_epoch or producer.is_aborting
            producer.is_aborting, producer.outcome = True, None
        else:
            assert error is ErrorCode.TRANSACTION_ABORTABLE, error
            producer.is_aborting = True

    # Producers

    @rule(transactional_id=st.sampled_from(IDS), raises_epoch=st.booleans())
    def start_producer(self, transactional_id: str, raises_epoch: bool) -> None:
        self.new_producer(transactional_id, raises_epoch=raises_epoch)

    def new_producer(self, transactional_id: str, *, raises_epoch: bool) -> None:
        """Start a producer; others with the same id become zombies when it is initialized."""
        producer = SimulatedProducer(transactional_id, raises_epoch and self.has_kip_890)
        self.producers.append(producer)
        self.initialize_producer(producer, resumes=False)

    def initialize_producer(self, producer: SimulatedProducer, *, resumes: bool) -> None:
        def receive(response: Any) -> None:
            error = ErrorCode(response.error_code)
            if error:
                assert error in (*RETRIABLE, *FENCED, ErrorCode.UNKNOWN_SERVER_ERROR), error
                return
            producer.use(response.producer_id, response.producer_epoch)
            producer.is_fenced = producer.is_aborting = False
            producer.outcome, producer.transaction = None, SimulatedTransaction()

        request = InitProducerIdRequest(
            transactional_id=producer.transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
            producer_id=producer.producer_id if resumes else -1,
            producer_epoch=producer.epoch if resumes else -1,
        )
        self.ask(producer, self.coordinator(producer), request, 4, receive)

    def idle(self, *, may_be_fenced: bool = False) -> list[SimulatedProducer]:
        return [each for each in self.producers if not each.waits and (may_be_fenced or not each.is_fenced)]

    def choose(self, data: st.DataObject, producers: list[SimulatedProducer]) -> SimulatedProducer | None:
        return producers[data.draw(st.integers(0, len(producers) - 1))] if producers else None

    @rule(data=st.data(), resumes=st.booleans())
    def come_back(self, data: st.DataObject, resumes: bool) -> None:
        """Send InitProducerId again, with the epoch or as after a restart."""
        producer = self.choose(data, self.idle(may_be_fenced=True))
        if producer is not None:
            self.initialize_producer(producer, resumes=resumes and producer.is_initialized)

    @rule(data=st.data(), indexes=INDEXES)
    def write(self, data: st.DataObject, indexes: list[int]) -> None:
        """Write a value to each of some partitions, after AddPartitionsToTxn without KIP-890."""
        ready = [each for each in self.idle() if each.is_initialized and each.outcome is None and not each.is_aborting]
        producer = self.choose(data, ready)
        if producer is not None:
            self.write_to(producer, indexes)

    def write_to(self, producer: SimulatedProducer, indexes: list[int]) -> None:
        for index in indexes:
            if producer.waits or producer.is_fenced or producer.is_aborting or producer.outcome is not None:
                return
            if producer.raises_epoch:
                self.produce(producer, index)
            else:
                self.add_and_produce(producer, index)

    @rule(data=st.data(), work=st.lists(st.tuples(INDEXES, st.booleans()), min_size=1, max_size=4))
    def work(self, data: st.DataObject, work: list[tuple[list[int], bool]]) -> None:
        """Let a producer run some transactions; a fenced one is started again before."""
        producer = self.choose(data, self.idle(may_be_fenced=True))
        for indexes, is_commit in work if producer is not None else ():
            assert producer is not None
            if producer.is_fenced and not producer.waits:
                self.initialize_producer(producer, resumes=False)
            if not producer.waits and producer.is_initialized and not producer.is_fenced:
                self.write_to(producer, indexes)
                self.end_of(producer, is_commit=is_commit)

    def add_and_produce(self, producer: SimulatedProducer, index: int) -> None:
        def receive(response: Any) -> None:
            (topic,) = response.results_by_topic_v3_and_below
            error = ErrorCode(topic.results_by_partition[0].partition_error_code)
            if error:
                self.fail(producer, error)
            else:
                producer.transaction.is_begun = True
                self.produce(producer, index)

        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=producer.transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="news", partitions=[index])],
        )
        self.ask(producer, self.coordinator(producer), request, 3, receive)

    def produce(self, producer: SimulatedProducer, index: int) -> None:
        value, transaction = next(self.numbers), producer.transaction
        if transaction not in self.transactions:
            self.transactions.append(transaction)
        sequence = producer.sequences.get(index, 0)
        records = encode_batch(
            [Record(0, int(START_MS), None, b"%d" % value)],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )

        def receive(response: Any) -> None:
            error = ErrorCode(response.responses[0].partition_responses[0].error_code)
            if error:
                self.fail(producer, error)
                return
            assert producer.transaction is transaction
            producer.sequences[index] = sequence + 1
            transaction.is_begun = True
            transaction.values.setdefault(index, []).append(value)

        data = TopicProduceData(name="news", partition_data=[PartitionProduceData(index=index, records=records)])
        request = ProduceRequest(
            transactional_id=producer.transactional_id, acks=-1, timeout_ms=1_000, topic_data=[data]
        )
        self.ask(producer, self.partition(index).leader_id, request, 12 if producer.raises_epoch else 11, receive)

    @rule(data=st.data(), is_commit=st.booleans())
    def end(self, data: st.DataObject, is_commit: bool) -> None:
        """Commit or abort, or repeat that."""
        producer = self.choose(data, self.idle())
        if producer is not None:
            self.end_of(producer, is_commit=is_commit)

    def end_of(self, producer: SimulatedProducer, *, is_commit: bool) -> None:
        if producer.waits or producer.is_fenced or not (producer.transaction.is_begun or producer.is_aborting):
            return
        if producer.outcome is None:
            producer.outcome = is_commit and not producer.is_aborting
        outcome, transaction = producer.outcome, producer.transaction

        def receive(response: Any) -> None:
            error = ErrorCode(response.error_code)
            if error:
                self.fail(producer, error)
                return
            transaction.is_committed = outcome
            producer.outcome, producer.transaction = None, SimulatedTransaction()
            producer.is_aborting = False
            if response.producer_id >= 0:
                producer.use(response.producer_id, response.producer_epoch)
                # After a fence in the last epoch; up to Kafka 4.2 a transaction in this epoch could not be ended.
                is_last = producer.epoch == MAX_EPOCH
                # A zombie's abort counts as repeated if the next producer has aborted without KIP-890, in the next
                # epoch. Then both have this epoch, and the batches of one can be taken for duplicates of the other's.
                identity = (producer.producer_id, producer.epoch)
                is_shared = [(each.producer_id, each.epoch) for each in self.producers].count(identity) > 1
                producer.is_fenced = is_last or is_shared

        request = EndTxnRequest(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=outcome,
        )
        version = 5 if producer.raises_epoch else 4
        self.ask(producer, self.coordinator(producer), request, version, receive)

    # The cluster

    @rule(ms=st.sampled_from([1, 20, 100, 1_000, 10_000, 31_000]))
    def advance(self, ms: int) -> None:
        self.harness.advance(ms)

    @rule(
        kinds=st.lists(st.sampled_from(DISTURBANCES), min_size=1, max_size=3),
        transactional_id=st.sampled_from(IDS),
        data=st.data(),
    )
    def disturb(self, kinds: list[str], transactional_id: str, data: st.DataObject) -> None:
        """Move, stop, hold or abort something."""
        for kind in kinds:
            self.disturb_by(kind, transactional_id, data)

    def disturb_by(self, kind: str, transactional_id: str, data: st.DataObject) -> None:
        up = [node_id for node_id, broker in self.cluster.brokers.items() if broker.up]
        index = data.draw(st.integers(0, PARTITIONS - 1))
        match kind:
            case "move the coordinator":
                to = data.draw(st.sampled_from([*up, None]))
                load_ms = 0 if to is None else data.draw(st.sampled_from([0, 500]))
                self.commands.transaction(transactional_id).move_coordinator(to=to, load_ms=load_ms)
            case "move a leader":
                self.set_leader(index, data.draw(st.sampled_from(up if self.needs_leaders else [NO_LEADER, *up])))
            case "stop a broker" if len(up) > 2:
                elects = self.needs_leaders or data.draw(st.booleans())
                self.commands.broker(data.draw(st.sampled_from(up))).stop(elect=elects)
            case "hold a record":
                self.commands.transaction(transactional_id).hold(data.draw(st.sampled_from(STATES)))
            case "hold markers":
                self.commands.transaction(transactional_id).hold_markers(
                    data.draw(st.sampled_from([None, f"news-{index}"]))
                )
            case "abort" | "fence":
                transaction = self.commands.transaction(transactional_id)
                with suppress(ConfigError):
                    transaction.abort() if kind == "abort" else transaction.fence_producer()

    def set_leader(self, index: int, node_id: int) -> None:
        controller = self.cluster.controller
        controller.set_leader(self.partition(index), node_id, self.harness.now_ms, Failover())

    @rule()
    def heal(self) -> None:
        """End all holds, start all brokers, and elect leaders."""
        for transactional_id, states in list(self.cluster.transactions.holds.items()):
            for state in list(states):
                self.commands.transaction(transactional_id).release(state.value)
        for name, place in list(self.cluster.transactions.held_markers):
            self.commands.transaction(name).release_markers(None if place is None else f"{place[0]}-{place[1]}")
        for node_id, broker in self.cluster.brokers.items():
            if not broker.up:
                self.commands.broker(node_id).start()
        for index in range(PARTITIONS):
            if self.partition(index).leader_id == NO_LEADER:
                self.set_leader(index, 2)
        for transactional_id in IDS:
            if self.cluster.transaction_coordinator_of(transactional_id) is None:
                self.commands.transaction(transactional_id).move_coordinator(to=1)
        self.commands.brokers.finish_loading()

    # Invariants

    def known(self) -> Iterator[tuple[int, Transaction]]:
        for node_id, broker in self.cluster.brokers.items():
            for transaction in broker.transaction_coordinator.transactions():
                yield node_id, transaction

    @invariant()
    def invariants_hold(self) -> None:
        self.harness.advance(0)  # handles what is due, such as markers that have waited for a leader
        self.collect()
        self.stable_offsets_never_go_back()
        self.readers_see_committed_transactions_only()
        self.an_id_is_in_one_transaction()
        self.epochs_never_fall()
        self.nothing_stays_prepared()

    def stable_offsets_never_go_back(self) -> None:
        for index in range(PARTITIONS):
            log = self.partition(index).log
            assert self.stable[index] <= log.last_stable_offset <= log.high_watermark
            self.stable[index] = log.last_stable_offset

    def readers_see_committed_transactions_only(self) -> None:
        """And those whole, before the last stable offset."""
        for index in range(PARTITIONS):
            visible = self.visible(index)
            committed = {each for one in self.transactions if one.is_committed for each in one.values.get(index, ())}
            assert set(visible) <= committed | self.undecided(index)
            stored = self.stored(index)
            assert [each for each in stored if each in committed] == [each for each in visible if each in committed]
            assert len(visible) == len(set(visible))

    def undecided(self, index: int) -> set[int]:
        """Return the values of transactions whose producers do not know yet whether they have committed them."""
        open_ = [each.transaction for each in self.producers if each.outcome]
        return {value for each in open_ for value in each.values.get(index, ())}

    def visible(self, index: int) -> list[int]:
        """Return the values that a reader of committed records sees, in their order."""
        log = self.partition(index).log
        aborted = AbortedBatches(log.producers.aborted_in(0, log.last_stable_offset))
        return [
            int(record.value or b"")
            for batch in log.batches_from(0)
            if batch.last_offset < log.last_stable_offset and not aborted.contain(batch) and not batch.is_control
            for record in decode_records(batch)
        ]

    def stored(self, index: int) -> list[int]:
        """Return all values before the last stable offset."""
        log = self.partition(index).log
        return [
            int(record.value or b"")
            for batch in log.batches_from(0)
            if batch.last_offset < log.last_stable_offset and not batch.is_control
            for record in decode_records(batch)
        ]

    def an_id_is_in_one_transaction(self) -> None:
        """Its coordinator is the only one that knows it; its open transactions have one producer id and epoch."""
        names = [transaction.transactional_id for _, transaction in self.known()]
        assert len(names) == len(set(names))
        of_id = {each.producer_id: each.transactional_id for each in self.producers}
        found: dict[str, set[tuple[int, int]]] = {}
        for index in range(PARTITIONS):
            for producer in self.partition(index).log.producers.all():
                if producer.transaction_offset is not None:
                    name = of_id.get(producer.producer_id, f"producer {producer.producer_id}")
                    found.setdefault(name, set()).add((producer.producer_id, producer.epoch))
        assert all(len(each) == 1 for each in found.values()), found

    def epochs_never_fall(self) -> None:
        for _, transaction in self.known():
            value, held = transaction.value, transaction.held
            # Without KIP-890, a fence raises the epoch before that is stored. The next coordinator may not know it.
            if not transaction.has_failed_fence and not (held and held.is_fence):
                self.check_epoch("coordinator", value.producer_id, value.epoch)
        for index in range(PARTITIONS):
            for producer in self.partition(index).log.producers.all():
                self.check_epoch(f"news-{index}", producer.producer_id, producer.epoch)

    def check_epoch(self, place: str, producer_id: int, epoch: int) -> None:
        assert self.epochs.get((place, producer_id), -1) <= epoch <= 32_767
        self.epochs[place, producer_id] = epoch

    def nothing_stays_prepared(self) -> None:
        """Unless a leader or a coordinator is missing or loading, or something is held."""
        if self.cluster.transactions.holds or self.cluster.transactions.held_markers:
            return
        state = [self.harness.partition(index, TRANSACTIONS_TOPIC) for index in range(2)]
        partitions = [*state, *map(self.partition, range(PARTITIONS))]
        all_up = all(broker.up for broker in self.cluster.brokers.values())
        if all_up and all(each.leader_id != NO_LEADER for each in partitions) and not self.is_loading:
            assert [each for _, each in self.known() if each.state in PREPARED and each.scheduled_ms > 1e15] == []

    @property
    def is_loading(self) -> bool:
        return any(broker.transaction_coordinator.is_loading for broker in self.cluster.brokers.values())

    def teardown(self) -> None:
        """Release all, and let transactions that are open time out: then the partitions have the committed values."""
        if not hasattr(self, "commands"):
            return
        self.heal()
        for _ in range(3):
            self.harness.advance(TIMEOUT_MS + 2_000)
        self.collect()
        assert not self.pending
        assert all(not each.state.value.startswith("Prepare") and each.pending is None for _, each in self.known())
        assert all(each.state.value != "Ongoing" for _, each in self.known())
        for index in range(PARTITIONS):
            log = self.partition(index).log
            assert log.last_stable_offset == log.high_watermark
        self.readers_see_committed_transactions_only()
