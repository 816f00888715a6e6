"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): credentials, and both sides of an exchange.

Follows Kafka's `ScramSaslServer`, `ScramSaslClient`, `ScramMessages` and `ScramFormatter`. Nonces and salts are passed
in.
"""

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from functools import lru_cache

from fakebroker.errors import AuthenticationError
from fakebroker.security.mechanisms import MIN_ITERATIONS, USER_NAME, ScramMechanism, escaped, unescaped
from fakebroker.utf8 import decode_utf8

_VALUE = r"[\x01-\x2b\x2d-\x7f]+"  # without ","
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = "(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS = f"(?:,[A-Za-z]+={_VALUE})*"
_CLIENT_FIRST = re.compile(
    f"n,(?:a=(?P<authzid>{USER_NAME}))?,(?P<bare>(?:m={_VALUE},)?n=(?P<name>{USER_NAME}),r=(?P<nonce>{_NONCE})"
    f"(?P<extensions>{_EXTENSIONS}))",
    re.DOTALL,
)
_CLIENT_FINAL = re.compile(
    f"(?P<without_proof>c={_BASE64},r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})", re.DOTALL
)
_SERVER_FIRST = re.compile(
    f"r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,7}}){_EXTENSIONS}", re.DOTALL
)
_TOKEN_AUTH = re.compile(r",tokenauth=true(?:,|$)", re.IGNORECASE)
"""The extension with which a client names a delegation token instead of a user."""


class ScramCredential:
    """What a broker stores instead of a password.

    Attributes:
        mechanism: The mechanism.
        salt: The salt.
        iterations: The iterations of PBKDF2.
        stored_key, server_key: The keys of RFC 5802, section 3.
    """

    __slots__ = ("iterations", "mechanism", "salt", "server_key", "stored_key")

    def __init__(self, mechanism: ScramMechanism, salt: bytes, iterations: int, salted_password: bytes) -> None:
        self.mechanism, self.salt, self.iterations = mechanism, salt, iterations
        client_key = hmac.digest(salted_password, b"Client Key", mechanism.digest)
        self.stored_key = hashlib.new(mechanism.digest, client_key).digest()
        self.server_key = hmac.digest(salted_password, b"Server Key", mechanism.digest)

    @classmethod
    def of_keys(
        cls, mechanism: ScramMechanism, salt: bytes, iterations: int, stored_key: bytes, server_key: bytes
    ) -> "ScramCredential":
        """Return a credential that was stored."""
        credential = cls.__new__(cls)
        credential.mechanism, credential.salt, credential.iterations = mechanism, salt, iterations
        credential.stored_key, credential.server_key = stored_key, server_key
        return credential

    @classmethod
    def of_password(
        cls, mechanism: ScramMechanism, password: str, salt: bytes, iterations: int = MIN_ITERATIONS
    ) -> "ScramCredential":
        """Derive the credential of a password."""
        salted = hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)
        return cls(mechanism, salt, iterations, salted)


class ScramServer:
    """The server's side of one exchange.

    Args:
        find: Returns the credential of a user; None if there is none.
        nonce: The server's part of the nonce, printable and without commas.

    Attributes:
        user: The authenticated user; None until the exchange is complete.
        expires_ms: When the credential expires: never.
    """

    expires_ms: float | None = None

    def __init__(self, find: Callable[[str], ScramCredential | None], nonce: str) -> None:
        self.user: str | None = None
        self._find, self._nonce = find, nonce
        self._name = ""
        self._credential: ScramCredential | None = None
        self._messages = ""

    def respond(self, token: bytes) -> bytes:
        """Return the answer to a client's message.

        Raises:
            AuthenticationError: It is refused.
        """
        text = decode_utf8(token)
        return (self._first(text) if self._credential is None else self._final(text, self._credential)).encode()

    def _first(self, text: str) -> str:
        found = _CLIENT_FIRST.fullmatch(text)
        if found is None:
            raise AuthenticationError
        self._name = unescaped(found["name"])
        # There are no delegation tokens, so that each is unknown, as an unknown user is.
        credential = None if _TOKEN_AUTH.search(found["extensions"]) else self._find(self._name)
        if credential is None:
            raise AuthenticationError
        if found["authzid"] is not None and unescaped(found["authzid"]) != self._name:
            raise AuthenticationError("SCRAM: expected an authorization id that is empty or the user")
        self._credential = credential
        self._nonce = found["nonce"] + self._nonce
        answer = f"r={self._nonce},s={b64encode(credential.salt).decode()},i={credential.iterations}"
        self._messages = f"{found['bare']},{answer}"
        return answer

    def _final(self, text: str, credential: ScramCredential) -> str:
        found = _CLIENT_FINAL.fullmatch(text)
        if found is None or found["nonce"] != self._nonce:
            raise AuthenticationError
        signed = f"{self._messages},{found['without_proof']}".encode()
        digest = credential.mechanism.digest
        signature = hmac.digest(credential.stored_key, signed, digest)
        proof = b64decode(found["proof"])
        if len(proof) != len(signature):
            raise AuthenticationError
        client_key = bytes(left ^ right for left, right in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(digest, client_key).digest(), credential.stored_key):
            raise AuthenticationError
        self.user = self._name
        return f"v={b64encode(hmac.digest(credential.server_key, signed, digest)).decode()}"


class ScramClient:
    """The client's side of one exchange; a `SaslClient`.

    Args:
        mechanism: The mechanism.
        user: The user.
        password: The password.
        nonce: The client's part of the nonce, printable and without commas.
    """

    def __init__(self, mechanism: ScramMechanism, user: str, password: str, nonce: str) -> None:
        self._mechanism, self._password, self._nonce = mechanism, password, nonce
        self._first = f"n={escaped(user)},r={nonce}"
        self._is_started = False
        self._proof_of_server: str | None = None

    def respond(self, challenge: bytes) -> bytes | None:
        """Return the next message; None if the server has proved that it knows the password."""
        if not self._is_started:
            self._is_started = True
            return f"n,,{self._first}".encode()
        text = challenge.decode(errors="replace")
        if self._proof_of_server is None:
            return self._final(text).encode()
        if not hmac.compare_digest(text.encode(), self._proof_of_server.encode()):
            raise AuthenticationError("the server has not proved that it knows the password")
        return None

    def _final(self, text: str) -> str:
        found = _SERVER_FIRST.fullmatch(text)
        if found is None or not found["nonce"].startswith(self._nonce):
            raise AuthenticationError("the server's first message of SCRAM is malformed, or has another nonce")
        iterations, digest = int(found["iterations"]), self._mechanism.digest
        if iterations < MIN_ITERATIONS:
            raise AuthenticationError(f"iterations={iterations}: expected {MIN_ITERATIONS} or more from the server")
        salted = _salted_password(digest, self._password, b64decode(found["salt"]), iterations)
        credential = ScramCredential(self._mechanism, b"", iterations, salted)
        without_proof = f"c=biws,r={found['nonce']}"
        signed = f"{self._first},{text},{without_proof}".encode()
        signature = hmac.digest(credential.stored_key, signed, digest)
        client_key = hmac.digest(salted, b"Client Key", digest)
        proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
        self._proof_of_server = f"v={b64encode(hmac.digest(credential.server_key, signed, digest)).decode()}"
        return f"{without_proof},p={b64encode(proof).decode()}"


@lru_cache(maxsize=8)
def _salted_password(digest: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Return a salted password. Kept, since it takes milliseconds, and clients make many connections."""
    return hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
