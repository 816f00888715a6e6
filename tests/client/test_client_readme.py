"""The client's README tells the truth: its picture of the states is what the table says, its examples run."""

import re
from pathlib import Path

import fakebroker.client
from fakebroker.client.member.states import TRANSITIONS, MemberState

README = Path(fakebroker.client.__file__).parent / "README.md"

# The design's names; its "stopped consumption" has three states inside.
NAMES = {
    MemberState.DOWN: "down",
    MemberState.DISCOVERING: "discovering",
    MemberState.PART_OF_GROUP: "part of a group",
    MemberState.REDISCOVERING: "re-discovering",
    MemberState.STOPPED: "last commit",
    MemberState.JOINING: "joining",
    MemberState.SYNCING: "syncing",
}
STOPPED_CONSUMPTION = (MemberState.STOPPED, MemberState.JOINING, MemberState.SYNCING)


def diagram(transitions: dict[MemberState, tuple[MemberState, ...]]) -> str:
    """The table as a Mermaid state diagram."""
    ways = [(start, end) for start, ends in transitions.items() for end in ends]
    inner = [way for way in ways if set(way) <= set(STOPPED_CONSUMPTION)]
    lines = ["stateDiagram-v2", "    [*] --> down"]
    lines += [
        f'    state "{name}" as {_id(state)}' for state, name in NAMES.items() if state not in STOPPED_CONSUMPTION
    ]
    lines += ['    state "stopped consumption" as stopped_consumption {']
    lines += [f'        state "{NAMES[state]}" as {_id(state)}' for state in STOPPED_CONSUMPTION]
    lines += [f"        {_id(start)} --> {_id(end)}" for start, end in inner]
    lines += ["    }"]
    lines += [f"    {_id(start)} --> {_id(end)}" for start, end in ways if (start, end) not in inner]
    return "\n".join(["```mermaid", *lines, "```"])


def _id(state: MemberState) -> str:
    return state.value.replace(" ", "_")


def rewritten(text: str) -> str:
    """The README with its picture as it should be."""
    block = f"<!-- states -->\n{diagram(TRANSITIONS)}\n<!-- /states -->"
    text, count = re.subn("<!-- states -->\n.*<!-- /states -->", block, text, flags=re.DOTALL)
    assert count == 1, "the README has no picture of the states"
    return text


def test_picture() -> None:
    assert README.read_text() == rewritten(README.read_text()), "run `make rewrite`"


def test_another_table_is_another_picture() -> None:
    assert diagram(TRANSITIONS | {MemberState.DOWN: ()}) != diagram(TRANSITIONS)


def test_the_examples(capsys: object) -> None:
    for example in re.findall("```python\n(.*?)```", README.read_text(), re.DOTALL):
        exec(compile(example, "README.md", "exec"), {})


if __name__ == "__main__":
    README.write_text(rewritten(README.read_text()))
