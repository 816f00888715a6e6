"""What the admin client reads from one response about many groups."""

from collections.abc import Sequence
from typing import Any

import pytest

from fakebroker.client.admin import group_handlers, offset_handlers
from fakebroker.client.admin.driver import AdminApiDriver, AdminApiHandler
from fakebroker.client.backoff import Backoff
from fakebroker.client.brokers import Exchange
from fakebroker.client.errors import AdminError
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from fakebroker.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from fakebroker.protocol.schema import Message

FIND_COORDINATORS = group_handlers.find_coordinators("group")


def errors_in(handler: AdminApiHandler[Any, Any], keys: Sequence[str], response: Message) -> dict[str, AdminError]:
    """Return the errors that the driver reads from a response about several keys."""
    no_brokers: Any = None
    driver = AdminApiDriver(no_brokers, Backoff(1), FIND_COORDINATORS, handler, fall_back=True)
    exchange = Exchange(handler.request(keys), lambda _: None, None, "", 0)
    exchange.keys, exchange.response, exchange.address = keys, response, ("h", 9)
    answers: dict[str, Any] = {}
    driver._read(exchange, handler, None, answers)
    assert list(answers) == list(keys)
    return {key: answer for key, answer in answers.items() if isinstance(answer, AdminError)}


def test_a_key_that_is_missing_in_the_response_has_an_error() -> None:
    found = [
        Coordinator(key=key, node_id=1, host="h", port=9, error_code=error, error_message=None)
        for key, error in (("a", 0), ("b", 9_999))
    ]
    failed = errors_in(FIND_COORDINATORS, ["a", "b", "c"], FindCoordinatorResponse(coordinators=found))
    assert {key: error.error for key, error in failed.items()} == dict.fromkeys(
        ["b", "c"], ErrorCode.UNKNOWN_SERVER_ERROR
    )
    assert str(failed["c"]).endswith("UNKNOWN_SERVER_ERROR: no result in the response of broker h:9")


def test_the_error_of_a_group_may_be_that_of_its_partitions(subtests: pytest.Subtests) -> None:
    handler = offset_handlers.list_offsets({"g": [("t", 0)]}, require_stable=False)
    cases: dict[ErrorCode, list[tuple[int, int]]] = {
        ErrorCode.COORDINATOR_NOT_AVAILABLE: [],
        ErrorCode.NOT_COORDINATOR: [(0, 16)],
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: [(0, 29)],
    }
    for error, codes in cases.items():
        with subtests.test(error=error):
            partitions = [
                OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, metadata="", error_code=code)
                for index, code in codes
            ]
            topics = [OffsetFetchResponseTopics(name="t", partitions=partitions)] if partitions else []
            response = OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])
            assert errors_in(handler, ["g"], response)["g"].error is error
