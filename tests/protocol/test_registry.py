"""The table of APIs: keys, messages, and the versions that are served, advertised and decoded."""

import pytest

from fakebroker.cluster.handlers import BY_NAME
from fakebroker.proposals import PROPOSALS, api_of_version
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.join_group import JoinGroupRequest
from fakebroker.protocol.registry import API_BY_KEY, API_BY_NAME, APIS, api_of
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


def test_proposals_are_not_part_of_a_release() -> None:
    assert list(PROPOSALS) == [each.name for each in PROPOSALS.values()] == ["batch-join", "rewrite"]
    join_group = API_BY_NAME["JoinGroup"]
    assert join_group.request.VERSIONS == join_group.advertised_versions == join_group.versions == Versions(0, 9)
    assert max(versions["JoinGroup"].last for versions in RELEASES.values()) == 9


def test_proposals_replace_or_add_versions_of_apis_and_remove_others() -> None:
    versions = {
        name: {api: str(versions) for api, versions in proposal.versions.items()}
        for name, proposal in PROPOSALS.items()
    }
    assert versions == {
        "batch-join": {"JoinGroup": "0-10"},
        "rewrite": {
            "OffsetCommit": "0-10",
            "JoinGroup": "0-0",
            "Heartbeat": "0-0",
            "SyncGroup": "None",
            "LeaveGroup": "None",
        },
    }
    for proposal in PROPOSALS.values():
        for api in proposal.apis:
            kafka = API_BY_KEY[api.key]
            assert (api.key, api.name, api.proposal) == (kafka.key, kafka.name, proposal.name)
            assert kafka.proposal == ""
            assert BY_NAME[api.handler].__module__ == api.handler
            assert api.request.API_KEY == api.response.API_KEY == api.key
            assert (api.request is kafka.request) == (api.name != "JoinGroup")
            assert set(api.versions) <= set(api.request.VERSIONS)


def test_messages_of_a_proposal_have_its_api() -> None:
    for proposal in PROPOSALS.values():
        for api in proposal.apis:
            if api.messages:
                assert api_of(api.request) is api_of(api.response) is api_of(filled(api.request, 10)) is api
    assert api_of(JoinGroupRequest) is API_BY_NAME["JoinGroup"]


def test_a_version_that_kafka_lacks_is_that_of_a_proposal() -> None:
    kafka, (proposed,) = API_BY_NAME["JoinGroup"], PROPOSALS["batch-join"].apis
    assert [api_of_version(kafka, version) for version in (0, 9, 10, 11)] == [kafka, kafka, proposed, kafka]


def test_produce_advertises_versions_that_it_does_not_serve() -> None:
    produce = API_BY_NAME["Produce"]

    assert (str(produce.versions), str(produce.advertised_versions)) == ("3-13", "0-13")
    assert [api.name for api in APIS if api.versions != api.advertised_versions] == ["Produce"]


def test_the_api_of_a_message_is_found() -> None:
    assert api_of(HeartbeatRequest(group_id="g", generation_id=1, member_id="m")).name == "Heartbeat"
