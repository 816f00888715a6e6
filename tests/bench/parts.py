"""The CPU time of the parts of a request without sockets: split, decode, handle, encode.

    python -m tests.bench.parts [WORKLOAD ...]

Plays the plans of `workloads.py` to a cluster in this process, with the same calls as `server/reactor.py`, and prints a
line of JSON for each: the microseconds of each part of a unit of work. `make bench` runs it.
"""

import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from fakebroker import FakeCluster
from fakebroker.cluster.call import Call, Peer, read_call
from fakebroker.cluster.cluster import Cluster
from fakebroker.protocol.frames import FrameBuffer, encoded_response_frame, response_frame, response_parts
from fakebroker.server.fake_cluster import internals
from fakebroker.server.reactor import WITH_RECORDS
from tests.bench.plan import Plan, Step
from tests.bench.processes import SERVER_CORE, pin
from tests.bench.servers import CONFIG, FETCHED, PARTITIONS, PRODUCED
from tests.bench.workloads import HEARTBEATS, NUMBERS, WORKLOADS, Broker, Workload

PARTS = ("split", "decode", "handle", "encode")
BATCH_S, BATCHES = 0.05, 9
"""Approximate CPU time of a batch; the result is the minimum of the batches."""
A = TypeVar("A")
B = TypeVar("B")


class Player:
    """A cluster with the plan of a workload, whose requests are sent step by step, all connections at the same time."""

    def __init__(self, cluster: Cluster, plan: Plan) -> None:
        self._cluster = cluster
        self._plan = plan
        self._requests = [[bytearray(step.request) for step in steps] for steps in plan]
        self._peers = [Peer(cluster.brokers[1], "/127.0.0.1", number) for number in range(len(plan))]
        self._buffers = [FrameBuffer() for _ in plan]
        self._drawn = self._sequence = 0
        self._first = 0
        self.times_s = dict.fromkeys(PARTS, 0.0)

    def play(self) -> None:
        """Send all steps of all connections, and add the times of the parts. The first call also sends first steps."""
        for number in range(self._first, len(self._plan[0])):
            frames = [self._frame(requests[number], steps[number]) for requests, steps in self._each()]
            split = self._timed("split", lambda pair: pair[0].feed(pair[1])[0], zip(self._buffers, frames, strict=True))
            calls = self._timed("decode", lambda pair: read_call(*pair), zip(self._peers, split, strict=True))
            answered = self._timed("handle", self._handled, calls)
            responses = self._timed("encode", self._encoded, answered)
            for requests, steps, response in zip(self._requests, self._plan, responses, strict=True):
                self._copy(steps[number], b"".join(response), requests)
        self._sequence += 1
        self._first = 0 if self._plan[0][0].repeats else 1

    def _each(self) -> Iterable[tuple[list[bytearray], Sequence[Step]]]:
        return zip(self._requests, self._plan, strict=True)

    def _timed(self, part: str, function: Callable[[A], B], arguments: Iterable[A]) -> list[B]:
        given = list(arguments)
        start = time.thread_time()
        results = [function(argument) for argument in given]
        self.times_s[part] += time.thread_time() - start
        return results

    def _frame(self, request: bytearray, step: Step) -> bytes:
        """Return a request with other numbers than before, and the next sequence number."""
        for position in step.numbers:
            self._drawn = (self._drawn * 31 + 7) % 10_007
            request[position : position + 6] = b"%06d" % (self._drawn % NUMBERS)
        if step.batch is not None:
            step.batch.number(request, self._sequence)
        return bytes(request)

    def _handled(self, call: Call) -> Call:
        cluster = self._cluster
        if not cluster.requests.handle(call, cluster.now_ms):
            [call] = cluster.requests.answered
            cluster.requests.answered = []
        return call

    def _encoded(self, call: Call) -> list[bytes | bytearray]:
        """Return the frame of a response, in parts as it is sent."""
        journal, version = self._cluster.journal, call.response_version
        frame: list[bytes | bytearray]
        if call.api.name == WITH_RECORDS:
            frame = response_parts(call.response, version, call.correlation_id)
        elif call.body is None:
            frame = [response_frame(call.response, version, call.correlation_id)]
        else:
            frame = [encoded_response_frame(call.api.response, call.body, version, call.correlation_id)]
        size_bytes = sum(map(len, frame))
        if size_bytes >= journal.min_response_bytes or call.kept is not None:
            journal.add_response(call, size_bytes)
        return frame

    @staticmethod
    def _copy(step: Step, response: bytes, requests: Sequence[bytearray]) -> None:
        assert len(response) == len(step.response)
        assert not any(response[position] for position in step.errors)
        for each in step.copies:
            data = response[each.from_position : each.from_position + each.size]
            requests[each.step][each.to_position : each.to_position + each.size] = data


def measure(workload: Workload) -> dict[str, float]:
    """Return the CPU time of each part of a unit of work, in microseconds."""
    with FakeCluster(1, dict.fromkeys((PRODUCED, FETCHED), PARTITIONS), CONFIG) as cluster:
        with Broker(cluster.brokers[0].port) as broker:
            plan = workload.prepare(broker, workload.connections)
        # From here on, the thread of the cluster only waits.
        player = Player(internals(cluster).cluster, plan)
        units = len(plan) * sum(step.repeats for step in plan[0]) * workload.units
        for _ in range(NUMBERS if plan[0][0].numbers else 1):
            player.play()  # Caches of names know them all, as in a server that has run for a while.
        start = time.thread_time()
        player.play()
        plays = 1 + int(BATCH_S / (time.thread_time() - start))
        batches = []
        for _ in range(BATCHES):
            player.times_s = dict.fromkeys(PARTS, 0.0)
            for _ in range(plays):
                player.play()
            batches.append(player.times_s)
    best = min(batches, key=lambda times_s: sum(times_s.values()))
    return {part: round(seconds * 1e6 / units / plays, 4) for part, seconds in best.items()}


def main(names: Sequence[str]) -> None:
    pin(SERVER_CORE)
    for workload in WORKLOADS:
        is_other = workload is HEARTBEATS or workload.prepare is not HEARTBEATS.prepare
        if workload.name in names or (not names and is_other):
            print(json.dumps({"workload": workload.name, **measure(workload)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
