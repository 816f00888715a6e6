"""Live numbers from the tasks to the driver, in small UDP datagrams, any of which may be lost.

The summary does not depend on them.
"""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields

_LOOK_UP_EVERY_S = 0.1
"""How often the receiver checks whether it is to stop."""

_STOP = b"stop"


@dataclass(slots=True)
class Tally:
    """The numbers of one task so far; those of several tasks add up.

    Attributes:
        joined: Members that are part of their group now.
        errors: Answers with an error outside the ordinary ones, and requests without an answer.
        elapsed_ms: Since the start of the replay; of several tasks the largest counts.
        lived_ms: In memory, where members are played in turn: the elapsed time of each member, added up.
    """

    requests: int = 0
    joined: int = 0
    errors: int = 0
    elapsed_ms: int = 0
    lived_ms: int = 0


class Sender:
    """The task's end: sends its tally now and then."""

    def __init__(self, address: tuple[str, int], task: int) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._address = address
        self._task = task

    def send(self, tally: Tally) -> None:
        try:
            self._socket.sendto(json.dumps([self._task, asdict(tally)]).encode(), self._address)
        except OSError:
            return  # the next report has newer numbers

    def stop_requested(self) -> bool:
        """Return whether the driver wants the task to end early."""
        try:
            return self._socket.recv(len(_STOP)) == _STOP
        except OSError:
            return False  # no datagram, or the driver is gone

    def close(self) -> None:
        self._socket.close()


class Receiver:
    """The driver's end: the last tally of each task.

    Attributes:
        port: Where reports go.
        stopped: Ends `listen`.
    """

    # The request to stop is the answer to each report of a task, because any of them may be lost.

    def __init__(self, udp: socket.socket) -> None:
        udp.settimeout(_LOOK_UP_EVERY_S)
        self.port: int = udp.getsockname()[1]
        self.stopped = False
        self._socket = udp
        self._tallies: dict[int, Tally] = {}
        self._tasks_are_to_stop = False

    def total(self) -> Tally:
        tallies = list(self._tallies.values())
        total = Tally(**{field.name: sum(getattr(tally, field.name) for tally in tallies) for field in fields(Tally)})
        total.elapsed_ms = max((tally.elapsed_ms for tally in tallies), default=0)
        return total

    def stop_tasks(self) -> None:
        """Request all tasks to end early."""
        self._tasks_are_to_stop = True

    def listen(self) -> None:
        """Receive reports until `stopped` is set."""
        while not self.stopped:
            try:
                datagram, sender = self._socket.recvfrom(1024)
            except TimeoutError:
                continue
            self.take(datagram)
            if self._tasks_are_to_stop:
                self._socket.sendto(_STOP, sender)

    def take(self, datagram: bytes) -> None:
        """Process a report; other datagrams are ignored."""
        try:
            task, tally = json.loads(datagram)
            self._tallies[int(task)] = Tally(**tally)
        except (ValueError, TypeError):
            return


@contextmanager
def receiving(host: str) -> Iterator[Receiver]:
    """Receive reports in a thread of their own.

    Args:
        host: The address to receive on.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind((host, 0))
        receiver = Receiver(udp)
        thread = threading.Thread(target=receiver.listen, name="replay progress", daemon=True)
        thread.start()
        try:
            yield receiver
        finally:
            receiver.stopped = True
            thread.join()
