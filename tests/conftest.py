"""Settings of all tests: Hypothesis draws the same examples in each run, without deadlines; options of `make soak`."""

import gc
import signal

import hypothesis.core
import hypothesis.vendor.pretty
import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.support import soak_report

settings.register_profile(
    "fakebroker",
    derandomize=True,
    deadline=None,
    # Hypothesis would fail a test for being slow on a busy machine.
    suppress_health_check=[HealthCheck.too_slow],
    # Explanations of failures can take minutes.
    phases=[phase for phase in Phase if phase is not Phase.explain],
)
settings.load_profile("fakebroker")


def pytest_addoption(parser: pytest.Parser) -> None:
    soak_report.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    soak_report.register(config)
    # The plugin of schemathesis replaces it by one that leaves failing examples out of reports.
    setattr(hypothesis.core, "RepresentationPrinter", hypothesis.vendor.pretty.RepresentationPrinter)  # noqa: B010
    # Processes that a shell starts in the background inherit that SIGINT is ignored; tests send it to child processes.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # kafka-python calls these functions when it is imported.
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")


def pytest_collection_finish() -> None:
    """Leave the collected tests out of garbage collections, which some tests run to find what they leak."""
    gc.collect()
    gc.freeze()
