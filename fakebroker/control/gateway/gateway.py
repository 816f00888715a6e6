"""The gateway process: authorizes HTTP requests, serves the page and the streams, and forwards all other requests.

Started by `server` with a listening socket and the link; ends when the link is closed. It has no state of clusters, so
`server` can restart it.
"""

import logging
import os
import signal
import socket
import sys

import trio
from hypercorn.config import Config

from fakebroker.control.gateway.auth import TOKEN_VARIABLE, Guard
from fakebroker.control.gateway.brokers_end import BrokersEnd
from fakebroker.control.gateway.connection import serve
from fakebroker.control.gateway.link import Link
from fakebroker.control.gateway.web import make_app

_GRACE_S = 0.5
_NICENESS = 10
"""Brokers and their clients have priority over monitoring on machines with few processors."""


async def run(listener_fd: int, link: Link, guard: Guard) -> None:
    """Serve until the link is closed."""
    async with trio.open_nursery() as nursery:
        brokers = BrokersEnd(link)
        nursery.start_soon(brokers.run)
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(socket.socket(fileno=listener_fd)))
        await nursery.start(serve, make_app(brokers, guard, nursery), _config(), listener, brokers.has_ended)
        link.put(b"+")
        await brokers.has_ended.wait()
        nursery.cancel_scope.deadline = trio.current_time() + _GRACE_S


def _config() -> Config:
    config = Config()
    config.accesslog, config.errorlog = None, logging.getLogger("fakebroker.gateway")
    config.include_server_header = False
    config.graceful_timeout = _GRACE_S
    config.keep_alive_max_requests = 2**62
    return config


def main() -> None:
    """Run the process; arguments are the file descriptors of the listening socket and of the link, and the address."""
    listener_fd, link_fd, host = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    # A keyboard interrupt is for the brokers' process, which ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The signal mask is inherited from that process, which handles blocked signals elsewhere; here they would stay
    # pending.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    os.nice(_NICENESS)
    guard = Guard(host, os.environ.get(TOKEN_VARIABLE) or None)
    trio.run(run, listener_fd, Link(socket.socket(fileno=link_fd)), guard)


if __name__ == "__main__":
    main()
