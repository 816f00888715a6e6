"""Queries and assertions on a journal that has dropped requests: an exact answer, or an error that says what to do."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakebroker import FakebrokerError, FakeCluster, IncompleteJournalError, read_journal
from fakebroker.cluster.inspect.journal_queries import JournalQueries
from fakebroker.cluster.journal import journal as journal_module
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorResponse
from fakebroker.server.fake_cluster import internals
from tests.support.groups_over_tcp import heartbeat
from tests.support.wire_client import WireClient, find_coordinator


@pytest.fixture(params=["full", "headers"])
def cluster(request: pytest.FixtureRequest) -> Iterator[FakeCluster]:
    """A journal of the last three of seven requests.

    Dropped: heartbeats 1 to 3 of group g by client a, and FindCoordinator 4 by client b. Kept, one second later:
    heartbeats 5 and 6 of group h by client a, and FindCoordinator 7 by client b.
    """
    with (
        FakeCluster(brokers=2, clock="manual", seed=1, journal=request.param, journal_calls=3) as cluster,
        WireClient(cluster.brokers[0], "a") as a,
        WireClient(cluster.brokers[0], "b") as b,
    ):
        for _ in range(3):
            heartbeat(a, "g", "m")
        b.ask(find_coordinator("g"), FindCoordinatorResponse)
        cluster.advance(1)
        for _ in range(2):
            heartbeat(a, "h", "m")
        b.ask(find_coordinator("h"), FindCoordinatorResponse)
        assert cluster.journal.dropped == 4
        yield cluster


@pytest.fixture(params=["cluster", "file"])
def journal(request: pytest.FixtureRequest, cluster: FakeCluster, tmp_path: Path) -> JournalQueries:
    """The journal of the cluster, and the same from a file."""
    if request.param == "cluster":
        return cluster.journal
    cluster.journal.export(tmp_path / "journal.jsonl")
    return read_journal(tmp_path / "journal.jsonl")


def last_second(cluster: FakeCluster) -> float:
    return internals(cluster).server.clock.now_ms()


CERTAIN: list[tuple[dict[str, Any], int]] = [
    ({"api": "LeaveGroup"}, 0),
    ({"group": "h"}, 3),
    ({"api": "Heartbeat", "group": "h"}, 2),
    ({"api": "Heartbeat", "client_id": "b"}, 0),
    ({"client_id": "c"}, 0),
    ({"broker": 2}, 0),
    ({"version": 0}, 0),
    ({"fault": True}, 0),
    ({"connection": 9}, 0),
    ({"topic": "orders"}, 0),
    ({"partition": 0}, 0),
    ({"api": "FindCoordinator", "member": "m"}, 0),
]


def test_a_count_is_exact_if_no_dropped_request_may_match(journal: JournalQueries, subtests: pytest.Subtests) -> None:
    for filters, expected in CERTAIN:
        with subtests.test(**filters):
            assert journal.count(**filters) == expected


def test_requests_since_a_time_are_complete(cluster: FakeCluster, journal: JournalQueries) -> None:
    assert journal.count(since=last_second(cluster)) == 3
    assert journal.count("Heartbeat", since=last_second(cluster)) == 2
    journal.assert_never("JoinGroup", since=last_second(cluster))


UNCERTAIN: list[tuple[dict[str, Any], int]] = [
    ({}, 4),
    ({"api": "Heartbeat"}, 3),
    ({"client_id": "b"}, 1),
    ({"api": "Heartbeat", "group": "g"}, 3),
    ({"member": "m"}, 3),
    ({"error": "NOT_COORDINATOR"}, 4),
    ({"fault": False}, 4),
]


def test_a_count_that_is_not_known_is_an_error(
    cluster: FakeCluster, journal: JournalQueries, subtests: pytest.Subtests
) -> None:
    for filters, count in UNCERTAIN:
        with subtests.test(**filters), pytest.raises(IncompleteJournalError) as caught:
            journal.count(**filters)
        older = "1 older request" if count == 1 else f"{count} older requests"
        since = f"or filter with since={last_second(cluster)!r} or later"
        end = (
            f" cannot be counted: the journal has dropped {older} that may match; raise journal_calls or journal_bytes"
        )
        assert str(caught.value).endswith(f"{end}, {since}")
    assert str(caught.value).startswith("request with fault=False cannot be counted")


def test_the_error_is_a_failed_assertion_and_an_error_of_fakebroker(cluster: FakeCluster) -> None:
    for kind in (AssertionError, FakebrokerError):
        with pytest.raises(
            kind, match=r"found no .*'FENCED_INSTANCE_ID', but the journal has dropped 4 older requests"
        ):
            cluster.journal.assert_never(error="FENCED_INSTANCE_ID")


def test_assert_never_holds_if_no_dropped_request_may_match(journal: JournalQueries, subtests: pytest.Subtests) -> None:
    for filters, count in CERTAIN:
        if count == 0:
            with subtests.test(**filters):
                journal.assert_never(**filters)


def test_assert_never_fails_with_a_match_although_requests_were_dropped(journal: JournalQueries) -> None:
    with pytest.raises(AssertionError, match="expected no Heartbeat, there are 2:") as caught:
        journal.assert_never("Heartbeat")
    assert not isinstance(caught.value, IncompleteJournalError)


def test_an_order_in_the_journal_is_found(journal: JournalQueries) -> None:
    journal.assert_order("Heartbeat", "Heartbeat", "FindCoordinator")


def test_an_order_that_may_begin_with_dropped_requests_is_not_known(
    journal: JournalQueries, subtests: pytest.Subtests
) -> None:
    unknown: list[tuple[list[Any], int]] = [
        (["Heartbeat", "Heartbeat", "Heartbeat"], 3),
        (["FindCoordinator", "Heartbeat"], 1),
        (["Heartbeat", "FindCoordinator", "Heartbeat", "FindCoordinator"], 1),
        ([("Heartbeat", {"group": "g"}), "FindCoordinator"], 3),
    ]
    for steps, count in unknown:
        message = f"the order is not decided: the journal has dropped {count} older request"
        with subtests.test(steps=steps), pytest.raises(IncompleteJournalError, match=message):
            journal.assert_order(*steps)


def test_a_wrong_order_fails_whatever_was_dropped(journal: JournalQueries, subtests: pytest.Subtests) -> None:
    for steps in (["LeaveGroup", "Heartbeat"], ["FindCoordinator", "LeaveGroup"], ["Heartbeat", "LeaveGroup"]):
        with subtests.test(steps=steps), pytest.raises(AssertionError, match="no LeaveGroup") as caught:
            journal.assert_order(*steps)
        assert not isinstance(caught.value, IncompleteJournalError)
    with pytest.raises(AssertionError, match="no Heartbeat"):
        journal.assert_order("Heartbeat", "FindCoordinator", group="nowhere")


def test_requests_and_responses_are_those_in_the_journal(journal: JournalQueries) -> None:
    assert [call.api.name for call in journal.requests()] == ["Heartbeat", "Heartbeat", "FindCoordinator"]
    assert len(journal.responses("Heartbeat")) == 2


def test_a_time_is_not_advised_if_no_later_request_is_kept() -> None:
    with (
        FakeCluster(brokers=1, clock="manual", journal_calls=1) as cluster,
        WireClient(cluster.brokers[0]) as wire,
    ):
        heartbeat(wire)
        heartbeat(wire)
        with pytest.raises(IncompleteJournalError, match=r"may match; raise journal_calls or journal_bytes$"):
            cluster.journal.count()


def test_kinds_of_dropped_requests_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "MAX_KINDS", 2)
    with FakeCluster(brokers=1, journal_calls=1) as cluster, WireClient(cluster.brokers[0]) as wire:
        for group_id in ("a", "b", "c", "d", "e"):
            heartbeat(wire, group_id)
        assert cluster.journal.count("LeaveGroup") == 0
        with pytest.raises(IncompleteJournalError, match="has dropped 2 older requests"):
            cluster.journal.count("Heartbeat", group="e")


def test_a_file_without_kinds_of_dropped_requests_answers_nothing_uncertain(tmp_path: Path) -> None:
    file = tmp_path / "old.jsonl"
    file.write_text('{"format":1,"mode":"full","dropped":2,"brokers":[1]}\n')
    with pytest.raises(IncompleteJournalError, match="has dropped 2 older requests that may match"):
        read_journal(file).assert_never("LeaveGroup")


@pytest.mark.parametrize("mode", ["full", "headers"])
def test_dropped_requests_of_one_connection_are_told_apart(mode: str) -> None:
    with (
        FakeCluster(brokers=1, journal=mode, journal_calls=2) as cluster,  # type: ignore[arg-type]  # one of the modes
        WireClient(cluster.brokers[0], "a") as wire,
    ):
        wire.ask(find_coordinator("g"), FindCoordinatorResponse)
        heartbeat(wire, "g", "m")
        for _ in range(3):
            wire.ask(find_coordinator("g"), FindCoordinatorResponse)
        with pytest.raises(IncompleteJournalError, match="the journal has dropped 1 older request that may match"):
            cluster.journal.count("Heartbeat")
