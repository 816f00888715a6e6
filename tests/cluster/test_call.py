"""Calls: the groups and members that the journal finds in requests."""

import pytest

from fakebroker.cluster.call import Call
from fakebroker.cluster.faults.error_catalog import kinds_of
from fakebroker.cluster.request_ids import declared_partitions, names_topics
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from fakebroker.protocol.registry import API_BY_NAME, APIS
from tests.support.cluster.cluster_harness import ClusterHarness
from tests.support.message_versions import filled


def test_calls_have_the_group_and_member_ids_of_all_requests_that_contain_ids(subtests: pytest.Subtests) -> None:
    peer = ClusterHarness().peer()
    for api in APIS:
        for version in (api.versions.first, api.versions.last):
            with subtests.test(api=api.name, version=version):
                request = filled(api.request, version)
                if isinstance(request, FindCoordinatorRequest):
                    request.key_type = 0  # Keys are group ids.
                for resource in (*getattr(request, "resources", ()), *getattr(request, "creations", ())):
                    resource.resource_type = 2  # A topic.
                call = Call(peer, api, version, 1, "client", request, 0)
                assert bool(call.group_ids) == ("group" in kinds_of(api))
                if version == api.versions.last:  # First versions may lack the field `member_id`.
                    assert bool(call.member_ids) == ("member_id" in kinds_of(api))
                    assert bool(call.instance_ids) == ("instance_id" in kinds_of(api))
                    assert bool(call.partitions) == names_topics(api)


def test_partitions_of_frequent_requests_are_those_of_their_declarations(subtests: pytest.Subtests) -> None:
    peer = ClusterHarness().peer()
    for name in ("Produce", "Fetch", "OffsetCommit"):
        api = API_BY_NAME[name]
        for version in range(api.versions.first, api.versions.last + 1):
            with subtests.test(api=name, version=version):
                call = Call(peer, api, version, 1, "client", filled(api.request, version), 0)
                assert call.partitions == tuple(dict.fromkeys(declared_partitions(api, version, call.request)))
                assert call.partitions
