"""The table of APIs."""

import pytest

from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.registry import API_BY_KEY, API_BY_NAME, APIS, PROPOSALS, Api, api_of
from fakebroker.protocol.releases import RELEASES
from fakebroker.protocol.schema import Versions


def test_the_apis_stand_in_the_order_of_kafkas_keys() -> None:
    keys = [api.key for api in APIS]

    assert keys == sorted(set(keys))
    assert list(API_BY_KEY) == keys


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_request_and_response_belong_together(api: Api) -> None:
    assert api.key == api.response.API_KEY
    assert api.request.VERSIONS == api.response.VERSIONS
    assert api.request.FLEXIBLE == api.response.FLEXIBLE
    assert (api.request.__name__, api.response.__name__) == (f"{api.name}Request", f"{api.name}Response")
    assert api_of(api.request) is API_BY_NAME[api.name] is api


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_what_is_served_and_told_of_can_be_read(api: Api) -> None:
    assert set(api.versions) <= set(api.advertised_versions) <= set(api.request.VERSIONS)


def test_the_versions_of_proposals_are_read_and_neither_told_of_nor_in_any_release() -> None:
    assert {"batch-join": {"JoinGroup": Versions(0, 10)}} == PROPOSALS
    assert Versions(0, 10) == API_BY_NAME["JoinGroup"].request.VERSIONS
    assert API_BY_NAME["JoinGroup"].advertised_versions == API_BY_NAME["JoinGroup"].versions == Versions(0, 9)
    assert max(versions["JoinGroup"].last for versions in RELEASES.values()) == 9


def test_produce_tells_of_versions_that_it_refuses() -> None:
    produce = API_BY_NAME["Produce"]

    assert (str(produce.versions), str(produce.advertised_versions)) == ("3-13", "0-13")
    assert [api.name for api in APIS if api.versions != api.advertised_versions] == ["Produce"]


def test_the_api_of_an_instance() -> None:
    assert api_of(HeartbeatRequest(group_id="g", generation_id=1, member_id="m")).name == "Heartbeat"
