"""The clients' sides of the mechanisms: the example of RFC 7677, the servers' sides here, and servers that lie."""

from base64 import b64decode

import pytest

from fakebroker.errors import AuthenticationError
from fakebroker.security.mechanisms import SaslClient, ScramMechanism
from fakebroker.security.oauthbearer import OAuthBearerClient, OAuthBearerServer, unsecured_token
from fakebroker.security.plain import PlainClient, PlainServer
from fakebroker.security.sasl import SaslServer
from fakebroker.security.scram import ScramClient, ScramCredential, ScramServer
from tests.support.security.tokens import first_message

NOW_MS = 1_000_000_000.0
PASSWORD = "pass,word=ü"
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = "W22ZaJ0SNY7soEsUEjb6gQ=="
SERVER_FIRST = f"r={CLIENT_NONCE}{SERVER_NONCE},s={SALT},i=4096".encode()


def pencil() -> ScramClient:
    return ScramClient(ScramMechanism.SHA_256, "user", "pencil", CLIENT_NONCE)


def exchange(client: SaslClient, server: SaslServer) -> None:
    """Pass messages between both sides until the client has no further one."""
    challenge = b""
    while (message := client.respond(challenge)) is not None:
        challenge = server.respond(message)


def test_scram_sends_the_messages_of_rfc_7677() -> None:
    client = pencil()
    assert client.respond(b"") == f"n,,n=user,r={CLIENT_NONCE}".encode()
    proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert client.respond(SERVER_FIRST) == f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE},p={proof}".encode()
    assert client.respond(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


@pytest.mark.parametrize("mechanism", ScramMechanism, ids=lambda mechanism: mechanism.name)
def test_scram_with_the_server(mechanism: ScramMechanism) -> None:
    credential = ScramCredential.of_password(mechanism, PASSWORD, b64decode(SALT), 5000)
    server = ScramServer({"a,b=c": credential}.get, SERVER_NONCE)
    exchange(ScramClient(mechanism, "a,b=c", PASSWORD, CLIENT_NONCE), server)
    assert server.user == "a,b=c"
    with pytest.raises(AuthenticationError):
        exchange(
            ScramClient(mechanism, "a,b=c", "Pencil", CLIENT_NONCE),
            ScramServer({"a,b=c": credential}.get, SERVER_NONCE),
        )


@pytest.mark.parametrize(
    "first",
    [
        SERVER_FIRST.replace(b"r=rOpr", b"r=xOpr"),
        SERVER_FIRST.replace(b"i=4096", b"i=4095"),
        SERVER_FIRST.replace(b"i=4096", b"i=99999999"),
        SERVER_FIRST.replace(b"s=", b"s=!"),
        b"e=other-error",
        b"\xff",
        b"",
    ],
)
def test_scram_refuses_a_first_message_of_the_server(first: bytes) -> None:
    client = pencil()
    client.respond(b"")
    with pytest.raises(AuthenticationError):
        client.respond(first)


@pytest.mark.parametrize("final", [b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5=", b"e=x", b"\xff", b""])
def test_scram_refuses_a_server_that_does_not_know_the_password(final: bytes) -> None:
    client = pencil()
    client.respond(b"")
    client.respond(SERVER_FIRST)
    with pytest.raises(AuthenticationError, match="has not proved"):
        client.respond(final)


def test_plain_with_the_server() -> None:
    server = PlainServer(lambda user, password: (user, password) == ("alice", PASSWORD))
    exchange(PlainClient("alice", PASSWORD), server)
    assert server.user == "alice"


def test_oauthbearer_with_the_server() -> None:
    server = OAuthBearerServer(lambda: NOW_MS)
    token = unsecured_token("alice", NOW_MS, lifetime_ms=5_000)
    exchange(OAuthBearerClient(token), server)
    assert (server.user, server.expires_ms) == ("alice", NOW_MS + 5_000)
    assert OAuthBearerClient(token).respond(b"") == first_message(token)


def test_oauthbearer_gives_up_when_the_token_is_refused() -> None:
    server = OAuthBearerServer(lambda: NOW_MS)
    with pytest.raises(AuthenticationError, match="invalid_token"):
        exchange(OAuthBearerClient(unsecured_token("alice", NOW_MS - 10_000, lifetime_ms=5_000)), server)


def test_a_token_of_other_characters_is_not_sent() -> None:
    for text in ("", "a b", "a\x01auth=x"):
        with pytest.raises(AuthenticationError, match="expected a token"):
            OAuthBearerClient(text)
