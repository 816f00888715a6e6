"""What brokers of each release speak, and how that can be capped."""

from typing import Any

import pytest

from fakebroker.cluster.call import Call, read_call
from fakebroker.cluster.emulation import Broker, EmulatedRelease, emulated_releases
from fakebroker.errors import ConfigError, ErrorCode, ProtocolError
from fakebroker.protocol.frames import FrameBuffer, request_frame
from fakebroker.protocol.messages.api_versions import ApiVersionsRequest
from fakebroker.protocol.messages.delete_groups import DeleteGroupsRequest
from fakebroker.protocol.messages.join_group import JoinGroupRequest
from fakebroker.protocol.messages.list_groups import ListGroupsRequest
from fakebroker.protocol.registry import API_BY_NAME, APIS
from fakebroker.protocol.releases import NEWEST, RELEASES, Release
from fakebroker.protocol.schema import Message, Versions
from tests.support.cluster.cluster_harness import ClusterHarness

RANGES = {api.key: api.advertised_versions for api in APIS}


def spoken(broker: Broker, api: str) -> Versions | None:
    return EmulatedRelease.of(broker).versions.get(API_BY_NAME[api].key)


def read(harness: ClusterHarness, message: Message, version: int) -> Any:
    (frame,) = FrameBuffer().feed(request_frame(message, version, 1, "client"))
    return read_call(harness.peer(), frame)


def test_a_broker_of_no_certain_release_speaks_all_that_there_is() -> None:
    assert EmulatedRelease.of(Broker()) == EmulatedRelease(NEWEST, RANGES)


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_a_broker_of_a_release_speaks_what_the_table_says(release: Release) -> None:
    emulated = EmulatedRelease.of(Broker(as_version=str(release)))
    assert emulated.release == release
    assert emulated.versions == {API_BY_NAME[name].key: versions for name, versions in RELEASES[release].items()}


def test_caps() -> None:
    broker = Broker(as_version="3.9", api_versions={"FindCoordinator": (0, 3), "JoinGroup": (5, 5), "ListGroups": None})
    assert spoken(broker, "FindCoordinator") == Versions(0, 3)
    assert spoken(broker, "JoinGroup") == Versions(5, 5)
    assert spoken(broker, "ListGroups") is None
    assert spoken(broker, "SyncGroup") == RELEASES[Release(3, 9)]["SyncGroup"]


def test_a_cap_beyond_the_release_is_cut() -> None:
    assert spoken(Broker(as_version="2.8", api_versions={"FindCoordinator": (1, 99)}), "FindCoordinator") == Versions(
        1, 3
    )


def test_brokers_say_for_themselves_what_the_cluster_does_not() -> None:
    cluster = emulated_releases(
        [Broker(), Broker(as_version="2.8"), Broker(api_versions={"JoinGroup": (0, 1)})], "3.9", {"JoinGroup": (0, 2)}
    )
    join = API_BY_NAME["JoinGroup"].key
    assert [each.release for each in cluster] == [Release(3, 9), Release(2, 8), Release(3, 9)]
    assert [each.versions[join] for each in cluster] == [Versions(0, 2), Versions(0, 2), Versions(0, 1)]


@pytest.mark.parametrize(
    ("broker", "sentence"),
    [
        (Broker(as_version="5.0"), "as_version='5.0': expected one of 0.10.0, 0.10.1, "),
        (Broker(as_version="0.9"), "as_version='0.9': expected one of 0.10.0, 0.10.1, "),
        (Broker(as_version=2.8), "as_version=2.8: expected a string, such as '2.8'"),  # type: ignore[arg-type]  # as users do
        (
            Broker(api_versions={"JoinGrop": (0, 1)}),
            "api_versions.JoinGrop=(0, 1): unknown API; expected one of ",
        ),
        (Broker(api_versions={"JoinGroup": (10, 12)}), "api_versions.JoinGroup=(10, 12): expected versions in 0-9"),
        (Broker(api_versions={"JoinGroup": (3, 2)}), "api_versions.JoinGroup=(3, 2): expected versions in 0-9"),
        (
            Broker(as_version="0.10.0", api_versions={"DeleteGroups": (0, 1)}),
            "api_versions.DeleteGroups=(0, 1): expected None: the release lacks it",
        ),
        (
            Broker(api_versions={"ApiVersions": None}),
            "api_versions.ApiVersions=None: expected versions: clients begin with it",
        ),
    ],
)
def test_what_cannot_be_is_one_sentence(broker: Broker, sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        EmulatedRelease.of(broker)
    assert str(raised.value).startswith(sentence)


@pytest.mark.parametrize("as_version", [None, "4.2", "4.2.1"])
def test_a_proposal_is_spoken_by_the_newest_release(as_version: str | None) -> None:
    emulated = EmulatedRelease.of(Broker(as_version=as_version), ["batch-join"])
    join = API_BY_NAME["JoinGroup"].key
    assert emulated.versions == {**EmulatedRelease.of(Broker(as_version=as_version)).versions, join: Versions(0, 10)}
    assert emulated.supports_batch_join
    assert not EmulatedRelease.of(Broker(as_version=as_version)).supports_batch_join


def test_an_older_release_has_no_proposal_and_caps_hold() -> None:
    assert EmulatedRelease.of(Broker(as_version="4.1"), ["batch-join"]) == EmulatedRelease.of(Broker(as_version="4.1"))
    capped = EmulatedRelease.of(Broker(api_versions={"JoinGroup": (2, 9)}), ["batch-join"])
    assert not capped.supports_batch_join
    assert not EmulatedRelease.of(Broker(api_versions={"JoinGroup": None}), ["batch-join"]).supports_batch_join
    old, new = emulated_releases([Broker(as_version="3.9"), Broker()], None, {}, ["batch-join"])
    assert [old.supports_batch_join, new.supports_batch_join] == [False, True]


def test_an_unknown_proposal_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"^proposals\[0\]='batch': expected one of batch-join; did you"):
        emulated_releases(1, None, {}, ["batch"])


@pytest.mark.parametrize("brokers", [0, -1, 1001, 10**12, []])
def test_there_cannot_be_so_many_brokers(brokers: Any) -> None:
    count = brokers if isinstance(brokers, int) else 0
    with pytest.raises(ConfigError, match=f"brokers={count}: expected an integer from 1 to 1000"):
        emulated_releases(brokers, None, {})


def test_versions_and_apis_that_a_broker_lacks_are_not_read() -> None:
    harness = ClusterHarness(as_version="0.11")
    join = JoinGroupRequest(group_id="g", session_timeout_ms=1, member_id="", protocol_type="consumer", protocols=[])
    assert read(harness, join, 2).api.name == "JoinGroup"
    with pytest.raises(ProtocolError, match="JoinGroup version 3, expected 0-2"):
        read(harness, join, 3)
    with pytest.raises(ProtocolError, match="unknown API key 42 "):
        read(harness, DeleteGroupsRequest(groups_names=[]), 0)
    assert read(harness, ListGroupsRequest(), 1).api_version == 1


@pytest.mark.parametrize(("as_version", "are_told"), [("2.3", False), ("2.4", True), (None, True)])
def test_an_api_versions_request_of_the_future(as_version: str | None, are_told: bool) -> None:
    harness = ClusterHarness(as_version=as_version)
    last = harness.cluster.brokers[1].versions[ApiVersionsRequest.API_KEY].last
    call = Call(harness.peer(), API_BY_NAME["ApiVersions"], last + 1, 1, "client", ApiVersionsRequest(), 0)
    assert harness.cluster.handle(call, harness.now_ms)
    assert (call.response_version, call.response.error_code) == (0, ErrorCode.UNSUPPORTED_VERSION)
    assert bool(call.response.api_keys) is are_told
