"""Apache Kafka needs Java and Maven: without them, its tests are skipped."""

import pytest

from tests.support import programs


@pytest.fixture(autouse=True)
def java_and_maven() -> None:
    """Skip a test if a program is missing."""
    programs.require("java", "mvn")
