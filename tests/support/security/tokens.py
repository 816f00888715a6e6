"""Unsecured tokens, and the client's first message of OAUTHBEARER."""

import json
from base64 import urlsafe_b64encode
from typing import Any


def token(claims: Any, alg: str = "none") -> str:
    """Return an unsecured JWS with these claims."""
    parts = (urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({"alg": alg}, claims))
    return ".".join((*parts, ""))


def first_message(text: str, authorization_id: str = "", **extensions: str) -> bytes:
    """Return the client's first message with a token."""
    name = f"a={authorization_id}" if authorization_id else ""
    pairs = "".join(f"{key}={value}\x01" for key, value in extensions.items())
    return f"n,{name},\x01auth=Bearer {text}\x01{pairs}\x01".encode()
