"""Consumers that a leader refers to a follower, in a fetch session."""

from fakebroker import Broker, FakeCluster
from tests.support import racks
from tests.support.wire_client import WireClient, broker_of

BROKERS = [Broker(rack=each) for each in racks.RACKS]


def test_a_leader_refers_to_a_follower_again_and_again() -> None:
    with (
        FakeCluster(BROKERS, config=racks.SELECTOR) as cluster,
        WireClient(broker_of(cluster, 1)) as client,
    ):
        racks.create_topic(client)
        assert racks.produce(client) == 0

        referred: racks.Seen = [(0, 2, 0)]
        nothing: racks.Seen = []
        assert racks.session(client) == [
            referred,
            referred,
            [(0, -1, 1)],
            referred,
            nothing,
            referred,
            nothing,
            referred,
            [(0, -1, 1)],
        ]
