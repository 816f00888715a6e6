"""What holds for every test: Hypothesis draws the same examples in each run, and no clock decides."""

import gc
import signal

import pytest
from hypothesis import HealthCheck, settings

from tests.support import soak_report

settings.register_profile(
    "fakebroker",
    derandomize=True,
    deadline=None,
    # Hypothesis would fail a test for being slow on a busy machine.
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fakebroker")


def pytest_addoption(parser: pytest.Parser) -> None:
    soak_report.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    soak_report.register(config)
    # A shell starts background processes with SIGINT ignored, and theirs would ignore it, too; tests send it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # kafka-python reads its message definitions with them when it is imported.
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")


def pytest_collection_finish() -> None:
    """Leave the collected tests out of garbage collections, which some tests run to find what they leak."""
    gc.collect()
    gc.freeze()
