"""Measures what a small replay costs around the played time: CPU time, memory and wall time of all its processes.

    python -m tests.bench.startup [WORKLOAD] [OPTION ...]

Prints a JSON object for each part of the replay, and one for the whole: seconds of wall and CPU time of the process
itself ("driver"), of Java and of Spark's Python workers, and the most memory of all processes together (the
proportional set size, which counts shared pages once). Parts end with the lines that a replay prints. Without a
workload, 15 members are replayed for 10 s in memory. Linux only.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

WORKLOAD = """\
duration_s = 10
seed = 1
topics = { orders = 6 }
groups = [{ name = "g", count = 5, members = 3 }]
"""

_PARTS = {"Starting Spark": "start", "Running ": "play", "Computing the summary": "summarize"}
"""The part that begins with a printed line, by the start of the line."""

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_EVERY_S = 0.1


@dataclass
class Usage:
    """What the processes of a replay have used until now.

    Attributes:
        wall_s: Time since the start.
        cpu_s: CPU time by kind of process, ended processes included.
        memory_mib: Memory by kind of process, at the moment.
    """

    wall_s: float = 0.0
    cpu_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("driver", "java", "workers"), 0.0))
    memory_mib: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("driver", "java", "workers"), 0.0))

    @property
    def memory(self) -> float:
        return sum(self.memory_mib.values())


class Meter:
    """Reads the usage of a process and its descendants from /proc."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._began_s = time.monotonic()
        self._cpu_s: dict[tuple[int, str], float] = {}
        self.most = Usage()

    def read(self) -> Usage:
        """Return the usage until now; `most` is the one with the most memory."""
        now = Usage(wall_s=time.monotonic() - self._began_s)
        for pid, kind in self._processes():
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                self._cpu_s[pid, kind] = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
                now.memory_mib[kind] += _memory_mib(pid)
            except OSError:
                continue  # it has ended meanwhile
        for (_, kind), seconds in self._cpu_s.items():
            now.cpu_s[kind] += seconds
        if now.memory >= self.most.memory:
            self.most = now
        return now

    def _processes(self) -> Iterator[tuple[int, str]]:
        """Yield the running processes of the replay, each with its kind."""
        parents: dict[int, list[tuple[int, str]]] = {}
        for file in Path("/proc").glob("[0-9]*/stat"):
            try:
                head, _, rest = file.read_text().rpartition(")")
            except OSError:
                continue
            number, _, name = head.partition(" (")
            parents.setdefault(int(rest.split()[1]), []).append((int(number), name))
        waiting = [(self._process.pid, "driver")]
        while waiting:
            pid, kind = waiting.pop()
            yield pid, kind
            for child, name in parents.get(pid, []):
                waiting.append((child, "java" if name == "java" else "workers" if kind != "driver" else "driver"))


def _memory_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), 0.0)


def measure(arguments: list[str]) -> Iterator[tuple[str, Usage, Usage]]:
    """Run `fakebroker replay`; yield each part, with the usage at its begin and at its end; the last one is "total"."""
    command = [sys.executable, "-u", "-m", "fakebroker", "replay", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        meter, is_over = Meter(process), threading.Event()

        def watch() -> None:
            while not is_over.wait(_EVERY_S):
                meter.read()

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        part, begin = "prepare", Usage()
        assert process.stdout is not None
        for line in process.stdout:
            following = next((name for start, name in _PARTS.items() if line.startswith(start)), None)
            if following is not None:
                end = meter.read()
                yield part, begin, end
                part, begin = following, end
        is_over.set()
        watcher.join()
        process.wait()
        end = meter.read()
        yield part, begin, end
        yield "total", Usage(), Usage(wall_s=end.wall_s, cpu_s=end.cpu_s, memory_mib=meter.most.memory_mib)


def difference(part: str, begin: Usage, end: Usage) -> dict[str, object]:
    """Return the row of a part: its wall and CPU time, and the memory at its end (of the total, the most memory)."""
    return {
        "part": part,
        "wall_s": round(end.wall_s - begin.wall_s, 2),
        "cpu_s": {kind: round(seconds - begin.cpu_s[kind], 2) for kind, seconds in end.cpu_s.items()},
        "memory_mib": {kind: round(mib) for kind, mib in end.memory_mib.items()},
    }


def main(arguments: list[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="fakebroker-") as directory:
        if not arguments:
            (workload := Path(directory, "small.toml")).write_text(WORKLOAD)
            arguments = [str(workload), "--transport", "memory"]
        for row in measure([*arguments, "--out", str(Path(directory, "run"))]):
            print(json.dumps(difference(*row)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
