"""The pytest plugin: `fake_cluster`, `fake_cluster_factory` and the mark `fake_cluster`.

pytest loads it in every run, also where nobody uses it, so it imports the rest only when a fixture is asked for.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from fakebroker.server.fake_cluster import FakeCluster

_clusters: pytest.StashKey[list["FakeCluster"]] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "fake_cluster(**arguments): what the fixture fake_cluster gives to FakeCluster.")


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
    mark = request.node.get_closest_marker("fake_cluster")
    args, kwargs = (mark.args, mark.kwargs) if mark else ((), {})
    return fake_cluster_factory(*args, **kwargs)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show in the report of a failed test what its clusters saw."""
    report = yield
    if report.failed:
        clusters = item.stash.get(_clusters, None) or []
        for number, cluster in enumerate(clusters, 1):
            report.sections.append((f"fake cluster {number}", cluster.report()))
    return report
