"""The API versions that brokers of each release support, restrictions of versions, and errors in these settings."""

from typing import Any

import pytest

from fakebroker.cluster.call import Call, read_call
from fakebroker.cluster.emulation import Broker, EmulatedRelease, emulated_releases
from fakebroker.errors import ConfigError, ErrorCode, ProtocolError
from fakebroker.protocol.frames import FrameBuffer, request_frame
from fakebroker.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest
from fakebroker.protocol.messages.delete_groups import DeleteGroupsRequest
from fakebroker.protocol.messages.join_group import JoinGroupRequest
from fakebroker.protocol.messages.list_groups import ListGroupsRequest
from fakebroker.protocol.registry import API_BY_NAME, APIS
from fakebroker.protocol.releases import NEWEST, RELEASES, Release
from fakebroker.protocol.schema import Message, Versions
from tests.support.cluster.cluster_harness import ClusterHarness

JOIN_GROUP = API_BY_NAME["JoinGroup"].key


def supported(broker: Broker, api: str) -> Versions | None:
    return EmulatedRelease.of(broker).versions.get(API_BY_NAME[api].key)


def read(harness: ClusterHarness, message: Message, version: int) -> Call:
    """Return the call that a broker reads from the frame of a request."""
    (frame,) = FrameBuffer().feed(request_frame(message, version, 1, "client"))
    return read_call(harness.peer(), frame)


# Versions


def test_a_broker_without_a_release_supports_all_versions() -> None:
    all_versions = {api.key: api.advertised_versions for api in APIS}
    assert EmulatedRelease.of(Broker()) == EmulatedRelease(NEWEST, all_versions)


def test_a_broker_of_a_release_supports_the_versions_of_the_table(subtests: pytest.Subtests) -> None:
    for release, table in RELEASES.items():
        with subtests.test(release=str(release)):
            emulated = EmulatedRelease.of(Broker(as_version=str(release)))
            assert emulated.release == release
            assert emulated.versions == {API_BY_NAME[name].key: versions for name, versions in table.items()}


def test_versions_of_an_api_can_be_restricted() -> None:
    broker = Broker(as_version="3.9", api_versions={"FindCoordinator": (0, 3), "JoinGroup": (5, 5), "ListGroups": None})
    assert supported(broker, "FindCoordinator") == Versions(0, 3)
    assert supported(broker, "JoinGroup") == Versions(5, 5)
    assert supported(broker, "ListGroups") is None
    assert supported(broker, "SyncGroup") == RELEASES[Release(3, 9)]["SyncGroup"]


def test_versions_that_the_release_lacks_are_left_out() -> None:
    broker = Broker(as_version="2.8", api_versions={"FindCoordinator": (1, 99)})
    assert supported(broker, "FindCoordinator") == Versions(1, 3)


def test_settings_of_a_broker_override_those_of_the_cluster() -> None:
    brokers = [Broker(), Broker(as_version="2.8"), Broker(api_versions={"JoinGroup": (0, 1)})]
    emulated = emulated_releases(brokers, "3.9", {"JoinGroup": (0, 2)})
    assert [each.release for each in emulated] == [Release(3, 9), Release(2, 8), Release(3, 9)]
    assert [each.versions[JOIN_GROUP] for each in emulated] == [Versions(0, 2), Versions(0, 2), Versions(0, 1)]


# Proposals


def test_the_newest_release_supports_proposals(subtests: pytest.Subtests) -> None:
    for as_version in (None, "4.4", "4.4.0"):
        with subtests.test(as_version=as_version):
            broker = Broker(as_version=as_version)
            plain, emulated = EmulatedRelease.of(broker), EmulatedRelease.of(broker, ["batch-join"])
            assert emulated.versions == {**plain.versions, JOIN_GROUP: Versions(0, 10)}
            assert [each.name for each in emulated.proposals] == ["batch-join"]
            assert plain.proposals == []


def test_older_releases_and_restricted_brokers_do_not_support_proposals() -> None:
    older = Broker(as_version="4.3")
    assert EmulatedRelease.of(older, ["batch-join"]) == EmulatedRelease.of(older)
    for versions in ((2, 9), None):
        restricted = Broker(api_versions={"JoinGroup": versions})
        assert EmulatedRelease.of(restricted, ["batch-join"]).proposals == [], versions
    mixed = emulated_releases([Broker(as_version="3.9"), Broker()], None, {}, ["batch-join"])
    assert [len(each.proposals) for each in mixed] == [0, 1]


# Errors


def test_invalid_settings_of_a_broker(subtests: pytest.Subtests) -> None:
    for broker, message in [
        (Broker(as_version="5.0"), "as_version='5.0': expected one of 0.10.0, 0.10.1, "),
        (Broker(as_version="0.9"), "as_version='0.9': expected one of 0.10.0, 0.10.1, "),
        (Broker(as_version=2.8), "as_version=2.8: expected a string, such as '2.8'"),  # type: ignore[arg-type]  # a common mistake
        (Broker(api_versions={"JoinGrop": (0, 1)}), "api_versions.JoinGrop=(0, 1): unknown API; expected one of "),
        (Broker(api_versions={"JoinGroup": (10, 12)}), "api_versions.JoinGroup=(10, 12): expected versions in 0-9"),
        (Broker(api_versions={"JoinGroup": (3, 2)}), "api_versions.JoinGroup=(3, 2): expected versions in 0-9"),
        (
            Broker(as_version="0.10.0", api_versions={"DeleteGroups": (0, 1)}),
            "api_versions.DeleteGroups=(0, 1): expected None, because the release lacks the API",
        ),
        (
            Broker(api_versions={"ApiVersions": None}),
            "api_versions.ApiVersions=None: expected versions, because clients send ApiVersions first",
        ),
    ]:
        with subtests.test(message):
            with pytest.raises(ConfigError) as raised:
                EmulatedRelease.of(broker)
            assert str(raised.value).startswith(message)


def test_an_unknown_proposal() -> None:
    with pytest.raises(ConfigError, match=r"^proposals\[0\]='batch': expected one of batch-join, rewrite; did you"):
        emulated_releases(1, None, {}, ["batch"])


def test_the_number_of_brokers_is_limited(subtests: pytest.Subtests) -> None:
    cases: list[tuple[Any, int]] = [(0, 0), (-1, -1), (1001, 1001), (10**12, 10**12), ([], 0)]
    for brokers, count in cases:
        message = f"brokers={count}: expected an integer from 1 to 1000"
        with subtests.test(brokers=brokers), pytest.raises(ConfigError, match=message):
            emulated_releases(brokers, None, {})


# Requests


def test_requests_of_unsupported_versions_and_apis_are_not_read() -> None:
    harness = ClusterHarness(as_version="0.11")
    join = JoinGroupRequest(group_id="g", session_timeout_ms=1, member_id="", protocol_type="consumer", protocols=[])
    assert read(harness, join, 2).api.name == "JoinGroup"
    with pytest.raises(ProtocolError, match="JoinGroup version 3, expected 0-2"):
        read(harness, join, 3)
    with pytest.raises(ProtocolError, match="unknown API key 42 "):
        read(harness, DeleteGroupsRequest(groups_names=[]), 0)
    assert read(harness, ListGroupsRequest(), 1).api_version == 1


def test_an_unsupported_version_of_api_versions_gets_its_supported_ones_since_2_4(subtests: pytest.Subtests) -> None:
    for as_version, has_versions in [("2.3", False), ("2.4", True), (None, True)]:
        with subtests.test(as_version=as_version):
            harness = ClusterHarness(as_version=as_version)
            key = ApiVersionsRequest.API_KEY
            ours = harness.cluster.brokers[1].versions[key]
            call = Call(harness.peer(), API_BY_NAME["ApiVersions"], ours.last + 1, 1, "client", ApiVersionsRequest(), 0)
            assert harness.cluster.requests.handle(call, harness.now_ms)
            assert (call.response_version, call.response.error_code) == (0, ErrorCode.UNSUPPORTED_VERSION)
            own = ApiVersion(api_key=key, min_version=ours.first, max_version=ours.last)
            assert call.response.api_keys == ([own] if has_versions else [])
