"""The last requests of a group's members, from the journal."""

from itertools import islice

from fakebroker.cluster.call import Call
from fakebroker.cluster.cluster import Cluster
from fakebroker.coordinator.classic.group import Group

_MAX_CALLS = 5_000
"""How many of the newest calls are read."""


class MemberRequests:
    """The last requests of the members of one group.

    Members of which the journal has no request are missing: it may be off, or have dropped them.
    """

    def __init__(self) -> None:
        self._last: dict[str, Call] = {}
        self._heartbeats: dict[str, list[float]] = {}

    def add_older(self, call: Call, since_ms: float) -> None:
        """Add a call that was received before those that were added; heartbeats only if received since a time."""
        for member_id in call.member_ids[:1]:  # The response of a leader's JoinGroup names the other members.
            self._last.setdefault(member_id, call)
            if call.api.name == "Heartbeat" and call.received_ms >= since_ms:
                self._heartbeats.setdefault(member_id, []).insert(0, call.received_ms)

    def last(self, member_id: str) -> Call | None:
        """Return the last request that names a member."""
        return self._last.get(member_id)

    def heartbeats(self, member_id: str) -> list[float]:
        """Return when the heartbeats of a member were received, in milliseconds, oldest first."""
        return self._heartbeats.get(member_id, [])


def requests_of_members(cluster: Cluster, group: Group, since_ms: float) -> MemberRequests:
    """Return the last requests of a group's members, and their heartbeats since a time in milliseconds."""
    requests, group_id = MemberRequests(), group.group_id
    for call in islice(reversed(cluster.journal), _MAX_CALLS):
        # Administrators send the LeaveGroup and OffsetFetch of other members.
        if group_id in call.group_ids and call.api.name not in ("LeaveGroup", "OffsetFetch"):
            requests.add_older(call, since_ms)
    return requests
