"""Supported and finalized features in ApiVersions, and UpdateFeatures."""

from typing import Any

import pytest

from fakebroker.cluster import snapshot
from fakebroker.cluster.emulation import Broker, EmulatedRelease
from fakebroker.cluster.features import RANGES, Features, UpgradeType
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.api_versions import ApiVersionsRequest
from fakebroker.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from fakebroker.protocol.releases import NEWEST, RELEASES, Release
from tests.support.cluster.cluster_harness import ClusterHarness

UPGRADE, SAFE, UNSAFE = UpgradeType
CLIENT: dict[str, Any] = {"client_software_name": "tests", "client_software_version": "1"}


def api_versions(harness: ClusterHarness, version: int = 4, broker: int = 1) -> Any:
    return harness.ask(ApiVersionsRequest(**CLIENT), version, broker=broker)


def finalized(harness: ClusterHarness) -> dict[str, int]:
    found = api_versions(harness, 3).finalized_features
    assert all(each.min_version_level == each.max_version_level for each in found)
    return {each.name: each.max_version_level for each in found}


def update(
    harness: ClusterHarness, *updates: tuple[str, int, int], version: int = 2, validate_only: bool = False
) -> tuple[int, str | None]:
    """Send UpdateFeatures. Returns the error and its message: of the response, or of its first result that has one."""
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=how) for name, level, how in updates
        ],
        validate_only=validate_only,
    )
    response = harness.ask(request, version)
    failed = next((each for each in response.results if each.error_code), response)
    return failed.error_code, failed.error_message


def test_the_newest_release_reports_its_features() -> None:
    response = api_versions(ClusterHarness())

    assert {each.name: (each.min_version, each.max_version) for each in response.supported_features} == {
        "metadata.version": (7, 33),
        "kraft.version": (0, 1),
        "transaction.version": (0, 2),
        "group.version": (0, 1),
        "eligible.leader.replicas.version": (0, 1),
        "share.version": (0, 2),
        "streams.version": (0, 1),
    }
    assert finalized(ClusterHarness()) == {
        "metadata.version": 33,
        "kraft.version": 1,
        "transaction.version": 2,
        "group.version": 1,
        "eligible.leader.replicas.version": 1,
        "share.version": 2,
        "streams.version": 1,
    }
    assert response.finalized_features_epoch > 0
    assert not response.zk_migration_ready


def test_older_clients_do_not_see_features_that_can_be_disabled() -> None:
    response = api_versions(ClusterHarness(), 3)
    assert [each.name for each in response.supported_features] == ["metadata.version"]
    assert "group.version" in {each.name for each in response.finalized_features}


def test_features_of_each_release(subtests: pytest.Subtests) -> None:
    for release, api_table in RELEASES.items():
        if 3 not in api_table["ApiVersions"]:
            continue
        with subtests.test(release=str(release)):
            response = api_versions(ClusterHarness(as_version=str(release)), 3)
            ranges = RANGES.get(release, {})
            assert {each.name: (each.min_version, each.max_version) for each in response.supported_features} == {
                name: levels[:2] for name, levels in ranges.items() if levels.first
            }
            assert {each.name: each.max_version_level for each in response.finalized_features} == {
                name: levels.initial for name, levels in ranges.items() if levels.initial
            }
            assert response.finalized_features_epoch == (1 if ranges else 0 if release >= (2, 7) else -1)


def test_ranges_are_of_the_last_releases_and_never_shrink() -> None:
    assert list(RANGES) == [release for release in RELEASES if release >= (3, 3)]
    assert max(RANGES) == NEWEST
    for name in RANGES[NEWEST]:
        last = [levels[name].last for levels in RANGES.values() if name in levels]
        assert last == sorted(last), name
        assert all(
            levels[name].first <= levels[name].initial <= levels[name].last
            for levels in RANGES.values()
            if name in levels
        )


def test_a_cluster_finalizes_the_features_of_its_oldest_release() -> None:
    assert Features.of_new_cluster([NEWEST, Release(3, 9)]).finalized == {"metadata.version": 21}
    assert Features.of_new_cluster([NEWEST, Release(3, 2)]) == Features()


def test_levels_are_changed() -> None:
    harness = ClusterHarness()
    before = api_versions(harness).finalized_features_epoch

    assert update(harness, ("group.version", 0, SAFE), ("share.version", 0, UNSAFE)) == (ErrorCode.NONE, None)

    assert {"group.version", "share.version"} & finalized(harness).keys() == set()
    assert api_versions(harness).finalized_features_epoch > before
    assert update(harness, ("group.version", 1, UPGRADE)) == (ErrorCode.NONE, None)
    assert finalized(harness)["group.version"] == 1


def test_changes_are_only_validated_if_asked() -> None:
    harness = ClusterHarness()
    before = finalized(harness)
    assert update(harness, ("group.version", 0, SAFE), validate_only=True) == (ErrorCode.NONE, None)
    assert update(harness, ("group.version", 0, UPGRADE), validate_only=True)[0] == ErrorCode.INVALID_UPDATE_VERSION
    assert finalized(harness) == before


INVALID = [
    # Feature, level, upgrade type, part of the message
    ("no.such", 1, UPGRADE, "broker 1 does not support"),
    ("group.version", 2, UPGRADE, "broker 1 only supports levels 0 to 1"),
    ("group.version", -1, UPGRADE, "expected 0 or more"),
    ("group.version", 0, 0, "upgrade type 0"),
    ("group.version", 0, 4, "upgrade type 4"),
    ("group.version", 0, UPGRADE, "downgrade"),
    ("kraft.version", 0, SAFE, "cannot be downgraded"),
    ("metadata.version", 6, SAFE, "only supports levels 7 to 33"),
    ("metadata.version", 22, SAFE, "might delete metadata"),
    ("metadata.version", 22, UNSAFE, "unsafe downgrade"),
]


def test_invalid_levels(subtests: pytest.Subtests) -> None:
    for name, level, how, message in INVALID:
        with subtests.test(name=name, level=level, how=how):
            harness = ClusterHarness()
            before = finalized(harness)
            error, text = update(harness, ("share.version", 0, SAFE), (name, level, how))
            assert error == ErrorCode.INVALID_UPDATE_VERSION
            assert message in (text or "")
            assert "following feature had an error" in (text or "")
            assert finalized(harness) == before


def test_a_higher_level_needs_an_upgrade_and_its_dependencies() -> None:
    harness = ClusterHarness()
    assert update(harness, ("eligible.leader.replicas.version", 0, SAFE))[0] == ErrorCode.NONE
    assert "needs the upgrade type 1" in str(update(harness, ("eligible.leader.replicas.version", 1, SAFE))[1])
    # 23 is the lowest level with its records; no release in which it is finalized supports 22 as well.
    assert update(harness, ("metadata.version", 23, SAFE))[0] == ErrorCode.NONE
    harness.cluster.features.finalized["metadata.version"] = 22
    error, message = update(harness, ("eligible.leader.replicas.version", 1, UPGRADE))
    assert (error, "depends on metadata.version level 23" in str(message)) == (ErrorCode.INVALID_UPDATE_VERSION, True)
    both = (("eligible.leader.replicas.version", 1, UPGRADE), ("metadata.version", 23, UPGRADE))
    assert update(harness, *both)[0] == ErrorCode.NONE


def test_metadata_can_be_downgraded_if_its_format_did_not_change() -> None:
    harness = ClusterHarness()
    assert update(harness, ("metadata.version", 25, SAFE)) == (ErrorCode.NONE, None)
    assert finalized(harness)["metadata.version"] == 25


def test_version_1_reports_each_feature_if_all_are_valid() -> None:
    request = UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=SAFE)]
    )
    response = ClusterHarness().ask(request, 1)
    assert response.error_code == ErrorCode.NONE
    (found,) = response.results
    assert (found.feature, found.error_code, found.error_message) == ("group.version", ErrorCode.NONE, "NONE")


def test_before_4_0_features_are_independent_of_each_other() -> None:
    harness = ClusterHarness(as_version="3.9")
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature="kraft.version", max_version_level=1),
            FeatureUpdateKey(feature="group.version", max_version_level=1),
        ]
    )

    response = harness.ask(request, 1)

    assert response.error_code == ErrorCode.NONE
    assert {each.feature: each.error_code for each in response.results} == {
        "kraft.version": ErrorCode.NONE,
        "group.version": ErrorCode.INVALID_UPDATE_VERSION,
    }
    assert finalized(harness) == {"metadata.version": 21, "kraft.version": 1}


def test_clusters_with_zookeeper_have_no_features_to_update() -> None:
    harness = ClusterHarness(as_version="2.8")
    assert update(harness, ("metadata.version", 1, UPGRADE), version=0)[0] == ErrorCode.INVALID_REQUEST


def test_levels_stay_when_brokers_are_upgraded_and_need_all_of_them() -> None:
    harness = ClusterHarness(brokers=2, as_version="3.9")
    newest = EmulatedRelease.of(Broker())
    harness.cluster.upgrade_broker(harness.cluster.brokers[1], newest)

    assert finalized(harness) == {"metadata.version": 21}
    error, message = update(harness, ("metadata.version", 29, UPGRADE))
    assert error == ErrorCode.INVALID_UPDATE_VERSION
    assert "broker 2 only supports levels 1 to 21" in (message or "")

    harness.cluster.upgrade_broker(harness.cluster.brokers[2], newest)
    assert update(harness, ("metadata.version", 29, UPGRADE), ("group.version", 1, UPGRADE))[0] == ErrorCode.NONE
    assert finalized(harness) == {"metadata.version": 29, "group.version": 1}


def test_finalized_features_are_in_snapshots() -> None:
    harness = ClusterHarness()
    taken = snapshot.take(harness.cluster)
    update(harness, ("group.version", 0, SAFE))
    epoch = api_versions(harness).finalized_features_epoch

    snapshot.restore(harness.cluster, taken, harness.now_ms)

    assert finalized(harness)["group.version"] == 1
    assert api_versions(harness).finalized_features_epoch > epoch
