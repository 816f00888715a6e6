"""Views from the JSON of the control API, and seeds as JSON."""

from base64 import b64decode
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from fakebroker.cluster.inspect.deadlines import Deadline
from fakebroker.cluster.inspect.timeline import Timeline
from fakebroker.cluster.inspect.views import BrokerView, GroupView, MemberView
from fakebroker.cluster.seed import GroupSeed
from fakebroker.coordinator.group.history import Moment, Timer
from fakebroker.errors import ErrorCode
from fakebroker.topic_partition import format_partitions


def group_path(group_id: str) -> str:
    """Where a group is, below its cluster; see `fakebroker.control.routes.arguments.GROUP_ID`."""
    written = group_id.replace("~", "~7E")
    return f"groups/{quote(written.replace('.', '~2E') if written in ('.', '..') else written, safe='')}"


def broker_of(row: Mapping[str, Any]) -> BrokerView:
    """A broker out of its JSON."""
    return BrokerView(row["node_id"], row["host"], row["port"], row["up"])


def view_of(detail: Mapping[str, Any], history: Timeline) -> GroupView:
    """A group out of its JSON."""
    members = tuple(
        MemberView(**{**member, "assignment": b64decode(member["assignment"])}) for member in detail["members"]
    )
    names = ("group_id", "state", "generation_id", "protocol_type", "protocol_name", "leader_id")
    return GroupView(**{name: detail[name] for name in names}, members=members, history=history)


def moments_of(found: Mapping[str, Any]) -> tuple[Moment, ...]:
    """The moments of a group out of JSON that has them."""
    return tuple(map(_moment, found["moments"]))


def _moment(made: dict[str, Any]) -> Moment:
    timers = tuple(Timer(**timer) for timer in made.pop("timers"))
    return Moment(**{name: _frozen(value) for name, value in made.items()}, timers=timers)


def deadline_of(made: dict[str, Any]) -> Deadline:
    """A deadline out of its JSON."""
    return Deadline(**{name: _frozen(value) for name, value in made.items()})


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def named_error(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as JSON has them: errors by Kafka's names."""
    return {name: value.name if isinstance(value, ErrorCode) else value for name, value in options.items()}


def plain_seed(seed: GroupSeed) -> dict[str, Any]:
    """A seed as JSON has it: partitions by their names."""
    made = {name: value for name, value in msgspec.structs.asdict(seed).items() if value is not None}
    for name in ("offsets", "lag"):
        if isinstance(made.get(name), Mapping):
            made[name] = {
                place if isinstance(place, str) else format_partitions([place]): number
                for place, number in made[name].items()
            }
    return made
