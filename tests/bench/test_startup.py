"""The benchmark of start-up reads the CPU time and the memory of processes."""

import subprocess
import sys

import pytest

from tests.bench.startup import Meter, Usage, difference

CHILD = "sum(range(3_000_000)); print('child', flush=True); input()"
PROGRAM = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], stdin=subprocess.PIPE)
print("parent", flush=True)
input()
child.communicate(b"\\n")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_the_usage_of_a_process_includes_that_of_its_children() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert {process.stdout.readline(), process.stdout.readline()} == {"parent\n", "child\n"}
        meter = Meter(process)
        first = meter.read()
        assert first.memory > 5  # two interpreters, which share some
        assert first.cpu_s["driver"] > 0
        process.communicate("\n")
        last = meter.read()
    assert last.memory == 0
    assert last.cpu_s["driver"] >= first.cpu_s["driver"]
    assert meter.most is first


def test_the_row_of_a_part_has_the_differences() -> None:
    begin = Usage(1.0, {"driver": 1.0, "java": 2.0, "workers": 0.0}, {"driver": 5.0, "java": 6.0, "workers": 0.0})
    end = Usage(3.5, {"driver": 1.5, "java": 6.0, "workers": 0.0}, {"driver": 7.0, "java": 8.0, "workers": 0.0})
    assert difference("play", begin, end) == {
        "part": "play",
        "wall_s": 2.5,
        "cpu_s": {"driver": 0.5, "java": 4.0, "workers": 0.0},
        "memory_mib": {"driver": 7, "java": 8, "workers": 0},
    }
