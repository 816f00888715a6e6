"""What the members of options 1.a, 1.b and 1.c have in common: registration, its failures, and commits."""

import pytest

from fakebroker.lab.designs import design_named
from fakebroker.lab.designs.options.messages import (
    ANY_PARTITION,
    NOT_COORDINATOR,
    SESSION_TIMEOUT_NOT_VALID,
    TOPIC_PARTITION_NOT_VALID,
    OffsetCommitRequest,
    OffsetCommitResponse,
    StartFetcherRequest,
    StartFetcherResponse,
    TopicPartitions,
    from_wire,
    to_wire,
)
from fakebroker.lab.designs.options.registration import TRANSITIONS, Registration, RegistrationState
from fakebroker.protocol.codec import decode, encode
from tests.support.lab.option_members import BACKOFF_MS, COMMIT_MS, SESSION_MS, OptionMember

OPTIONS = ("option-1a", "option-1b", "option-1c")


@pytest.fixture(params=OPTIONS)
def lab(request: pytest.FixtureRequest) -> OptionMember:
    return OptionMember(design_named(request.param))


def own(lab: OptionMember, offset: int = 5) -> None:
    """Make the member own partition 0."""
    partitions = {("t", 0): offset}
    lab.answer(lab.start(), partitions)
    if lab.design.name != "option-1a":
        start = StartFetcherRequest(
            correlation_id=1, consumer_id=lab.port.ids[-1], partitions_to_own=to_wire(partitions)
        )
        lab.receive(start)
        lab.take(StartFetcherResponse)
    assert lab.port.owned == {("t", 0): max(offset, 0)}


def test_a_member_finds_its_coordinator_and_registers(lab: OptionMember) -> None:
    request = lab.start()
    assert lab.link.node_id == 1
    assert (request.group_id, request.session_timeout) == ("g", SESSION_MS)
    assert request.consumer_id == "g_c-00000001"
    assert request.subscribing == [TopicPartitions(topic="t", partition_ids=[ANY_PARTITION])]
    assert request.consumed_so_far == []
    assert lab.port.ids == []
    lab.answer(request)
    assert lab.port.ids == ["g_c-00000001"]
    assert lab.port.sent == []


def test_messages_have_the_fields_of_the_document(lab: OptionMember) -> None:
    request = lab.start()
    encoded = encode(request, request.version)
    assert decode(type(request), encoded, request.version) == request
    # Version, CorrelationId, GroupId, ConsumerId, SessionTimeout, Subscribing: Topic and PartitionIds.
    size = 2 + 8 + (2 + 1) + (2 + 12) + 8 + 4 + (2 + 1) + 4 + 2
    assert len(encoded) == size + (4 if lab.design.name == "option-1a" else 0)


def test_offsets_start_at_zero_where_none_is_committed(lab: OptionMember) -> None:
    own(lab, -1)


@pytest.mark.parametrize("error", [NOT_COORDINATOR, TOPIC_PARTITION_NOT_VALID, SESSION_TIMEOUT_NOT_VALID])
def test_a_rejected_member_registers_again_after_the_back_off(lab: OptionMember, error: int) -> None:
    lab.answer(lab.start(), error=error)
    assert lab.port.ids == []
    assert lab.port.closed == [lab.link]
    lab.advance(BACKOFF_MS - 1)
    assert not lab.is_looking()
    lab.advance(1)
    lab.answer(lab.find(node_id=2))
    assert lab.link.node_id == 2
    assert len(lab.port.ids) == 1
    assert lab.port.failures == []


def test_a_member_looks_again_if_there_is_no_coordinator(lab: OptionMember) -> None:
    lab.member.start(0.0)
    lab.found(None)
    lab.advance(BACKOFF_MS)
    assert lab.is_looking()


def test_a_member_looks_again_if_it_cannot_connect(lab: OptionMember) -> None:
    lab.member.start(0.0)
    lab.found(1)
    lab.member.disconnected(lab.link, 0.0)
    lab.advance(BACKOFF_MS)
    assert lab.is_looking()


def test_a_member_looks_again_if_its_registration_is_not_answered(lab: OptionMember) -> None:
    request = lab.start()
    lab.advance(SESSION_MS - 1)
    assert not lab.is_looking()
    lab.advance(1)
    assert lab.port.closed == [lab.link]
    again = lab.find()
    assert again.consumer_id == request.consumer_id
    lab.answer(request)  # Too late: the response to the first request.
    assert lab.port.ids == []
    lab.answer(again)
    assert lab.port.ids == [request.consumer_id]


def test_answers_that_nobody_waits_for_are_ignored(lab: OptionMember) -> None:
    own(lab)
    old = lab.link
    lab.member.found(2, lab.now_ms)
    assert len(lab.port.connecting) == 1
    lab.member.disconnected(old, lab.now_ms)
    lab.find()
    lab.member.disconnected(old, lab.now_ms)
    lab.member.received(old, OffsetCommitResponse(correlation_id=1), lab.now_ms)
    assert lab.link is not old
    assert not lab.is_looking()


def test_a_member_commits_each_interval_while_no_commit_is_pending(lab: OptionMember) -> None:
    own(lab)
    lab.port.consumed = {("t", 0): 9}
    lab.advance(COMMIT_MS)
    (commit,) = [message for _, message in lab.port.sent if isinstance(message, OffsetCommitRequest)]
    assert from_wire(commit.offset_info) == {("t", 0): 9}
    assert commit.consumer_id == "g_c-00000001"
    assert lab.member.idle() is None
    lab.port.sent.clear()
    lab.advance(COMMIT_MS)
    assert not [message for _, message in lab.port.sent if isinstance(message, OffsetCommitRequest)]
    lab.receive(OffsetCommitResponse(correlation_id=commit.correlation_id, error_code=NOT_COORDINATOR))
    lab.port.sent.clear()
    lab.advance(COMMIT_MS - 1)
    assert not [message for _, message in lab.port.sent if isinstance(message, OffsetCommitRequest)]
    lab.advance(1)
    assert [message for _, message in lab.port.sent if isinstance(message, OffsetCommitRequest)]


@pytest.mark.parametrize("name", OPTIONS)
def test_members_without_automatic_commits_do_not_commit(name: str) -> None:
    lab = OptionMember(design_named(name), commit_interval_ms=0)
    own(lab)
    idle = lab.member.idle()
    assert idle is not None
    assert len(idle.beats) == 1
    lab.advance(SESSION_MS - 1)
    assert not [message for _, message in lab.port.sent if isinstance(message, OffsetCommitRequest)]


def test_a_leaving_member_commits_and_closes_its_connection(lab: OptionMember) -> None:
    own(lab)
    lab.member.leave(lab.now_ms)
    assert from_wire(lab.take(OffsetCommitRequest).offset_info) == {("t", 0): 5}
    assert lab.port.closed == [lab.link]


def test_a_member_that_has_not_registered_leaves_without_a_message(lab: OptionMember) -> None:
    lab.start()
    lab.member.leave(lab.now_ms)
    assert lab.port.sent == []
    assert lab.port.closed == [lab.link]


def test_the_commits_of_an_idle_member_can_be_skipped(lab: OptionMember) -> None:
    own(lab)
    idle = lab.member.idle()
    assert idle is not None
    (commit,) = [beat for beat in idle.beats if beat.is_commit and not beat.is_from_coordinator]
    assert (commit.due_ms, commit.period_ms) == (COMMIT_MS, COMMIT_MS)
    lab.member.beats_skipped(commit, 3 * COMMIT_MS, 0.0)
    for beat in idle.beats:
        if beat is not commit:
            lab.member.beats_skipped(beat, 10 * SESSION_MS, 10 * SESSION_MS - 1)
    lab.advance(3 * COMMIT_MS - 1)
    assert lab.port.sent == []
    lab.advance(1)
    lab.take(OffsetCommitRequest)


def test_states_follow_the_table() -> None:
    assert TRANSITIONS.keys() == set(RegistrationState)
    assert {state for states in TRANSITIONS.values() for state in states} == set(RegistrationState)
    lab = OptionMember(design_named("option-1a"))
    registration: Registration = lab.member._registration  # type: ignore[attr-defined]  # of each option
    assert registration.state is RegistrationState.DOWN
    lab.member.start(0.0)
    lab.member.leave(0.0)
    with pytest.raises(AssertionError, match="no transition"):
        registration.end()
