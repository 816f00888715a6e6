"""How a replay reaches a cluster: the option `--bootstrap`, and the client id of requests that no member sends."""

from fakebroker.client import transport

CLIENT_ID = "fakebroker-replay"
"""`client.id` of requests that no member sends."""


def addresses(bootstrap: str) -> list[transport.Address]:
    """Parse the option `--bootstrap`.

    Raises:
        ConfigError: It is not HOST:PORT, or several with commas.
    """
    return transport.addresses(bootstrap, "--bootstrap")
