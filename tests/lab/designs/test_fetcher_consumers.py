"""The members of options 1.b and 1.c: StopFetcher and StartFetcher, pings, and failures of the coordinator."""

import pytest

from fakebroker.lab.designs import design_named
from fakebroker.lab.designs.option_1b import COORDINATOR_TIMEOUTS
from fakebroker.lab.designs.options.messages import (
    UNKNOWN_CONSUMER,
    CoordinatorPingRequest,
    CoordinatorPingResponse,
    OffsetCommitResponse,
    PingRequest,
    PingResponse,
    StartFetcherRequest,
    StartFetcherResponse,
    StopFetcherRequest,
    StopFetcherResponse,
    from_wire,
    to_wire,
)
from fakebroker.topic_partition import TopicPartition
from tests.support.lab.option_members import PING_MS, SESSION_MS, OptionMember

ID = "g_c-00000001"


@pytest.fixture(params=["option-1b", "option-1c"])
def lab(request: pytest.FixtureRequest) -> OptionMember:
    return registered(request.param)


def registered(name: str) -> OptionMember:
    lab = OptionMember(design_named(name), commit_interval_ms=0)
    lab.answer(lab.start())
    return lab


def start(lab: OptionMember, partitions: dict[TopicPartition, int], consumer_id: str = ID) -> StartFetcherResponse:
    wire = to_wire(partitions)
    lab.receive(StartFetcherRequest(correlation_id=3, consumer_id=consumer_id, partitions_to_own=wire))
    return lab.take(StartFetcherResponse)


def stop(lab: OptionMember, consumer_id: str = ID) -> StopFetcherResponse:
    lab.receive(StopFetcherRequest(correlation_id=4, consumer_id=consumer_id))
    return lab.take(StopFetcherResponse)


def test_a_registered_member_owns_nothing_until_it_is_started(lab: OptionMember) -> None:
    assert lab.port.owned is None
    assert start(lab, {("t", 0): 5}) == StartFetcherResponse(correlation_id=3, consumer_id=ID)
    assert lab.port.owned == {("t", 0): 5}


def test_a_member_may_be_started_without_partitions(lab: OptionMember) -> None:
    start(lab, {})
    assert lab.port.owned == {}
    assert stop(lab).consumed_so_far == []


def test_a_stopped_member_reports_its_offsets_and_keeps_them(lab: OptionMember) -> None:
    start(lab, {("t", 0): 5})
    lab.port.consumed = {("t", 0): 9}
    expected = StopFetcherResponse(correlation_id=4, consumer_id=ID, consumed_so_far=to_wire({("t", 0): 9}))
    assert stop(lab) == expected
    assert lab.port.owned is None
    assert stop(lab) == expected
    start(lab, {("t", 1): 2})
    assert from_wire(stop(lab).consumed_so_far) == {("t", 1): 2}


def test_requests_for_another_consumer_are_answered_with_an_error(lab: OptionMember) -> None:
    start(lab, {("t", 0): 5})
    stopped = stop(lab, "other")
    assert (stopped.error_code, stopped.consumed_so_far) == (UNKNOWN_CONSUMER, [])
    assert start(lab, {("t", 1): 5}, "other").error_code == UNKNOWN_CONSUMER
    assert lab.port.owned == {("t", 0): 5}


def test_a_member_whose_connection_breaks_registers_again_and_goes_on_fetching(lab: OptionMember) -> None:
    start(lab, {("t", 0): 5})
    lab.member.disconnected(lab.link, lab.now_ms)
    request = lab.find(node_id=2)
    assert (request.version, request.consumer_id) == (0, ID)
    lab.answer(request)
    assert lab.port.owned == {("t", 0): 5}
    assert lab.port.ids == [ID, ID]


def test_a_member_whose_registration_is_lost_goes_on_fetching(lab: OptionMember) -> None:
    start(lab, {("t", 0): 5})
    lab.member.disconnected(lab.link, lab.now_ms)
    lab.find()
    lab.advance(SESSION_MS)
    assert lab.is_looking()
    assert lab.port.owned == {("t", 0): 5}


# Option 1.b


def coordinator_ping(lab: OptionMember) -> CoordinatorPingResponse:
    lab.receive(CoordinatorPingRequest(correlation_id=6, consumer_id=ID))
    return lab.take(CoordinatorPingResponse)


def test_pings_of_the_coordinator_are_answered_with_the_consumed_offsets() -> None:
    lab = registered("option-1b")
    start(lab, {("t", 0): 5})
    lab.port.consumed = {("t", 0): 7}
    expected = CoordinatorPingResponse(correlation_id=6, consumer_id=ID, consumed_so_far=to_wire({("t", 0): 7}))
    assert coordinator_ping(lab) == expected


@pytest.mark.parametrize("request_name", ["ping", "stop", "start", "commit response", "nothing"])
def test_a_member_without_requests_registers_again(request_name: str) -> None:
    """Responses to commits are not requests."""
    lab = registered("option-1b")
    start(lab, {("t", 0): 5})
    lab.advance(COORDINATOR_TIMEOUTS * SESSION_MS - 1)
    match request_name:
        case "ping":
            coordinator_ping(lab)
        case "stop":
            stop(lab)
        case "start":
            start(lab, {})
        case "commit response":
            lab.receive(OffsetCommitResponse(correlation_id=0))
    lab.advance(1)
    is_heard = request_name in ("ping", "stop", "start")
    assert lab.is_looking() is not is_heard
    if is_heard:
        lab.advance(COORDINATOR_TIMEOUTS * SESSION_MS - 1)
    assert lab.port.closed == [lab.link]
    assert lab.find(node_id=2).consumer_id == ID


def test_an_idle_member_expects_the_pings_of_the_coordinator() -> None:
    lab = registered("option-1b")
    start(lab, {("t", 0): 5})
    idle = lab.member.idle()
    assert idle is not None
    (beat,) = idle.beats
    assert (beat.period_ms, beat.is_from_coordinator, beat.is_commit) == (SESSION_MS, True, True)
    assert beat.request == CoordinatorPingRequest(correlation_id=0, consumer_id=ID)
    assert from_wire(beat.response.consumed_so_far) == {("t", 0): 0}  # type: ignore[attr-defined]  # of this response
    lab.member.beats_skipped(beat, 0.0, 60_000.0)
    lab.advance(60_000 + COORDINATOR_TIMEOUTS * SESSION_MS - 1)
    assert not lab.is_looking()
    lab.advance(1)
    assert lab.is_looking()


# Option 1.c


def ping(lab: OptionMember) -> PingRequest:
    lab.advance(PING_MS)
    return lab.take(PingRequest)


@pytest.mark.parametrize("answer", ["response", "stop", "start", "nothing"])
def test_a_ping_expires_unless_the_coordinator_is_heard(answer: str) -> None:
    lab = registered("option-1c")
    start(lab, {("t", 0): 5})
    first = ping(lab)
    lab.advance(SESSION_MS - 1)
    match answer:
        case "response":
            lab.receive(PingResponse(correlation_id=first.correlation_id))
        case "stop":
            stop(lab)
        case "start":
            start(lab, {("t", 0): 6})
    lab.advance(1)
    assert lab.is_looking() is (answer == "nothing")
    if answer == "nothing":
        assert lab.port.closed == [lab.link]
        assert lab.port.owned == {("t", 0): 5}
        lab.answer(lab.find(node_id=2))
        ping(lab)


def test_the_next_ping_waits_for_the_response() -> None:
    lab = registered("option-1c")
    first = ping(lab)
    stop(lab)
    lab.advance(10 * PING_MS)
    assert lab.port.sent == []
    lab.receive(PingResponse(correlation_id=first.correlation_id))
    ping(lab)


def test_a_member_that_the_coordinator_does_not_know_registers_again() -> None:
    lab = registered("option-1c")
    first = ping(lab)
    lab.receive(PingResponse(correlation_id=first.correlation_id, error_code=UNKNOWN_CONSUMER))
    lab.answer(lab.find())
    assert not lab.is_looking()
    ping(lab)


def test_an_idle_member_pings() -> None:
    lab = registered("option-1c")
    start(lab, {("t", 0): 5})
    idle = lab.member.idle()
    assert idle is not None
    (beat,) = idle.beats
    assert (beat.due_ms, beat.period_ms, beat.is_from_coordinator) == (PING_MS, PING_MS, False)
    lab.member.beats_skipped(beat, 10 * PING_MS, 9 * PING_MS)
    lab.advance(10 * PING_MS - 1)
    assert lab.port.sent == []
    lab.advance(1)
    lab.take(PingRequest)
    assert lab.member.idle() is None


def test_an_unregistered_member_is_not_idle(lab: OptionMember) -> None:
    start(lab, {("t", 0): 5})
    assert lab.member.idle() is not None
    lab.member.disconnected(lab.link, lab.now_ms)
    assert lab.member.idle() is None
    lab.find()
    assert lab.member.idle() is None
