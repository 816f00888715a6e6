"""The table of releases, against what is known of Kafka by name and against kafka-python's table of the same."""

from itertools import pairwise

import pytest
from kafka.protocol.broker_version_data import BROKER_API_VERSIONS

from fakebroker.errors import ConfigError
from fakebroker.protocol.registry import API_BY_NAME, APIS
from fakebroker.protocol.releases import NEWEST, RELEASES, Release, release

NAMES = [
    *("0.10.0", "0.10.1", "0.10.2", "0.11", "1.0", "1.1"),
    *(f"2.{minor}" for minor in range(9)),
    *(f"3.{minor}" for minor in range(10)),
    *("4.0", "4.1", "4.2"),
]
# Above 0; KIP-896 took the versions below these away.
FIRST_VERSIONS_OF_4_0 = {
    "Fetch": 4,
    "ListOffsets": 1,
    "OffsetCommit": 2,
    "OffsetFetch": 1,
    "JoinGroup": 2,
    "CreateTopics": 2,
    "DeleteTopics": 1,
    "OffsetForLeaderEpoch": 2,
    "DescribeConfigs": 1,
    "DescribeLogDirs": 1,
}


def versions(api: str, name: str) -> str:
    known = RELEASES[release(name)].get(api)
    return "-" if known is None else str(known)


def test_every_release_is_there_from_the_oldest_to_the_newest() -> None:
    assert list(map(str, RELEASES)) == NAMES
    assert list(RELEASES) == sorted(RELEASES)
    assert max(RELEASES) == NEWEST


def test_every_api_is_there_in_the_order_of_kafkas_keys_and_no_other() -> None:
    assert list(RELEASES[NEWEST]) == [api.name for api in APIS]
    assert all(known.keys() <= API_BY_NAME.keys() for known in RELEASES.values())


@pytest.mark.parametrize(("older", "newer"), list(pairwise(RELEASES)), ids=str)
def test_nothing_is_lost_at_the_top(older: Release, newer: Release) -> None:
    for api, known in RELEASES[older].items():
        assert known.first <= known.last <= RELEASES[newer][api].last, api


@pytest.mark.parametrize("known", RELEASES, ids=str)
def test_the_first_versions(known: Release) -> None:
    firsts = {api: found.first for api, found in RELEASES[known].items() if found.first}

    if known < (4, 0):
        assert firsts == {}
    elif known == (4, 0, 0):
        assert firsts == FIRST_VERSIONS_OF_4_0
    else:  # KAFKA-19444 brought JoinGroup 0-1 back.
        assert firsts == {api: first for api, first in FIRST_VERSIONS_OF_4_0.items() if api != "JoinGroup"}


@pytest.mark.parametrize(
    ("api", "before", "since", "reason"),
    [
        ("ListOffsets", ("0.10.0", "0-0"), ("0.10.1", "0-1"), "KIP-79: one offset by timestamp"),
        ("JoinGroup", ("0.10.0", "0-0"), ("0.10.1", "0-1"), "KIP-62: a rebalance timeout of its own"),
        ("CreateTopics", ("0.10.0", "-"), ("0.10.1", "0-0"), "KIP-4"),
        ("OffsetFetch", ("0.10.1", "0-1"), ("0.10.2", "0-2"), "KIP-88: all partitions of a group"),
        ("Produce", ("0.10.2", "0-2"), ("0.11", "0-3"), "KIP-98: record batches"),
        ("InitProducerId", ("0.10.2", "-"), ("0.11", "0-0"), "KIP-98"),
        ("DeleteGroups", ("1.0", "-"), ("1.1", "0-0"), "KIP-229"),
        ("Fetch", ("1.0", "0-6"), ("1.1", "0-7"), "KIP-227: fetch sessions"),
        ("JoinGroup", ("2.1", "0-3"), ("2.2", "0-4"), "KIP-394: member id required"),
        ("JoinGroup", ("2.2", "0-4"), ("2.3", "0-5"), "KIP-345: static members"),
        ("IncrementalAlterConfigs", ("2.2", "-"), ("2.3", "0-0"), "KIP-339"),
        ("AlterPartitionReassignments", ("2.3", "-"), ("2.4", "0-0"), "KIP-455"),
        ("OffsetDelete", ("2.3", "-"), ("2.4", "0-0"), "KIP-496"),
        ("Metadata", ("2.7", "0-9"), ("2.8", "0-11"), "KIP-516, KIP-700: topic ids as v10 and v11, both in 2.8"),
        ("DescribeCluster", ("2.7", "-"), ("2.8", "0-0"), "KIP-700"),
        ("FindCoordinator", ("2.8", "0-3"), ("3.0", "0-4"), "KIP-699: many at once"),
        ("OffsetFetch", ("2.8", "0-7"), ("3.0", "0-8"), "KIP-709: many groups at once"),
        ("Fetch", ("3.0", "0-12"), ("3.1", "0-13"), "KIP-516: topic ids"),
        ("OffsetCommit", ("3.6", "0-8"), ("3.7", "0-9"), "KIP-848: v9 was there, unstable, in 3.6"),
        ("DescribeTopicPartitions", ("3.7", "-"), ("3.8", "0-0"), "KIP-966"),
        ("Produce", ("3.9", "0-11"), ("4.0", "0-12"), "KIP-890; 0-2 are told of although they are refused"),
    ],
)
def test_what_came_when(api: str, before: tuple[str, str], since: tuple[str, str], reason: str) -> None:
    assert versions(api, before[0]) == before[1], reason
    assert versions(api, since[0]) == since[1], reason


@pytest.mark.parametrize("known", RELEASES, ids=str)
def test_kafka_python_says_the_same(known: Release) -> None:
    theirs = BROKER_API_VERSIONS[known if known < (0, 11) else known[:2]]

    ours = {API_BY_NAME[api].key: (found.first, found.last) for api, found in RELEASES[known].items()}
    if known in {(3, 8, 0), (3, 9, 0)}:  # Its brokers run with ZooKeeper up to 3.9, ours with KRaft since 3.3.
        del ours[API_BY_NAME["DescribeTopicPartitions"].key]
    assert ours == {key: found for key, found in theirs.items() if key in {api.key for api in APIS}}


@pytest.mark.parametrize("name", NAMES)
def test_a_release_reads_as_it_is_written(name: str) -> None:
    assert str(release(name)) == name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.10.2", Release(0, 10, 2)),
        ("0.10.2.1", Release(0, 10, 2)),
        ("0.11", Release(0, 11)),
        ("0.11.0", Release(0, 11)),
        ("0.11.0.3", Release(0, 11)),
        ("2.8", Release(2, 8)),
        ("3.9.1", Release(3, 9)),
        ("4.2.0", NEWEST),
    ],
)
def test_a_patch_number_may_follow(text: str, expected: Release) -> None:
    assert release(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0.9.0",
        "0.10",
        "0.10.3",
        "0.11.0.3.1",
        "3",
        "3.10",
        "3.9.",
        "3.9.x",
        "3.9.1.1",
        "4.3",
        "40",
        " 2.8",
        "2.8\n",
    ],
)
def test_no_such_release(text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        release(text)

    sentence, _, near = str(raised.value).partition("; did you mean ")
    assert sentence == f"as_version={text!r}: expected one of {', '.join(NAMES)}"
    assert not near or near[1:-2] in NAMES


def test_releases_compare_by_age() -> None:
    assert Release(0, 10, 2) < Release(0, 11) < Release(1, 0) < Release(2, 8) < Release(3, 9) < Release(4, 0)
