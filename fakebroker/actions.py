"""Commands as values: `cluster.inject_fault("OffsetCommit", nth=3, then=actions.broker(1).stop())`.

`cluster.broker(1).stop()` acts now. `actions.broker(1).stop()` is an `Action`: a value for the `then` of a fault, an
event of a workload, or HTTP. Its JSON is the table of the event: `{"do": "broker.stop", "node_id": 1}`.
"""

from collections.abc import Callable
from typing import Any

from fakebroker.cluster.handles.cluster import ClusterHandle
from fakebroker.cluster.handles.definition import Definition, Handle, key_of
from fakebroker.errors import one_of
from fakebroker.validation import plain


class Action(dict[str, Any]):
    """A command of a cluster, with its arguments, that something else runs. It is equal to the table of an event."""

    def __repr__(self) -> str:
        return f"<action {', '.join(f'{name}={value!r}' for name, value in self.items())}>"


class Actions:
    """The commands of a handle as functions that return an `Action`."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def __getattr__(self, name: str) -> Callable[..., Action]:
        if name in (commands := self._commands()):
            method: Callable[..., Action] = getattr(self._handle, name)
            return method
        raise AttributeError(f"no action {name!r}: expected {one_of(sorted(commands), name)}")

    def _commands(self) -> list[str]:
        methods = vars(type(self._handle)).items()
        definitions = {name: getattr(method, "definition", None) for name, method in methods}
        return [name for name, each in definitions.items() if isinstance(each, Definition) and each.kind == "command"]

    def partition(self, partition: int) -> "Actions":
        """Return the actions of a partition of a topic."""
        return Actions(ClusterHandle(_LATER).topic(**key_of(self._handle)).partition(partition))


class _Later:
    """The owner of handles whose commands become actions."""

    def perform(self, handle: Handle, definition: Definition, arguments: dict[str, Any]) -> Action:
        return Action(
            {"do": definition.name, **key_of(handle), **{name: _value(each) for name, each in arguments.items()}}
        )


def _value(argument: Any) -> Any:
    if hasattr(argument, "plain"):  # a condition
        return argument.plain()
    if callable(argument):  # an action of a fault
        return argument
    return getattr(argument, "name", argument) if isinstance(argument, int) else plain(argument)


_LATER = _Later()


def group(group_id: str) -> Actions:
    """Return the actions of a group."""
    return Actions(ClusterHandle(_LATER).group(group_id))


def topic(topic: str) -> Actions:
    """Return the actions of a topic."""
    return Actions(ClusterHandle(_LATER).topic(topic))


def transaction(transactional_id: str) -> Actions:
    """Return the actions of a transactional id."""
    return Actions(ClusterHandle(_LATER).transaction(transactional_id))


def broker(node_id: int) -> Actions:
    """Return the actions of a broker."""
    return Actions(ClusterHandle(_LATER).broker(node_id))


brokers = Actions(ClusterHandle(_LATER).brokers)
"""The actions of all brokers, such as `actions.brokers.rolling_restart()`."""

acls = Actions(ClusterHandle(_LATER).acls)
"""The actions of ACLs."""


def __getattr__(name: str) -> Callable[..., Action]:
    """Return the action of a whole cluster, such as `actions.clear_faults`."""
    if name.startswith("_"):
        raise AttributeError(f"module 'fakebroker.actions' has no attribute {name!r}")
    action: Callable[..., Action] = getattr(Actions(ClusterHandle(_LATER)), name)
    return action
