"""Live numbers that tasks of Spark send to the driver, as UDP datagrams. Their type is a dataclass, such as `Tally`.

Datagrams may be lost: the numbers are for display only.
"""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

_CHECK_EVERY_S = 0.1
"""Interval at which the receiver checks `stopped`."""

_STOP = b"stop"
"""The driver's reply to a report, to end the task."""


@dataclass(slots=True)
class Tally:
    """The numbers of one task, or the sum of several tasks.

    Attributes:
        requests: Requests so far.
        joined: Members that have joined their group and not left it.
        errors: Failed requests: responses with an error other than `ORDINARY_ERRORS`, and requests without a response.
        elapsed_ms: Time since the start of the replay by the members' clock; the maximum of several tasks.
        lived_ms: In memory, where members are simulated in turn, the sum of the members' simulated times; else 0.
    """

    requests: int = 0
    joined: int = 0
    errors: int = 0
    elapsed_ms: int = 0
    lived_ms: int = 0


def _family_of(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


class Sender:
    """The task's side: sends tallies, and receives the request to stop.

    Args:
        address: Host and port of the receiver.
        task: Number of the task.
    """

    def __init__(self, address: tuple[str, int], task: int) -> None:
        self._socket = socket.socket(_family_of(address[0]), socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._address = address
        self._task = task

    def send(self, tally: "DataclassInstance") -> None:
        """Send a tally, which replaces the previous tally of this task."""
        try:
            self._socket.sendto(json.dumps([self._task, asdict(tally)]).encode(), self._address)
        except OSError:
            return  # the next tally replaces this one

    def stop_requested(self) -> bool:
        """Return whether the driver has requested the task to end early."""
        try:
            return self._socket.recv(len(_STOP)) == _STOP
        except OSError:
            return False  # no datagram, or no receiver

    def close(self) -> None:
        self._socket.close()


class Receiver(Generic[T]):
    """The driver's side: keeps the last tally of each task.

    After `stop_tasks` it answers each report with the request to stop, because any datagram may be lost.

    Args:
        udp: A bound socket.
        kind: The type of tallies.

    Attributes:
        port: The socket's port.
        stopped: Set it to end `listen`.
    """

    def __init__(self, udp: socket.socket, kind: type[T]) -> None:
        udp.settimeout(_CHECK_EVERY_S)
        self._kind = kind
        self.port: int = udp.getsockname()[1]
        self.stopped = False
        self._socket = udp
        self._tallies: dict[int, T] = {}
        self._tasks_are_to_stop = False

    def total(self) -> T:
        """Return the sums of the last tallies; of `elapsed_ms` the maximum."""
        tallies = list(self._tallies.values())
        total: dict[str, Any] = {
            field.name: sum(getattr(tally, field.name) for tally in tallies) for field in fields(self._kind)
        }
        if "elapsed_ms" in total:
            total["elapsed_ms"] = max((getattr(tally, "elapsed_ms", 0) for tally in tallies), default=0)
        return self._kind(**total)

    def stop_tasks(self) -> None:
        """Request all tasks to end early, at their next reports."""
        self._tasks_are_to_stop = True

    def listen(self) -> None:
        """Receive tallies until `stopped` is set."""
        while not self.stopped:
            try:
                datagram, sender = self._socket.recvfrom(1024)
            except TimeoutError:
                continue
            self.take(datagram)
            if self._tasks_are_to_stop:
                self._socket.sendto(_STOP, sender)

    def take(self, datagram: bytes) -> None:
        """Store the tally of a datagram; ignore invalid datagrams."""
        try:
            task, tally = json.loads(datagram)
            self._tallies[int(task)] = self._kind(**tally)
        except (ValueError, TypeError):
            return


@contextmanager
def receiving(host: str, kind: type[T]) -> Iterator[Receiver[T]]:
    """Receive tallies in another thread within the context.

    Args:
        host: Address to bind to.
        kind: The type of tallies.
    """
    with socket.socket(_family_of(host), socket.SOCK_DGRAM) as udp:
        udp.bind((host, 0))
        receiver = Receiver(udp, kind)
        thread = threading.Thread(target=receiver.listen, name="replay progress", daemon=True)
        thread.start()
        try:
            yield receiver
        finally:
            receiver.stopped = True
            thread.join()
