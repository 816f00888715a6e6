"""The table of releases, compared with changes known from KIPs and with kafka-python's table."""

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
    *("4.0", "4.1", "4.2", "4.3", "4.4"),
]
# First versions above 0; KIP-896 removed the versions below.
FIRST_VERSIONS_OF_4_0 = {
    "Fetch": 4,
    "ListOffsets": 1,
    "OffsetCommit": 2,
    "OffsetFetch": 1,
    "JoinGroup": 2,
    "CreateTopics": 2,
    "DeleteTopics": 1,
    "OffsetForLeaderEpoch": 2,
    "WriteTxnMarkers": 1,
    "DescribeAcls": 1,
    "CreateAcls": 1,
    "DeleteAcls": 1,
    "DescribeConfigs": 1,
    "AlterReplicaLogDirs": 1,
    "DescribeLogDirs": 1,
    "CreateDelegationToken": 1,
    "RenewDelegationToken": 1,
    "ExpireDelegationToken": 1,
    "DescribeDelegationToken": 1,
}


# APIs of ZooKeeper clusters that KRaft brokers, ours since 3.3, did not have yet: the release that has them again.
SINCE_IN_KRAFT = {
    "CreateDelegationToken": Release(3, 6),  # KAFKA-15219
    "RenewDelegationToken": Release(3, 6),
    "ExpireDelegationToken": Release(3, 6),
    "DescribeDelegationToken": Release(3, 6),
    "DescribeUserScramCredentials": Release(3, 5),  # KAFKA-14084
    "AlterUserScramCredentials": Release(3, 5),
}


def lacks_in_kraft(api: str, known: Release) -> bool:
    return Release(3, 3) <= known < SINCE_IN_KRAFT.get(api, Release(0, 0))


def versions(api: str, name: str) -> str:
    supported = RELEASES[release(name)].get(api)
    return "-" if supported is None else str(supported)


def test_releases_are_complete_and_ordered_by_age() -> None:
    assert list(map(str, RELEASES)) == NAMES
    assert list(RELEASES) == sorted(RELEASES)
    assert max(RELEASES) == NEWEST


def test_the_table_has_all_apis_in_the_order_of_their_keys() -> None:
    assert list(RELEASES[NEWEST]) == [api.name for api in APIS]
    assert all(known.keys() <= API_BY_NAME.keys() for known in RELEASES.values())


def test_all_versions_of_all_releases_can_be_decoded() -> None:
    for name, known in RELEASES.items():
        for api, versions in known.items():
            assert set(versions) <= set(API_BY_NAME[api].request.VERSIONS), (name, api)


def test_last_versions_of_brokers_that_emulate_no_release_are_those_of_the_newest() -> None:
    # Version 6 of InitProducerId is not stable (KIP-939).
    assert {api.name: api.advertised_versions.last for api in APIS} == {
        name: supported.last for name, supported in RELEASES[NEWEST].items()
    }
    assert versions("InitProducerId", "4.4") == "0-5"


def test_no_release_lowers_the_last_version_of_an_api() -> None:
    for older, newer in pairwise(RELEASES):
        for api, supported in RELEASES[older].items():
            if lacks_in_kraft(api, newer):
                assert api not in RELEASES[newer], f"{api} in {newer}"
                continue
            assert supported.first <= supported.last <= RELEASES[newer][api].last, f"{api} in {older} and {newer}"


def test_first_versions(subtests: pytest.Subtests) -> None:
    for known, supported in RELEASES.items():
        with subtests.test(release=str(known)):
            firsts = {api: versions.first for api, versions in supported.items() if versions.first}

            if known < (4, 0):
                assert firsts == {}
            elif known == (4, 0, 0):
                assert firsts == FIRST_VERSIONS_OF_4_0
            else:  # KAFKA-19444 restored JoinGroup 0-1.
                assert firsts == {api: first for api, first in FIRST_VERSIONS_OF_4_0.items() if api != "JoinGroup"}


KRAFT_ONLY = {
    API_BY_NAME[name].key
    for name in (
        "DescribeQuorum",
        "UnregisterBroker",
        "ListConfigResources",
        "DescribeTopicPartitions",
        "UnregisterController",
    )
}
"""APIs that only KRaft brokers support."""

TELEMETRY = {API_BY_NAME[name].key for name in ("GetTelemetrySubscriptions", "PushTelemetry")}

CHANGES = [
    # API, release and versions before, release and versions after, source
    ("ListOffsets", ("0.10.0", "0-0"), ("0.10.1", "0-1"), "KIP-79: one offset by timestamp"),
    ("JoinGroup", ("0.10.0", "0-0"), ("0.10.1", "0-1"), "KIP-62: rebalance timeout"),
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
    ("Metadata", ("2.7", "0-9"), ("2.8", "0-11"), "KIP-516 (topic ids, v10) and KIP-700 (v11), both in 2.8"),
    ("DescribeCluster", ("2.7", "-"), ("2.8", "0-0"), "KIP-700"),
    ("FindCoordinator", ("2.8", "0-3"), ("3.0", "0-4"), "KIP-699: several keys"),
    ("OffsetFetch", ("2.8", "0-7"), ("3.0", "0-8"), "KIP-709: several groups"),
    ("Fetch", ("3.0", "0-12"), ("3.1", "0-13"), "KIP-516: topic ids"),
    ("OffsetCommit", ("3.6", "0-8"), ("3.7", "0-9"), "KIP-848: v9 was unstable in 3.6"),
    ("DescribeTopicPartitions", ("3.7", "-"), ("3.8", "0-0"), "KIP-966"),
    ("DescribeClientQuotas", ("2.5", "-"), ("2.6", "0-0"), "KIP-546"),
    ("UpdateFeatures", ("2.6", "-"), ("2.7", "0-0"), "KIP-584"),
    ("UpdateFeatures", ("3.9", "0-1"), ("4.0", "0-2"), "KIP-1022: all features or none"),
    ("DescribeQuorum", ("3.8", "0-1"), ("3.9", "0-2"), "KIP-853: directory ids"),
    ("ListConfigResources", ("4.0", "0-0"), ("4.1", "0-1"), "KIP-1142: resources of all types"),
    ("SaslHandshake", ("0.11", "0-0"), ("1.0", "0-1"), "KIP-152: SaslAuthenticate follows"),
    ("DescribeAcls", ("0.10.2", "-"), ("0.11", "0-0"), "KIP-140"),
    ("CreateAcls", ("1.1", "0-0"), ("2.0", "0-1"), "KIP-290: prefixed patterns"),
    ("CreateDelegationToken", ("1.0", "-"), ("1.1", "0-0"), "KIP-48"),
    ("SaslAuthenticate", ("2.1", "0-0"), ("2.2", "0-1"), "KIP-368: session lifetime"),
    ("AlterUserScramCredentials", ("2.6", "-"), ("2.7", "0-0"), "KIP-554"),
    ("Produce", ("3.9", "0-11"), ("4.0", "0-12"), "KIP-890; 0-2 are advertised but refused"),
    ("OffsetCommit", ("4.1", "2-9"), ("4.2", "2-10"), "KIP-848: topic ids, unstable in 4.1"),
    ("DescribeLogDirs", ("4.2", "1-4"), ("4.3", "1-5"), "KIP-1066: cordoned directories"),
    ("ApiVersions", ("4.3", "0-4"), ("4.4", "0-5"), "KIP-1242: cluster and node"),
    ("TxnOffsetCommit", ("4.3", "0-5"), ("4.4", "0-6"), "KIP-1319: topic ids"),
    ("DeleteGroups", ("4.3", "0-2"), ("4.4", "0-3"), "KIP-1331: messages"),
]


def test_versions_were_added_in_the_release_of_their_kip(subtests: pytest.Subtests) -> None:
    for api, (before, versions_before), (since, versions_since), source in CHANGES:
        with subtests.test(f"{api} in {since}, {source}"):
            assert versions(api, before) == versions_before
            assert versions(api, since) == versions_since


def test_versions_are_those_of_kafka_pythons_table(subtests: pytest.Subtests) -> None:
    for known, supported in RELEASES.items():
        if known >= (4, 4):  # Not in kafka-python yet. Kafka itself is asked in tests/kafka.
            continue
        with subtests.test(release=str(known)):
            theirs = BROKER_API_VERSIONS[known if known < (0, 11) else known[:2]]

            ours = {API_BY_NAME[api].key: (found.first, found.last) for api, found in supported.items()}
            # kafka-python's table is of ZooKeeper clusters up to 3.9, ours of KRaft clusters since 3.3. It has no
            # telemetry, because Kafka's default settings do not.
            skipped = TELEMETRY if known >= (4, 0) else TELEMETRY | KRAFT_ONLY
            ours = {key: found for key, found in ours.items() if key not in skipped}
            keys = {api.key for api in APIS if not lacks_in_kraft(api.name, known)}
            assert ours == {key: found for key, found in theirs.items() if key in keys}


def test_names_of_releases_are_parsed() -> None:
    assert [str(release(name)) for name in NAMES] == NAMES


def test_patch_numbers_are_ignored() -> None:
    for text, expected in (
        ("0.10.2", Release(0, 10, 2)),
        ("0.10.2.1", Release(0, 10, 2)),
        ("0.11", Release(0, 11)),
        ("0.11.0", Release(0, 11)),
        ("0.11.0.3", Release(0, 11)),
        ("2.8", Release(2, 8)),
        ("3.9.1", Release(3, 9)),
        ("4.4.0", NEWEST),
    ):
        assert release(text) == expected, text


def test_unknown_releases_are_errors(subtests: pytest.Subtests) -> None:
    for text in (
        *("", "0.9.0", "0.10", "0.10.3", "0.11.0.3.1", "3", "3.10", "3.9.", "3.9.x", "3.9.1.1", "4.5", "40"),
        *(" 2.8", "2.8\n"),
    ):
        with subtests.test(text=text):
            with pytest.raises(ConfigError) as raised:
                release(text)

            sentence, _, near = str(raised.value).partition("; did you mean ")
            assert sentence == f"as_version={text!r}: expected one of {', '.join(NAMES)}"
            assert not near or near[1:-2] in NAMES


def test_releases_compare_by_age() -> None:
    assert Release(0, 10, 2) < Release(0, 11) < Release(1, 0) < Release(2, 8) < Release(3, 9) < Release(4, 0)
