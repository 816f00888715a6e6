"""Addresses as text, such as "127.0.0.1:9092" and "[::1]:9092". Does not depend on sockets."""

import re
from ipaddress import IPv6Address

_HOST_PORT = re.compile(r"(?:\[(?P<v6>[^\[\]\s]+)\]|(?P<host>[^\[\]:\s]+)):(?P<port>[0-9]{1,5})")


def format_host_port(host: str, port: int) -> str:
    """Return host and port as text, with an IPv6 address in brackets."""
    return f"{bracketed(host)}:{port}"


def parse_host_port(text: str) -> tuple[str, int] | None:
    """Return the host, without brackets, and the port; None if the text is malformed or the port is above 65535."""
    found = _HOST_PORT.fullmatch(text)
    if found is None or int(found["port"]) > 65535:
        return None
    return found["v6"] or found["host"], int(found["port"])


def expected_host_port(text: str, usual: str) -> str:
    """Return what was expected instead of a malformed text.

    Args:
        text: The text.
        usual: What to expect unless the text looks like an IPv6 address without brackets.
    """
    is_v6 = text.count(":") > 1 and "[" not in text and "/" not in text
    return "HOST:PORT with an IPv6 address in brackets, such as [::1]:9092" if is_v6 else usual


def is_host(text: str) -> bool:
    """Whether a text can be a host in an address: a name or an IP address, IPv6 with or without brackets, no port."""
    host = unbracketed(text)
    if ":" not in host:
        return re.fullmatch(r"[^\[\]\s/]+", host) is not None
    try:
        IPv6Address(host)
    except ValueError:
        return False
    return True


def bracketed(host: str) -> str:
    """Return a host with brackets if it is an IPv6 address, as in URLs."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def unbracketed(host: str) -> str:
    """Return a host without the brackets of an IPv6 address."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host
