"""The state diagram of a group member, from its table of transitions."""

from collections.abc import Mapping

from fakebroker.client.member.states import TRANSITIONS, MemberState

# The names in Kafka's consumer rewrite design. Its state "stopped consumption" is divided into three states here.
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


def diagram(transitions: Mapping[MemberState, tuple[MemberState, ...]] = TRANSITIONS) -> str:
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
