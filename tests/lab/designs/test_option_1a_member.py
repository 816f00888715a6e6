"""The member of option 1.a: pings, and registrations upon errors, silence and broken connections."""

import pytest

from fakebroker.lab.designs.option_1a import DESIGN
from fakebroker.lab.designs.options.messages import (
    NOT_COORDINATOR,
    REBALANCE,
    UNKNOWN_CONSUMER,
    PingRequest,
    PingResponse,
    RegisterConsumerRequest,
    from_wire,
)
from tests.support.lab.option_members import PING_MS, SESSION_MS, OptionMember


@pytest.fixture
def lab() -> OptionMember:
    """A member that owns partition 0 and has consumed from offset 5 to 9."""
    lab = OptionMember(DESIGN, commit_interval_ms=0)
    lab.answer(lab.start(), {("t", 0): 5})
    assert lab.port.owned == {("t", 0): 5}
    lab.port.consumed = {("t", 0): 9}
    return lab


def ping(lab: OptionMember) -> PingRequest:
    lab.advance(PING_MS)
    return lab.take(PingRequest)


def answer(lab: OptionMember, request: PingRequest, error: int = 0) -> None:
    lab.receive(PingResponse(correlation_id=request.correlation_id, error_code=error))


def test_a_member_pings_each_interval(lab: OptionMember) -> None:
    first = ping(lab)
    assert (first.group_id, first.consumer_id) == ("g", "g_c-00000001")
    answer(lab, first)
    second = ping(lab)
    assert second.correlation_id != first.correlation_id
    lab.advance(PING_MS)  # The response is pending.
    assert lab.port.sent == []
    answer(lab, first)  # Not the one that is pending.
    lab.advance(PING_MS)
    assert lab.port.sent == []
    answer(lab, second)
    ping(lab)
    assert lab.port.owned == {("t", 0): 5}


@pytest.mark.parametrize("error", [REBALANCE, UNKNOWN_CONSUMER, NOT_COORDINATOR])
def test_after_an_error_a_member_stops_and_registers_again_over_its_connection(lab: OptionMember, error: int) -> None:
    answer(lab, ping(lab), error)
    assert lab.port.owned is None
    assert lab.member.idle() is None
    lab.found(1)
    request = lab.take(RegisterConsumerRequest)
    assert (request.version, request.consumer_id) == (1, "g_c-00000001")
    assert from_wire(request.consumed_so_far) == {("t", 0): 9}
    assert lab.port.closed == []
    lab.advance(PING_MS)
    assert lab.port.sent == []
    lab.answer(request, {("t", 1): 2})
    assert lab.port.owned == {("t", 1): 2}
    ping(lab)


def test_after_an_error_a_member_registers_at_the_coordinator_that_it_finds(lab: OptionMember) -> None:
    answer(lab, ping(lab), REBALANCE)
    before = lab.link
    lab.find(node_id=2)
    assert lab.port.closed == [before]


def test_a_connection_may_break_during_the_look_up(lab: OptionMember) -> None:
    answer(lab, ping(lab), REBALANCE)
    lab.member.disconnected(lab.link, lab.now_ms)
    lab.find()
    assert len(lab.port.connecting) == 2


def test_a_member_without_a_response_stops_and_looks_up_its_coordinator(lab: OptionMember) -> None:
    ping(lab)
    lab.advance(SESSION_MS - 1)
    assert not lab.is_looking()
    lab.advance(1)
    assert lab.port.owned is None
    assert lab.port.closed == [lab.link]
    assert from_wire(lab.find(node_id=2).consumed_so_far) == {("t", 0): 9}


def test_a_member_whose_connection_breaks_stops_and_looks_up_its_coordinator(lab: OptionMember) -> None:
    lab.member.disconnected(lab.link, lab.now_ms)
    assert lab.port.owned is None
    request = lab.find(node_id=2)
    assert from_wire(request.consumed_so_far) == {("t", 0): 9}
    lab.answer(request, error=NOT_COORDINATOR)
    lab.advance(1_000)
    assert from_wire(lab.find().consumed_so_far) == {("t", 0): 9}


def test_a_member_without_a_confirmation_registers_again(lab: OptionMember) -> None:
    answer(lab, ping(lab), REBALANCE)
    lab.found(1)
    lab.take(RegisterConsumerRequest)
    lab.advance(SESSION_MS)
    assert lab.port.closed == [lab.link]
    assert from_wire(lab.find().consumed_so_far) == {("t", 0): 9}


def test_the_pings_of_an_idle_member_can_be_skipped(lab: OptionMember) -> None:
    idle = lab.member.idle()
    assert idle is not None
    (beat,) = idle.beats
    assert (beat.due_ms, beat.period_ms, beat.is_from_coordinator) == (PING_MS, PING_MS, False)
    assert idle.until_ms == float("inf")
    lab.member.beats_skipped(beat, 20 * PING_MS, 19 * PING_MS + 1)
    lab.advance(20 * PING_MS - 1)
    assert lab.port.sent == []
    lab.advance(1)
    lab.take(PingRequest)
    assert lab.member.idle() is None
