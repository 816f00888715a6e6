"""Apache Kafka needs Java and Maven: without them, the tests that start it are skipped. Those are slow."""

import pytest

from fakebroker.kafka.jars import jars
from tests.support import programs


@pytest.fixture(autouse=True)
def java_and_maven(request: pytest.FixtureRequest) -> None:
    """Skip a slow test if a program is missing. Download Kafka before a test that gives its processes limited time."""
    if request.node.get_closest_marker("slow"):
        programs.require("java", "mvn")
        jars("4.4")
