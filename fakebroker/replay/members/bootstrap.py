"""The way into a cluster: reading `--bootstrap`."""

from fakebroker.client import pool

Address = pool.Address

CLIENT_ID = "fakebroker-replay"
"""What brokers are told by whoever is not a member."""


def addresses(bootstrap: str) -> list[Address]:
    """The addresses in a bootstrap string.

    Raises:
        ConfigError: It is not HOST:PORT, or several with commas.
    """
    return pool.addresses(bootstrap, "--bootstrap")
