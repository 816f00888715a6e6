"""Consumers and coordinators of the rewrite design in virtual time, with delays, lost connections and failures."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from random import Random

from fakebroker.client.member.effects import Discover, Fatal, GroupRequest, GroupResponse, Send
from fakebroker.client.member.rewrite.rewrite_member import RewriteMember
from fakebroker.client.member.rewrite.rewrite_settings import RewriteSettings
from fakebroker.errors import ErrorCode
from fakebroker.proposals.consumer_rewrite.api import JoinAnswer, JoinRequest
from fakebroker.proposals.consumer_rewrite.errors import NONE
from fakebroker.proposals.consumer_rewrite.messages import RewriteJoinGroupRequest
from fakebroker.proposals.consumer_rewrite.states import CATCH_UP
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest
from tests.support.client.rewrite_harness import join_answer
from tests.support.coordinator.rewrite_lab import SHARD, RewriteLab
from tests.support.group_responses import commit_response, error_response, offset_fetch_response, requested_partitions

SESSION_MS = 3_000
MAX_DELAY_MS = 200.0


class SimulatedConsumer:
    """A consumer and its connection.

    Attributes:
        broker: The broker to which it is connected.
        connection: The number of its connection; messages on former ones are lost.
        paused_until_ms: It does nothing before this time; then what arrived meanwhile is handled in order.
    """

    def __init__(self, simulation: "RewriteSimulation", number: int, *, sends_id: bool) -> None:
        self.simulation = simulation
        self.number = number
        settings = RewriteSettings(
            group_id="g",
            client_id=f"c{number}",
            topics=("t",),
            session_timeout_ms=SESSION_MS,
            commit_interval_ms=1_000,
            sends_consumer_id=sends_id,
        )
        self.member = RewriteMember(settings)
        self.broker = 1
        self.connection = 0
        self.paused_until_ms = 0.0

    def call(self, step: Callable[[], None]) -> None:
        """Run a step of the member, when it is not paused, and carry out its effects."""
        simulation = self.simulation
        if simulation.now_ms < self.paused_until_ms:
            simulation.schedule(self.paused_until_ms - simulation.now_ms, lambda: self.call(step))
            return
        step()
        effects, self.member.effects = self.member.effects, []
        for effect in effects:
            match effect:
                case Discover():
                    simulation.discover(self)
                case Send():
                    simulation.send(self, effect.request)
                case Fatal():
                    raise AssertionError(effect)
        due_ms = self.member.next_deadline()
        if due_ms is not None:
            simulation.schedule(due_ms - simulation.now_ms, self._tick)

    def _tick(self) -> None:
        due_ms = self.member.next_deadline()
        if due_ms is not None and due_ms <= self.simulation.now_ms:
            self.call(lambda: self.member.tick(self.simulation.now_ms))

    def lose_connection(self) -> None:
        self.connection += 1
        self.call(lambda: self.member.connection_lost(self.simulation.now_ms))


class RewriteSimulation:
    """A group with several consumers, two coordinators, and failures until `end_failures`.

    Args:
        seed: Decides about all delays and failures.
        size: The number of consumers.
    """

    def __init__(self, seed: int, size: int) -> None:
        self.random = Random(seed)
        self.now_ms = 0.0
        self.lab = RewriteLab(t=6)
        self.lab.held = []
        self._order = count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        sends_id = self.random.random() < 0.7
        self.consumers = [SimulatedConsumer(self, number, sends_id=sends_id) for number in range(size)]
        self.told: dict[int, dict[tuple[str, int], str]] = {}
        for consumer in self.consumers:
            self.schedule(self.random.uniform(0, 5_000), lambda c=consumer: self._start(c))  # type: ignore[misc]

    def schedule(self, delay_ms: float, event: Callable[[], None]) -> None:
        heappush(self._events, (self.now_ms + max(0.0, delay_ms), next(self._order), event))

    def run(self, until_ms: float) -> None:
        while True:
            due_ms = self._events[0][0] if self._events else until_ms
            timers = [each.queue.next_deadline() for each in self.lab.coordinators.values()]
            timer_ms = min([each for each in timers if each is not None], default=until_ms)
            if min(due_ms, timer_ms) >= until_ms:
                break
            self._advance_to(min(due_ms, timer_ms))
            if timer_ms <= due_ms:
                for coordinator in self.lab.coordinators.values():
                    coordinator.queue.run(self.now_ms)
            else:
                heappop(self._events)[2]()
            self._settle()
        self._advance_to(until_ms)

    def _advance_to(self, now_ms: float) -> None:
        self.now_ms = self.lab.now_ms = max(self.now_ms, now_ms)

    def _settle(self) -> None:
        """Schedule the ends of writes, and the ends of connections that coordinators have broken."""
        held, self.lab.held = self.lab.held or [], []
        for write in held:
            self.schedule(self.random.uniform(0, MAX_DELAY_MS), write)
        broken, self.lab.broken[:] = self.lab.broken[:], []
        for pair in broken:
            assert isinstance(pair, tuple)
            number, connection = pair
            consumer = self.consumers[number]
            if consumer.connection == connection:
                consumer.lose_connection()

    def _start(self, consumer: SimulatedConsumer) -> None:
        consumer.connection += 1
        consumer.call(lambda: consumer.member.start(self.now_ms))

    # The network

    def discover(self, consumer: SimulatedConsumer) -> None:
        def arrive() -> None:
            consumer.connection += 1
            consumer.broker = self.lab.current
            consumer.call(lambda: consumer.member.discovered(self.now_ms))

        self.schedule(self.random.uniform(0, MAX_DELAY_MS), arrive)

    def send(self, consumer: SimulatedConsumer, request: GroupRequest) -> None:
        connection, broker = consumer.connection, consumer.broker

        def respond(response: GroupResponse) -> None:
            def arrive() -> None:
                if consumer.connection == connection:
                    consumer.call(lambda: consumer.member.answered(request, response, self.now_ms))

            self.schedule(self.random.uniform(0, MAX_DELAY_MS), arrive)

        def arrive() -> None:
            if consumer.connection == connection:
                self._handle(broker, request, (consumer.number, connection), respond)

        self.schedule(self.random.uniform(0, MAX_DELAY_MS), arrive)

    def _handle(
        self,
        broker: int,
        request: GroupRequest,
        connection: tuple[int, int],
        respond: Callable[[GroupResponse], None],
    ) -> None:
        coordinator = self.lab.coordinators[broker]
        match request:
            case RewriteJoinGroupRequest():
                join = JoinRequest(
                    *("g", request.consumer_id, request.session_timeout_ms, tuple(request.topics)),
                    *(request.partition_assignment_strategy, "", connection),
                )

                def done(answer: JoinAnswer) -> None:
                    self._check(answer)
                    response = join_answer(answer.generation_id, answer.consumer_id, *answer.partitions)
                    respond(error_response(request, answer.error) if answer.error else response)

                coordinator.join_group(join, self.now_ms, done)
            case HeartbeatRequest():
                error = coordinator.heartbeat("g", request.generation_id, request.member_id, self.now_ms, connection)
                respond(HeartbeatResponse(error_code=error))
            case OffsetCommitRequest():
                generation_id = request.generation_id_or_member_epoch
                respond(commit_response(request, coordinator.error_of_commit("g", generation_id, request.member_id)))
            case OffsetFetchRequest() if coordinator.coordinates(SHARD):
                respond(offset_fetch_response(dict.fromkeys(requested_partitions(request), -1)))
            case _:
                respond(error_response(request, ErrorCode.NOT_COORDINATOR))

    def _check(self, answer: JoinAnswer) -> None:
        """Check that no partition is owned twice in a generation, as coordinators tell it."""
        if answer.error is NONE:
            owners = self.told.setdefault(answer.generation_id, {})
            for partition in answer.partitions:
                assert owners.setdefault(partition, answer.consumer_id) == answer.consumer_id

    # Failures

    def fail_until(self, end_ms: float) -> None:
        """Let failures happen at random times."""
        while (at_ms := self.now_ms + self.random.expovariate(1 / 1_500)) < end_ms:
            self.run(at_ms)
            self.random.choice(
                [self._pause, self._pause, self._crash, self._lose_connection, self._fail_over, self._change_topic]
            )()
            self._settle()
        self.run(end_ms)

    def _pause(self) -> None:
        consumer = self.random.choice(self.consumers)
        consumer.paused_until_ms = self.now_ms + self.random.choice([500, SESSION_MS, 2 * SESSION_MS])

    def _crash(self) -> None:
        """Crash a consumer, which starts again later."""
        consumer = self.random.choice(self.consumers)
        consumer.connection += 1
        consumer.paused_until_ms = 0.0
        consumer.call(lambda: consumer.member.crash(self.now_ms))
        self.schedule(self.random.uniform(100, 2 * SESSION_MS), lambda: self._start(consumer))

    def _lose_connection(self) -> None:
        self.random.choice(self.consumers).lose_connection()

    def _fail_over(self) -> None:
        """Elect the other broker, which loads for some time. The old one resigns, or does not notice for some time."""
        old, new = self.lab.current, 3 - self.lab.current
        if self.lab.coordinators[old].state_of("g") is CATCH_UP:
            return
        self.lab.coordinators[new].resign(SHARD, self.now_ms)
        self.lab.elect(new)
        self.schedule(self.random.uniform(0, 1_000), lambda: self._load(new))
        delay_ms = self.random.choice([0.0, 1_000.0])
        if delay_ms:
            self.schedule(delay_ms, lambda: self._resign(old))
        else:
            self._resign(old)

    def _load(self, broker: int) -> None:
        if self.lab.coordinators[broker].state_of("g") is CATCH_UP:
            self.lab.load(broker)

    def _resign(self, broker: int) -> None:
        if self.lab.current != broker:
            self.lab.coordinators[broker].resign(SHARD, self.now_ms)

    def _change_topic(self) -> None:
        self.lab.topics["t"] = self.random.randint(1, 8)
        for coordinator in self.lab.coordinators.values():
            coordinator.topic_changed("t", self.now_ms)
