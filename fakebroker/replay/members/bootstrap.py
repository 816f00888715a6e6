"""The option `--bootstrap`, and the client id of requests that are not sent for a member."""

from fakebroker.client import transport

CLIENT_ID = "fakebroker-replay"
"""`client.id` of look-ups and loads. Requests of members have the member's name."""


def addresses(bootstrap: str) -> list[transport.Address]:
    """Return the addresses in a value of `--bootstrap`.

    Raises:
        ConfigError: The value is not a comma-separated list of HOST:PORT.
    """
    return transport.addresses(bootstrap, "--bootstrap")
