"""The client's README: its state diagram is that of `TRANSITIONS`, and its examples run."""

import re
from pathlib import Path

import fakebroker.client
from fakebroker.client.member.states import TRANSITIONS, MemberState

README = Path(fakebroker.client.__file__).parent / "README.md"

# The names in the consumer rewrite design, whose "stopped consumption" consists of three states here.
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
    """Return transitions as a Mermaid state diagram."""
    edges = [(start, end) for start, ends in transitions.items() for end in ends]
    inner = [edge for edge in edges if set(edge) <= set(STOPPED_CONSUMPTION)]
    lines = ["stateDiagram-v2", "    [*] --> down"]
    lines += [
        f'    state "{name}" as {_id(state)}' for state, name in NAMES.items() if state not in STOPPED_CONSUMPTION
    ]
    lines += ['    state "stopped consumption" as stopped_consumption {']
    lines += [f'        state "{NAMES[state]}" as {_id(state)}' for state in STOPPED_CONSUMPTION]
    lines += [f"        {_id(start)} --> {_id(end)}" for start, end in inner]
    lines += ["    }"]
    lines += [f"    {_id(start)} --> {_id(end)}" for start, end in edges if (start, end) not in inner]
    return "\n".join(["```mermaid", *lines, "```"])


def _id(state: MemberState) -> str:
    return state.value.replace(" ", "_")


def rewritten(text: str) -> str:
    """Return the README with the current diagram."""
    block = f"<!-- states -->\n{diagram(TRANSITIONS)}\n<!-- /states -->"
    text, count = re.subn("<!-- states -->\n.*<!-- /states -->", block, text, flags=re.DOTALL)
    assert count == 1, "the README has no place for the diagram"
    return text


def test_the_diagram_shows_all_transitions() -> None:
    assert README.read_text() == rewritten(README.read_text()), "run `make rewrite`"


def test_the_diagram_depends_on_the_transitions() -> None:
    assert diagram(TRANSITIONS | {MemberState.DOWN: ()}) != diagram(TRANSITIONS)


def test_the_examples_run() -> None:
    for example in re.findall("```python\n(.*?)```", README.read_text(), re.DOTALL):
        exec(compile(example, "README.md", "exec"), {})


if __name__ == "__main__":
    README.write_text(rewritten(README.read_text()))
