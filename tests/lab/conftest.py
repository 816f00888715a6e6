"""A Spark session that the tests of this folder share, because it takes seconds to start."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from fakebroker.replay.spark.session import spark_session


@pytest.hookimpl(tryfirst=True)  # before the option `-m` selects by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that run Spark; `make test` runs them separately."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session("local[2]", tmp_path_factory.mktemp("spark") / "spark.log") as session:
        yield session
