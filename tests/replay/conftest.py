"""One Spark session for all tests of this folder: it takes seconds to start."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fakebroker.replay.spark.session import spark_session


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what runs Spark: it takes all cores, so these tests go file by file, apart from the others."""
    for item in items:
        is_here = item.path.is_relative_to(Path(__file__).parent)
        if "spark" in getattr(item, "fixturenames", ()) or (is_here and item.get_closest_marker("slow")):
            item.add_marker("spark")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session("local[2]", tmp_path_factory.mktemp("spark") / "spark.log") as session:
        yield session


@pytest.fixture
def replays_on_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replays in this process use the tests' session. The reports of a Java of their own take 30 s of CPU."""
    monkeypatch.setattr("fakebroker.replay.runner.spark_session", lambda *_: nullcontext(spark))
