"""A TCP listener with a handler of its own instead of a broker, for tests of clients."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fakebroker.protocol.frames import response_frame
from fakebroker.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from fakebroker.protocol.registry import APIS

_TIMEOUT_S = 20.0


@contextmanager
def listener(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """Listen on a free port, and yield the address. A thread calls `serve` for each connection, one after the other.

    The connection is closed when `serve` returns. The thread ends with the context, once the last `serve` has returned.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    peer, _ = server.accept()
                except OSError:
                    return
                with peer:
                    peer.settimeout(_TIMEOUT_S)
                    serve(peer)

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def answer_api_versions(peer: socket.socket) -> None:
    """Answer the first request, an ApiVersions, as a broker does. Read the second request without an answer."""
    request = peer.recv(4096)
    supported = [
        ApiVersion(api_key=api.key, min_version=api.versions.first, max_version=api.versions.last) for api in APIS
    ]
    versions = ApiVersionsResponse(error_code=0, api_keys=supported)
    peer.sendall(response_frame(versions, int.from_bytes(request[6:8], "big"), int.from_bytes(request[8:12], "big")))
    peer.recv(4096)
