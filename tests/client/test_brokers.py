"""The driver of clients: the choice of brokers and connections, time-outs, batches, and what becomes of requests."""

import pytest
import trio

from fakebroker import FakeCluster
from fakebroker.client.admin.admin import Admin
from fakebroker.client.brokers import MAX_IN_FLIGHT, Brokers, Exchange
from fakebroker.client.coordinators import find_coordinators
from fakebroker.client.errors import (
    AuthenticationFailed,
    BrokerUnreachable,
    ClientClosed,
    ConnectionLost,
    NoBatchedFindCoordinators,
    RequestTimedOut,
    UnsupportedVersion,
)
from fakebroker.client.transport import Address, addresses
from fakebroker.client.trio_brokers import TrioBrokers
from fakebroker.errors import ConfigError, ProtocolError
from fakebroker.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.list_groups import ListGroupsRequest
from fakebroker.protocol.messages.list_transactions import ListTransactionsRequest
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.support.client.scripted_transport import ScriptedConnection, ScriptedTransport, versions
from tests.support.trio_runner import in_trio_with_sockets

A, B, C = ("a", 1), ("b", 2), ("c", 3)
ANY, BEAT = MetadataRequest(topics=[]), HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


class Client:
    """A client in a test.

    Attributes:
        ended: The exchanges that have ended, oldest first.
    """

    def __init__(self, *bootstrap: Address, is_late: bool = False, **options: object) -> None:
        self.transport = ScriptedTransport(is_late=is_late)
        self.brokers = Brokers(self.transport, lambda: self.transport.now_ms, "c", bootstrap, **options)  # type: ignore[arg-type]
        self.ended: list[Exchange] = []

    def done(self, exchange: Exchange) -> None:
        self.ended.append(exchange)

    def connection(self, number: int = -1) -> ScriptedConnection:
        return self.transport.connections[number]

    def failures(self) -> list[str]:
        return [f"{type(each.failure).__name__}: {each.failure}" for each in self.ended]

    @property
    def addresses(self) -> list[Address]:
        """The brokers that were connected to, in order."""
        return [each.address for each in self.transport.connections]


def metadata(**nodes: Address) -> MetadataResponse:
    brokers = [
        MetadataResponseBroker(node_id=int(name[1:]), host=host, port=port) for name, (host, port) in nodes.items()
    ]
    return MetadataResponse(brokers=brokers, topics=[])


# Any broker


def test_requests_for_any_broker_wait_for_the_first_one_and_share_its_connection() -> None:
    client = Client(A, B)
    for _ in range(2):
        client.brokers.send(ANY, client.done)
    assert client.addresses == [A]
    client.connection().open()
    assert client.connection().sent == [ANY, ANY]
    client.connection().answer(metadata(n1=A))
    assert [(each.response, each.address) for each in client.ended] == [(metadata(n1=A), A)]


def test_the_next_broker_is_asked_if_one_cannot_be_reached_and_the_lost_one_is_asked_last_from_then_on() -> None:
    client = Client(A, B, C)
    client.brokers.send(ANY, client.done)
    client.connection().lose()
    client.connection().lose()
    client.connection().open()
    assert client.addresses == [A, B, C]
    client.connection().lose()
    client.brokers.send(ANY, client.done)
    assert client.addresses == [A, B, C, A]


def test_requests_for_any_broker_fail_if_none_can_be_reached_with_all_reasons() -> None:
    client = Client(A, B)
    client.brokers.send(ANY, client.done)
    client.connection().lose("refused")
    client.connection().lose("no route")
    expected = "BrokerUnreachable: brokers a:1, b:2 cannot be reached: refused; no route"
    assert client.failures() == [expected]
    client.brokers.send(ANY, client.done)  # All are tried again.
    assert client.addresses == [A, B, A]


def test_a_refusal_is_final() -> None:
    client = Client(A, B)
    client.brokers.send(ANY, client.done)
    client.connection().lose("wrong password", is_refused=True)
    assert client.addresses == [A]
    assert isinstance(client.ended[0].failure, AuthenticationFailed)


def test_a_request_may_only_ask_for_a_connection() -> None:
    client = Client(A)
    client.brokers.reach(client.done)
    client.connection().open()
    assert [each.failure for each in client.ended] == [None]
    assert client.connection().sent == []


# Brokers by node id


def test_addresses_are_those_of_every_metadata_response() -> None:
    client = Client(A)
    client.brokers.send(ANY, client.done)
    client.connection().open()
    client.connection().answer(metadata(n1=A, n2=B, n3=C))
    client.brokers.send(BEAT, client.done, node_id=2)
    assert client.addresses == [A, B]
    client.connection().open()
    client.brokers.send(ANY, client.done)
    client.connection(0).answer(metadata(n1=A, n2=C))
    assert client.failures()[-2:] == [
        "ConnectionLost: broker b:2: the broker has another address now",
        "NoneType: None",
    ]
    client.brokers.send(BEAT, client.done, node_id=2)
    assert client.addresses == [A, B, C]
    client.brokers.send(BEAT, client.done, node_id=3)
    client.brokers.tick(0)
    assert client.failures()[-1] == "BrokerUnreachable: broker 3 cannot be reached: its address is unknown"


def test_coordinators_that_were_found_are_known() -> None:
    client = Client(A)
    client.brokers.send(find_coordinators(["g"]), client.done)
    client.connection().open(versions(FindCoordinator=3))  # without batches
    client.connection().answer(FindCoordinatorResponse(node_id=2, host="b", port=2))
    assert [each.key for each in client.ended[0].response.coordinators] == ["g"]
    client.brokers.send(BEAT, client.done, node_id=2)
    assert client.addresses == [A, B]


def test_a_failed_look_up_teaches_nothing() -> None:
    client = Client(A)
    client.brokers.send(find_coordinators(["g"]), client.done)
    client.connection().open()
    none = Coordinator(key="g", node_id=-1, host="", port=-1, error_code=15, error_message=None)
    client.connection().answer(FindCoordinatorResponse(coordinators=[none]))
    assert client.brokers.nodes == {}


def test_done_is_never_called_within_send() -> None:
    client = Client()
    client.brokers.send(BEAT, client.done, node_id=7)
    assert client.ended == []
    assert client.brokers.next_deadline() <= client.transport.now_ms
    client.brokers.tick(0)
    assert len(client.ended) == 1


# Time-outs and losses


@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "later"])
def test_a_connection_without_a_response_in_time_is_closed(is_late: bool) -> None:
    client = Client(A, is_late=is_late, request_timeout_ms=100)
    client.brokers.learn(1, *A)
    client.brokers.send(BEAT, client.done, node_id=1)
    client.connection().open()
    client.transport.now_ms = 60
    client.brokers.send(BEAT, client.done, node_id=1)
    assert client.brokers.next_deadline() == 100
    client.transport.now_ms = 100
    client.brokers.tick(100)
    assert client.brokers.next_deadline() == float("inf")
    client.transport.notify()
    why = "broker a:1: no response in 100 ms"
    assert client.failures() == [f"RequestTimedOut: {why}", f"ConnectionLost: {why}"]
    client.brokers.send(BEAT, client.done, node_id=1)
    assert client.addresses == [A, A]


def test_the_time_before_a_request_is_sent_does_not_count() -> None:
    client = Client(A, request_timeout_ms=100)
    client.brokers.send(ANY, client.done)
    client.transport.now_ms = 5_000
    assert client.brokers.next_deadline() == float("inf")  # The transport limits the time of connecting.
    client.connection().open()
    assert client.brokers.next_deadline() == 5_100


@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "later"])
def test_a_broker_that_was_reached_is_tried_again_for_requests_that_came_while_its_connection_was_lost(
    is_late: bool,
) -> None:
    client = Client(A, is_late=is_late, request_timeout_ms=100)
    client.brokers.send(ANY, client.done)
    client.connection().open()
    client.brokers.tick(100)
    client.brokers.send(BEAT, client.done)
    client.transport.notify()
    assert client.addresses == [A, A]
    client.connection().open()
    assert client.connection().sent == [BEAT]


def test_a_response_after_the_news_of_another_address_is_ignored() -> None:
    client = Client(A)
    client.brokers.send(ANY, client.done)
    client.brokers.send(BEAT, client.done)
    client.connection().open()
    connection = client.connection()
    client.brokers.learn(1, *A)
    connection.answer(metadata(n1=B))
    client.brokers.answered(connection, HeartbeatResponse())  # It was in the same bytes.
    assert [type(each.failure) for each in client.ended] == [ConnectionLost, type(None)]


def test_a_parked_request_has_no_time_out() -> None:
    client = Client(A, request_timeout_ms=100)
    client.brokers.send(ANY, client.done, is_parked=True)
    client.connection().open()
    client.brokers.tick(10_000)
    assert client.ended == []


@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "later"])
def test_a_lane_with_one_request_at_a_time_continues_over_a_new_connection(is_late: bool) -> None:
    client = Client(A, is_late=is_late, serial_lanes=["group"])
    client.brokers.learn(1, *A)
    first, second = (client.brokers.send(BEAT, client.done, node_id=1, lane="group") for _ in range(2))
    client.connection().open()
    assert len(client.connection().sent) == 1
    client.brokers.cancel(first)
    client.transport.notify()
    assert client.addresses == [A, A]
    client.connection().open()
    client.connection().answer(HeartbeatResponse())
    assert client.ended == [second]


def test_lanes_have_connections_of_their_own() -> None:
    client = Client(A)
    client.brokers.learn(1, *A)
    client.brokers.send(BEAT, client.done, node_id=1)
    client.brokers.send(BEAT, client.done, node_id=1, lane="fetch")
    client.brokers.send(BEAT, client.done, node_id=1, lane="fetch")
    assert client.addresses == [A, A]


def test_a_canceled_request_is_not_sent_any_more() -> None:
    client = Client(A)
    client.brokers.learn(1, *A)
    for exchange in [client.brokers.send(BEAT, client.done, node_id=1), client.brokers.send(ANY, client.done)]:
        client.brokers.cancel(exchange)
    client.connection().open()
    assert client.connection().sent == []


def test_the_connection_of_a_canceled_request_is_closed() -> None:
    client = Client(A)
    exchange = client.brokers.send(ANY, client.done)
    client.connection().open()
    client.brokers.cancel(exchange)
    assert client.connection().is_closed
    assert client.ended == []


def test_requests_without_a_response_are_cut_off_at_the_end() -> None:
    client = Client(A)
    client.brokers.learn(1, *A)
    client.brokers.learn(2, *B)
    client.brokers.send(BEAT, client.done, node_id=1)
    client.connection().open()
    client.brokers.send(BEAT, client.done, node_id=2)
    client.brokers.cut_off()
    assert [each.node_id for each in client.ended] == [1, 2]
    assert {type(each.failure) for each in client.ended} == {ClientClosed}
    assert all(each.is_closed for each in client.transport.connections)


# Versions and batches


def groups_request(groups: list[str]) -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups])


@pytest.mark.parametrize(("last", "sizes"), [(8, [2, 2, 1]), (7, [1] * 5)], ids=["batches", "one group"])
def test_requests_about_several_keys_are_divided_by_the_version_of_their_broker(last: int, sizes: list[int]) -> None:
    client = Client(A)
    client.brokers.send_batches(OffsetFetchRequest, list("abcde"), groups_request, client.done, max_keys=2)  # type: ignore[arg-type]
    client.connection().open(versions(OffsetFetch=last))
    assert [len(each.groups) or 1 for each in client.connection().sent] == sizes  # type: ignore[attr-defined]
    client.connection().lose()
    assert [len(each.keys) for each in client.ended] == sizes
    assert [key for each in client.ended for key in each.keys] == list("abcde")


def test_brokers_of_mixed_releases_get_their_versions() -> None:
    client = Client()
    client.brokers.learn(1, *A)
    client.brokers.learn(2, *B)
    for node_id, last in ((1, 7), (2, 8)):
        client.brokers.send_batches(OffsetFetchRequest, ["a", "b"], groups_request, client.done, node_id=node_id)  # type: ignore[arg-type]
        client.connection().open(versions(OffsetFetch=last))
    assert [len(each.sent) for each in client.transport.connections] == [2, 1]


def test_a_client_may_insist_on_batches() -> None:
    client = Client(A)
    client.brokers.send_batches(
        FindCoordinatorRequest,
        ["a", "b"],
        find_coordinators,
        client.done,
        not_batched=NoBatchedFindCoordinators,
    )
    client.connection().open(versions(FindCoordinator=3))
    assert client.connection().sent == []
    assert isinstance(client.ended[0].failure, NoBatchedFindCoordinators)
    assert client.ended[0].keys == ["a", "b"]


def test_a_request_that_the_version_cannot_express_fails_and_the_connection_stays() -> None:
    client = Client(A)
    client.brokers.send(ListTransactionsRequest(state_filters=[], producer_id_filters=[]), client.done)
    client.brokers.send(find_coordinators(["a", "b"]), client.done)
    client.brokers.send(ANY, client.done)
    older = versions(FindCoordinator=3)
    del older.theirs[66]  # type: ignore[attr-defined]
    client.connection().open(older)
    assert [type(each.failure) for each in client.ended] == [UnsupportedVersion, ProtocolError]
    assert client.connection().sent[-1] == ANY


def test_the_number_of_requests_in_flight_is_limited() -> None:
    client = Client(A, max_in_flight=2)
    for _ in range(3):
        client.brokers.send(ANY, client.done)
    client.connection().open()
    assert len(client.connection().sent) == 2
    client.connection().answer(metadata(n1=A))
    assert len(client.connection().sent) == 2


# Over TCP, for tasks


def test_addresses_are_parsed_without_duplicates() -> None:
    assert addresses("a:1") == [("a", 1)]
    assert addresses("a:1, b:2,a:1") == [("a", 1), ("b", 2)]
    assert addresses(["a:1", "b:2"]) == [("a", 1), ("b", 2)]
    assert addresses("[::1]:9092") == [("::1", 9092)]


def test_invalid_addresses_are_rejected(subtests: pytest.Subtests) -> None:
    servers: str | list[str]
    for servers in ("", "a", "a:", ":1", "a:0", "a:65536", "a:1,", "a:x", []):
        message = r"^bootstrap_servers=.*: expected HOST:PORT, or several with commas$"
        with subtests.test(servers=servers), pytest.raises(ConfigError, match=message):
            addresses(servers)


def test_an_ipv6_address_needs_brackets() -> None:
    message = (
        r"^bootstrap_servers='::1:9092': expected HOST:PORT with an IPv6 address in brackets, such as \[::1\]:9092$"
    )
    with pytest.raises(ConfigError, match=message):
        addresses("::1:9092")


@in_trio_with_sockets
async def test_tasks_wait_for_answers_over_one_connection_to_each_broker() -> None:
    async with FakeCluster(brokers=2) as cluster, trio.open_nursery() as nursery:
        brokers = TrioBrokers(cluster.bootstrap_servers, "c", nursery)
        async with trio.open_nursery() as asking:
            for _ in range(5):
                asking.start_soon(brokers.request, ANY)
        assert sorted(brokers.nodes) == [1, 2]
        for node_id in (1, 2, 1):
            assert (await brokers.request(ListGroupsRequest(), node_id)).error_code == 0
        assert len(cluster.journal.requests("ApiVersions", client_id="c")) == 2
        nursery.cancel_scope.cancel()


@in_trio_with_sockets
async def test_a_lost_connection_is_replaced_and_a_stopped_broker_is_avoided() -> None:
    async with FakeCluster(brokers=3) as cluster, trio.open_nursery() as nursery:
        brokers = TrioBrokers(cluster.bootstrap_servers, "c", nursery)
        first, *_ = cluster.brokers
        cluster.inject_fault("Metadata", drop=True, times=1)
        with pytest.raises(ConnectionLost, match=rf"^broker {first.host}:{first.port}: the broker has closed"):
            await brokers.request(ANY)
        assert (await brokers.request(ANY)).brokers[0].node_id == 1
        cluster.broker(3).stop()
        with pytest.raises(BrokerUnreachable):
            await brokers.request(ListGroupsRequest(), 3)
        cluster.broker(3).start()
        assert (await brokers.request(ListGroupsRequest(), 3)).error_code == 0
        nursery.cancel_scope.cancel()


@in_trio_with_sockets
async def test_a_silent_broker_is_given_up_after_the_time_out() -> None:
    async with FakeCluster(brokers=1) as cluster, trio.open_nursery() as nursery:
        brokers = TrioBrokers(cluster.bootstrap_servers, "c", nursery, request_timeout_ms=30)
        cluster.inject_fault("ListGroups", silent=True, times=1)
        with pytest.raises(RequestTimedOut, match=r"no response in 30 ms$"):
            await brokers.request(ListGroupsRequest())
        assert (await brokers.request(ListGroupsRequest())).error_code == 0
        nursery.cancel_scope.cancel()


@in_trio_with_sockets
async def test_old_brokers_get_many_requests_and_few_of_them_at_a_time() -> None:
    groups = [f"g{number}" for number in range(3 * MAX_IN_FLIGHT)]
    async with FakeCluster(brokers=1, as_version="2.7") as cluster, Admin(cluster.bootstrap_servers) as admin:
        assert list((await admin.find_coordinators(groups)).all()) == groups
        assert cluster.journal.count("FindCoordinator") == len(groups)
