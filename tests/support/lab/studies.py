"""Small studies: one group with a crash, and a design that raises an exception."""

from pathlib import Path

from fakebroker.lab.options import StudyOptions
from fakebroker.lab.study.plan import StudyPlan, plan_of

SMALL = """# A crash.
# Look at it.
duration_s = 60
steady_s = [10, 18]
topics = { orders = 4 }

[cluster]
brokers = 2
initial_rebalance_delay_ms = 500

[[groups]]
members = 3
session_timeout_ms = 10_000
arrival = { ramp_s = 1 }
crash = { share = 0.3, at_s = [20, 22], return_after_s = 15 }
"""

BROKEN = """
from fakebroker.lab import Coordinator, Design, Member

class BrokenMember(Member):
    def __init__(self, settings, port):
        raise RuntimeError("the design is broken")

DESIGN = Design(name="broken", summary="It raises", member=BrokenMember, coordinator=lambda settings, port: QUIET)

class Quiet(Coordinator):
    def next_deadline(self):
        return float("inf")

QUIET = Quiet()
"""


def written(folder: Path, name: str, text: str) -> Path:
    """Write a file into a folder, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


def options_with(folder: Path, seeds: int = 1, tasks: int | None = None, out: str = "out") -> StudyOptions:
    """Return options of a study of the classic design and the broken one, with all its files in a folder."""
    scenario, design = written(folder, "small.toml", SMALL), written(folder, "broken.py", BROKEN)
    return StudyOptions(
        files=(scenario,),
        designs=("classic", str(design)),
        seeds=seeds,
        tasks=tasks,
        master="local[2]",
        out=folder / out,
    )


def plan_with(folder: Path, seeds: int = 1) -> StudyPlan:
    """Return the plan of such a study."""
    return plan_of(options_with(folder, seeds))
