"""The mark of tests that run Spark, and studies on the session of the tests."""

from contextlib import nullcontext

import pytest
from pyspark.sql import SparkSession


@pytest.hookimpl(tryfirst=True)  # before the option `-m` selects by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that run Spark; `make test` runs them separately."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")


@pytest.fixture
def studies_on_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let studies in this process use the shared session."""
    monkeypatch.setattr("fakebroker.lab.runner.spark_session", lambda *_: nullcontext(spark))
