"""The echo of `echo.c` in Python: the floor of a server in Python that calls `recv` and `send` for each ready socket.

    python -m tests.bench.python_echo RESPONSES

For requests that arrive as a whole, one or several at a time, as those of heartbeats do. Ends when it is killed.
"""

import select
import socket
import struct
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

API_KEY_AT, ID_AT, ID_END, RESPONSE_ID_AT = 5, 8, 12, 4  # API keys are less than 256: the second of two bytes.
MAX_BYTES = 65536


def read_responses(path: Path) -> dict[int, bytearray]:
    """Read the file that `plan.write_responses` writes."""
    data = path.read_bytes()
    (count,), position = struct.unpack_from("=i", data), 4
    responses = {}
    for _ in range(count):
        api_key, size = struct.unpack_from("=ii", data, position)
        position += 8 + size
        responses[api_key] = bytearray(data[position - size : position])
    return responses


def answer(
    receive: Callable[[int], bytes], send: Callable[[bytearray], int], responses: Mapping[int, bytearray]
) -> bool:
    """Answer what has arrived; return False if the connection is closed."""
    data = receive(MAX_BYTES)
    if not data:
        return False
    size = int.from_bytes(data[:4]) + 4
    if size == len(data):  # As in fakebroker, the common case is one request.
        response = responses[data[API_KEY_AT]]
        response[RESPONSE_ID_AT : RESPONSE_ID_AT + 4] = data[ID_AT:ID_END]
        send(response)
        return True
    out, position = bytearray(), 0
    while position < len(data):
        response = responses[data[position + API_KEY_AT]]
        response[RESPONSE_ID_AT : RESPONSE_ID_AT + 4] = data[position + ID_AT : position + ID_END]
        out += response
        position += int.from_bytes(data[position : position + 4]) + 4
    assert position == len(data), "a request has not arrived as a whole"
    send(out)
    return True


def main(path: str) -> None:
    responses = read_responses(Path(path))
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(f"echo=127.0.0.1:{listener.getsockname()[1]}", flush=True)
    poller = select.epoll()
    poller.register(listener, select.EPOLLIN)
    connections = {}
    while True:
        for fd, _ in poller.poll():
            if fd == listener.fileno():
                sock, _ = listener.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connections[sock.fileno()] = sock, sock.recv, sock.send
                poller.register(sock, select.EPOLLIN)
            else:
                sock, receive, send = connections[fd]
                if not answer(receive, send, responses):
                    poller.unregister(sock)
                    sock.close()


if __name__ == "__main__":
    main(sys.argv[1])
