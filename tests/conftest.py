"""pytest and Hypothesis settings of all tests, missing programs, the option of `make soak`, and a Spark session.

Hypothesis draws the same examples in each run, and has no deadlines.
"""

import gc
import os
import signal
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import hypothesis.core
import hypothesis.vendor.pretty
import pytest
from hypothesis import HealthCheck, Phase, settings

from fakebroker.garbage_collection import no_garbage_collection
from tests.support import programs, soak_report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

settings.register_profile(
    "fakebroker",
    derandomize=True,
    deadline=None,
    # Hypothesis would fail a test for being slow on a busy machine.
    suppress_health_check=[HealthCheck.too_slow],
    # Hypothesis may spend minutes on the explanation of a failure.
    phases=[phase for phase in Phase if phase is not Phase.explain],
)
settings.load_profile("fakebroker")


def pytest_addoption(parser: pytest.Parser) -> None:
    soak_report.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    soak_report.register(config)
    # The schemathesis plugin has replaced Hypothesis's printer with a printer that omits failing examples: restore it.
    setattr(hypothesis.core, "RepresentationPrinter", hypothesis.vendor.pretty.RepresentationPrinter)  # noqa: B010
    os.environ["FAKEBROKER_CLASS_ARCHIVE"] = "never"  # replays of tests start no process in the background
    # A shell starts background processes with SIGINT ignored. Child processes inherit that, and tests send SIGINT to
    # child processes.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # kafka-python calls `read_text` and `open_text` of importlib.resources when it is imported.
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without garbage collections, and exclude the tests from later ones.

    Collecting makes many lasting objects, and some tests call `gc.collect()` to find leaks.
    """
    with no_garbage_collection():
        result = yield
    _exclude_from_garbage_collection()
    return result


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        programs.require(*mark.args)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None]:
    """Print a line about missing programs below all other lines about tests."""
    yield
    if line := programs.summary(terminalreporter.getreports("skipped")):
        terminalreporter.write_line(line)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """Exclude what lasts longer than a module, such as caches. A replay has ended the exclusion of the tests, too."""
    yield
    if nextitem is None or nextitem.path != item.path:
        _exclude_from_garbage_collection()


def _exclude_from_garbage_collection() -> None:
    """Exclude all present objects from garbage collections."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """A Spark session that all tests of a process share: it takes seconds to start, and a process can have only one."""
    from fakebroker.replay.spark.session import spark_session

    with spark_session("local[2]", tmp_path_factory.mktemp("spark") / "spark.log") as session:
        yield session
