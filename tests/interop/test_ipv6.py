"""Clients connect to brokers with an IPv6 address."""

import re

import pytest

from fakebroker import Admin, FakeCluster, ListenError
from fakebroker.server.connections.connection import client_host
from tests.support.groups_over_tcp import stable_group
from tests.support.ipv6 import needs_ipv6
from tests.support.kafka_clients.client import KafkaClient, StartConsumer
from tests.support.kafka_clients.helpers import committed_total, numbered, poll_records, values, with_each_client
from tests.support.trio_runner import in_trio_with_sockets

pytestmark = needs_ipv6

ADDRESSES = re.compile(r"(\[::1\]:\d+,){2}\[::1\]:\d+")
CLIENT_HOST = "/0:0:0:0:0:0:0:1"
"""As Java writes the address ::1."""


@with_each_client
@pytest.mark.fake_cluster(host="::1", topics={"orders": 2})
def test_produce_read_and_commit(client: KafkaClient, fake_cluster: FakeCluster, start_consumer: StartConsumer) -> None:
    assert ADDRESSES.fullmatch(fake_cluster.bootstrap_servers)
    client.produce(fake_cluster.bootstrap_servers, "orders", numbered(range(10)), None)
    consumer = start_consumer(client, group_id="readers")
    consumer.subscribe("orders")
    assert values(poll_records(fake_cluster, 10, consumer)) == values(numbered(range(10)))
    consumer.commit()
    assert committed_total(fake_cluster, "readers") == 10
    assert [member.client_host for member in fake_cluster.group("readers").describe().members] == [CLIENT_HOST]
    fake_cluster.broker(1).restart()
    assert ADDRESSES.fullmatch(fake_cluster.bootstrap_servers)


@in_trio_with_sockets
async def test_the_clients_of_this_package_connect() -> None:
    async with FakeCluster(host="[::1]", topics={"orders": 2}) as cluster:
        assert ADDRESSES.fullmatch(cluster.bootstrap_servers)
        async with Admin(cluster.bootstrap_servers) as admin:
            description = await admin.describe_cluster()
            assert {(node.host, node.port) for node in description.nodes} == {
                (broker.host, broker.port) for broker in cluster.brokers
            }


@pytest.mark.fake_cluster(host="::", advertised_host="127.0.0.1", topics={"orders": 6})
def test_clients_with_ipv4_have_ipv4_addresses_also_on_a_socket_for_both(fake_cluster: FakeCluster) -> None:
    stable_group(fake_cluster, "g")
    assert [member.client_host for member in fake_cluster.group("g").describe().members] == ["/127.0.0.1"]


def test_client_hosts_are_written_as_java_does(subtests: pytest.Subtests) -> None:
    for address, expected in [
        ("::1", CLIENT_HOST),
        ("fe80::fc00:ff:fe0:1%eth0", "/fe80:0:0:0:fc00:ff:fe0:1%eth0"),
        ("::ffff:10.0.0.1", "/10.0.0.1"),
    ]:
        with subtests.test(address):
            assert client_host(address) == expected


def test_a_port_in_use_is_named_with_brackets() -> None:
    with FakeCluster(1, host="::1") as cluster:
        port = cluster.brokers[0].port
        with pytest.raises(ListenError, match=rf"^cannot listen on \[::1\]:{port}: the port is in use$"):
            FakeCluster(1, host="::1", port=port).__enter__()
