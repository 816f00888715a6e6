"""Transcripts that are played over TCP on fake clusters: the same, with faults, of other releases, explained."""

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
import trio

from fakebroker import FakeCluster
from fakebroker.client.errors import BrokerUnreachable
from fakebroker.conform import conformance, raw_cluster
from fakebroker.conform.conformance import Conformance, Explanation, conform, explanations, known_release, selected
from fakebroker.conform.report import as_json, as_junit, text
from fakebroker.conform.transcript import ReleaseRange, transcript_files
from fakebroker.errors import ConfigError
from fakebroker.protocol.releases import NEWEST, Release
from fakebroker.server.fake_cluster import internals
from tests.support.subtests import subtest_for_each

CONFIG = {
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.regex.refresh.interval.ms": 60_000,
    "offset.metadata.max.bytes": 4,
    "offsets.topic.num.partitions": 12,
}
QUICK = ("first-generations", "member-id-required", "commit-metadata", "all-leave", "find-coordinator")


def play(cluster: FakeCluster, *only: str, release: Release | None = None, longest_s: float = 0) -> Conformance:
    async def run() -> Conformance:
        return await conform(
            cluster.bootstrap_servers,
            release=release,
            transcripts=selected(only),
            changes_cluster=True,
            longest_s=longest_s,
        )

    return trio.run(run)


@pytest.mark.slow
def test_a_served_cluster_is_the_same() -> None:
    """All that is playable without waiting: joins, commits, consumer groups, transactions, moves of coordinators."""
    with FakeCluster(brokers=3, config=CONFIG) as cluster:
        found = play(cluster)
        assert found.count()["differs"] == 0, text(found)
        assert found.count()["same"] >= 140
        # It leaves nothing behind.
        assert found.left == ()
        assert [each.name for each in internals(cluster).cluster.topics if each.name.startswith("conform")] == []
        assert [each for each in cluster.groups() if each.group_id.startswith("conform")] == []


def test_a_run_that_is_canceled_removes_what_it_has_made() -> None:
    """Connections of the run are canceled, too."""
    left: list[list[str]] = []
    with FakeCluster(brokers=1, config=CONFIG) as cluster:

        async def run() -> None:
            async with trio.open_nursery() as nursery:

                async def cancel() -> None:
                    await cluster.wait_async(cluster.requested("JoinGroup", count=5))
                    nursery.cancel_scope.cancel()

                nursery.start_soon(cancel)
                await conform(
                    cluster.bootstrap_servers,
                    release=None,
                    transcripts=selected(()),
                    on_interrupt=lambda sentences: left.append([*sentences]),
                )

        trio.run(run)
        assert left == [[]]
        assert [each.name for each in internals(cluster).cluster.topics if each.name.startswith("conform")] == []
        assert list(cluster.groups()) == []


def test_waiting_takes_real_time() -> None:
    with FakeCluster(brokers=1, config=CONFIG) as cluster:
        (played,) = play(cluster, "peer-static-member-survives-rebalance", longest_s=3).played
    assert played.verdict == "same"
    assert played.seconds >= 3


def test_a_fault_is_found_and_shown() -> None:
    with FakeCluster(brokers=1, config=CONFIG) as cluster:
        cluster.inject_fault("SyncGroup", error="UNKNOWN_SERVER_ERROR")
        (played,) = play(cluster, "first-generations").played
    assert played.verdict == "differs"
    assert played.difference is not None
    assert played.difference.place.startswith("first-generations.txt:")
    assert played.difference.expected.startswith("A: sync A=a1 ")
    assert played.difference.actual.endswith("-> -1 UNKNOWN_SERVER_ERROR")
    assert any("SyncGroupRequest(group_id='g'" in each for each in played.difference.requests)


def test_a_difference_that_is_gone_when_played_again_is_reported() -> None:
    with FakeCluster(brokers=1, config=CONFIG) as cluster:
        cluster.inject_fault("SyncGroup", error="UNKNOWN_SERVER_ERROR", nth=1)
        found = play(cluster, "first-generations")
    assert [(each.verdict, each.attempts) for each in found.played] == [("same", 2)]
    assert "Differed at first, and did not differ when played again:\n  first-generations" in text(found)


def test_results_of_the_release() -> None:
    """A cluster that emulates 4.0 equals the results for 4.0, and differs from those for the newest release."""
    name = "transactions-sequences"
    with FakeCluster(brokers=3, config=CONFIG, as_version="4.0") as cluster:
        as_it_is = play(cluster, name)
        as_newest = play(cluster, name, release=known_release("4.4"))
    assert (as_it_is.release, as_it_is.played[0].verdict) == (Release(4, 0), "same")
    assert as_newest.played[0].verdict == "differs"


def test_a_newer_release_than_all_that_are_known() -> None:
    with FakeCluster(brokers=1, config=CONFIG) as cluster:
        found = play(cluster, "first-generations", release=known_release("9.1"))
    assert (found.release, found.played[0].verdict) == (Release(9, 1), "same")


def test_an_explanation_holds_for_its_line_only(monkeypatch: pytest.MonkeyPatch) -> None:
    step, line = "A: sync A=a1", "A: sync A=a1 -> -1 UNKNOWN_SERVER_ERROR"

    def explained(kafka: str) -> Callable[[], list[Explanation]]:
        releases = ReleaseRange(Release(4, 0), NEWEST)
        found = Explanation("first-generations", step, (kafka,), "chance: of this test", releases, ends=True)
        return lambda: [found]

    with FakeCluster(brokers=1, config=CONFIG) as cluster:
        cluster.inject_fault("SyncGroup", error="UNKNOWN_SERVER_ERROR")
        monkeypatch.setattr(conformance, "explanations", explained(line))
        assert [(each.verdict, each.reasons) for each in play(cluster, "first-generations").played] == [
            ("explained", ("chance: of this test",))
        ]
        monkeypatch.setattr(conformance, "explanations", explained("A: sync A=a1 -> another line"))
        assert play(cluster, "first-generations").played[0].verdict == "differs"


def test_explanations_name_steps_that_exist() -> None:
    commands = {(each.name, step.command) for each in selected() for step in each.steps}
    assert explanations() != []
    assert [each for each in explanations() if (each.transcript, each.step) not in commands] == []


@subtest_for_each(
    ("change", "error"),
    [
        ({"reason": "it is so"}, "t, 1.: reason='it is so': expected 'chance: ...', 'KAFKA-...: ...' or a document"),
        ({"kafka": "one line"}, "t, 1.: kafka='one line': expected a list"),
        ({"other": 1}, "expected the keys transcript, step, kafka, reason, releases, and perhaps ends"),
    ],
)
def test_errors_of_explanations(change: dict[str, object], error: str) -> None:
    table = {"transcript": "x", "step": "A: join", "kafka": ["y"], "reason": "chance: z", "releases": "4.0-4.2"}
    with pytest.raises(ConfigError, match=r"t, 1\.") as raised:
        Explanation.of({**table, **change}, "t, 1.")
    assert str(raised.value).endswith(error)


def test_a_cluster_that_is_not_there() -> None:
    async def run() -> Conformance:
        return await conform("127.0.0.1:1", transcripts=selected(["all-leave"]))

    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1"):
        trio.run(run)


def test_reports() -> None:
    with FakeCluster(brokers=1, config=CONFIG) as cluster:
        cluster.inject_fault("LeaveGroup", error="UNKNOWN_SERVER_ERROR")
        found = play(cluster, *QUICK)
    shown = text(found)
    assert "Compared 4 of 5 transcripts with Kafka 4.4: 3 same, 0 explained, 1 differ." in shown
    assert "needs 3 brokers" in shown
    differing = next(each for each in found.played if each.verdict == "differs")
    assert differing.difference is not None
    assert f"{differing.name} differs at {differing.difference.place}" in shown
    data = json.loads(as_json(found))
    assert data["counts"] == {"same": 3, "explained": 0, "differs": 1, "not playable": 1}
    assert {each["name"] for each in data["transcripts"]} == set(QUICK)
    suite = ElementTree.fromstring(as_junit(found))
    assert {name: suite.get(name) for name in ("tests", "failures", "skipped")} == {
        "tests": "5",
        "failures": "1",
        "skipped": "1",
    }
    assert [case.get("name") for case in suite if case.find("failure") is not None] == [differing.name]


def test_patterns_select_transcripts() -> None:
    assert [each.name for each in selected(["all-*", "first-generations"])] == ["all-leave", "first-generations"]
    assert len(selected()) == len(transcript_files())
    with pytest.raises(ConfigError, match="--only='nothing': expected a pattern"):
        selected(["all-*", "nothing"])


@subtest_for_each("text", ["4", "x", "1.x"])
def test_releases_that_do_not_exist(text: str) -> None:
    with pytest.raises(ConfigError, match=f"--release='{text}': expected a release of Kafka, such as 4.4"):
        known_release(text)


def test_transcripts_of_an_installed_package(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("# Source: KIP-394\nA: join -> parked\n")
    assert [each.name for each in selected(where=tmp_path)] == ["one"]


def test_a_cluster_that_refuses_short_sessions() -> None:
    with FakeCluster(brokers=1, config={**CONFIG, "group.min.session.timeout.ms": 15_000}) as cluster:
        found = play(cluster, "matrix-sync-stable", "session-timeout-bounds")
    verdicts = {each.name: each.verdict for each in found.played}
    assert verdicts == {"matrix-sync-stable": "same", "session-timeout-bounds": "not playable"}


def test_coordinators_that_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_cluster, "ANSWER_S", 0.2)
    with FakeCluster(brokers=1, config=CONFIG) as cluster:
        cluster.inject_fault("FindCoordinator", error="COORDINATOR_NOT_AVAILABLE")
        with pytest.raises(BrokerUnreachable, match="its coordinators do not answer"):
            play(cluster, "all-leave")
