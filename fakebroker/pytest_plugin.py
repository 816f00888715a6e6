"""The pytest plugin: fixtures that run fake clusters, the mark `fake_cluster`, and reports on clusters of failed tests.

With `--kafka`, the fixtures return clusters of a real Kafka (`fakebroker.kafka.kafka_run`).

pytest imports it in every run, so it imports other modules only when a fixture is used.
"""

import gc
import hashlib
import logging
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from fakebroker.kafka.kafka_run import KafkaRun
    from fakebroker.server.fake_cluster import FakeCluster

Setup = Callable[["FakeCluster"], object]
"""A function that prepares a shared cluster for the next test."""

_clusters: pytest.StashKey[list["FakeCluster"]] = pytest.StashKey()
"""Clusters that only one test uses."""

_shared: pytest.StashKey[dict[str, tuple["FakeCluster", "Setup"]]] = pytest.StashKey()
"""Running clusters that several tests share, and the functions that prepare them, by name of the fixture."""

_kafkas: pytest.StashKey[dict[str, "KafkaRun"]] = pytest.StashKey()
"""The real Kafkas of the run, by the value of `--kafka` or of a mark."""

_kafka: pytest.StashKey[str | None] = pytest.StashKey()
"""The value of `--kafka`; None without it."""

_KAFKA_VARIABLE = "FAKEBROKER_KAFKA"
"""The environment variable with the value of `--kafka`."""

_INTERNAL = frozenset({"fakebroker", "trio", "outcome", "asyncio", "concurrent", "contextlib"})
"""Packages whose functions are called between a call of this package in a test and an error of this package."""
_MAX_NAME = 120
"""Maximum number of characters of a test's name in the name of a file."""


def pytest_addoption(parser: pytest.Parser) -> None:
    options = parser.getgroup("fakebroker")
    options.addoption(
        "--fakebroker-log",
        metavar="LEVEL",
        help="Print log messages of fake clusters from this level on, such as INFO.",
    )
    options.addoption(
        "--fakebroker-keep-journal",
        metavar="DIR",
        help="For each failed test, write the journals of its fake clusters to this directory, as JSON lines.",
    )
    options.addoption(
        "--kafka",
        metavar="HOST:PORT|RELEASE",
        help="Run the tests on a real Kafka: the one at this address, or a release such as 4.4.0, which is started. "
        f"Tests that need a fake cluster are skipped. The environment variable {_KAFKA_VARIABLE} does the same.",
    )
    options.addoption(
        "--kafka-client-config",
        metavar="FILE",
        help="How to connect to --kafka: a file of properties with TLS and SASL settings, as Kafka's tools take it.",
    )
    options.addoption(
        "--kafka-prefix",
        metavar="TEXT",
        help="Begin the names of topics, groups and transactional ids with this text, such as ci-. The application has "
        "to use the names, too: fake_cluster.name('orders').",
    )
    options.addoption(
        "--kafka-clean",
        action="store_true",
        help="Delete topics and idle groups that exist before a test, if they have the names of its topics, or begin "
        "with --kafka-prefix. Without it, the test is refused.",
    )
    options.addoption(
        "--kafka-acls", action="store_true", help="Let tests add ACLs to this Kafka; they are removed afterwards."
    )
    options.addoption(
        "--kafka-brokers",
        metavar="NUMBER",
        type=int,
        help="The number of brokers of a release that is started; by default what a test asks for, or one.",
    )
    options.addoption(
        "--kafka-strict", action="store_true", help="Fail tests that need a fake cluster, instead of skipping them."
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "fake_cluster(**arguments): arguments of FakeCluster for its fixtures; extends the marks of class and module.",
    )
    config.addinivalue_line(
        "markers",
        "kafka(where): run this test on this real Kafka, HOST:PORT or a release, instead of the one of --kafka; "
        "kafka(None): on a fake cluster, also with --kafka.",
    )
    config.stash[_shared] = {}
    _configure_kafka(config)
    if level := config.getoption("fakebroker_log"):
        _log_to_stderr(config, level)


def _log_to_stderr(config: pytest.Config, level: str) -> None:
    """Log to stderr while tests run. Duplicates the file descriptor before pytest captures stderr."""
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


def _configure_kafka(config: pytest.Config) -> None:
    given = config.getoption("kafka")
    where = config.stash[_kafka] = given if given is not None else os.environ.get(_KAFKA_VARIABLE) or None
    config.stash[_kafkas] = {}
    if where is None:
        for name in ("client_config", "prefix", "clean", "acls", "brokers", "strict"):
            if config.getoption(f"kafka_{name}"):
                raise pytest.UsageError(f"--kafka-{name.replace('_', '-')}: expected --kafka with it")
        return
    from fakebroker.errors import ConfigError

    try:
        options = _kafka_of(config, where).options
    except ConfigError as error:
        raise pytest.UsageError(f"--{error}") from None
    workers = getattr(config.option, "numprocesses", None)
    if not options.is_release and not options.prefix and isinstance(workers, int) and workers > 1:
        expected = "--kafka-prefix with several workers, which would have the same names otherwise"
        raise pytest.UsageError(f"--kafka={where}: expected {expected}")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Reach or start the Kafka of the run, once, before any test and while nothing is captured."""
    config = session.config
    where = config.stash[_kafka]
    if where is None or config.getoption("collectonly") or hasattr(config, "workerinput"):
        return
    from fakebroker.errors import FakebrokerError

    has_workers = bool(getattr(config.option, "numprocesses", None))
    try:
        _kafka_of(config, where).prepare(has_workers=has_workers)
    except FakebrokerError as error:
        raise pytest.UsageError(f"--kafka={where}: {error}") from None


def _kafka_of(config: pytest.Config, where: str) -> "KafkaRun":
    """Return a real Kafka of the run.

    Raises:
        ConfigError: `where` is neither an address nor a release, or an option is invalid.
    """
    kafkas = config.stash[_kafkas]
    if where not in kafkas:
        from fakebroker.kafka.kafka_run import KafkaOptions, KafkaRun

        options = KafkaOptions(
            where=where,
            client_config=config.getoption("kafka_client_config"),
            prefix=config.getoption("kafka_prefix") or "",
            clean=config.getoption("kafka_clean"),
            acls=config.getoption("kafka_acls"),
            brokers=config.getoption("kafka_brokers"),
            worker=getattr(config, "workerinput", {}).get("workerid"),
        )
        kafkas[where] = KafkaRun(options, partial(_say, config))
        config.add_cleanup(kafkas[where].close)
    return kafkas[where]


def _say(config: pytest.Config, line: str) -> None:
    """Print a line, also while the output of a test is captured."""
    plugins = config.pluginmanager
    reporter, capture = plugins.get_plugin("terminalreporter"), plugins.get_plugin("capturemanager")
    if reporter is not None:
        with capture.global_and_fixture_disabled() if capture is not None else nullcontext():
            reporter.ensure_newline()
            reporter.write_line(line)


def pytest_report_header(config: pytest.Config) -> list[str]:
    where = config.stash[_kafka]
    return [] if where is None else [f"fakebroker: tests run on Kafka {where}, not on fake clusters"]


def _new_cluster(request: pytest.FixtureRequest, arguments: Mapping[str, Any]) -> "FakeCluster":
    """Return a cluster that was not entered yet: a fake one, or one on a real Kafka."""
    __tracebackhide__ = True
    mark = request.node.get_closest_marker("kafka")
    if mark is not None and len(mark.args) != 1:
        raise pytest.UsageError(
            f"the mark kafka has {len(mark.args)} arguments: expected HOST:PORT, a release, or None"
        )
    where = request.config.stash[_kafka] if mark is None else mark.args[0]
    if where is not None:
        from fakebroker.errors import ConfigError

        try:
            run = _kafka_of(request.config, where)
        except ConfigError as error:
            raise pytest.UsageError(f"the mark {error}") from None
        return run.cluster(arguments)  # type: ignore[return-value]  # It has the same handles.
    from fakebroker.server.fake_cluster import FakeCluster

    return FakeCluster(**arguments)


def _is_fake(cluster: object) -> bool:
    from fakebroker.server.fake_cluster import FakeCluster

    return isinstance(cluster, FakeCluster)


def _why_not_on_kafka(error: BaseException) -> str | None:
    """Return why a test cannot run on this Kafka, if the error says so, and let go of the frames of the test.

    Otherwise, clients in the variables of the test would live on, and disturb the next test on this Kafka.
    """
    from fakebroker.errors import NotOnKafka

    found = error
    while isinstance(found, BaseExceptionGroup) and len(found.exceptions) == 1:  # of a nursery
        found = found.exceptions[0]
    if not isinstance(found, NotOnKafka):
        return None
    error.__traceback__ = found.__traceback__ = None
    sys.last_traceback = None  # pytest keeps it for debuggers.
    return str(found)


def _skip(config: pytest.Config, reason: str) -> NoReturn:
    """Skip a test that needs something that this Kafka cannot do; with `--kafka-strict`, fail it."""
    gc.collect()
    if config.getoption("kafka_strict"):
        pytest.fail(reason, pytrace=False)
    raise pytest.skip.Exception(reason, _use_item_location=True)


# Fixtures


@pytest.fixture
def fake_cluster_factory(request: pytest.FixtureRequest) -> Iterator[Callable[..., "FakeCluster"]]:
    """A function that starts a fake cluster; arguments as for `FakeCluster`. Clusters stop at the end of the test."""
    clusters = request.node.stash.setdefault(_clusters, [])
    with ExitStack() as stack:

        def start(*args: Any, **kwargs: Any) -> "FakeCluster":
            cluster = stack.enter_context(_new_cluster(request, {**_named(args), **kwargs}))
            clusters.append(cluster)
            return cluster

        yield start
        _clear_faults(clusters)


@pytest.fixture
def fake_cluster(request: pytest.FixtureRequest, fake_cluster_factory: Callable[..., "FakeCluster"]) -> "FakeCluster":
    """A fake cluster for one test, with the arguments of the marks `fake_cluster`."""
    return fake_cluster_factory(**_marked(request))


@pytest.fixture
async def fake_cluster_async(request: pytest.FixtureRequest) -> AsyncIterator["FakeCluster"]:
    """A fake cluster for one async test, like `fake_cluster`: under trio in the test's loop, else in a thread.

    Requires a plugin that runs async fixtures: pytest-trio or anyio.
    """
    cluster = _new_cluster(request, _marked(request))
    async with cluster:
        request.node.stash.setdefault(_clusters, []).append(cluster)
        yield cluster
        _clear_faults([cluster])


def _clear_faults(clusters: Sequence["FakeCluster"]) -> None:
    """Clear the faults of fake clusters before they end: `pytest_runtest_call` has looked at them."""
    for cluster in filter(_is_fake, clusters):
        cluster.clear_faults()


@pytest.fixture(scope="module")
def fake_cluster_module_setup() -> Setup:
    """A function that prepares `fake_cluster_module` after its start and after each reset; override this fixture."""
    return _no_setup


@pytest.fixture(scope="module")
def fake_cluster_module(request: pytest.FixtureRequest, fake_cluster_module_setup: Setup) -> Iterator["FakeCluster"]:
    """A fake cluster for all tests of a module, configured by `pytestmark`; reset before each test that uses it."""
    yield from _run_shared(request, "fake_cluster_module", fake_cluster_module_setup, _marked(request))


@pytest.fixture(scope="session")
def fake_cluster_session_arguments() -> Mapping[str, Any]:
    """The arguments of `FakeCluster` for `fake_cluster_session`; override this fixture in a conftest.py."""
    return {}


@pytest.fixture(scope="session")
def fake_cluster_session_setup() -> Setup:
    """A function that prepares `fake_cluster_session` after its start and after each reset; override this fixture."""
    return _no_setup


@pytest.fixture(scope="session")
def fake_cluster_session(
    request: pytest.FixtureRequest,
    fake_cluster_session_arguments: Mapping[str, Any],
    fake_cluster_session_setup: Setup,
) -> Iterator["FakeCluster"]:
    """A fake cluster for all tests of a process; reset before each test that uses it."""
    arguments, setup = fake_cluster_session_arguments, fake_cluster_session_setup
    yield from _run_shared(request, "fake_cluster_session", setup, arguments)


def _no_setup(cluster: "FakeCluster") -> None:
    """Leave a shared cluster as it is."""


def _run_shared(
    request: pytest.FixtureRequest, fixture: str, setup: Setup, arguments: Mapping[str, Any]
) -> Iterator["FakeCluster"]:
    if not callable(setup):
        expected = "a fixture that returns a function of the cluster"
        pytest.fail(f"{fixture}_setup={setup!r}: expected {expected}", pytrace=False)
    running = request.config.stash[_shared]
    with _new_cluster(request, arguments) as cluster:
        setup(cluster)
        running[fixture] = cluster, setup
        yield cluster
        _clear_faults([cluster])
        del running[fixture]


def _shared_clusters(item: pytest.Item) -> list[tuple["FakeCluster", Setup]]:
    """Return the running clusters that a test shares with other tests, and the functions that prepare them."""
    names = getattr(item, "fixturenames", ())  # Doctests and items of other plugins may not have this attribute.
    return [shared for name, shared in item.config.stash[_shared].items() if name in names]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    __tracebackhide__ = True
    reason = None
    try:
        for cluster, setup in _shared_clusters(item):
            cluster.reset()
            setup(cluster)
        yield
    except Exception as error:
        reason = _why_not_on_kafka(error)
        if reason is None:
            raise
    if reason is not None:  # Here, the error is not the context of the next one.
        _skip(item.config, reason)


# The mark

_POSITIONAL = ("brokers", "topics", "config", "seed")
"""The arguments of `FakeCluster` that may be positional, in order."""


def _merged(node: Any) -> dict[str, Any]:
    """Return the arguments of `FakeCluster` from the marks of a node, its class and its module.

    Mappings are merged by key. Of other arguments, and of keys, that several marks have, the nearest mark's applies.
    """
    merged: dict[str, Any] = {}
    for mark in reversed(list(node.iter_markers("fake_cluster"))):
        for name, value in {**_named(mark.args), **mark.kwargs}.items():
            outer = merged.get(name)
            merged[name] = {**outer, **value} if isinstance(outer, Mapping) and isinstance(value, Mapping) else value
    return merged


def _named(args: Sequence[Any]) -> dict[str, Any]:
    """Return the positional arguments of a mark by name."""
    if len(args) > len(_POSITIONAL):
        expected = f"at most {len(_POSITIONAL)} without names: {', '.join(_POSITIONAL)}"
        raise pytest.UsageError(f"the mark fake_cluster has {len(args)} arguments without names: expected {expected}")
    return dict(zip(_POSITIONAL, args, strict=False))


def _marked(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the arguments of `FakeCluster` from the marks, with the release of a parametrized test."""
    merged = _merged(request.node)
    return {**merged, "as_version": request.param} if hasattr(request, "param") else merged


_MARKED_FIXTURES: Mapping[str, type[pytest.Item | pytest.Collector]] = {
    "fake_cluster": pytest.Item,
    "fake_cluster_async": pytest.Item,
    "fake_cluster_module": pytest.Module,
}
"""Fixtures that the mark configures. Marks are searched from this kind of node on."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test with releases if its nearest mark with `as_version` has a list of them."""
    for fixture, kind in _MARKED_FIXTURES.items():
        if fixture in metafunc.fixturenames:
            releases = _merged(metafunc.definition.getparent(kind)).get("as_version")
            if isinstance(releases, list | tuple):
                metafunc.parametrize(fixture, releases, indirect=True, ids=[f"kafka-{name}" for name in releases])


# Failed tests


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a test if its faults did not work as it assumes: an action failed, or a fault was applied to no request."""
    __tracebackhide__ = True
    reason = None
    try:
        yield
    except Exception as error:
        reason = _why_not_on_kafka(error)
        if reason is None:
            raise
    if reason is not None:
        _skip(item.config, reason)
    clusters = list(filter(_is_fake, _clusters_of(item)))
    errors = [error for cluster in clusters for error in cluster.action_errors()]
    if errors:
        pytest.fail("\n".join(["actions of faults failed:", *errors]), pytrace=False)
    missed = [fault.missed for cluster in clusters for fault in cluster.faults() if fault.missed]
    if missed:
        pytest.fail("\n".join(missed), pytrace=False)


def _clusters_of(item: pytest.Item) -> list["FakeCluster"]:
    return item.stash.get(_clusters, []) + [cluster for cluster, _ in _shared_clusters(item)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add reports on the clusters of a failed test to the test's report."""
    if call.excinfo is not None and not item.config.getoption("fulltrace"):
        _hide_internals(call.excinfo.value)
    report = yield
    if report.failed:
        for number, cluster in enumerate(_clusters_of(item), 1):
            if call.when == "teardown" and not _is_fake(cluster):
                continue  # It is closed.
            kind = "fake cluster" if _is_fake(cluster) else "Kafka"
            report.sections.append((f"{kind} {number}", _cluster_report(item, cluster, number)))
    if call.when == "teardown":
        item.stash[_clusters] = []  # Tests exist until the end of the run, and clusters have much memory.
    return report


def _hide_internals(error: BaseException) -> None:
    """End the traceback of an error of this package at the test's call: the message says what is wrong with it."""
    from fakebroker.errors import FakebrokerError

    if isinstance(error, FakebrokerError):
        shown, entry = None, error.__traceback__
        while entry is not None:
            module = entry.tb_frame.f_globals.get("__name__", "")
            # The fixtures of this module are shown, because they have the arguments of the marks.
            is_fixture = module == __name__ and "__tracebackhide__" not in entry.tb_frame.f_locals
            if is_fixture or module.partition(".")[0] not in _INTERNAL:
                shown = entry
            entry = entry.tb_next
        if shown is not None:
            shown.tb_next = None


def _cluster_report(item: pytest.Item, cluster: "FakeCluster", number: int) -> str:
    """Return the report on a cluster, and where its journal is kept."""
    try:
        parts = [cluster.report()]
    except Exception as error:  # An exception in a report would end the run. At the end of a test, Kafka is closed.
        parts = [f"no report: {error}"]
    if _is_fake(cluster) and (folder := item.config.getoption("fakebroker_keep_journal")):
        parts.append(_keep_journal(cluster, item.config.invocation_params.dir / folder, f"{item.nodeid}-{number}"))
    return "\n\n".join(parts)


def _keep_journal(cluster: "FakeCluster", folder: Path, name: str) -> str:
    """Write a cluster's journal to a file.

    Returns:
        A line for the report: the path, or the error.
    """
    # The hash keeps apart names that differ only in replaced characters, or after the maximum length.
    readable = re.sub(r"[^\w.]+", "-", name)[:_MAX_NAME]
    path = folder / f"{readable}-{hashlib.sha256(name.encode()).hexdigest()[:8]}.jsonl"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        cluster.journal.export(path)
    except Exception as error:  # An exception in a report would end the run.
        return f"journal not kept: {error}"
    return f"journal: {path}"
