"""The authentication of a connection: frames of any bytes, before and between requests."""

from collections.abc import Iterator
from itertools import count

from fakebroker.cluster import handlers
from fakebroker.cluster.authentication import Authentication
from fakebroker.cluster.call import Peer, read_call
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.configs.listener_settings import SASL_MECHANISMS
from fakebroker.cluster.configs.settings import Config
from fakebroker.cluster.emulation import emulated_releases
from fakebroker.cluster.journal.journal import Journal
from fakebroker.cluster.listeners import Listener
from fakebroker.errors import ProtocolError
from fakebroker.protocol.frames import read_response, request_frame
from fakebroker.protocol.messages.api_versions import ApiVersionsRequest
from fakebroker.protocol.messages.metadata import MetadataRequest
from fakebroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from fakebroker.protocol.messages.sasl_handshake import SaslHandshakeRequest
from fakebroker.protocol.schema import Message
from fakebroker.security.credentials import Credentials
from fakebroker.security.mechanisms import ScramMechanism
from tests.support.cluster.cluster_harness import START_MS
from tests.support.security.scram_client import client_final
from tests.support.security.tokens import first_message, token

LISTENER = Listener("SASL_PLAINTEXT", "SASL_PLAINTEXT")

USER, PASSWORD = "alice", "secret of alice"
"""The only user."""

_SIZE_BYTES, _VERSION = 2, 2
_STEP_MS = 2_000.0
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_THENS = {"continue", "authenticated", "handle", "fail", "close"}


def _new_cluster() -> Cluster:
    ids = count(1)
    return Cluster(
        releases=emulated_releases(1, None, {}, ()),
        topics={},
        config=Config({SASL_MECHANISMS: ",".join(_MECHANISMS), "connections.max.reauth.ms": 60_000}),
        new_id=lambda: next(ids).to_bytes(16, "big"),
        random=lambda: 0.0,
        journal=Journal(),
        now_ms=START_MS,
        handlers=handlers.BY_NAME,
        listeners=(LISTENER,),
        credentials=Credentials({USER: PASSWORD}),
    )


def run(data: bytes) -> None:
    """Send frames on one connection; two seconds pass before each of them.

    Nothing but a known user or a token authenticates. Nothing is handled before.

    Args:
        data: Frames, each after its size as a big-endian uint16.
    """
    cluster = _new_cluster()
    peer = Peer(cluster.brokers[1], "127.0.0.1", 1, LISTENER)
    authentication, now_ms, position = Authentication(cluster, peer), START_MS, 0
    while position < len(data):
        end = position + _SIZE_BYTES + int.from_bytes(data[position : position + _SIZE_BYTES], "big")
        frame, position = data[position + _SIZE_BYTES : end], end
        now_ms += _STEP_MS
        was_complete = authentication.is_complete
        answer = authentication.receive(frame, now_ms)
        assert answer.then in _THENS
        assert PASSWORD not in answer.why
        if answer.then in ("fail", "close"):
            return
        if answer.then == "handle":
            assert was_complete
            try:
                cluster.requests.handle(read_call(peer, frame), now_ms)
            except ProtocolError:
                return
        elif answer.then == "authenticated":
            is_token = b"auth=Bearer " in data
            assert is_token or peer.principal == f"User:{USER}", f"{peer.principal} is authenticated"
            assert authentication.expires_ms is not None


class _Conversation:
    """Frames of one connection, for seeds: `frames` with their sizes."""

    def __init__(self) -> None:
        self.frames = bytearray()
        cluster = _new_cluster()
        self._authentication = Authentication(cluster, Peer(cluster.brokers[1], "127.0.0.1", 1, LISTENER))
        self._now_ms = START_MS

    def send(self, request: Message, version: int) -> bytes:
        """Send a request and return the frame of the answer; empty if there is none."""
        return self.send_frame(request_frame(request, version, 1, "client")[4:])

    def send_frame(self, frame: bytes) -> bytes:
        """Send bytes, and return the frame of the answer without its size."""
        self.frames += len(frame).to_bytes(_SIZE_BYTES, "big") + frame
        self._now_ms += _STEP_MS
        answer = self._authentication.receive(frame, self._now_ms)
        return bytes(answer.frame or b"")[4:]

    def authenticate(self, token: bytes) -> bytes:
        """Send the bytes of a mechanism, and return the answer's."""
        frame = self.send(SaslAuthenticateRequest(auth_bytes=token), _VERSION)
        return read_response(SaslAuthenticateResponse, _VERSION, frame)[1].auth_bytes

    def log_in(self, mechanism: str) -> None:
        """Authenticate with a mechanism."""
        self.send(SaslHandshakeRequest(mechanism=mechanism), 1)
        if mechanism == "PLAIN":
            self.authenticate(f"\0{USER}\0{PASSWORD}".encode())
        elif mechanism == "OAUTHBEARER":
            self.authenticate(first_message(token({"sub": "bob", "iat": START_MS / 1000, "exp": START_MS / 1000 + 30})))
        else:
            bare = f"n={USER},r=abc"
            first = self.authenticate(f"n,,{bare}".encode()).decode()
            scram = next(each for each in ScramMechanism if each.sasl_name == mechanism)
            self.authenticate(client_final(scram, PASSWORD, bare, first)[0])
        assert self._authentication.is_complete, mechanism


def seeds() -> Iterator[bytes]:
    """Yield a login by each mechanism, with a request and a second login after it, and one without headers."""
    for mechanism in _MECHANISMS:
        talk = _Conversation()
        talk.send(ApiVersionsRequest(), 0)
        talk.log_in(mechanism)
        talk.send(MetadataRequest(topics=[]), 1)
        talk.log_in(mechanism)
        yield bytes(talk.frames)
    raw = _Conversation()
    raw.send(SaslHandshakeRequest(mechanism="PLAIN"), 0)
    raw.send_frame(f"\0{USER}\0{PASSWORD}".encode())
    yield bytes(raw.frames)
