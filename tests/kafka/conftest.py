"""Apache Kafka needs Java and Maven: without them, the tests that start it are skipped. Those are slow."""

import pytest

from tests.support import programs


@pytest.fixture(autouse=True)
def java_and_maven(request: pytest.FixtureRequest) -> None:
    """Skip a slow test if a program is missing."""
    if request.node.get_closest_marker("slow"):
        programs.require("java", "mvn")
