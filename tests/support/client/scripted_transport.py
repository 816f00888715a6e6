"""A transport without sockets: tests open and lose its connections, and answer the requests that were sent."""

from dataclasses import dataclass, field
from typing import Any

from fakebroker.client.transport import Address, ConnectionUser
from fakebroker.client.versions import NegotiatedVersions, convert_request
from fakebroker.protocol.registry import API_BY_KEY
from fakebroker.protocol.schema import Message, Versions


def versions(**last: int) -> NegotiatedVersions:
    """Return the versions of a broker: those of this client, but at most the given ones, by the name of the API."""
    theirs = {
        api.key: Versions(api.versions.first, min(api.versions.last, last.get(api.name, api.versions.last)))
        for api in API_BY_KEY.values()
    }
    return NegotiatedVersions(theirs, "broker of the test")


@dataclass(eq=False)
class ScriptedConnection:
    """A connection of `ScriptedTransport`.

    Attributes:
        sent: Requests that were sent and not answered, as the broker receives them.
    """

    address: Address
    users: dict[ConnectionUser, None]
    versions: NegotiatedVersions | None = None
    is_closed: bool = False
    is_refused: bool = False
    sent: list[Message] = field(default_factory=list)

    @property
    def user(self) -> ConnectionUser:
        (user,) = self.users
        return user

    def open(self, theirs: NegotiatedVersions | None = None) -> None:
        self.versions = versions() if theirs is None else theirs
        self.user.opened(self)

    def answer(self, response: Message) -> Message:
        """Answer the oldest request; return it."""
        request = self.sent.pop(0)
        self.user.answered(self, response)
        return request

    def lose(self, why: str = "gone", *, is_refused: bool = False) -> None:
        self.is_closed, self.is_refused = True, is_refused
        self.user.lost(self, why)


class ScriptedTransport:
    """A `Transport`.

    Attributes:
        now_ms: The time.
        connections: All connections, oldest first.
        is_late: Whether `fail` notifies users later, with `notify`, as a transport over sockets does.
    """

    def __init__(self, *, is_late: bool = False) -> None:
        self.now_ms = 0.0
        self.connections: list[ScriptedConnection] = []
        self.is_late = is_late
        self._failed: list[tuple[ScriptedConnection, str]] = []

    def connect(self, address: Address, user: ConnectionUser, *, is_shared: bool = False) -> ScriptedConnection:
        self.connections.append(ScriptedConnection(address, {user: None}))
        return self.connections[-1]

    def send(
        self, connection: Any, request: Message, version: int, client_id: str, user: ConnectionUser, cache: Any = None
    ) -> None:
        connection.sent.append(convert_request(request, version))

    def fail(self, connection: Any, why: str) -> None:
        connection.is_closed = True
        self._failed.append((connection, why))
        if not self.is_late:
            self.notify()

    def notify(self) -> None:
        """Notify the users of connections that have failed."""
        failed, self._failed = self._failed, []
        for connection, why in failed:
            connection.user.lost(connection, why)

    def release(self, connection: Any, user: ConnectionUser) -> None:
        connection.is_closed = True
        connection.users.pop(user)
