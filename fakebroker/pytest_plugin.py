"""The pytest plugin: fake clusters as fixtures, the mark `fake_cluster`, and what a failed test's cluster has seen.

pytest loads it in every run, also where nobody uses it, so it imports the rest only when a fixture is asked for.
"""

import hashlib
import logging
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from fakebroker.server.fake_cluster import FakeCluster

_clusters: pytest.StashKey[list["FakeCluster"]] = pytest.StashKey()
"""The clusters of one test alone."""

_shared: pytest.StashKey[dict[str, "FakeCluster"]] = pytest.StashKey()
"""The clusters that run for several tests, by their fixture."""

_SHOWN_GROUPS = 3
_SHOWN_MOMENTS = 10
_MAX_NAME = 120


def pytest_addoption(parser: pytest.Parser) -> None:
    options = parser.getgroup("fakebroker")
    options.addoption("--fakebroker-log", metavar="LEVEL", help="Print what fake clusters log, from this level on.")
    options.addoption(
        "--fakebroker-keep-journal",
        metavar="DIR",
        help="Write the requests of each failed test's fake clusters to a file in this folder, as JSON lines.",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "fake_cluster(**arguments): what the fixture fake_cluster gives to FakeCluster.")
    config.stash[_shared] = {}
    if level := config.getoption("fakebroker_log"):
        _log_to_stderr(config, level)


def _log_to_stderr(config: pytest.Config, level: str) -> None:
    """Print the log as it comes: pytest has not yet begun to capture what goes to this stderr."""
    known = logging.getLevelNamesMapping()
    if level.upper() not in known:
        raise pytest.UsageError(f"--fakebroker-log={level}: expected one of {', '.join(known)}")
    stream = open(os.dup((sys.__stderr__ or sys.stderr).fileno()), "w")  # noqa: SIM115  # closed with the run
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("fakebroker")
    level_before = logger.level

    def undo() -> None:
        logger.removeHandler(handler)
        logger.setLevel(level_before)
        stream.close()

    logger.addHandler(handler)
    logger.setLevel(level.upper())
    config.add_cleanup(undo)


# Fixtures


@pytest.fixture
def fake_cluster_factory(request: pytest.FixtureRequest) -> Iterator[Callable[..., "FakeCluster"]]:
    """Starts fake clusters with FakeCluster's arguments; they stop when the test is over."""
    from fakebroker.server.fake_cluster import FakeCluster

    clusters = request.node.stash.setdefault(_clusters, [])
    with ExitStack() as stack:

        def start(*args: Any, **kwargs: Any) -> FakeCluster:
            cluster = stack.enter_context(FakeCluster(*args, **kwargs))
            clusters.append(cluster)
            return cluster

        yield start


@pytest.fixture
def fake_cluster(request: pytest.FixtureRequest, fake_cluster_factory: Callable[..., "FakeCluster"]) -> "FakeCluster":
    """A fake cluster of three brokers, or as the mark `fake_cluster` says, for this test alone."""
    args, kwargs = _marked(request)
    return fake_cluster_factory(*args, **kwargs)


@pytest.fixture
async def fake_cluster_async(request: pytest.FixtureRequest) -> AsyncIterator["FakeCluster"]:
    """The same for a test that is a coroutine: under trio a part of its task tree, else in a thread of its own.

    It takes a plugin that runs asynchronous fixtures: pytest-trio, or that of anyio.
    """
    import trio

    from fakebroker.server.fake_cluster import FakeCluster

    args, kwargs = _marked(request)
    cluster = FakeCluster(*args, **kwargs)
    request.node.stash.setdefault(_clusters, []).append(cluster)
    if trio.lowlevel.in_trio_run():
        async with cluster:
            yield cluster
    else:
        with cluster:
            yield cluster


@pytest.fixture(scope="module")
def fake_cluster_module(request: pytest.FixtureRequest) -> Iterator["FakeCluster"]:
    """A fake cluster for all tests of a module, as its `pytestmark` says; reset before each test that asks for it."""
    args, kwargs = _marked(request)
    yield from _run_shared(request.config, "fake_cluster_module", *args, **kwargs)


@pytest.fixture(scope="session")
def fake_cluster_session_arguments() -> Mapping[str, Any]:
    """What `fake_cluster_session` gives to FakeCluster: a conftest.py may define it otherwise."""
    return {}


@pytest.fixture(scope="session")
def fake_cluster_session(
    request: pytest.FixtureRequest, fake_cluster_session_arguments: Mapping[str, Any]
) -> Iterator["FakeCluster"]:
    """A fake cluster for the whole run, one in each process of it; reset before each test that asks for it."""
    yield from _run_shared(request.config, "fake_cluster_session", **fake_cluster_session_arguments)


def _run_shared(config: pytest.Config, fixture: str, *args: Any, **kwargs: Any) -> Iterator["FakeCluster"]:
    from fakebroker.server.fake_cluster import FakeCluster

    running = config.stash[_shared]
    with FakeCluster(*args, **kwargs) as cluster:
        running[fixture] = cluster
        yield cluster
        del running[fixture]


def _shared_clusters(item: pytest.Item) -> list["FakeCluster"]:
    """The running clusters that a test uses together with others."""
    names = getattr(item, "fixturenames", ())  # A doctest or a plugin's own kind of test may have none.
    return [cluster for name, cluster in item.config.stash[_shared].items() if name in names]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for cluster in _shared_clusters(item):
        cluster.reset()


# The mark


def _mark(node: Any) -> pytest.Mark:
    mark: pytest.Mark = node.get_closest_marker("fake_cluster") or pytest.mark.fake_cluster.mark
    return mark


def _marked(request: pytest.FixtureRequest) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """FakeCluster's arguments by the nearest mark; of several releases the one whose turn it is."""
    mark = _mark(request.node)
    return mark.args, {**mark.kwargs, "as_version": request.param} if hasattr(request, "param") else mark.kwargs


_MARKED_FIXTURES: Mapping[str, type[pytest.Item | pytest.Collector]] = {
    "fake_cluster": pytest.Item,
    "fake_cluster_async": pytest.Item,
    "fake_cluster_module": pytest.Module,
}
"""The fixtures that a mark is for, and what has to be marked."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each release in the list that its mark gives as `as_version`."""
    for fixture, kind in _MARKED_FIXTURES.items():
        if fixture in metafunc.fixturenames:
            releases = _mark(metafunc.definition.getparent(kind)).kwargs.get("as_version")
            if isinstance(releases, list | tuple):
                metafunc.parametrize(fixture, releases, indirect=True, ids=[f"kafka-{name}" for name in releases])


# Failed tests


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show in the report of a failed test what its clusters saw."""
    report = yield
    if report.failed:
        for number, cluster in enumerate(item.stash.get(_clusters, []) + _shared_clusters(item), 1):
            report.sections.append((f"fake cluster {number}", _told(item, cluster, number)))
    return report


def _told(item: pytest.Item, cluster: "FakeCluster", number: int) -> str:
    """What a cluster can tell a person: its seed, groups and requests; how the groups came where they are."""
    parts = [cluster.report(), *_timelines(cluster)]
    if folder := item.config.getoption("fakebroker_keep_journal"):
        parts.append(_keep_journal(cluster, item.config.invocation_params.dir / folder, f"{item.nodeid}-{number}"))
    return "\n\n".join(parts)


def _timelines(cluster: "FakeCluster") -> Iterator[str]:
    """The last moments of the groups to which something has happened last."""
    for group_id in cluster.cluster.history.group_ids(_SHOWN_GROUPS):
        timeline = cluster.timeline(group_id)
        yield f"{cluster.explain(group_id)}\n\n{replace(timeline, moments=timeline.moments[-_SHOWN_MOMENTS:])}"


def _keep_journal(cluster: "FakeCluster", folder: Path, name: str) -> str:
    """Write a journal to a file of its own; says where it is, or why it is not."""
    # Readable, and told apart also where only other characters than these differ, or the end of a long name.
    readable = re.sub(r"[^\w.]+", "-", name)[:_MAX_NAME]
    path = folder / f"{readable}-{hashlib.sha256(name.encode()).hexdigest()[:8]}.jsonl"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        cluster.export_journal(path)
    except Exception as error:  # A report that fails would end the run.
        return f"journal not kept: {error}"
    return f"journal: {path}"
