"""One client connection: its socket, the frames it has sent, the answer it is owed, the bytes it has not read yet."""

import socket
from collections import deque
from enum import Enum, auto

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.call import Call, Peer
from fakebroker.protocol.frames import FrameBuffer


class Hold(Enum):
    """Why a connection that is owed no answer has to wait all the same."""

    NOT_TAKEN_UP = auto()
    HALF_OPEN = auto()
    THROTTLED = auto()
    HANGING_UP = auto()


class Connection(Peer):
    """One client connection.

    Attributes:
        frames: Cuts what arrives into frames.
        waiting: Frames that wait for the answer to an earlier one: Kafka answers a connection strictly in order.
        owed: The call that is not answered yet, or why the connection has to wait without one.
        unsent: Bytes of answers that the socket did not take yet.
        is_dirty: Whether it stands in the reactor's list of connections with something new to send.
        is_resumable: Whether it stands in the reactor's list of connections with frames to take up.
        is_closed: Whether it is over.
        interest: What the poller is asked to tell of it.
    """

    __slots__ = ("frames", "interest", "is_closed", "is_dirty", "is_resumable", "owed", "socket", "unsent", "waiting")

    def __init__(self, sock: socket.socket, broker: BrokerNode, connection_id: int, max_request_bytes: int) -> None:
        host = sock.getpeername()[0]
        super().__init__(broker, f"/{host}", connection_id)
        self.socket = sock
        self.frames = FrameBuffer(max_request_bytes)
        self.waiting: deque[bytes] = deque()
        self.owed: Call | Hold | None = None
        self.unsent = bytearray()
        self.is_dirty = False
        self.is_resumable = False
        self.is_closed = False
        self.interest = 0

    def __repr__(self) -> str:
        return f"connection {self.connection_id} from {self.client_host[1:]} to broker {self.broker.node_id}"
