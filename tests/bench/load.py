"""A closed-loop load of heartbeats: each connection has one request in flight, and is the only member of its group.

    python -m tests.bench.load PORT CONNECTIONS SECONDS

Prints one JSON line. The bytes of a connection's requests are always the same, and only the error of a response is
read: the load must use less CPU time than the server.
"""

import json
import os
import resource
import select
import socket
import statistics
import struct
import sys
import time

from fakebroker.protocol.frames import read_response, request_frame
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

# Versions that librdkafka's mock cluster decodes correctly.
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION = 2, 1, 2
CLIENT_ID = "load"
TIMEOUT_S = 20.0


class LoadMember:
    """A member with its own connection.

    Attributes:
        heartbeat: The frame of its heartbeats, once it has joined.
    """

    def __init__(self, port: int, group_id: str) -> None:
        self.group_id = group_id
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.heartbeat = b""

    def send_join(self) -> None:
        protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
        join = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id="",
            protocol_type="consumer",
            protocols=[protocol],
        )
        self.socket.sendall(request_frame(join, JOIN_VERSION, 1, CLIENT_ID))

    def send_sync(self) -> None:
        _, joined = read_response(JoinGroupResponse, JOIN_VERSION, self.receive())
        assert joined.error_code == 0, f"JoinGroup error {joined.error_code}"
        one, generation = joined.member_id, joined.generation_id
        assignments = [SyncGroupRequestAssignment(member_id=one, assignment=b"")]
        sync = SyncGroupRequest(
            group_id=self.group_id, generation_id=generation, member_id=one, assignments=assignments
        )
        self.socket.sendall(request_frame(sync, SYNC_VERSION, 2, CLIENT_ID))
        beat = HeartbeatRequest(group_id=self.group_id, generation_id=generation, member_id=one)
        self.heartbeat = request_frame(beat, HEARTBEAT_VERSION, 3, CLIENT_ID)

    def receive(self) -> bytes:
        data = b""
        while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
            piece = self.socket.recv(65536)
            assert piece, "the broker closed the connection"
            data += piece
        return data[4:]


def joined_members(port: int, count: int) -> list[LoadMember]:
    """Return members that have joined and synced, each in its own group."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    salt = os.getpid()
    members = [LoadMember(port, f"load-{salt}-{number}") for number in range(count)]
    for member in members:
        member.send_join()
    for member in members:
        member.send_sync()
    for member in members:
        member.receive()
    return members


class Load:
    """Members that send heartbeats during `run`.

    Args:
        port: Port of the broker.
        connections: Number of members.
    """

    def __init__(self, port: int, connections: int) -> None:
        self._members = {member.socket.fileno(): member for member in joined_members(port, connections)}
        self._poller = select.epoll()
        for fd, member in self._members.items():
            member.socket.setblocking(False)
            self._poller.register(fd, select.EPOLLIN)

    def __enter__(self) -> "Load":
        return self

    def __exit__(self, *_: object) -> None:
        self._poller.close()
        for member in self._members.values():
            member.socket.close()

    def run(self, seconds: float) -> dict[str, float]:
        """Send heartbeats for some seconds; return requests per second, errors, and latencies in microseconds."""
        members, poll = self._members, self._poller.poll
        sends = {fd: member.socket.send for fd, member in members.items()}
        receives = {fd: member.socket.recv for fd, member in members.items()}
        beats = {fd: member.heartbeat for fd, member in members.items()}
        clock, errors = time.perf_counter, 0
        sent_at: dict[int, float] = {}
        latencies: list[float] = []
        start = clock()
        for fd, send in sends.items():
            sent_at[fd] = clock()
            send(beats[fd])
        while (now := clock()) < start + seconds or not latencies:
            for fd, _ in poll(1, 256):
                answer = receives[fd](4096)
                assert len(answer) == 14, answer
                if answer[12:] != b"\0\0":
                    errors += 1
                latencies.append(now - sent_at[fd])
                sent_at[fd] = now
                sends[fd](beats[fd])
        elapsed, answers = clock() - start, len(latencies)
        while sent_at:  # Receive all pending responses: a later run starts with none in flight.
            for fd, _ in poll(1, 256):
                receives[fd](4096)
                del sent_at[fd]
        percentiles_s = statistics.quantiles(latencies, n=100)
        return {
            "requests_per_s": answers / elapsed,
            "errors": errors,
            "p50_us": percentiles_s[49] * 1e6,
            "p99_us": percentiles_s[98] * 1e6,
        }


if __name__ == "__main__":
    with Load(int(sys.argv[1]), int(sys.argv[2])) as members:
        print(json.dumps(members.run(float(sys.argv[3]))))
