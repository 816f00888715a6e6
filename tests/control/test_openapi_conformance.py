"""The server against its OpenAPI document: generated requests get responses that the document describes."""

from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.core import NotSet
from schemathesis.core.result import Ok
from schemathesis.generation.hypothesis.builder import HypothesisTestConfig, HypothesisTestMode, create_test
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from fakebroker.control.routes.openapi import document
from tests.support.control.control_server import ControlHarness, controlled_cluster
from tests.support.soak import examples, sampled, soak

pytestmark = [pytest.mark.slow, soak]

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
SETTINGS = hypothesis.settings(
    max_examples=examples(2, soak=15),
    deadline=None,
    derandomize=True,
    suppress_health_check=list(hypothesis.HealthCheck),
)


@pytest.fixture(scope="module")
def control() -> Iterator[ControlHarness]:
    with controlled_cluster(2, {"orders": 4}, seed=1, clock="manual") as harness:
        harness.post("/groups/g/seed", {"members": ["a", "b"], "topics": ["orders"]})
        yield harness


def send(control: ControlHarness, case: Any) -> None:
    if "cluster" in (case.path_parameters or {}):
        case.path_parameters["cluster"] = "default"
    # Long waits and large clusters are valid, but would take too long.
    for operation, field in (("/wait", "timeout_s"), ("/stays", "for_s")):
        if case.path.endswith(operation) and isinstance(case.body, dict | NotSet):
            case.body = {**(case.body if isinstance(case.body, dict) else {}), field: 0}
    if case.path == "/v1/clusters" and isinstance(case.body, dict):
        case.body["brokers"] = 1
    case.call_and_validate(base_url=control.server.url, checks=CHECKS, timeout=30)


@pytest.mark.parametrize("is_post", [True, False], ids=["POST", "others"])  # Two tests, to run in parallel.
def test_generated_requests_get_documented_responses(
    control: ControlHarness, subtests: pytest.Subtests, is_post: bool
) -> None:
    # The response of a stream has no end.
    schema = schemathesis.openapi.from_file(document()).exclude(path_regex="/stream$")
    # schemathesis' own `parametrize` would make a test of each operation.
    operations = [
        operation
        for result in schema.get_all_operations()
        if isinstance(result, Ok) and ((operation := result.ok()).method.upper() == "POST") == is_post
    ]
    assert len(operations) > 25
    # A value of each kind for each parameter takes most of the time.
    covered = {operation.label for operation in sampled(operations, 4)}
    for operation in operations:
        with subtests.test(operation=operation.label):
            modes = [
                mode
                for mode in HypothesisTestMode
                if mode is not HypothesisTestMode.COVERAGE or operation.label in covered
            ]
            config = HypothesisTestConfig(project=schema.config, modes=modes, settings=SETTINGS)

            def check(case: Any) -> None:
                send(control, case)

            create_test(operation=operation, test_func=check, config=config)()
