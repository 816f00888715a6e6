"""The limits of arrays and tagged fields of requests are those of running brokers."""

import pytest

from fakebroker.kafka.process import ApacheKafka
from tests.support import large_requests
from tests.support.soak import IS_SOAK, soak

pytestmark = pytest.mark.slow


LIMITED = {"4.1": False, "4.2": True, "4.3": False, "4.4": True}


@soak
@pytest.mark.parametrize(("release", "is_limited"), LIMITED.items() if IS_SOAK else [("4.4", True)])
def test_limits_of_arrays_and_tagged_fields(release: str, is_limited: bool) -> None:
    frames = large_requests.requests()
    with ApacheKafka(release) as kafka:
        found = large_requests.answered(kafka.brokers[1], frames)

    assert found == {name: is_answered or not is_limited for name, (_, is_answered) in frames.items()}
