"""The first use of a fresh cluster has the same errors in the same order on Apache Kafka and on `first_use="kafka"`.

So does that after the internal topics were deleted.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack

import pytest

from fakebroker import FakeCluster
from fakebroker.kafka.process import ApacheKafka
from fakebroker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from fakebroker.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.support.soak import sampled, soak
from tests.support.wire_client import TIMEOUT_S, WireClient

pytestmark = pytest.mark.slow

BROKERS = 3


def errors_until_success(ask: Callable[[], int], wait: Callable[[], None]) -> list[int]:
    """Repeat a request until it has no error; return the different errors in their order."""
    errors = list[int]()
    deadline = time.monotonic() + TIMEOUT_S
    while not errors or errors[-1]:
        assert time.monotonic() < deadline, errors
        error = ask()
        if error not in errors[-1:]:
            errors.append(error)
        wait()
    return errors


def first_use(clients: Mapping[int, WireClient], wait: Callable[[], None]) -> dict[str, list[int] | list[str]]:
    """Look for the coordinator of a group and of a transactional id, and use it. Return the errors of each request."""
    found: dict[str, list[int] | list[str]] = {}

    def note(what: str, ask: Callable[[], int]) -> None:
        found[what] = errors_until_success(ask, wait)

    def note_topics(when: str) -> None:
        topics = clients[1].ask(MetadataRequest(topics=None), MetadataResponse, 12).topics
        found[f"topics {when}"] = sorted(str(each.name) for each in topics)

    def describe(node_id: int) -> int:
        return clients[node_id].ask(DescribeGroupsRequest(groups=["g"]), DescribeGroupsResponse, 5).groups[0].error_code

    def initialize(node_id: int, transactional_id: str | None) -> int:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=10_000)
        return clients[node_id].ask(request, InitProducerIdResponse, 5).error_code

    coordinator = 0

    def find(key_type: int) -> int:
        nonlocal coordinator
        request = FindCoordinatorRequest(coordinator_keys=["g"], key_type=key_type)
        (one,) = clients[1].ask(request, FindCoordinatorResponse, 4).coordinators
        coordinator = one.node_id
        return one.error_code

    found["group before"] = [describe(node_id) for node_id in clients]
    found["transactional id before"] = [initialize(node_id, "g") for node_id in clients]
    note_topics("before")
    note("producer id", lambda: initialize(1, None))
    note("find group", lambda: find(0))
    note_topics("after the group")
    note("group", lambda: describe(coordinator))
    note("find transactional id", lambda: find(1))
    note_topics("after the transactional id")
    note("transactional id", lambda: initialize(coordinator, "g"))
    return found


def again(clients: Mapping[int, WireClient], wait: Callable[[], None]) -> dict[str, list[int] | list[str]]:
    """Use a cluster for the first time, delete its internal topics, and use it again, when all brokers know that."""
    first_use(clients, wait)
    request = DeleteTopicsRequest(topic_names=["__consumer_offsets", "__transaction_state"], timeout_ms=10_000)
    results = clients[1].ask(request, DeleteTopicsResponse, 5).responses
    assert [each.error_code for each in results] == [0, 0]
    deadline = time.monotonic() + TIMEOUT_S
    while any(client.ask(MetadataRequest(topics=None), MetadataResponse, 12).topics for client in clients.values()):
        assert time.monotonic() < deadline
        wait()
    # Kafka's coordinators resign a moment later.
    not_compared = ("producer id", "group before", "transactional id before")
    return {name: errors for name, errors in first_use(clients, wait).items() if name not in not_compared}


@soak
@pytest.mark.parametrize("use", sampled([first_use, again], 2))
def test_errors_of_the_first_use_are_those_of_kafka(
    use: Callable[[Mapping[int, WireClient], Callable[[], None]], dict[str, list[int] | list[str]]],
) -> None:
    with ExitStack() as stack:
        cluster = stack.enter_context(FakeCluster(BROKERS, first_use="kafka", clock="manual"))
        clients = {each.node_id: stack.enter_context(WireClient(each)) for each in cluster.brokers}
        expected = use(clients, lambda: cluster.advance(0.01))
    with ApacheKafka("4.4", BROKERS) as kafka, ExitStack() as stack:
        clients = {node_id: stack.enter_context(WireClient(each)) for node_id, each in kafka.brokers.items()}
        found = use(clients, lambda: time.sleep(0.001))
    # Kafka may pass a phase so fast that a request misses it. What it answers has to be in the same order.
    for key in ("group", "transactional id"):
        assert found[key][-1] == 0
        expected[key] = [error for error in expected[key] if error in found[key]]  # type: ignore[assignment]  # a list of errors
    assert found == expected
