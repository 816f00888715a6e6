"""Runs an application through crashes, zombies and failures, all drawn from a seed, and checks its output.

Each transaction reads some records of the input, produces each of their values to all partitions of the output, and
commits the offset after them. Failures happen at requests of the application, by faults of the cluster and their
actions: equal seeds give equal plans, although a client may send its requests in another order.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from random import Random

from fakebroker import FakeCluster, predicate
from fakebroker.cluster.call import Call
from fakebroker.cluster.inspect.transaction_views import TransactionView
from fakebroker.cluster.topics import NO_LEADER, Partition
from fakebroker.protocol.releases import Release
from fakebroker.server.fake_cluster import internals
from tests.support.exactly_once.application import GROUP_ID, INPUT, OUTPUT, TRANSACTIONAL_ID, Application, Client
from tests.support.kafka_clients.client import CALL_TIMEOUT_S

RECORDS = 12
"""Number of records of the input."""

OUTPUTS = 2
"""Number of partitions of the output."""

STEPS = 6
"""Number of steps of a transaction; see `Loop.steps`."""

MAX_ATTEMPTS = 100
"""Maximum number of transactions and starts of an application; reached only if it does not make progress."""

LOST_ANSWER_S = 0.1
"""How long an application waits for the answer to an EndTxn that never comes, before it crashes."""

_COORDINATOR_APIS = ("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn")
_APIS = (*_COORDINATOR_APIS, "FindCoordinator", "Produce", "TxnOffsetCommit")


class Failures:
    """Adds failures to a cluster, each of which happens once, at a request of a certain API.

    Args:
        cluster: The cluster.
        random: Draws what happens.

    Attributes:
        plan: The failures that were added, as text.
        seen: Number of times that each kind of failure happened; for moves of coordinators with the state of the
            transaction.
    """

    def __init__(self, cluster: FakeCluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random
        self._held_markers = ExitStack()
        self.plan: list[str] = []
        self.seen: Counter[str] = Counter()

    def add(self) -> None:
        """Add a failure."""
        kinds: dict[Callable[[], None], int] = {
            self._drop_connection: 3,
            self._move_transaction_coordinator: 3,
            self._move_group_coordinator: 2,
            self._move_while_a_marker_waits: 2,
            self._stop_broker: 2,
            self._abort_or_fence: 1,
            self._fail_append: 1,
        }
        self._random.choices(list(kinds), list(kinds.values()))[0]()

    def _at(self, api: str, name: str, action: Callable[[], None]) -> None:
        """Run an action at the next request of an API: before it is handled, or before its answer is sent."""
        boundary = self._random.choice(["before", "then"])
        self.plan.append(f"{boundary} {api}: {name}")

        def run(call: Call) -> None:
            action()

        if boundary == "before":
            self._cluster.inject_fault(api, before=run, nth=1, may_miss=True)
        else:
            self._cluster.inject_fault(api, then=run, nth=1, may_miss=True)

    def _drop_connection(self) -> None:
        api, handles = self._random.choice(_APIS), self._random.random() < 0.5
        self.plan.append(f"{api}: connection closed, handles={handles}")
        self._cluster.inject_fault(api, drop=True, handles=handles, times=1, may_miss=True)

    def _move_transaction_coordinator(self) -> None:
        api, is_slow = self._random.choice(_COORDINATOR_APIS), self._random.random() < 0.3
        self._at(api, f"transaction coordinator moves, slow={is_slow}", lambda: self._move_transactions(is_slow))

    def _move_group_coordinator(self) -> None:
        api, is_slow = self._random.choice(_APIS), self._random.random() < 0.3
        self._at(api, f"group coordinator moves, slow={is_slow}", lambda: self._move_groups(is_slow))

    def _move_while_a_marker_waits(self) -> None:
        """Move a coordinator after EndTxn, while a marker is held or cannot be written as a leader is down."""
        moves_groups, stops_leader = self._random.random() < 0.5, self._random.random() < 0.5
        what = "group" if moves_groups else "transaction"
        self.plan.append(f"EndTxn: {what} coordinator moves while a marker waits, leader stops={stops_leader}")

        def before(call: Call) -> None:
            if stops_leader:
                node_ids = [each.leader_id for each in self.output() if each.leader_id not in (NO_LEADER, call.node_id)]
                if node_ids:
                    self._stop(node_ids[0], elect=self._must_elect)
            else:
                self._held_markers.enter_context(self._cluster.transaction(TRANSACTIONAL_ID).hold_markers())
                self._after_some_requests(self._held_markers.close)

        def then(call: Call) -> None:
            if moves_groups:
                self._move_groups(is_slow=False)
            else:
                self._move_transactions(is_slow=False)

        self._cluster.inject_fault("EndTxn", before=before, then=then, nth=1, may_miss=True)

    @property
    def _must_elect(self) -> bool:
        """Whether markers for partitions without a leader are lost, as in Kafka 4.3: no application survives that."""
        return internals(self._cluster).cluster.brokers[1].release >= Release(4, 3)

    def _stop_broker(self) -> None:
        api, elects, node_id = self._random.choice(_APIS), self._random.random() < 0.5, self._random.choice([1, 2, 3])
        elects = elects or self._must_elect
        self._at(api, f"broker {node_id} stops, elects={elects}", lambda: self._stop(node_id, elect=elects))

    def _abort_or_fence(self) -> None:
        """Abort the open transaction, as a timeout does, or fence the producer, as an administrator can."""
        api, aborts = self._random.choice(_APIS), self._random.random() < 0.5

        def abort_or_fence() -> None:
            found = self._transaction()
            if found is not None and found.pending_state is None and found.state == "Ongoing":
                self.seen["aborted by the cluster"] += 1
                transaction = self._cluster.transaction(TRANSACTIONAL_ID)
                (transaction.abort if aborts else transaction.fence_producer)()

        self._at(api, "transaction aborted" if aborts else "producer fenced", abort_or_fence)

    def _fail_append(self) -> None:
        of_groups, times = self._random.random() < 0.5, self._random.randint(1, 3)
        self.plan.append(f"{times} appends of {'groups' if of_groups else 'transactions'} fail")
        if of_groups:
            self._cluster.group(GROUP_ID).fail_append(times=times)
        else:
            self._cluster.transaction(TRANSACTIONAL_ID).fail_append(times=times)

    def _stop(self, node_id: int, *, elect: bool) -> None:
        """Stop a broker, unless another one is down; it starts again after some requests."""
        if not all(broker.up for broker in self._cluster.brokers):
            return
        self.seen["stopped brokers"] += 1
        self._cluster.broker(node_id).stop(elect=elect)
        self._after_some_requests(self._start_brokers)

    def _move_transactions(self, is_slow: bool) -> None:
        self._move(
            "transactions", internals(self._cluster).cluster.transactions_partition_of(TRANSACTIONAL_ID), is_slow
        )

    def _move_groups(self, is_slow: bool) -> None:
        self._move("groups", internals(self._cluster).cluster.offsets_partition_of(GROUP_ID), is_slow)

    def _move(self, what: str, partition: Partition, is_slow: bool) -> None:
        """Move a coordinator to another broker that is up; if it is slow, it loads until some requests were sent.

        Some coordinators of transactions remain as zombies, which store nothing, until some requests were sent: one in
        which a transaction was ending would tell its producer to try again for as long as it answers.
        """
        others = [
            broker.node_id for broker in self._cluster.brokers if broker.up and broker.node_id != partition.leader_id
        ]
        if not others:
            return
        found = self._transaction()
        self.seen[f"{what} moved in {found.state if found else 'Dead'}"] += 1
        to, load_ms = self._random.choice(others), None if is_slow else 0.0
        if what == "groups":
            self._cluster.group(GROUP_ID).move_coordinator(to, load_ms=load_ms)
        else:
            zombie = self._random.random() < 0.3
            self.seen["zombies of coordinators"] += zombie
            self._cluster.transaction(TRANSACTIONAL_ID).move_coordinator(to, load_ms=load_ms, zombie=zombie)
            if zombie:
                self._after_some_requests(self._cluster.brokers.stop_zombies)
        if is_slow:
            self._after_some_requests(self._cluster.brokers.finish_loading)

    def _transaction(self) -> TransactionView | None:
        """Return the transactional id; None without a coordinator."""
        return next(iter(self._cluster.transactions()), None)

    def _after_some_requests(self, action: Callable[[], None]) -> None:
        self._cluster.inject_fault(None, before=lambda call: action(), nth=self._random.randint(3, 8))

    def _start_brokers(self) -> None:
        for broker in self._cluster.brokers:
            if not broker.up:
                self._cluster.broker(broker.node_id).start()

    def heal(self) -> None:
        """End all failures."""
        self._cluster.clear_faults()
        self._start_brokers()
        self._cluster.brokers.finish_loading()
        self._cluster.brokers.stop_zombies()
        self._held_markers.close()

    def has_ended(self) -> bool:
        """Return whether the last transaction has ended: after failed appends, markers are written later."""
        found = self._transaction()
        return found is not None and found.state in ("Empty", "CompleteCommit", "CompleteAbort")

    def output(self) -> list[Partition]:
        """Return the partitions of the output."""
        topic = internals(self._cluster).cluster.topics.get(OUTPUT)
        assert topic is not None
        return list(topic.partitions)


class Loop:
    """Instances of an application, one after the other, until the whole input is processed.

    Args:
        cluster: The cluster, which gets the topics and the input.
        client: The client library.
        seed: Seed of everything that happens.
    """

    def __init__(self, cluster: FakeCluster, client: Client, seed: int) -> None:
        self._cluster = cluster
        self._client = client
        self._random = Random(f"{client.name} {seed}")
        self.seed = seed
        self.failures = Failures(cluster, self._random)
        self.seen = self.failures.seen
        self._instances = 0
        self.input = [b"%d" % number for number in range(RECORDS)]
        cluster.topic(INPUT).create()
        cluster.topic(OUTPUT).create(OUTPUTS)
        cluster.topic(INPUT).produce(self.input)

    def run(self) -> None:
        """Process the input."""
        application: Application | None = None
        offset = attempts = 0
        try:
            while offset < RECORDS:
                attempts += 1
                assert attempts <= MAX_ATTEMPTS, f"offset {offset}"
                try:
                    if application is None:
                        application = self.start()
                        offset = application.committed()
                    else:
                        application, offset = self._next_transaction(application, offset)
                except self._client.errors as error:
                    self._note(f"error: {error!r}")
                    application = self._recovered(application)
        finally:
            self.failures.heal()
            if application is not None:
                application.crash()
        self._cluster.wait(predicate("the end of all transactions", lambda: self.failures.has_ended()))

    def _note(self, text: str) -> None:
        self.failures.plan.append(text)

    def start(self) -> Application:
        """Start an instance, which fences the others."""
        self._instances += 1
        self._note(f"instance {self._instances} starts")
        return self._client.start(self._cluster.bootstrap_servers, f"instance-{self._instances}")

    def _recovered(self, application: Application | None) -> Application | None:
        """Abort the transaction after an error, if the client allows that; else crash, and return None."""
        if application is None:
            return None
        try:
            if application.can_abort():
                self.seen["aborts after errors"] += 1
                application.abort()
                return application
        except self._client.errors as error:
            self._note(f"error of abort: {error!r}")
        self.seen["ends after errors"] += 1
        application.crash()
        return None

    def _next_transaction(self, application: Application, offset: int) -> tuple[Application | None, int]:
        """Process some records; return the application, None if it has crashed, and its next offset."""
        random = self._random
        count = min(random.randint(1, 3), RECORDS - offset)
        self._note(f"transaction {offset} to {offset + count}")
        if random.random() < 0.6:
            self.failures.add()
        commits = random.random() < 0.7
        steps = self.steps(application, offset, count, commits)
        what = random.choices(["crash", "zombie", "lost answer", "end"], [2, 2, 1, 9])[0]
        if what == "lost answer":
            handles = random.random() < 0.5
            self._note(f"no answer to EndTxn, handles={handles}, and crash")
            with self._cluster.inject_fault("EndTxn", silent=True, handles=handles, times=1, may_miss=True):
                self._expect_error(self.steps(application, offset, count, True, LOST_ANSWER_S))
            application.crash()
            self.seen["lost answers"] += 1
            return None, offset
        stop_at = random.randint(1, STEPS)
        if what in ("crash", "zombie"):
            self._note(f"{what} after step {stop_at}")
            for _, _ in zip(range(stop_at), steps, strict=False):
                pass
        if what == "crash":
            application.crash()
            self.seen["crashes"] += 1
            return None, offset
        if what == "zombie":
            self.seen["zombies"] += 1
            return self._outlive(application, steps)
        for _ in steps:
            pass
        return application, offset + count if commits else offset

    def _outlive(self, zombie: Application, steps: Iterator[None]) -> tuple[Application | None, int]:
        """Start another instance. In the middle of one of its transactions the zombie takes its remaining steps."""
        other: Application | None = None
        offset = 0
        try:
            other = self.start()
            offset = other.committed()
            for is_interrupted in (False, True):
                count = min(2, RECORDS - offset)
                if count == 0 or (not is_interrupted and self._random.random() < 0.5):
                    continue
                others = self.steps(other, offset, count, commits=True)
                if is_interrupted:
                    for _, _ in zip(range(self._random.randint(0, STEPS)), others, strict=False):
                        pass
                    self._note("the zombie continues")
                    self._expect_error(steps)
                for _ in others:
                    pass
                offset += count
        except self._client.errors as error:
            self._note(f"error of the other instance: {error!r}")
            other = self._recovered(other)
        self._expect_error(steps)  # Unless it has already taken them.
        zombie.crash()
        return other, offset

    def _expect_error(self, steps: Iterator[None]) -> None:
        """Take steps until one fails. Whether the others should have failed, too, is seen in the output."""
        try:
            for _ in steps:
                pass
            self._note("no error")
        except self._client.errors as error:
            self._note(f"error: {error!r}")

    def steps(
        self, application: Application, offset: int, count: int, commits: bool, timeout_s: float = CALL_TIMEOUT_S
    ) -> Iterator[None]:
        """Yield after each step of a transaction; an instance can crash or become a zombie between them.

        Args:
            application: The instance.
            offset: The offset of the first record of the input to process.
            count: The number of records.
            commits: Whether to commit, else to abort.
            timeout_s: Maximum duration of the commit.
        """
        values = application.read(offset, count)
        yield
        application.begin()
        yield
        for value in values:
            for partition in range(OUTPUTS):
                application.produce(partition, value)
        yield
        application.flush()
        yield
        application.send_offset(offset + count)
        yield
        if commits:
            application.commit(timeout_s)
        else:
            application.abort()
        yield

    def check(self, reader: Client) -> None:
        """Check that each record of the input is once, and in order, in each partition of the output.

        Args:
            reader: The client that reads the committed records.
        """
        for partition in self.failures.output():
            log = partition.log
            assert log.last_stable_offset == log.high_watermark, f"open transaction in {partition}"
        found = reader.read_committed(self._cluster.bootstrap_servers, OUTPUTS)
        assert found == [self.input] * OUTPUTS, found

    @contextmanager
    def described(self) -> Iterator[None]:
        """Add the seed and what happened to an error."""
        try:
            yield
        except BaseException as error:
            error.add_note("\n".join([f"{self._client.name}, seed={self.seed}", *self.failures.plan]))
            raise
