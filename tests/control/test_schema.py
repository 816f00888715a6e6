"""The OpenAPI document against the server: whatever is asked, an answer that the document foresees comes."""

from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis.checks import CheckContext, not_a_server_error
from schemathesis.core import NotSet
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from fakebroker.control.routes.openapi import document
from tests.support.control.control_server import Asking, asking

__all__ = ["CheckContext"]

EXAMPLES = 15

schema = schemathesis.openapi.from_file(document()).exclude(path_regex="/stream$")  # It has no end.


@pytest.fixture(scope="module")
def control() -> Iterator[Asking]:
    with asking(2, {"orders": 4}, seed=1, clock="manual") as made:
        made.post("/groups/g/seed", {"members": ["a", "b"], "topics": ["orders"]}, 201)
        yield made


@pytest.mark.slow
@schema.parametrize()
@hypothesis.settings(
    max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(hypothesis.HealthCheck)
)
def test_every_answer_is_one_that_the_document_foresees(control: Asking, case: Any) -> None:
    if "cluster" in (case.path_parameters or {}):
        case.path_parameters["cluster"] = "default"
    # What takes long, or much memory, is no mistake.
    if "/wait/" in case.path and isinstance(case.body, dict | NotSet):
        case.body = {**(case.body if isinstance(case.body, dict) else {}), "timeout_s": 0}
    if case.path == "/v1/clusters" and isinstance(case.body, dict):
        case.body["brokers"] = 1
    case.call_and_validate(
        base_url=control.server.url,
        checks=[
            not_a_server_error,
            status_code_conformance,
            content_type_conformance,
            response_schema_conformance,
        ],
        timeout=30,
    )
