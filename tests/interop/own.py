"""This project's own group member in the vocabulary of the tests: the replay's player, in a thread of its own.

A member only knows positions; here it reads the records too, plainly: each poll asks the leaders.
"""

import math
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import trio

from fakebroker.client.connection import BrokerUnreachable, Connection, ConnectionLost
from fakebroker.client.member import MemberState
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from fakebroker.protocol.records import iterate_records, split_batches
from fakebroker.protocol.schema import Message
from fakebroker.replay.bootstrap import Address, addresses
from fakebroker.replay.events import Event
from fakebroker.replay.lookup import SharedLookups
from fakebroker.replay.player import Clock, Player, Script
from tests.interop.clients import CALL_TIMEOUT_S, HEARTBEAT_INTERVAL_MS, POLL_S, Place, Record, Settings

T = TypeVar("T")

REBALANCE_TIMEOUT_MS = 60_000
MAX_BYTES = 1024 * 1024


class OwnConsumer:
    """A member of the project's own, and what reads for it."""

    def __init__(self, servers: str, settings: Settings) -> None:
        self._settings = settings
        self._brokers = addresses(servers)
        self._connections: dict[Address, Connection] = {}
        self._awaited: tuple[str, list[Event], trio.Event] | None = None
        self._topic = ""
        self._player: Player
        self._is_closed = False
        started = threading.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._run, started), name="own member", daemon=True)
        self._thread.start()
        started.wait()

    async def _run(self, started: threading.Event) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._clock = Clock()
        async with trio.open_nursery() as self._nursery:
            self._lookups = SharedLookups(self._brokers, self._clock, self._nursery, lambda event: None)
            self._nursery.start_soon(self._lookups.run)
            started.set()
            await trio.sleep_forever()

    def _call(self, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        return trio.from_thread.run(function, *arguments, trio_token=self._token)

    def subscribe(self, topic: str) -> None:
        self._topic = topic
        self._call(self._join)

    async def _join(self) -> None:
        assert self._settings.group_id is not None
        script = Script(
            group=self._settings.group_id,
            member=self._settings.client_id,
            arrive_ms=0,
            leave_ms=math.inf,
            topics=(self._topic,),
            assignor="range",
            session_timeout_ms=self._settings.session_timeout_ms,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
            commit_interval_ms=0,
        )
        self._player = Player(script, self._clock.now_ms(), self._clock, self._nursery, self._lookups, self._note)
        self._nursery.start_soon(self._player.play)

    def _note(self, event: Event) -> None:
        if self._awaited is not None and self._awaited[0] == event.api:
            self._awaited[1].append(event)
            self._awaited[2].set()

    async def _ask(self, api: str, step: Callable[[float], None]) -> Event:
        """Let the member do something, and wait for what comes of the request that it makes."""
        _, events, came = self._awaited = (api, [], trio.Event())
        self._player.tell(step)
        with trio.fail_after(CALL_TIMEOUT_S):
            await came.wait()
        return events[0]

    def assignment(self) -> list[Place]:
        return sorted(self._player.member.assigned)

    def commit(self) -> None:
        event = self._call(self._commit)
        assert event.error == ErrorCode.NONE, event

    async def _commit(self) -> Event:
        """Commit until there is an answer, from wherever the coordinator is by then."""
        while True:
            while self._player.member.state is not MemberState.PART_OF_GROUP:
                await trio.sleep(POLL_S)
            event = await self._ask("OffsetCommit", self._player.member.commit)
            if event.error is not None and not ErrorCode(event.error).retriable:
                return event

    def poll(self) -> list[Record]:
        return self._call(self._poll)

    async def _poll(self) -> list[Record]:
        metadata = await self._metadata()
        (topic,) = metadata.topics
        self._player.tell(self._player.member.metadata, {self._topic: len(topic.partitions)})
        leaders = {partition.partition_index: partition.leader_id for partition in topic.partitions}
        found = []
        for broker in metadata.brokers:
            led = [place for place in self._player.member.positions if leaders.get(place[1]) == broker.node_id]
            if led:
                found += await self._fetch((broker.host, broker.port), led)
        if not found:
            await trio.sleep(POLL_S)
        return found

    async def _metadata(self) -> MetadataResponse:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=self._topic)])
        for broker in self._brokers * 2:  # the second time with new connections, if it must be
            if (answer := await self._request(broker, request)) is not None:
                assert isinstance(answer, MetadataResponse)
                return answer
        raise AssertionError("none of the brokers that were there at first is there now")

    async def _fetch(self, broker: Address, places: list[Place]) -> list[Record]:
        """Read on where the member stands; where a broker refuses, the next poll asks again."""
        positions = self._player.member.positions
        partitions = [
            FetchPartition(partition=place[1], fetch_offset=positions[place], partition_max_bytes=MAX_BYTES)
            for place in places
        ]
        topics = [FetchTopic(topic=self._topic, partitions=partitions)]
        answer: Any = await self._request(broker, FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics))
        found = []
        for data in answer.responses[0].partitions if answer else []:
            place = (self._topic, data.partition_index)
            for batch in split_batches(data.records or b""):
                if place in positions:  # else it was revoked meanwhile
                    found += [_record(record, data.partition_index) for record in iterate_records(batch)]
                    positions[place] = batch.last_offset + 1
        return found

    async def _request(self, broker: Address, request: Message) -> Message | None:
        """The answer; none if the broker is gone."""
        try:
            if broker not in self._connections:
                self._connections[broker] = await Connection.open(*broker, self._settings.client_id, self._nursery)
            answer: Message = await self._connections[broker].request(request)
        except (BrokerUnreachable, ConnectionLost):
            self._connections.pop(broker, None)
            return None
        return answer

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._call(self._leave)
            self._thread.join()

    async def _leave(self) -> None:
        if self._player.member.state is MemberState.PART_OF_GROUP:
            await self._ask("LeaveGroup", self._player.member.leave)
        self._nursery.cancel_scope.cancel()


def _record(record: Any, partition: int) -> Record:
    return Record(record.value, record.key, record.headers, record.timestamp_ms, partition)
