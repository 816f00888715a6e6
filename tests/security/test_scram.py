"""SCRAM: the example of RFC 7677, and what is refused."""

import hashlib
import hmac
from base64 import b64decode, b64encode

import pytest

from fakebroker.errors import AuthenticationError
from fakebroker.security.mechanisms import ScramMechanism
from fakebroker.security.scram import ScramCredential, ScramServer
from tests.support.security.scram_client import client_final

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512

CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = "W22ZaJ0SNY7soEsUEjb6gQ=="
PENCIL = ScramCredential.of_password(SHA_256, "pencil", b64decode(SALT))


def server(credential: ScramCredential = PENCIL, user: str = "user") -> ScramServer:
    return ScramServer({user: credential}.get, SERVER_NONCE)


def test_the_example_of_rfc_7677() -> None:
    exchange = server()
    first = exchange.respond(f"n,,n=user,r={CLIENT_NONCE}".encode())
    assert first.decode() == f"r={CLIENT_NONCE}{SERVER_NONCE},s={SALT},i=4096"
    assert exchange.user is None
    proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    final = exchange.respond(f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE},p={proof}".encode())
    assert final.decode() == "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert exchange.user == "user"


@pytest.mark.parametrize("mechanism", ScramMechanism, ids=lambda mechanism: mechanism.name)
def test_a_client_and_the_server_prove_that_they_know_the_password(mechanism: ScramMechanism) -> None:
    credential = ScramCredential.of_password(mechanism, "pass,word=ü", b"salt", 5000)
    exchange = server(credential, "a,b=c")
    bare = "n=a=2Cb=3Dc,r=abc,ext=x"
    first = exchange.respond(f"n,a=a=2Cb=3Dc,{bare}".encode())
    message, signature = client_final(mechanism, "pass,word=ü", bare, first.decode())
    assert exchange.respond(message) == signature
    assert exchange.user == "a,b=c"


@pytest.mark.parametrize(
    "first",
    [
        "n,,n=nobody,r=abc",
        "n,a=nobody,n=nobody,r=abc",
        "n,,n=user,r=abc,tokenauth=true",
        "y,,n=user,r=abc",
        "p=tls-unique,,n=user,r=abc",
        "n,,n=us=er,r=abc",
        "n,,n=user,r=",
        "n,,n=,r=abc",
        "n,,n=user,r=abc,",
        "n,,r=abc,n=user",
        "n=user,r=abc",
        "\xff\0",
        "",
    ],
)
def test_a_first_message_is_refused_without_a_reason(first: str) -> None:
    with pytest.raises(AuthenticationError) as refused:
        server().respond(first.encode())
    assert not str(refused.value)


def test_another_authorization_id_is_refused_with_a_reason() -> None:
    with pytest.raises(AuthenticationError, match="authorization id"):
        server().respond(b"n,a=other,n=user,r=abc")


def test_a_final_message_is_refused() -> None:
    bare = f"n=user,r={CLIENT_NONCE}"
    first = server().respond(f"n,,{bare}".encode()).decode()
    good, _ = client_final(SHA_256, "pencil", bare, first)
    wrong, _ = client_final(SHA_256, "Pencil", bare, first)
    nonce = f"{CLIENT_NONCE}{SERVER_NONCE}".encode()
    foreign = good.replace(nonce, b"foreign")
    short = good.partition(b",p=")[0] + b",p=" + b64encode(b"short")
    for message in (wrong, foreign, short, good + b"=", b"", good.replace(b"c=biws", b"c=biws,m=1")):
        exchange = server()
        exchange.respond(f"n,,{bare}".encode())
        with pytest.raises(AuthenticationError) as refused:
            exchange.respond(message)
        assert not str(refused.value)
        assert exchange.user is None


def test_a_proof_for_another_nonce_is_refused() -> None:
    exchange, bare, without_proof = server(), "n=user,r=abc", "c=biws,r=foreign"
    first = exchange.respond(f"n,,{bare}".encode()).decode()
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", b64decode(SALT), 4096)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(PENCIL.stored_key, f"{bare},{first},{without_proof}".encode(), "sha256")
    proof = b64encode(bytes(left ^ right for left, right in zip(client_key, signature, strict=True))).decode()
    with pytest.raises(AuthenticationError):
        exchange.respond(f"{without_proof},p={proof}".encode())


def test_a_credential_has_the_keys_of_rfc_5802() -> None:
    salted = hashlib.pbkdf2_hmac("sha512", b"pencil", b"salt", 4096)
    credential = ScramCredential.of_password(SHA_512, "pencil", b"salt")
    assert credential.stored_key == hashlib.sha512(hmac.digest(salted, b"Client Key", "sha512")).digest()
    assert credential.server_key == hmac.digest(salted, b"Server Key", "sha512")
