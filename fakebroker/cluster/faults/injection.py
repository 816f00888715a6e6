"""The faults of a cluster at work: which requests they meet, and what that makes of the answers.

Pure: chance and time are handed in. What becomes of the bytes of an answer is told here (`spoiled`), and done where the
connections are. Knows the cluster as handlers do.
"""

import copy
import heapq
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fakebroker.cluster.call import Call
from fakebroker.cluster.faults.error_catalog import PLACES, Part, Place, asked_parts, kinds_of
from fakebroker.cluster.faults.error_responses import Injection, failed, merge, put_error, refusal, split
from fakebroker.cluster.faults.rule import Fault, check, delay_range
from fakebroker.cluster.faults.stale_metadata import Past
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from fakebroker.protocol.schema import Message, Versions

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

Handler = Callable[["Cluster", Call, float], Message | None]

READS = ("Fetch", "ListOffsets", "Metadata", "OffsetFetch", "DescribeLogDirs", "DescribeTopicPartitions")
"""Nobody can tell whether these were handled. They may name all there is without a word, so the error is put in."""

_FIRST_GARBLED = 8  # behind the frame's size and the correlation id


class Rule:
    """A fault in force.

    Attributes:
        fault: What it does.
        added_ms: Since when it is there, in the brokers' time.
        seen: How many requests its names and numbers met, whether chance, `nth` or `every` picked them or not.
        hits: How many requests it did its work on.
        past: Of a fault that tells old things: how they were.
    """

    __slots__ = ("_named", "_versions", "added_ms", "fault", "hits", "past", "seen")

    def __init__(self, fault: Fault, now_ms: float, past: Past | None = None) -> None:
        self.fault = fault
        self.past = past
        self.added_ms = now_ms
        self.seen = self.hits = 0
        self._named: Part = fault.named
        self._versions = None if fault.versions is None else Versions.parse(fault.versions)

    def picks(self, call: Call, cluster: "Cluster", random: Callable[[], float]) -> bool:
        """Whether it does its work on a request; if so, that is counted."""
        if not self._meets(call, cluster):
            return False
        self.seen += 1
        fault = self.fault
        if fault.nth not in (None, self.seen) or (fault.every is not None and self.seen % fault.every):
            return False
        if fault.probability is not None and random() >= fault.probability:
            return False
        self.hits += 1
        return True

    def _meets(self, call: Call, cluster: "Cluster") -> bool:
        fault = self.fault
        return (
            fault.api in (None, call.api.name)
            and fault.broker in (None, call.broker.node_id)
            and fault.client_id in (None, call.client_id)
            and (fault.times is None or self.hits < fault.times)
            and (self._versions is None or call.api_version in self._versions)
            and self._is_on(cluster.now_ms)
            and (fault.error is None or place_of(fault, call) is not None)
            and (not self._named or self._meets_named(call, cluster))
        )

    def _is_on(self, now_ms: float) -> bool:
        since_s = (now_ms - self.added_ms) / 1000 - self.fault.after_s
        return since_s >= 0 and (self.fault.for_s is None or since_s < self.fault.for_s)

    def _meets_named(self, call: Call, cluster: "Cluster") -> bool:
        if not set(self._named) <= set(kinds_of(call.api)):
            return False
        parts = (
            fetched_parts(cluster, call)
            if call.api.name == "Fetch"
            else asked_parts(call.api, call.request, call.api_version, topic_namer(cluster))
        )
        return any(all(part.get(kind, name) == name for kind, name in self._named.items()) for part in parts)


class Faults:
    """The faults of a cluster, in the order in which they were added, and the answers that they hold back.

    Args:
        cluster: Where they are.
        random: Gives numbers from 0 to below 1; the same ones in each run.
    """

    def __init__(self, cluster: "Cluster", random: Callable[[], float]) -> None:
        self.rules: list[Rule] = []
        self._cluster = cluster
        self._random = random
        self._late: list[tuple[float, int, Call, Message | None]] = []
        self._held = 0

    def add(self, fault: Fault, now_ms: float) -> Rule:
        """Put a fault in force.

        Raises:
            ConfigError: It can never do anything.
        """
        check(fault, {node_id: broker.versions for node_id, broker in self._cluster.brokers.items()})
        rule = Rule(fault, now_ms, Past(self._cluster) if fault.stale else None)
        self.rules.append(rule)
        return rule

    def remove(self, rule: Rule) -> None:
        """End a fault; what it has done already remains, an answer that is held back, too."""
        if rule in self.rules:
            self.rules.remove(rule)

    def start_over(self, fresh: "Faults") -> None:
        """End all faults, forget the answers that they hold back, and let chance be that of a fresh cluster."""
        self.rules.clear()
        self._late.clear()
        self._random = fresh._random

    def pick(self, call: Call) -> bool:
        """Whether a fault does its work on a request; the call then names it."""
        rule = next((rule for rule in self.rules if rule.picks(call, self._cluster, self._random)), None)
        if rule is not None:
            call.fault = rule.fault
        return rule is not None

    def handle(self, call: Call, handler: Handler, now_ms: float) -> None:
        """Do what a fault makes of a request: its answer, if there is one, comes up among those of the cluster."""
        fault = call.fault
        assert fault is not None
        if fault.takes_effect or (fault.error and call.api.name in READS and self._injection(call).place.told):
            response = self._handled(call, handler, now_ms)
            if response is not None:
                self.answer(call, response, now_ms)
        elif fault.error:
            self._refuse(call, handler, now_ms)
        else:
            self._finish(call, None, now_ms)

    def answer(self, call: Call, response: Message | None, now_ms: float) -> None:
        """Do what a fault makes of a real answer."""
        if response is not None and call.fault is not None and call.fault.error:
            response = self._with_error(call, response)
        elif response is not None and call.fault is not None and call.fault.stale:
            response = self._past(call.fault).told(call.request, response)
        self._finish(call, response, now_ms)

    def _past(self, fault: Fault) -> Past:
        return next(rule.past for rule in self.rules if rule.fault is fault and rule.past is not None)

    def _handled(self, call: Call, handler: Handler, now_ms: float) -> Message | None:
        if call.api.name != "Fetch" or not (call.fault and call.fault.error):
            return handler(self._cluster, call, now_ms)
        # An error is told at once.
        return _with_request(call, replace(call.request, max_wait_ms=0), handler, self._cluster, now_ms)

    def _refuse(self, call: Call, handler: Handler, now_ms: float) -> None:
        """Answer a request that does not take effect: as a whole, or in what the fault names."""
        injection = self._injection(call)
        hit, rest = split(injection, call.request) if injection.place.asked else (call.request, None)
        response = None if rest is None else _with_request(call, rest, handler, self._cluster, now_ms)
        if getattr(call.request, "acks", None) == 0:
            if rest is None:
                self._finish(call, None, now_ms)
            call.closes_connection = True  # As Kafka does, for want of an answer.
            return
        refused = refusal(injection, call.api.response, call.request if hit is None else hit)
        if injection.error is ErrorCode.UNSUPPORTED_VERSION and call.api.name == "ApiVersions":
            call.response_version = 0  # which every client can read (KIP-511)
        if response is None:
            response = refused
        else:
            merge(injection, response, refused, injection.place.told)
        self._finish(call, response, now_ms)

    def _with_error(self, call: Call, response: Message) -> Message:
        injection = self._injection(call)
        changed = put_error(injection, response)
        if isinstance(changed, FetchResponse) and injection.place.told:
            _add_unread(injection, changed, self._cluster, call)
        return changed

    def _injection(self, call: Call) -> Injection:
        fault = call.fault
        assert fault is not None
        place = place_of(fault, call)
        assert place is not None
        assert fault.code is not None
        return Injection(fault.code, place, call.api_version, fault.named, topic_namer(self._cluster))

    def _finish(self, call: Call, response: Message | None, now_ms: float) -> None:
        """Let an answer go out, now or later, or never."""
        fault = call.fault
        assert fault is not None
        if fault.silent:
            return
        if response is not None and fault.throttle_time_ms is not None:
            response = copy.copy(response)
            setattr(response, "throttle_time_ms", fault.throttle_time_ms)  # noqa: B010  # every response has it
        low_s, high_s = delay_range(fault)
        if high_s <= 0:
            self._release(call, response, now_ms)
            return
        delay_s = low_s + (high_s - low_s) * self._random() if high_s > low_s else low_s
        self._held += 1
        heapq.heappush(self._late, (now_ms + delay_s * 1000, self._held, call, response))

    def _release(self, call: Call, response: Message | None, now_ms: float) -> None:
        assert call.fault is not None
        if call.fault.drop:
            self._cluster.answered.append(call)
        else:
            self._cluster.hand_over(call, response, now_ms)

    def tick(self, now_ms: float) -> None:
        """Let answers go out whose time has come, the earliest first; of those due together the first held back."""
        while self._late and self._late[0][0] <= now_ms:
            _, _, call, response = heapq.heappop(self._late)
            self._release(call, response, now_ms)

    def next_deadline(self) -> float | None:
        """When the next answer is due."""
        return self._late[0][0] if self._late else None

    def spoiled(self, fault: Fault, frame: bytearray) -> bytearray:
        """What is sent in place of the frame of an answer."""
        positions = list(range(_FIRST_GARBLED, len(frame))) if fault.garble_bytes else []
        for _ in range(min(fault.garble_bytes or 0, len(positions))):
            frame[positions.pop(int(self._random() * len(positions)))] ^= 1 + int(self._random() * 255)
        if fault.cut_bytes is not None:
            del frame[min(fault.cut_bytes, len(frame) - 1) :]
        return frame * 2 if fault.twice else frame


def place_of(fault: Fault, call: Call) -> Place | None:
    """Where a fault's error stands in the response to a request; None if its version has no place for it.

    Where there are several, it is the first one that is about what the fault names: a request or group as a whole, a
    topic or a member, a partition.
    """
    places = [
        place for place in PLACES[call.api.name] if call.api_version in place.versions and fault.code in place.errors
    ]
    if fault.partition is not None:
        return places[-1] if places else None
    if fault.topic or fault.member_id or fault.instance_id:
        return next((place for place in places if place.told), next(iter(places), None))
    return next(iter(places), None)


def topic_namer(cluster: "Cluster") -> Callable[[bytes], str | None]:
    """Tells the names of topics by their ids."""

    def name(topic_id: bytes) -> str | None:
        topic = cluster.topics.find("", topic_id, by_id=True)
        return None if topic is None else topic.name

    return name


def fetched_parts(cluster: "Cluster", call: Call) -> list[Part]:
    """What a Fetch asks for, with all that its session stands for (KIP-227)."""
    name = topic_namer(cluster)
    return [
        {"topic": topic or name(topic_id), "partition": index}
        for topic, topic_id, index in call.broker.fetch_sessions.asked(call.request)
    ]


def _add_unread(injection: Injection, response: FetchResponse, cluster: "Cluster", call: Call) -> None:
    """Tell the error of partitions, too, that have no news, of which a session says nothing."""
    told = {
        (each.topic, each.topic_id, data.partition_index) for each in response.responses for data in each.partitions
    }
    keys = call.broker.fetch_sessions.asked(call.request)
    for (topic, topic_id, index), part in zip(keys, fetched_parts(cluster, call), strict=True):
        if injection.covers(part) and (topic, topic_id, index) not in told:
            data = failed(injection, PartitionData, index)
            response.responses.append(FetchableTopicResponse(topic=topic, topic_id=topic_id, partitions=[data]))


def _with_request(call: Call, request: Any, handler: Handler, cluster: "Cluster", now_ms: float) -> Message | None:
    """Handle a call as if it had asked for something else; nothing may keep it."""
    asked, call.request = call.request, request
    try:
        return handler(cluster, call, now_ms)
    finally:
        call.request = asked
