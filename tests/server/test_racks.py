"""Consumers that a leader refers to a follower, in a fetch session."""

from tests.support import racks


def test_a_leader_refers_to_a_follower_again_and_again() -> None:
    referred: racks.Seen = [(0, 2, 0)]
    nothing: racks.Seen = []
    assert racks.session_on_fake_cluster() == [
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
