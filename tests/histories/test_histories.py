"""Random histories on the fake cluster alone, the kept ones, and the comparison of answers."""

from pathlib import Path
from time import monotonic

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from fakebroker.cluster.cluster import Cluster
from fakebroker.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from fakebroker.protocol.messages.heartbeat import HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from fakebroker.protocol.records import Record, encode_batch
from fakebroker.protocol.releases import NEWEST
from fakebroker.protocol.schema import Message
from tests.histories import play, sides
from tests.histories.answers import Difference, Pairs
from tests.histories.drawing import PROFILES, histories
from tests.histories.history import History, Step, from_text, to_text
from tests.histories.play import Outcome, play_on_fake, play_recorded
from tests.histories.recording import parse
from tests.histories.run import Turns, kept, known_kinds, shrunk
from tests.support.soak import examples, soak


@pytest.mark.parametrize("path", kept(), ids=lambda path: path.stem)
def test_kept_history_has_the_answers_of_kafka(path: Path) -> None:
    history, recording = parse(path.read_text())

    outcome = play_recorded(history, recording)

    assert outcome.difference is None
    assert outcome.compared == len(recording.answers) > 0


@soak
@pytest.mark.parametrize("profile", PROFILES)
def test_random_history_raises_nothing_and_ends(profile: str) -> None:
    @settings(
        max_examples=examples(20, soak=2_000),
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(histories(NEWEST, profile))
    def check(history: History) -> None:
        outcome = play_on_fake(history, NEWEST)
        assert outcome.difference is None, f"{outcome.difference}\n{to_text(history)}"

    check()


def test_text_of_a_history_is_parsed_to_the_same_history() -> None:
    history = (Step("A", "Heartbeat", 4, {"group_id": "%g", "generation_id": "$A.epoch+1"}), Step(wait_ms=300))

    assert from_text(f"# comment\n\n{to_text(history)}") == history


def test_exception_of_the_cluster_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise KeyError("mm")

    monkeypatch.setattr(sides.FakeSide, "send", fail)
    monkeypatch.setattr(sides.FakeSide, "__init__", lambda *_: None)
    monkeypatch.setattr(sides.FakeSide, "now_ms", 0.0)
    monkeypatch.setattr(sides.FakeSide, "advance_to", lambda *_: None)

    outcome = play_on_fake((Step("A", "Heartbeat", 4, {"group_id": "%g"}),), NEWEST)

    assert outcome.difference is not None
    assert outcome.difference.kind == "Heartbeat: raises KeyError in test_histories.py:fail"


def test_tick_that_does_not_end_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sides, "ENDLESS_S", 0.0)
    # The same deadline again and again, as of a timer that is due for ever.
    monkeypatch.setattr(Cluster, "next_deadline", lambda cluster: cluster.now_ms)

    outcome = play_on_fake((Step(wait_ms=300),), NEWEST)

    assert outcome.difference is not None
    assert outcome.difference.kind == "wait: never ends"


# Comparison


def joined(member_id: str, *members: str, generation_id: int = 1) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=generation_id,
        protocol_name="range",
        leader=members[0] if members else "",
        member_id=member_id,
        members=[JoinGroupResponseMember(member_id=each, metadata=b"") for each in members],
    )


def fetched(producer_id: int, value: bytes) -> FetchResponse:
    records = encode_batch([Record(0, 1_000, None, value)], producer_id=producer_id, producer_epoch=0, base_sequence=0)
    data = PartitionData(partition_index=0, error_code=0, high_watermark=1, records=records)
    return FetchResponse(responses=[FetchableTopicResponse(topic="news", partitions=[data])])


def kinds(*answers: tuple[Message, Message]) -> list[str]:
    """Return the kinds of differences of pairs of answers, of the same history."""
    pairs = Pairs("h1.")
    found = [pairs.difference("X", ours, theirs) for ours, theirs in answers]
    return ["" if each is None else each.kind for each in found]


def test_ids_are_equal_if_they_are_always_paired() -> None:
    assert kinds(
        (joined("a1"), joined("k7")), (joined("a1", "a1", "a2"), joined("k7", "k9", "k7")), (joined("a2"), joined("k9"))
    ) == ["", "X.leader: other member", ""]
    assert kinds((joined("a1"), joined("k7")), (joined("a1"), joined("k8"))) == ["", "X.member_id: other member"]
    assert kinds((joined("a1"), joined("k7")), (joined("a2"), joined("k7"))) == ["", "X.member_id: other member"]


def test_members_have_no_order() -> None:
    first = joined("a1"), joined("k7")

    assert kinds(first, (joined("a1", "a1", "a2"), joined("k7", "k7", "k9"))) == ["", ""]


def test_fields_and_errors_are_compared() -> None:
    assert kinds((joined("a1"), joined("a1", generation_id=2))) == ["X.generation_id"]
    assert kinds((HeartbeatResponse(error_code=0), HeartbeatResponse(error_code=25))) == [
        "X.error_code NONE / 25 UNKNOWN_MEMBER_ID"
    ]
    assert kinds((HeartbeatResponse(throttle_time_ms=1), HeartbeatResponse(throttle_time_ms=2))) == [""]


def test_records_are_compared_with_producer_ids_paired() -> None:
    assert kinds((fetched(0, b"x"), fetched(4_000, b"x")), (fetched(1, b"x"), fetched(4_000, b"x"))) == [
        "",
        "X.responses[].partitions[].records: producer",
    ]
    assert kinds((fetched(0, b"x"), fetched(4_000, b"y"))) == ["X.responses[].partitions[].records: values"]


# Shrinking


def test_history_is_shrunk_to_the_steps_that_matter() -> None:
    steps = tuple(Step("A", "Heartbeat", 4, {"generation_id": number}) for number in range(20))
    needed = {3, 11}

    def play_once(history: History) -> Outcome:
        numbers = {step.fields["generation_id"] for step in history}
        return Outcome(Difference("kind", "1", "2") if needed <= numbers else None, 0, 0)

    found = shrunk(steps, "kind", play_once, until=monotonic() + 60)

    assert [step.fields["generation_id"] for step in found] == [3, 11]


def test_history_that_is_played_alone_waits_for_the_others() -> None:
    turns = Turns()
    with turns.turn(alone=False), turns.turn(alone=False):
        pass
    with turns.turn(alone=True):
        pass
    with turns.turn(alone=False):
        pass


def test_reasons_are_known() -> None:
    assert all(known_kinds().values())


def test_names_of_runs_differ() -> None:
    first, second = play.next_run(), play.next_run()

    assert first != second
    assert len(first) == len(second)
