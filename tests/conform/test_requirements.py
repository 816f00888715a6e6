"""What transcripts need of a cluster, and groups of settings."""

from dataclasses import replace

import pytest

from fakebroker.conform.requirements import (
    WITHOUT_WAITS,
    Facts,
    duration_of,
    needs,
    needs_anywhere,
    properties,
    session_factor,
    settings_groups,
    slowed,
)
from fakebroker.conform.transcript import Transcript, parse, transcript_files
from fakebroker.protocol.messages.join_group import JoinGroupRequest
from fakebroker.protocol.releases import NEWEST, Release
from fakebroker.protocol.schema import Versions
from tests.support.subtests import subtest_for_each


def transcript(text: str) -> Transcript:
    return parse(f"# Source: KIP-394\n{text}\n", "t.txt")


LARGE = Facts(Release(4, 2), brokers=3, changes_cluster=True, stops_brokers=True, longest_s=60)


@subtest_for_each(
    ("text", "need"),
    [
        ("cluster: brokers=4", "needs 4 brokers"),
        ("cluster: as_version=3.9", "for 3.9 only"),
        ("cluster: proposals=batch-join", "needs the proposal batch-join"),
        ("at +61s", "takes 61 s"),
        ("at +7d", "takes 7 d"),
        ("at +10ms", "needs a clock that stands still during a step"),
        ("move to=none", "needs partitions without a coordinator"),
        ("move to=2 load=1s", "needs a coordinator that loads slowly"),
        ("move to=2 load=hold", "needs a coordinator that stays loading"),
        ("move to=2 load_fails", "needs a coordinator that fails to load"),
        ("move to=2 zombie", "needs a coordinator that goes on after its successor was elected"),
        ("stop broker=1 no_election", "needs partitions without a coordinator"),
        ("do group.hold group_id=g state=Stable", "needs fakebroker: group.hold"),
        ('do expect condition={"is":"group.stable","group_id":"g"}', "needs fakebroker: expect"),
        ("A: store t state=Empty", "needs records that a client writes to internal topics"),
    ],
)
def test_what_no_kafka_or_not_this_one_has(text: str, need: str) -> None:
    assert needs(transcript(text), LARGE) == [need]


@subtest_for_each("text", ["move to=2", "stop broker=2 no_election", "at +9999ms\nat +10s", "do topic.create topic=x"])
def test_what_a_large_cluster_can_do(text: str) -> None:
    assert needs(transcript(text), LARGE) == []


def test_moves_need_an_option() -> None:
    (need,) = needs(transcript("move to=2"), Facts(Release(4, 2), 3))
    assert need == "needs --change-cluster: it moves a partition of __consumer_offsets"
    three = transcript("cluster: brokers=3\nstop broker=2")
    assert needs(three, Facts(Release(4, 2), 3)) == ["needs brokers that stop"]
    assert needs(three, replace(LARGE, brokers=4)) == ["needs 3 brokers and no other one"]


def test_versions_of_apis() -> None:
    facts = Facts(Release(4, 2), 3, versions={JoinGroupRequest.API_KEY: Versions(2, 8)})
    assert needs(transcript("A: join"), facts) == ["needs JoinGroup 9"]
    assert needs(transcript("A: join v8"), facts) == []
    assert needs(transcript("A: beat"), facts) == ["needs Heartbeat"]


@subtest_for_each(
    ("text", "need"),
    [
        ("A: init", "needs transaction.version=2"),
        ("A: consume", "needs group.version=1"),
        ("A: join", None),
        ("cluster: as_version=3.9\nA: init", "for 3.9 only"),
    ],
)
def test_features(text: str, need: str | None) -> None:
    facts = Facts(Release(4, 2), 1, features={"transaction.version": 1, "metadata.version": 25})
    assert needs(transcript(text), facts) == ([] if need is None else [need])
    new = replace(facts, features={"transaction.version": 2, "group.version": 1})
    assert [each for each in needs(transcript(text), new) if "version=" in each] == []


@subtest_for_each(
    ("text", "settings", "need"),
    [
        ("A: join", {"group.initial.rebalance.delay.ms": "3000"}, "needs group.initial.rebalance.delay.ms=0"),
        ("A: consume", {"group.initial.rebalance.delay.ms": "3000"}, None),
        (
            "A: consume",
            {"group.consumer.assignment.interval.ms": "1000"},
            "needs group.consumer.assignment.interval.ms=0",
        ),
        ("A: join", {"group.consumer.assignment.interval.ms": "1000"}, None),
        ("A: consume", {}, None),  # Before 4.3, brokers do not have it.
        ("cluster: group.max.size=5", {"group.max.size": "2147483647"}, "needs group.max.size=5"),
        ("A: join\nB: join", {"group.max.size": "1"}, "needs group.max.size=2147483647"),
        ("A: join\nB: join", {"group.max.size": "2"}, None),
        ("A: join session=8s", {"group.min.session.timeout.ms": "10000"}, None),  # Its times are multiplied.
        ("A: join session=12s", {"group.min.session.timeout.ms": "10000"}, None),
        ("A: consume", {"group.coordinator.rebalance.protocols": "classic,consumer,streams"}, None),
        (
            "A: consume",
            {"group.coordinator.rebalance.protocols": "classic"},
            "needs group.coordinator.rebalance.protocols=classic,consumer",
        ),
        (
            "A: commit news-0=5 metadata=12345",
            {"offset.metadata.max.bytes": "4"},
            "needs offset.metadata.max.bytes=4096",
        ),
        ("A: commit news-0=5", {"offset.metadata.max.bytes": "4"}, None),
    ],
)
def test_settings(text: str, settings: dict[str, str], need: str | None) -> None:
    assert needs(transcript(text), Facts(Release(4, 2), 3, settings)) == ([] if need is None else [need])


def test_settings_are_put_into_few_groups() -> None:
    small, large, delayed, plain = (
        transcript(text)
        for text in (
            "cluster: group.max.size=2\nA: join",
            "cluster: offset.metadata.max.bytes=4\nA: commit news-0=1",
            "cluster: group.initial.rebalance.delay.ms=3000\nA: join",
            "A: join\nB: join\nC: join",
        )
    )
    groups = settings_groups([small, large, delayed, plain])
    assert [(group.settings, len(group.transcripts)) for group in groups] == [
        ({"offset.metadata.max.bytes": "4"}, 2),
        ({"group.max.size": "2"}, 1),
        ({"group.initial.rebalance.delay.ms": "3000"}, 1),
    ]
    assert properties(groups).splitlines()[:4] == [
        "# 1. 2 transcripts",
        "group.initial.rebalance.delay.ms=0",
        "group.consumer.assignment.interval.ms=0",
        "offset.metadata.max.bytes=4",
    ]


def test_each_transcript_is_in_a_group_with_its_settings() -> None:
    transcripts = [parse(path.read_text(), path.name) for path in transcript_files()]
    for group in settings_groups(transcripts):
        settings = {**WITHOUT_WAITS, **group.settings}
        for each in group.transcripts:
            found = [need for need in needs(each, Facts(NEWEST, 9, settings)) if "=" in need]
            assert found == [], each.name


def test_two_hundred_transcripts_are_playable() -> None:
    large = Facts(Release(4, 2), 3, changes_cluster=True, stops_brokers=True, longest_s=320)
    transcripts = [parse(path.read_text(), path.name) for path in transcript_files()]
    assert sum(not needs(each, large) for each in transcripts) >= 200


@pytest.mark.parametrize("text", ["cluster: group.max.size=5 brokers=2"])
def test_needs_beyond_one_broker(text: str) -> None:
    assert needs_anywhere(transcript(text), 60) == ["needs 2 brokers", "needs group.max.size=5"]


def test_times_are_multiplied_for_brokers_that_refuse_short_sessions() -> None:
    before = transcript("A: join v3\nB: join session=6s rebalance=20s\nat +9s\nB: join")
    assert session_factor(before, 6_000) == 1
    assert session_factor(before, 15_000) == 3
    after = slowed(before, 3)
    assert [dict(step.options) for step in after.steps] == [
        {"session": 30_000, "rebalance": 180_000},
        {"session": 18_000, "rebalance": 60_000},
        {},
        {},
    ]
    assert slowed(before, 1) == before
    assert duration_of(after) == 27
    assert needs(before, Facts(Release(4, 2), 1, {"group.min.session.timeout.ms": "15000"})) == []


@subtest_for_each(
    "text",
    [
        "cluster: group.initial.rebalance.delay.ms=3000\nA: join",  # The delay would stay as it is.
        "A: join\nB: consume",  # The session of B is a setting of the broker.
        "A: join session=5999ms",  # It tests the limit.
    ],
)
def test_times_that_cannot_be_multiplied(text: str) -> None:
    settings = {"group.min.session.timeout.ms": "15000", "group.initial.rebalance.delay.ms": "3000"}
    assert "needs group.min.session.timeout.ms=6000" in needs(transcript(text), Facts(Release(4, 2), 1, settings))
