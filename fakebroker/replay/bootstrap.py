"""The way into a cluster: reading `--bootstrap`, and a connection to the first of its brokers that answers."""

from collections.abc import Sequence

import trio

from fakebroker.client import pool
from fakebroker.client.connection import BrokerUnreachable, Connection

Address = pool.Address

CLIENT_ID = "fakebroker-replay"
"""What brokers are told by whoever is not a member."""


def addresses(bootstrap: str) -> list[Address]:
    """The addresses in a bootstrap string.

    Raises:
        ConfigError: It is not HOST:PORT, or several with commas.
    """
    return pool.addresses(bootstrap, "--bootstrap")


async def connect(brokers: Sequence[Address], nursery: trio.Nursery) -> tuple[Connection, Address]:
    """A connection to the first broker that can be reached, and which one that is.

    Raises:
        BrokerUnreachable: None can; it tells of the last.
    """
    *others, last = brokers
    for host, port in others:
        try:
            return await Connection.open(host, port, CLIENT_ID, nursery), (host, port)
        except BrokerUnreachable:
            continue
    return await Connection.open(*last, CLIENT_ID, nursery), last
