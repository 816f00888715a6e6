"""The table of APIs: keys, messages, and the versions that are served, advertised and decoded."""

import pytest

from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.join_group import JoinGroupRequest
from fakebroker.protocol.messages.rewrite_join_group import RewriteJoinGroupRequest
from fakebroker.protocol.registry import API_BY_KEY, API_BY_NAME, APIS, PROPOSALS, api_of
from fakebroker.protocol.releases import RELEASES
from fakebroker.protocol.schema import Versions
from tests.support.message_versions import filled


def test_apis_are_in_the_order_of_their_keys() -> None:
    keys = [api.key for api in APIS]

    assert keys == sorted(set(keys))
    assert list(API_BY_KEY) == keys


def test_request_and_response_of_an_api_have_the_same_key_versions_and_name(subtests: pytest.Subtests) -> None:
    for api in APIS:
        with subtests.test(api=api.name):
            assert api.key == api.request.API_KEY == api.response.API_KEY
            assert api.request.VERSIONS == api.response.VERSIONS
            assert api.request.FLEXIBLE == api.response.FLEXIBLE
            assert (api.request.__name__, api.response.__name__) == (f"{api.name}Request", f"{api.name}Response")
            assert api_of(api.request) is API_BY_NAME[api.name] is api


def test_advertised_versions_include_the_served_ones_and_can_be_decoded() -> None:
    for api in APIS:
        assert set(api.versions) <= set(api.advertised_versions) <= set(api.request.VERSIONS), api.name


def test_versions_of_proposals_are_decoded_but_neither_advertised_nor_part_of_a_release() -> None:
    assert list(PROPOSALS) == ["batch-join", "rewrite"]
    assert PROPOSALS["batch-join"].versions == {"JoinGroup": Versions(0, 10)}
    assert not PROPOSALS["batch-join"].replaced
    assert Versions(0, 10) == API_BY_NAME["JoinGroup"].request.VERSIONS
    assert API_BY_NAME["JoinGroup"].advertised_versions == API_BY_NAME["JoinGroup"].versions == Versions(0, 9)
    assert max(versions["JoinGroup"].last for versions in RELEASES.values()) == 9


def test_a_proposal_may_replace_messages_and_handlers_of_an_api_and_remove_others() -> None:
    rewrite = PROPOSALS["rewrite"]
    assert {name: str(versions) for name, versions in rewrite.versions.items()} == {
        "OffsetCommit": "0-10",
        "JoinGroup": "0-0",
        "Heartbeat": "0-0",
        "SyncGroup": "None",
        "LeaveGroup": "None",
    }
    for key, api in rewrite.replaced.items():
        kafka = API_BY_KEY[key]
        assert (api.key, api.name, api.proposal) == (kafka.key, kafka.name, "rewrite")
        assert kafka.proposal == ""
        assert api.handler == f"Rewrite{api.name}"
        assert api.request.API_KEY == api.response.API_KEY == key
        assert (api.request is kafka.request) == (api.name != "JoinGroup")
        assert set(api.versions) <= set(api.request.VERSIONS)
    join_group = rewrite.replaced[11]
    assert api_of(RewriteJoinGroupRequest) is join_group
    assert api_of(filled(RewriteJoinGroupRequest, 0)) is join_group
    assert api_of(JoinGroupRequest) is API_BY_NAME["JoinGroup"]


def test_produce_advertises_versions_that_it_does_not_serve() -> None:
    produce = API_BY_NAME["Produce"]

    assert (str(produce.versions), str(produce.advertised_versions)) == ("3-13", "0-13")
    assert [api.name for api in APIS if api.versions != api.advertised_versions] == ["Produce"]


def test_the_api_of_a_message_is_found() -> None:
    assert api_of(HeartbeatRequest(group_id="g", generation_id=1, member_id="m")).name == "Heartbeat"
