"""What the members of a task ask over one connection: who coordinates their groups, how many partitions topics have.

Look-ups that are wanted at the same moment, or while one is on its way, go out as one FindCoordinator where the broker
takes that (version 4, KIP-699). Knows nothing of what the members do with the answers.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import trio

from fakebroker.client.connection import BrokerUnreachable, Connection, ConnectionLost
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from fakebroker.protocol.registry import api_of
from fakebroker.protocol.schema import Message
from fakebroker.replay.bootstrap import Address, connect
from fakebroker.replay.events import Event
from fakebroker.replay.player import Clock, Player

_FIRST_VERSION_WITH_MANY_KEYS = 4
_RETRY_S = 0.1
_UNKNOWN_BROKER = -1

Wanted = dict[str, list[tuple[Player, float]]]
"""By group: who wants to know its coordinator, and since when."""


class SharedLookups:
    """Looks things up for the players of one task.

    Args:
        brokers: Whom to ask; the first that can be reached is asked.
        nursery: Where the connection is read and requests wait.
        record: Takes each event.
    """

    def __init__(
        self,
        brokers: Sequence[Address],
        clock: Clock,
        nursery: trio.Nursery,
        record: Callable[[Event], None],
    ) -> None:
        self._brokers = brokers
        self._clock, self._nursery, self._record = clock, nursery, record
        self._connection: Connection | None = None
        self._connecting = trio.Lock()
        self._broker = _UNKNOWN_BROKER
        self._wanted: Wanted = {}
        self._any_wanted = trio.Event()

    def discover(self, player: Player, scheduled_ms: float) -> None:
        """Have the coordinator of a player's group looked up; the player is told."""
        self._wanted.setdefault(player.script.group, []).append((player, scheduled_ms))
        self._any_wanted.set()

    def fetch_metadata(self, player: Player, topics: tuple[str, ...], scheduled_ms: float) -> None:
        """Ask for partition counts on behalf of a player; its member is told."""
        self._nursery.start_soon(self._fetch_metadata, player, topics, scheduled_ms)

    async def run(self) -> None:
        """Look up coordinators, one request after the other, until cancelled."""
        while True:
            await self._any_wanted.wait()
            self._any_wanted = trio.Event()
            wanted, self._wanted = self._wanted, {}
            try:
                connection = await self.connected()
            except (BrokerUnreachable, ConnectionLost):
                _fail(wanted)
                continue
            for groups in _requests(list(wanted), connection):
                await self._find({group: wanted[group] for group in groups})

    async def connected(self) -> Connection:
        """The connection, opened if there is none.

        Raises:
            BrokerUnreachable: None of the brokers can be reached; it tells of the last one.
            ConnectionLost: One could, but only for a moment.
        """
        async with self._connecting:
            if self._connection is None:
                self._connection, address = await connect(self._brokers, self._nursery)
                self._broker = await _node_id(self._connection, address)
            return self._connection

    async def _find(self, wanted: Wanted) -> None:
        """One FindCoordinator; tells the players what came of it, also when nothing did."""
        scheduled_ms = min(scheduled_ms for players in wanted.values() for _, scheduled_ms in players)
        request = FindCoordinatorRequest(coordinator_keys=list(wanted))
        try:
            response: FindCoordinatorResponse = await self._exchange(request, scheduled_ms)
        except (BrokerUnreachable, ConnectionLost):
            _fail(wanted)
            return
        found = {coordinator.key: coordinator for coordinator in response.coordinators}
        for group, players in wanted.items():
            _tell(players, found[group])

    async def _fetch_metadata(self, player: Player, topics: tuple[str, ...], scheduled_ms: float) -> None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic) for topic in topics])
        while True:
            try:
                response: MetadataResponse = await self._exchange(request, scheduled_ms)
            except (BrokerUnreachable, ConnectionLost):
                await trio.sleep(_RETRY_S)
                continue
            counts = {topic.name: len(topic.partitions) for topic in response.topics if topic.error_code == 0}
            player.tell(player.member.metadata, counts)
            return

    async def _exchange(self, request: Message, scheduled_ms: float) -> Any:
        """A request over the connection, with its event."""
        connection, response = await self.connected(), None
        sent_us, version = self._clock.now_us(), connection.version_for(type(request))
        try:
            response = await connection.request(request)
        except ConnectionLost:
            if self._connection is connection:
                self._connection = None
            raise
        finally:
            self._record(self._event(request, response, version, round(scheduled_ms * 1000), sent_us))
        return response

    def _event(self, request: Message, response: Any, version: int, scheduled_us: int, sent_us: int) -> Event:
        groups = request.coordinator_keys if isinstance(request, FindCoordinatorRequest) else []
        return Event(
            scheduled_us=scheduled_us,
            sent_us=sent_us,
            latency_us=None if response is None else self._clock.now_us() - scheduled_us,
            api=api_of(request).name,
            version=version,
            broker=self._broker,
            group=groups[0] if len(groups) == 1 else None,
            error=None if response is None else next(filter(None, _errors(response)), 0),
            lookups=len(groups) or None,
        )


async def _node_id(connection: Connection, address: Address) -> int:
    """Which broker an address is; there is no other way to learn it than to look for it among all brokers."""
    metadata: MetadataResponse = await connection.request(MetadataRequest(topics=[]))
    return next((b.node_id for b in metadata.brokers if (b.host, b.port) == address), _UNKNOWN_BROKER)


def _requests(groups: list[str], connection: Connection) -> Iterable[list[str]]:
    """The groups, request by request: all in one, or one each where the broker's FindCoordinator takes one."""
    together = connection.version_for(FindCoordinatorRequest) >= _FIRST_VERSION_WITH_MANY_KEYS
    return [groups] if together else [[group] for group in groups]


def _tell(players: Iterable[tuple[Player, float]], found: Coordinator) -> None:
    for player, _ in players:
        if found.error_code:
            player.tell(player.member.discovery_failed, ErrorCode(found.error_code))
        else:
            player.discovered(found.node_id, found.host, found.port)


def _fail(wanted: Wanted) -> None:
    for players in wanted.values():
        for player, _ in players:
            player.tell(player.member.discovery_failed, ErrorCode.NETWORK_EXCEPTION)


def _errors(response: FindCoordinatorResponse | MetadataResponse) -> Iterable[int]:
    parts = response.coordinators if isinstance(response, FindCoordinatorResponse) else response.topics
    return [response.error_code, *(part.error_code for part in parts)]
