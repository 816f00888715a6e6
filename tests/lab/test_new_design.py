"""The example of scenarios/lab/README.md: a design in a file of its own runs, and the lab shows what is wrong."""

import re
from pathlib import Path

import pytest

from fakebroker import lab
from fakebroker.errors import ConfigError
from fakebroker.lab.designs import design_from
from fakebroker.lab.measures import RunResult, measure
from fakebroker.lab.script import BrokerEvent, MemberEvent
from fakebroker.lab.world.world import World
from tests.support.lab.scripts import script

GUIDE = Path(__file__).parents[2] / "scenarios" / "lab" / "README.md"
MOST_LINES = 75


def example() -> str:
    """Return the example's code."""
    (code,) = re.findall("```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    return str(code)


def run(*events: MemberEvent | BrokerEvent) -> RunResult:
    world = World(design_from(example(), "poll.py"), script(*events))
    world.run()
    return measure(world)


def test_the_example_is_short() -> None:
    assert len([line for line in example().splitlines() if line]) <= MOST_LINES


def test_all_public_names_exist() -> None:
    assert [name for name in lab.__all__ if not hasattr(lab, name)] == []


def test_members_own_all_partitions() -> None:
    found = run()
    assert found.rebalances >= 1
    assert (found.never_ended, found.mistakes, found.lost) == (0, 0, 0)
    assert [each.kind for each in found.kinds][-2:] == ["PollRequest", "PollResponse"]


def test_two_members_own_a_partition_after_a_change() -> None:
    found = run(MemberEvent(20_000, 2, "crash"), MemberEvent(40_000, 2, "start"))
    assert found.dead == 1
    assert found.never_ended == 0
    assert 0 < found.double_s < 3 * 4
    assert found.repeated > 0


def test_a_failover() -> None:
    found = run(BrokerEvent(20_000, 1, "stop"), BrokerEvent(40_000, 1, "start"))
    assert found.failover_max_ms is not None
    assert found.never_ended == 0


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("1 / 0", "poll.py: cannot be imported: ZeroDivisionError: division by zero"),
        ("def", "poll.py: cannot be imported: SyntaxError"),
        ("", "poll.py: DESIGN=None: expected a fakebroker.lab.Design"),
    ],
)
def test_invalid_files(source: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        design_from(source, "poll.py")
    assert expected in str(caught.value)
