"""The operations that are derived from handles: each command is a POST, each view a GET.

`cluster.broker(1).stop()` is `POST /v1/clusters/default/brokers/1/stop`, `cluster.group("g").lag()` is
`GET /v1/clusters/default/groups/g/lag`. The bodies are the arguments, the results are JSON. Operations of other modules
have precedence: some results are too large to be computed at once.
"""

import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, cast

import msgspec

from fakebroker.cluster.handles.definition import DEFINITIONS, Arguments, Definition, Handle, plain_result
from fakebroker.control.clusters import ServedCluster
from fakebroker.control.problems import not_found
from fakebroker.control.routes.operations import CLUSTER, OPERATIONS, Operation
from fakebroker.coordinator.history import DEAD
from fakebroker.errors import ConfigError
from fakebroker.topic_partition import PartitionMap


def _named_arguments(definition: Definition) -> type[Arguments]:
    """Return the type of the arguments, under a name that is unique in the OpenAPI document."""
    name = definition.name.replace(".", "_").title().replace("_", "") + "Arguments"
    namespace = {"__doc__": definition.arguments.__doc__}
    return cast(type[Arguments], msgspec.defstruct(name, [], bases=(definition.arguments,), namespace=namespace))


@cache
def _result_type(kind: Any) -> Any:
    """Return the type of a result's JSON, for the OpenAPI document."""
    arguments = typing.get_args(kind)
    if isinstance(kind, type) and issubclass(kind, Handle):
        return msgspec.defstruct(f"{kind.__name__}Key", [("id", str)])
    if typing.get_origin(kind) is PartitionMap:
        return dict[str, arguments[0]]  # type: ignore[valid-type]  # not known to type checkers
    return kind


def _exists(served: ServedCluster, thing: str, key: Mapping[str, Any]) -> bool:
    """Return whether the thing exists that a path names. A group or a transactional id that does not exist is Dead."""
    try:
        view = DEFINITIONS[f"{thing}.describe"]
        return getattr(view.method(view.of(served.local, key)), "state", "") != DEAD
    except ConfigError:
        return False


def _operation_of(definition: Definition) -> Operation:
    is_view = definition.kind == "view"
    types = cast("Mapping[str, type]", typing.get_type_hints(definition.handle.__init__))
    arguments_type = _named_arguments(definition) if definition.arguments.__struct_fields__ else None
    field = "query" if is_view else "body"

    def run(served: ServedCluster, **key: Any) -> Any:
        arguments = cast(Arguments, key.pop(field)).given() if arguments_type else {}
        try:
            handle = definition.of(served.local, key)
            return plain_result(served.local.perform(handle, definition, definition.checked(arguments)))
        except ConfigError as error:
            # 404 if the path names something that does not exist, 422 for other errors.
            name = error.field or ""
            is_about_path = name in key and key[name] == error.value and len(error.mistakes) == 1
            if is_about_path and not _exists(served, definition.thing, key):
                thing = definition.thing if name == definition.keys[-1] else name
                raise not_found(thing, error.value, error.expected or "") from None
            raise

    run.__name__ = definition.name.replace(".", "_")
    run.__doc__ = definition.method.__doc__
    result = type(None) if definition.undo else _result_type(definition.result)
    return Operation(
        method="GET" if is_view else "POST",
        path=CLUSTER + definition.path,
        run=run,
        status=204 if result is type(None) else 200,
        path_types={name: types[name] for name in definition.keys},
        query=arguments_type if is_view else None,
        body=None if is_view else arguments_type,
        takes_accept=False,
        result=result,
        media_type="",
        is_read_only=is_view,
        is_documented=True,
    )


def register() -> None:
    """Register the operations of all commands and views whose paths are not taken."""
    taken = {(each.method, each.path) for each in OPERATIONS}
    for _, definition in sorted(DEFINITIONS.items()):
        if definition.kind != "condition":
            found = _operation_of(definition)
            if (found.method, found.path) not in taken:
                OPERATIONS.append(found)
