"""Arrays and tagged fields of requests, as many as Kafka allows in each release."""

import pytest

from fakebroker import FakeCluster
from fakebroker.cluster.call import read_call
from fakebroker.errors import ProtocolError
from fakebroker.protocol.frames import request_frame
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.support import large_requests
from tests.support.cluster.cluster_harness import ClusterHarness


def test_limits_of_arrays_and_tagged_fields() -> None:
    frames = large_requests.requests()
    with FakeCluster() as cluster, FakeCluster(as_version="4.1") as older:
        limited = large_requests.answered(cluster.brokers[0], frames)
        unlimited = large_requests.answered(older.brokers[0], frames)

    assert limited == {name: is_answered for name, (_, is_answered) in frames.items()}
    assert all(unlimited.values())


def test_limit_of_keys_that_are_not_decoded() -> None:
    frame = request_frame(FindCoordinatorRequest(coordinator_keys=["g"] * (large_requests.ELEMENTS + 1)), 4, 1, "c")[4:]

    assert not read_call(ClusterHarness(as_version="4.1").peer(), frame).is_decoded
    with pytest.raises(ProtocolError, match="1000001 elements, expected at most 1000000"):
        read_call(ClusterHarness().peer(), frame)
