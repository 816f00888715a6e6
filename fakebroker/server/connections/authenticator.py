"""Authentication of connections: passes the clients' frames to it, and sends or delays the responses.

`fakebroker.cluster.authentication` contains the states and the mechanisms.
"""

import logging
from typing import Protocol

from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.configs.listener_settings import AUTHENTICATION_DELAY, SASL_MAX_BYTES
from fakebroker.cluster.configs.settings import MAX_REQUEST_BYTES
from fakebroker.server.connections.connection import Connection

logger = logging.getLogger("fakebroker")


class Sender(Protocol):
    """What an authentication does to a connection; the reactor. Times are real time in milliseconds."""

    def send_answer(self, connection: Connection, answer: bytearray, wire_ms: float) -> None:
        """Send the answer to a message of an authentication."""
        ...

    def hang_up(self, connection: Connection, answer: bytearray, due_ms: float, why: str) -> None:
        """Send a last answer and close a connection at a time, without reading from it."""
        ...

    def close(self, connection: Connection, why: str | None = None) -> None:
        """Close a connection at once."""
        ...


class Authenticator:
    """Authenticates the clients of one cluster.

    Args:
        cluster: The cluster.
        sender: Sends the answers, and closes connections.
    """

    def __init__(self, cluster: Cluster, sender: Sender) -> None:
        self._cluster = cluster
        self._sender = sender

    def require(self, connection: Connection) -> None:
        """Require that the client of a new connection authenticates before its requests are handled."""
        from fakebroker.cluster.authentication import Authentication  # few clusters need it

        connection.authentication = Authentication(self._cluster, connection)
        connection.frames.max_bytes = self._max_bytes(connection, is_authenticated=False)

    def refuse_frame(self, connection: Connection, why: str, wire_ms: float) -> None:
        """Close a connection that has sent a frame of a size that is not allowed; before authentication, later."""
        if connection.authentication is None or connection.authentication.is_complete:
            self._sender.close(connection, why)
        else:
            self._fail(connection, bytearray(), why, wire_ms)

    def receive(self, connection: Connection, frame: bytes, now_ms: float, wire_ms: float) -> bool:
        """Answer a frame that is part of an authentication. Return False if it is a request that has to be handled."""
        authentication = connection.authentication
        assert authentication is not None
        try:
            answer, then, why = authentication.receive(frame, now_ms)
        except Exception:  # A bug closes only this connection.
            logger.exception("%r: authentication failed", connection)
            self._sender.close(connection, "internal error (see the traceback above)")
            return True
        if then == "handle":
            return False
        if then == "close":
            self._sender.close(connection, why)
        elif then == "fail":
            self._fail(connection, answer or bytearray(), why, wire_ms)
        else:
            self._set_authenticated(connection, then == "authenticated")
            if answer is not None:
                self._sender.send_answer(connection, answer, wire_ms)
        return True

    def _set_authenticated(self, connection: Connection, is_authenticated: bool) -> None:
        """Limit frames, unless the client is authenticated. Afterwards its frames are examined only in a session."""
        connection.frames.max_bytes = self._max_bytes(connection, is_authenticated=is_authenticated)
        authentication = connection.authentication
        if is_authenticated and authentication is not None and authentication.expires_ms is None:
            connection.authentication = None

    def _max_bytes(self, connection: Connection, *, is_authenticated: bool) -> int:
        config = self._cluster.config
        if is_authenticated:
            return config.number(MAX_REQUEST_BYTES)
        return config.of_listener(connection.listener.name).number(SASL_MAX_BYTES)

    def _fail(self, connection: Connection, answer: bytearray, why: str, wire_ms: float) -> None:
        logger.info("%r: %s", connection, why)  # At level info, as in Kafka: the client gets the error.
        due_ms = wire_ms + self._cluster.config.number(AUTHENTICATION_DELAY)
        self._sender.hang_up(connection, answer, due_ms, why)
