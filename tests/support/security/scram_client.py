"""The client's side of SCRAM, by RFC 5802."""

import hashlib
import hmac
from base64 import b64decode, b64encode

from fakebroker.security.mechanisms import ScramMechanism


def client_final(mechanism: ScramMechanism, password: str, bare: str, server_first: str) -> tuple[bytes, bytes]:
    """Return the client's last message, and the server's answer to it.

    Args:
        mechanism: The mechanism.
        password: The password.
        bare: The client's first message, without its header.
        server_first: The server's first message.
    """
    nonce, salt, iterations = (part[2:] for part in server_first.split(","))
    digest = {ScramMechanism.SHA_256: "sha256", ScramMechanism.SHA_512: "sha512"}[mechanism]
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), b64decode(salt), int(iterations))
    client_key = hmac.digest(salted, b"Client Key", digest)
    signed = f"{bare},{server_first},c=biws,r={nonce}".encode()
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
    proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
    server_signature = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
    return f"c=biws,r={nonce},p={b64encode(proof).decode()}".encode(), b"v=" + b64encode(server_signature)
