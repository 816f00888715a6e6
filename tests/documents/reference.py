"""The documents in `scenarios/reference/`, generated from the code."""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import click
from click.testing import CliRunner

from fakebroker import FakeCluster, pytest_plugin
from fakebroker.cli.main import app
from fakebroker.cluster.commands import COMMANDS
from fakebroker.cluster.configs.settings import DEFAULT_CONFIG, SETTINGS
from fakebroker.protocol.registry import APIS
from fakebroker.protocol.releases import RELEASES, Release
from fakebroker.protocol.schema import Versions
from tests.documents.markdown import description, entries, section, table

FOLDER = Path(__file__).parents[2] / "scenarios" / "reference"

_APIS = """\
# Supported APIs

The APIs of Kafka that brokers support, with the versions that they implement. A broker that emulates an older release
supports fewer: see [releases](releases.md). A request in a version that is not supported closes the connection, as with
Kafka; ApiVersions answers with UNSUPPORTED_VERSION.

Not supported: transactions, the next generation of the consumer group protocol (KIP-848), share groups (KIP-932),
ACLs, TLS and SASL.
"""

_APIS_NOTES = """\
Produce 0 to 2 are advertised for the sake of librdkafka, and rejected with UNSUPPORTED_VERSION, as by Kafka 4
(KAFKA-18659). Brokers that emulate a release before 4.0 accept them; before 0.11 they store messages in the formats of
that time.
"""

_SETTINGS = """\
# Broker settings

The broker settings that have an effect, under Kafka's names: `FakeCluster(config={"group.max.size": 100})`,
`fakebroker serve --config group.max.size=100`, `config` in the `[cluster]` table of a workload. Any other name is
rejected. DescribeConfigs reports Kafka's other settings with their defaults.
"""

_RELEASES = """\
# Emulated releases

`FakeCluster(as_version="2.8")` and `fakebroker serve --as-version 2.8` emulate a release of Kafka: its APIs, their
versions, and its behavior. `api_versions={"FindCoordinator": (0, 3), "DeleteGroups": None}` restricts single APIs.
Brokers may differ, and `upgrade_broker` restarts one as another release:

```python
from fakebroker import Broker, FakeCluster

with FakeCluster(brokers=[Broker(as_version="2.8"), Broker(as_version="2.8"), Broker()]) as cluster:
    for node_id in (1, 2):
        cluster.upgrade_broker(node_id, "3.9")
```

Without `as_version` a broker supports all [implemented versions](apis.md) and behaves like the newest release.

## What clients notice

| release | change |
|---|---|
| 0.10.0 | ApiVersions; messages with timestamps (magic 1) |
| 0.10.1 | a rebalance timeout separate from the session timeout (JoinGroup 1); offsets by timestamp (ListOffsets 1) |
| 0.11 | record batches with headers, idempotent producers (Produce 3, Fetch 4); the first rebalance of an empty group waits `group.initial.rebalance.delay.ms` for more members |
| 1.1 | incremental fetch sessions (Fetch 7); DeleteGroups |
| 2.0 | committed offsets are retained for 7 days by default instead of 1 day |
| 2.1 | offsets expire after their group became empty (KIP-211), before that after each commit; zstd; leader epochs in requests (Fetch 10) |
| 2.2 | a new member gets its member id before it joins (KIP-394, JoinGroup 4) |
| 2.3 | static membership (KIP-345, JoinGroup 5); session timeouts of up to 30 minutes instead of 5; IncrementalAlterConfigs |
| 2.4 | one LeaveGroup for several members (LeaveGroup 3); OffsetDelete; an ApiVersions request of an unknown version is answered with the supported ones (KIP-511) |
| 2.5 | OffsetFetch can require stable offsets (OffsetFetch 7); producers recover from UNKNOWN_PRODUCER_ID (KIP-360) |
| 2.8 | topic ids (Metadata 10); DescribeCluster |
| 3.0 | several groups in one request (KIP-699, FindCoordinator 4; KIP-709, OffsetFetch 8) |
| 3.1 | topic ids (Fetch 13) |
| 3.2 | the leader of a group with static members may skip the assignment (KIP-814, JoinGroup 9) |
| 3.7 | responses name the new leader of a partition (KIP-951, Produce 10, Fetch 16) |
| 4.0 | the new group coordinator (KIP-848); old versions are removed (KIP-896); DescribeGroups reports missing groups as errors (DescribeGroups 6) |
| 4.1 | topic ids (Produce 13) |
| 4.2 | topic ids (OffsetCommit 10, OffsetFetch 10) |

Before 4.0 brokers decide like the group coordinator of that time:

- A coordinator checks first whether it coordinates the group, and then the session timeout.
- While a group is being loaded, SyncGroup fails with REBALANCE_IN_PROGRESS. SyncGroup extends the session.
- A commit with a generation to a group that does not exist fails with ILLEGAL_GENERATION.
- The members of one LeaveGroup leave one by one, and an id that never joined is not an error.
- An expiring session does not end the initial rebalance delay, which is extended only before the first generation.
- A new group is not written to `__consumer_offsets` before its first generation.

## New and removed versions

From the [versions of all APIs in all releases](../../fakebroker/protocol/releases.txt), which follow the protocol
definitions in Kafka's sources.
"""

_FAKE_CLUSTER = """\
# FakeCluster

The methods that change the cluster are also [commands](../commands.md): the same names and arguments work in
`fakebroker serve --events`, in workloads, in transcripts and over HTTP. `fakebroker.control.Client` has the same methods
for a cluster in another process.
"""

_PYTEST = """\
# The pytest plugin

Installed with the package; no import is needed.

## Fixtures
"""

_MARK = """\
## The mark `fake_cluster`

`@pytest.mark.fake_cluster(brokers=1, topics={"orders": 6})` passes arguments to [FakeCluster](fake_cluster.md) for the
fixtures `fake_cluster` and `fake_cluster_async`, and in a module's `pytestmark` for `fake_cluster_module`. With a list as
`as_version`, such as `["2.8", "3.9", "4.2"]`, a test runs once for each release.

A shared cluster is reset before each test that uses it: topics as at the start, no groups, no faults, an empty journal,
connections closed, the same ports. With pytest-xdist each worker process has its own clusters. Applications on asyncio
use `fake_cluster`, which runs in its own thread.

When a test fails, its report includes the seed of the cluster, its groups with their timelines, and the last requests.
"""

_CLI = """\
# Command line

Exit statuses: 0 success; 1 an error, one line on stderr; 2 wrong usage or an invalid workload file; 3 a replay or a
comparison failed its checks; 130 interrupted.
"""


def apis() -> str:
    rows = [(api.key, api.name, api.versions) for api in APIS]
    return f"{_APIS}\n{table(('key', 'API', 'versions'), rows)}\n\n{_APIS_NOTES}"


def settings() -> str:
    rows = [(f"`{name}`", str(setting.default).lower(), setting.about) for name, setting in SETTINGS.items()]
    (name,) = DEFAULT_CONFIG
    difference = f"`FakeCluster` overrides one default: `{name}` is {DEFAULT_CONFIG[name]}, for fast tests."
    return f"{_SETTINGS}\n{table(('setting', 'default', 'meaning'), rows)}\n\n{difference}\n"


def releases() -> str:
    names = list(RELEASES)
    rows = [(str(new), _changes(old, new)) for old, new in zip(names, names[1:], strict=False)]
    return f"{_RELEASES}\n{table(('release', 'versions'), rows)}\n"


def _changes(old: Release, new: Release) -> str:
    """Describe how the versions of a release differ from those of the one before."""
    changes = []
    for api in APIS:
        before, after = (RELEASES[release].get(api.name) for release in (old, new))
        if after and not before:
            changes.append(f"{api.name} {after} (new API)")
        elif after and before and after != before:
            changes += [f"{api.name} {text}" for text in _version_changes(before, after)]
    return ", ".join(changes) or "no change"


def _version_changes(before: Versions, after: Versions) -> Iterator[str]:
    if after.last > before.last:
        yield f"+{Versions(before.last + 1, after.last)}" if after.last > before.last + 1 else f"+{after.last}"
    if after.first > before.first:
        yield f"without {Versions(before.first, after.first - 1)}"
    if after.first < before.first:
        yield f"{Versions(after.first, before.first - 1)} again"


def fake_cluster() -> str:
    parts = [_FAKE_CLUSTER, "## Arguments\n", _entries_table(FakeCluster, "Args", "argument")]
    parts += ["\nRaises:\n", _raises(FakeCluster)]
    for title, functions in _sections(FakeCluster):
        parts += [f"\n## {title}", *map(_method, functions)]
    journal = [function for base in FakeCluster.__mro__[1:-1] for function in _public_functions(base)]
    parts += ["\n## Journal", *map(_method, reversed(journal))]
    return "\n".join(parts) + "\n"


def _sections(cls: type) -> Iterator[tuple[str, list[Any]]]:
    """Yield the sections of a class, which comments in its body begin, with their public methods and properties."""
    source = textwrap.dedent(inspect.getsource(cls))
    (body,) = ast.parse(source).body
    assert isinstance(body, ast.ClassDef)
    lines = source.splitlines()
    titles = {number: line[6:] for number, line in enumerate(lines, 1) if re.match(r"    # [A-Z]", line)}
    sections: dict[str, list[Any]] = {title: [] for title in titles.values()}
    for node in body.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            title = [title for line, title in titles.items() if line < node.lineno][-1]
            sections[title].append(inspect.getattr_static(cls, node.name))
    yield from sections.items()


def _public_functions(cls: type) -> list[FunctionType]:
    return [each for name, each in vars(cls).items() if isinstance(each, FunctionType) and not name.startswith("_")]


def _method(member: Any) -> str:
    """Describe a method or property."""
    function: Callable[..., Any] = member.fget if isinstance(member, property) else member
    name = function.__name__
    if name.endswith("_async"):
        return f"\n### `await {name}(...)`\n\n{description(function)}"
    title = name if isinstance(member, property) else f"{name}({_parameters(function)})"
    parts = [f"\n### `{title}`\n", description(function)]
    if entries(function, "Args"):
        parts += ["", _entries_table(function, "Args", "argument")]
    if returns := section(function, "Returns"):
        parts += ["", f"Returns: {_on_one_line(returns)}"]
    if section(function, "Raises"):
        parts += ["", "Raises:\n", _raises(function)]
    if name in COMMANDS:
        parts += ["", f"[As a command](../commands.md#{name})"]
    return "\n".join(parts)


def _parameters(function: Callable[..., Any]) -> str:
    """Return the parameters of a method with their defaults, without types."""
    shown, keyword_only = [], False
    for name, parameter in list(inspect.signature(function).parameters.items())[1:]:
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            if not any(each.startswith("*") for each in shown):
                shown.append("*")
        prefix = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
        shown.append(f"{prefix}{name}{default}")
    return ", ".join(shown)


def _entries_table(documented: object, name: str, column: str) -> str:
    rows = [(f"`{entry}`", about) for entry, about in entries(documented, name).items()]
    return table((column, "meaning"), rows)


def _raises(documented: object) -> str:
    return "\n".join(f"- `{error}`: {about}" for error, about in entries(documented, "Raises").items())


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


def plugin() -> str:
    fixtures = [each for each in vars(pytest_plugin).values() if type(each).__name__ == "FixtureFunctionDefinition"]
    rows = [(f"`{each.__name__}`", description(each)) for each in fixtures]
    options = re.findall(
        r'"(--fakebroker-[a-z-]+)",\s+metavar="(\w+)",\s+help="([^"]+)"', inspect.getsource(pytest_plugin)
    )
    assert len(rows) == 6
    assert len(options) == 2
    option_rows = [(f"`{name}={metavar}`", about) for name, metavar, about in options]
    return "\n".join(
        [
            _PYTEST,
            table(("fixture", "meaning"), rows),
            "",
            _MARK,
            "## Options\n",
            table(("option", "meaning"), option_rows),
            "",
        ]
    )


def command_line() -> str:
    parts = [_CLI, "```text", _help(), "```"]
    for name in app.commands:
        parts += [f"\n## fakebroker {name}\n", "```text", _help(name), "```"]
    return "\n".join(parts) + "\n"


def _help(*command: str) -> str:
    result = CliRunner().invoke(
        app, [*command, "--help"], prog_name="fakebroker", max_content_width=100, terminal_width=100
    )
    assert result.exit_code == 0, result.output
    return click.unstyle(result.output).rstrip()


DOCUMENTS: dict[str, Callable[[], str]] = {
    "apis.md": apis,
    "settings.md": settings,
    "releases.md": releases,
    "fake_cluster.md": fake_cluster,
    "pytest.md": plugin,
    "command_line.md": command_line,
}
"""What generates each document."""


def rewrite() -> None:
    """Write all documents."""
    for name, generate in DOCUMENTS.items():
        (FOLDER / name).write_text(generate())


if __name__ == "__main__":
    rewrite()
