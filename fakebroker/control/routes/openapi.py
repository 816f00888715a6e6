"""Generates the OpenAPI document from the table of operations."""

import inspect
from functools import cache
from typing import Any

import msgspec

from fakebroker import __version__
from fakebroker.control.clusters import DEFAULT
from fakebroker.control.problems import PROBLEM_TYPE, ProblemDetails
from fakebroker.control.routes.arguments import ANY_TEXT
from fakebroker.control.routes.operations import CLUSTER, OPERATIONS, V1, Content, Operation

_ANY_TEXT_ENCODING = (
    "Id, percent-encoded; may be empty. Write `~2E` for the id `.` and `~2E~2E` for the id `..`, because "
    "browsers and other clients remove dot segments from paths. In every id, `~2E` means `.` and `~7E` means `~`."
)
_REF = "#/components/schemas/{name}"


@cache
def document() -> str:
    """Return the document as JSON."""
    operations = [each for each in OPERATIONS if each.is_documented]
    read = [kind for each in operations for kind in (each.body, each.query) if kind is not None]
    kinds = [ProblemDetails, *read, *(each.result for each in operations if each.result not in (Content, type(None)))]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    for name in components.keys() - msgspec.json.schema_components(read)[1].keys():
        _require_written(components[name])
    by_kind = dict(zip(map(_key, kinds), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation_object(
            operation, by_kind, components
        )
    openapi = {
        "openapi": "3.1.0",
        "info": {
            "title": "fakebroker control",
            "version": __version__,
            "description": "Times are in milliseconds since the Unix epoch by the brokers' clock.",
        },
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"token": []}],
    }
    return msgspec.json.encode(openapi).decode()


def _require_written(schema: dict[str, Any]) -> None:
    """Make the fields that have a default required, because results have all fields."""
    written = [name for name, value in schema.get("properties", {}).items() if "default" in value]
    for name in written:
        del schema["properties"][name]["default"]
    if written:
        schema["required"] = [*schema["required"], *written]


def _key(kind: Any) -> str:
    return repr(kind)


def _operation_object(operation: Operation, schemas: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "tags": [_tag(operation.path)],
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": [*_path_parameters(operation), *_query_parameters(operation, schemas, components)],
        "responses": {str(operation.status): _response(operation, schemas), "default": _error_response(schemas)},
    }
    if operation.body is not None:
        content = {"application/json": {"schema": schemas[_key(operation.body)]}}
        described["requestBody"] = {"required": False, "content": content}
    return described


def _tag(path: str) -> str:
    """Return the heading under which an operation is listed: the kind of resource, by its path."""
    if path.startswith(f"{CLUSTER}/"):
        kind = path.removeprefix(f"{CLUSTER}/").partition("/")[0]
        has_more = any(each.path.startswith(f"{CLUSTER}/{kind}/") for each in OPERATIONS)
        return kind if has_more else "cluster"
    return "clusters" if path.startswith(V1) else "server"


def _path_parameters(operation: Operation) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, **_path_schema(name, operation.path_types.get(name))}
        for name in operation.names
    ]


def _path_schema(name: str, kind: type | None) -> dict[str, Any]:
    """Return the schema of a path parameter."""
    if name in ANY_TEXT:
        return {"schema": {"type": "string"}, "description": _ANY_TEXT_ENCODING}
    if name == "cluster":
        return {"schema": {"type": "string", "minLength": 1}, "example": DEFAULT}
    return {"schema": {"type": "integer"} if kind is int else {"type": "string", "minLength": 1}}


def _query_parameters(
    operation: Operation, schemas: dict[str, Any], components: dict[str, Any]
) -> list[dict[str, Any]]:
    if operation.query is None:
        return []
    struct = components[schemas[_key(operation.query)]["$ref"].rpartition("/")[2]]
    return [
        {"name": name, "in": "query", "required": False, **_with_description(_without_null(schema))}
        for name, schema in struct["properties"].items()
    ]


def _with_description(schema: dict[str, Any]) -> dict[str, Any]:
    """Move the description of a query parameter out of its schema, where OpenAPI expects it."""
    described: dict[str, Any] = {"schema": schema}
    if "description" in schema:
        described["description"] = schema.pop("description")
    return described


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Remove null from the schema of a query parameter: clients omit the parameter instead."""
    options = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    kept = {name: value for name, value in schema.items() if name not in ("anyOf", "default")}
    if "enum" in kept:
        kept["enum"] = [each for each in kept["enum"] if each is not None]
    return kept | options[0] if len(options) == 1 else kept


def _response(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    about = inspect.getdoc(operation.result) if operation.result not in (Content, type(None)) else None
    described: dict[str, Any] = {"description": (about or operation.summary).partition("\n")[0]}
    if operation.result not in (Content, type(None)):
        described["content"] = {"application/json": {"schema": schemas[_key(operation.result)]}}
    elif operation.media_type:
        described["content"] = {operation.media_type: {"schema": {"type": "string"}}}
    return described


def _error_response(schemas: dict[str, Any]) -> dict[str, Any]:
    content = {PROBLEM_TYPE: {"schema": schemas[_key(ProblemDetails)]}}
    return {"description": "An error: the invalid field, its value, and what was expected.", "content": content}
