"""The fields of a group as plain data, to compare groups."""

from typing import Any

from fakebroker.coordinator.classic.group import Group, Member
from fakebroker.coordinator.group_history import ChangedGroup

_TIMES = ("deadline_ms", "scheduled_ms")


def contents(group: Group) -> dict[str, Any]:
    """Return all fields of a group, except for deadlines; dictionaries as lists, since their order matters."""
    names = [name for name in (*ChangedGroup.__slots__, *Group.__slots__) if name not in _TIMES]
    found = {name: getattr(group, name) for name in names}
    found["members"] = [
        {name: getattr(member, name) for name in Member.__slots__ if name not in _TIMES}
        for member in group.members.values()
    ]
    found["offsets"] = list(group.offsets)
    return {name: list(value.items()) if isinstance(value, dict) else value for name, value in found.items()}
