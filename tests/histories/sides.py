"""The two clusters that a history is played on: the fake one in memory, and Apache Kafka over sockets.

A side sends requests in given versions, says which are answered, and learns from their responses.
"""

import base64
import ctypes
import itertools
import selectors
import socket
import struct
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from fakebroker.cluster.call import Call, read_call
from fakebroker.cluster.handles.cluster import LocalCluster
from fakebroker.cluster.handles.local import Local
from fakebroker.cluster.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from fakebroker.errors import ProtocolError
from fakebroker.protocol.frames import encoded_response_frame, read_response, request_frame, response_frame
from fakebroker.protocol.registry import API_BY_NAME, Api
from fakebroker.protocol.releases import Release, release as parse_release
from fakebroker.protocol.schema import Message
from tests.histories.hash_order import in_hash_order
from tests.histories.history import SHARED_TOPICS, Clients, Fields, Step
from tests.support.cluster.cluster_harness import START_MS, ClusterHarness, ClusterHarnessEnvironment

_SIZE = struct.Struct(">i")
_BASE64_UUID_LENGTH = 22
_ANSWER_S = 15
_APPLIED_S = 0.05
"""After this time a broker has applied what the controller, or another thread, has decided."""
_CONCURRENT_TRANSACTIONS = 51
"""InitProducerId returns it when it has begun to abort a transaction."""
ENDLESS_S = 60
"""A step of the fake cluster takes a millisecond, and two seconds if its log refuses all records. One that takes this
long, also on a busy machine, does not end."""

SETTINGS: dict[str, object] = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1,
    "group.consumer.min.session.timeout.ms": 500,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    "transaction.state.log.min.isr": 1,
    "default.replication.factor": 1,
    "auto.leader.rebalance.enable": "false",
}
"""Settings of both sides."""


def settings_of(release: str | None) -> dict[str, object]:
    """Return the settings of a release. Older ones than 4.3 list the interval between targets as an unknown config."""
    has_interval = release is None or parse_release(release) >= Release(4, 3)
    return SETTINGS | ({"group.consumer.assignment.interval.ms": 1_000} if has_interval else {})


BROKERS, STOPPED_BROKER = 2, 2
"""All requests go to broker 1. The other one is stopped, after internal topics have got replicas on it. So their logs
refuse writes when `min.insync.replicas` becomes 2."""


def created(topics: Mapping[str, int], replicas: Sequence[int], **configs: str) -> list[Fields]:
    """Return the topics of a CreateTopics request, all of whose partitions have these replicas.

    Args:
        topics: The number of partitions by topic.
        replicas: The brokers.
        configs: The configs of the topics, with `_` for `.`.
    """
    return [
        {
            "name": name,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": index, "broker_ids": replicas} for index in range(count)],
            "configs": [{"name": name.replace("_", "."), "value": value} for name, value in configs.items()],
        }
        for name, count in topics.items()
    ]


def created_internal() -> list[Fields]:
    """Return the internal topics of a CreateTopics request.

    Broker 1 leads their partitions from the beginning, so that their leader epoch stays 0.
    """
    counts = {
        OFFSETS_TOPIC: int(str(SETTINGS["offsets.topic.num.partitions"])),
        TRANSACTIONS_TOPIC: int(str(SETTINGS["transaction.state.log.num.partitions"])),
    }
    return created(counts, [1, STOPPED_BROKER], cleanup_policy="compact", min_insync_replicas="1")


class NeverEndsError(Exception):
    """A step of the fake cluster does not end."""


class _Watchdog:
    """Raises `NeverEndsError` in a thread whose step does not end."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}
        self._thread: threading.Thread | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch a block of the current thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
            self._thread.start()
        me = threading.get_ident()
        self._since[me] = time.monotonic()
        try:
            yield
        finally:
            self._since.pop(me, None)

    def _run(self) -> None:
        while True:
            time.sleep(1)
            for thread, since in list(self._since.items()):
                if time.monotonic() - since > ENDLESS_S and self._since.pop(thread, 0.0):
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(NeverEndsError))


_watchdog = _Watchdog()


class Sent:
    """A request, and what has become of it.

    Attributes:
        number: The number of its step.
        response: The response; None while it waits, and if there will be none.
        is_closed: Whether its connection is closed.
        answered_ms: When it was answered, in milliseconds since the start of the history.
        answer: The bytes of the response, without its size.
    """

    def __init__(self, step: Step, number: int, request: Message) -> None:
        self.step, self.number, self.request = step, number, request
        self.response: Message | None = None
        self.is_closed = False
        self.answered_ms = 0.0
        self.answer = b""

    @property
    def is_ended(self) -> bool:
        return self.response is not None or self.is_closed

    @property
    def has_no_answer(self) -> bool:
        """Whether no broker answers such a request: a Produce with acks=0."""
        return self.step.api == "Produce" and getattr(self.request, "acks", -1) == 0

    def frame(self, correlation_id: int) -> bytes:
        return request_frame(self.request, self.step.version, correlation_id, f"client-{self.step.client}")

    def receive(self, frame: bytes, clients: Clients, at_ms: float) -> None:
        """Decode the response, and let the client learn from it."""
        _, self.response = read_response(self.api.response, self.step.version, frame)
        self.answered_ms, self.answer = at_ms, frame
        clients[self.step.client].receive(self.request, self.response)

    @property
    def api(self) -> Api:
        return API_BY_NAME[self.step.api]


class FakeSide:
    """The core of the fake cluster, with a clock that the caller advances. Requests and responses are frames.

    Args:
        run: The name of this run of the history.
        release: The release of Kafka that is emulated.
        topic_ids: The ids of the shared topics; None for any.

    Attributes:
        next_ids: The next ids of members and topics. Kafka's decide about orders in hash tables and assignments.
    """

    def __init__(self, run: str, release: str | None, topic_ids: Mapping[str, bytes] | None = None) -> None:
        self.clients = Clients(run)
        self._harness = ClusterHarness({}, BROKERS, settings_of(release), release)
        self._waiting: dict[Call, Sent] = {}
        self._numbers = itertools.count(1)
        self.next_ids: deque[bytes] = deque()
        new_id = self._harness.cluster.new_id
        self._harness.cluster.new_id = lambda: self.next_ids.popleft() if self.next_ids else new_id()
        self.send(Step("test", "CreateTopics", 7, {"topics": created_internal(), "timeout_ms": 1_000}), -1)
        environment = ClusterHarnessEnvironment(self._harness)
        cluster = self._harness.cluster
        LocalCluster(Local(cluster, environment, new_cluster=lambda: cluster)).broker(STOPPED_BROKER).stop()
        groups = cluster.brokers[1].coordinator.groups.consumer
        assignors = {name: in_hash_order(each) for name, each in groups.config.assignors.items()}
        groups.config = replace(groups.config, assignors=assignors)
        self.next_ids.extend(topic_ids[name] for name in SHARED_TOPICS if topic_ids is not None)
        self.send(Step("test", "CreateTopics", 7, {"topics": created(SHARED_TOPICS, [1]), "timeout_ms": 1_000}), -1)

    def send(self, step: Step, number: int) -> Sent:
        """Send the request of a step. `NeverEndsError` and any exception of the cluster are its defects."""
        cluster = self._harness.cluster
        self.clients.learn({topic.name: topic.topic_id for topic in cluster.topics})
        sent = Sent(step, number, self.clients.message(step))
        peer = self._harness.peer()
        with _watchdog.watching():
            try:
                call = read_call(peer, sent.frame(next(self._numbers))[_SIZE.size :])
            except ProtocolError:
                sent.is_closed = True
                return sent
            self._waiting[call] = sent
            if cluster.requests.handle(call, self._harness.now_ms):
                self._answer(call)
            while cluster.requests.unfinished:
                cluster.requests.continue_next(self._harness.now_ms, self._harness.now_ms)
            cluster.faults.actions.run()
            self._take_answers()
        return sent

    def advance_to(self, at_ms: float) -> None:
        """Advance the clock to a time since the start."""
        harness, end_ms = self._harness, START_MS + at_ms
        with _watchdog.watching():
            # As the reactor does: at each deadline.
            while (due_ms := harness.cluster.next_deadline()) is not None and due_ms <= end_ms:
                harness.advance(max(0.0, due_ms - harness.now_ms))
                self._take_answers()
            harness.advance(max(0.0, end_ms - harness.now_ms))
            self._take_answers()

    @property
    def now_ms(self) -> float:
        return self._harness.now_ms - START_MS

    def _take_answers(self) -> None:
        cluster = self._harness.cluster
        answered, cluster.requests.answered[:] = cluster.requests.answered[:], []
        for call in answered:
            self._answer(call)

    def _answer(self, call: Call) -> None:
        sent = self._waiting.pop(call, None)
        if sent is None:
            return
        if call.closes_connection:
            sent.is_closed = True
            return
        if call.body is not None:
            frame = encoded_response_frame(call.api.response, call.body, call.response_version, call.correlation_id)
        elif call.response is not None:
            frame = response_frame(call.response, call.response_version, call.correlation_id)
        else:
            return
        sent.receive(bytes(frame[_SIZE.size :]), self.clients, self.now_ms)


def chosen_ids(sent: Sent, topic_ids: Mapping[str, bytes]) -> list[bytes]:
    """Return the ids of members and topics that Kafka has chosen for a request.

    Args:
        sent: The request.
        topic_ids: The ids of topics by name, after the request.
    """
    response: Any = sent.response
    match sent.step.api:
        case "CreateTopics" if not getattr(sent.request, "validate_only", False):
            succeeded = {each.name for each in response.topics if not each.error_code}
            asked: Any = sent.request
            return [topic_ids[each.name] for each in asked.topics if each.name in succeeded & topic_ids.keys()]
        case "JoinGroup" | "ConsumerGroupHeartbeat":
            asked = sent.request
            member_id = response.member_id or ""
            if asked.member_id or not member_id:
                return []
            if len(member_id) == _BASE64_UUID_LENGTH:
                return [base64.urlsafe_b64decode(f"{member_id}==")]
            return [uuid.UUID(member_id[-36:]).bytes]
    return []


class _Connection:
    """A connection that has no request, or one without an answer."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=_ANSWER_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sent: Sent | None = None
        self._received = bytearray()

    def read(self) -> bytes | None:
        """Read what has arrived. Return the frame without its size if it is complete, and b"" if the end is reached."""
        try:
            data = self.socket.recv(2**20)
        except ConnectionResetError:
            return b""
        if not data:
            return b""
        self._received += data
        if len(self._received) < _SIZE.size:
            return None
        (size,) = _SIZE.unpack_from(self._received)
        if len(self._received) < _SIZE.size + size:
            return None
        frame = bytes(self._received[_SIZE.size :])
        self._received.clear()
        return frame


class KafkaSide:
    """A broker of Apache Kafka, for one history.

    Args:
        run: The name of this run of the history.
        address: Host and port of the broker.
    """

    def __init__(self, run: str, address: tuple[str, int]) -> None:
        self.clients = Clients(run)
        self._address = address
        self._idle: list[_Connection] = []
        self._selector = selectors.DefaultSelector()
        self._numbers = itertools.count(1)
        self._start_s = time.monotonic()
        self._held: set[str] = set()
        self.learn_topics()

    @property
    def now_ms(self) -> float:
        return (time.monotonic() - self._start_s) * 1000

    def close(self) -> None:
        """Close all connections, and delete the topics of the history."""
        if own := [topic for topic in self._existing() if topic.startswith(self.clients.run)]:
            self.ask("DeleteTopics", 5, {"topic_names": own, "timeout_ms": 1_000})
        for key in list(self._selector.get_map().values()):
            key.data.socket.close()
        for connection in self._idle:
            connection.socket.close()
        self._selector.close()

    def send(self, step: Step, number: int) -> Sent:
        """Send the request of a step."""
        sent = Sent(step, number, self.clients.message(step))
        connection = self._idle.pop() if self._idle else _Connection(self._address)
        connection.sent = sent
        self._selector.register(connection.socket, selectors.EVENT_READ, connection)
        try:
            connection.socket.sendall(sent.frame(next(self._numbers)))
        except (BrokenPipeError, ConnectionResetError):
            sent.is_closed = True
        return sent

    def receive(self, for_s: float) -> None:
        """Receive responses until there is one, for a time at most."""
        for key, _ in self._selector.select(for_s):
            connection: _Connection = key.data
            frame = connection.read()
            if frame is None:
                continue
            assert connection.sent is not None
            self._selector.unregister(connection.socket)
            if frame:
                connection.sent.receive(frame, self.clients, self.now_ms)
                self._idle.append(connection)
            else:
                connection.sent.is_closed = True
                connection.socket.close()

    def give_up(self, sent: Sent) -> None:
        """Close the connection of a request."""
        for key in list(self._selector.get_map().values()):
            if key.data.sent is sent:
                self._selector.unregister(key.data.socket)
                key.data.socket.close()

    def ask(self, api: str, version: int, fields: dict[str, Any]) -> Any:
        """Send a request of the test, and return its response."""
        sent = self.send(Step("test", api, version, fields), -1)
        deadline = time.monotonic() + _ANSWER_S
        while not sent.is_ended:
            self.receive(0.1)
            assert time.monotonic() < deadline, f"Kafka does not answer {sent.step}"
        assert sent.response is not None, f"Kafka closes the connection of {sent.step}"
        return sent.response

    def _existing(self) -> dict[str, bytes]:
        found = self.ask("Metadata", 12, {"topics": None, "allow_auto_topic_creation": False})
        return {each.name: each.topic_id for each in found.topics if not each.error_code}

    def accept_writes(self) -> None:
        """Let the log of the groups accept writes again."""
        config = {"name": "min.insync.replicas", "config_operation": 0, "value": "1"}
        resource = {"resource_type": 2, "resource_name": OFFSETS_TOPIC, "configs": [config]}
        self.ask("IncrementalAlterConfigs", 1, {"resources": [resource]})
        time.sleep(_APPLIED_S)

    def learned_ids(self, names: Iterable[str]) -> list[bytes]:
        """Wait until topics exist, and return their ids."""
        deadline = time.monotonic() + _ANSWER_S
        self.learn_topics()
        while not self.clients.topic_ids.keys() >= set(names):
            assert time.monotonic() < deadline, f"Kafka has no topics {', '.join(names)}"
            time.sleep(_APPLIED_S)
            self.learn_topics()
        return [self.clients.topic_ids[name] for name in names]

    def learn_topics(self) -> None:
        self.clients.learn(self._existing())

    def wait_for_effects(self, sent: Sent) -> None:
        """Wait until what a request has caused after its response is done: markers, and changes by the controller."""
        response: Any = sent.response
        if response is None:
            return
        match sent.step.api:
            case "EndTxn" | "InitProducerId" if response.error_code in (0, _CONCURRENT_TRANSACTIONS):
                name = getattr(sent.request, "transactional_id", None)
                deadline = time.monotonic() + _ANSWER_S
                while name and name not in self._held and self._is_ending(name):
                    if time.monotonic() > deadline:
                        self._held.add(name)  # Kafka does not end it: later steps need not wait for it again.
                    time.sleep(0.003)
            case "CreateTopics" | "DeleteTopics" | "CreatePartitions" | "Metadata":
                self._wait_for_topics(sent)
            case "AlterConfigs" | "IncrementalAlterConfigs" | "AlterPartitionReassignments":
                time.sleep(_APPLIED_S)
            case "ConsumerGroupHeartbeat" if getattr(sent.request, "subscribed_topic_regex", None):
                time.sleep(_APPLIED_S)  # Another thread resolves it.

    def _is_ending(self, name: str) -> bool:
        found = self.ask("DescribeTransactions", 0, {"transactional_ids": [name]})
        state: str = found.transaction_states[0].transaction_state
        return state.startswith("Prepare")

    def _wait_for_topics(self, sent: Sent) -> None:
        """Wait until the broker knows the topics that were created or deleted."""
        before = dict(self.clients.topic_ids)
        response: Any = sent.response
        succeeded = [
            each for each in getattr(response, "topics", getattr(response, "responses", ())) if not each.error_code
        ]
        if sent.step.api != "Metadata" and (succeeded or sent.step.api == "CreatePartitions"):
            # A busy broker may know a new topic seconds later. Other changes do not always show in the names.
            deadline = time.monotonic() + (5 if sent.step.api == "CreateTopics" else 1)
            is_done = False
            while not is_done and time.monotonic() < deadline:
                time.sleep(0.005)
                self.learn_topics()
                changed = {name for name, _ in self.clients.topic_ids.items() ^ before.items()}
                is_done = getattr(sent.request, "validate_only", False) or any(
                    each.name in changed for each in succeeded
                )
            time.sleep(_APPLIED_S)
        self.learn_topics()
