"""The machine of a benchmark, and how much of it other processes used meanwhile."""

import os
import platform
import resource
import time
from pathlib import Path


def machine() -> dict[str, object]:
    """Return what results depend on."""
    models = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


class OtherLoad:
    """How much CPU time other processes and other virtual machines use from now on."""

    def __init__(self) -> None:
        self._start = self._now()

    def share(self) -> float:
        """Return their share of the time of all cores. Children of this process count once they have ended."""
        elapsed_s, busy_s, own_s = (now - before for now, before in zip(self._now(), self._start, strict=True))
        return max(0.0, busy_s - own_s) / (elapsed_s * (os.cpu_count() or 1))

    @staticmethod
    def _now() -> tuple[float, float, float]:
        """Return the time, the CPU time of all processes with steal time, and that of this process and its children."""
        busy_s = 0.0
        for line in _lines("/proc/stat")[:1]:
            user, nice, system, _, _, _, _, steal = map(int, line.split()[1:9])
            busy_s = (user + nice + system + steal) / os.sysconf("SC_CLK_TCK")
        usages = [resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return time.monotonic(), busy_s, sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
