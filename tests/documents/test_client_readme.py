"""The README of the clients: its state diagram follows the table of transitions, and its examples run."""

import re
from pathlib import Path

import fakebroker.client
from fakebroker.client.member.states import TRANSITIONS, MemberState
from tests.documents.member_states import diagram

README = Path(fakebroker.client.__file__).parent / "README.md"


def test_the_diagram_depends_on_the_transitions() -> None:
    assert diagram(TRANSITIONS | {MemberState.DOWN: ()}) != diagram(TRANSITIONS)


def test_the_examples_run() -> None:
    for example in re.findall("```python\n(.*?)```", README.read_text(), re.DOTALL):
        exec(compile(example, "README.md", "exec"), {})
