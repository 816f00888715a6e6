"""Waiting for a cluster in another process: the server does it, up to a minute at once. Standard library alone."""

from typing import Any, Unpack

from fakebroker.cluster.call import Call
from fakebroker.cluster.inspect.journal_filters import Filters
from fakebroker.cluster.inspect.views import GroupView
from fakebroker.control.client.looking import TIMEOUT_S, Looking
from fakebroker.control.client.views_client import named_error, view_of
from fakebroker.coordinator.group.offsets import CommittedOffset
from fakebroker.errors import WaitTimeout

LONGEST_S = 60.0
"""The server waits no longer at once."""

_MORE_S = 10.0
"""How much longer than the server a caller waits."""


class Waiting(Looking):
    """Waiting for the cluster; see `Client`."""

    def _wait(self, what: str, timeout_s: float, **arguments: Any) -> Any:
        given = {name: value for name, value in arguments.items() if value is not None}
        left_s = max(timeout_s, 0.0)
        while True:
            step_s = min(left_s, LONGEST_S)
            left_s -= step_s
            try:
                return self.post(f"wait/{what}", {**given, "timeout_s": step_s}, timeout_s=step_s + _MORE_S)
            except WaitTimeout as error:
                if not left_s:
                    told = str(error).replace(f"within {step_s:g} s", f"within {timeout_s:g} s", 1)
                    raise WaitTimeout(told) from None

    def wait_for_state(
        self, group_id: str, state: str, *, members: int | None = None, timeout_s: float = TIMEOUT_S
    ) -> GroupView:
        found = self._wait("state", timeout_s, group_id=group_id, state=state, members=members)
        return view_of(found, self.timeline(group_id))

    def wait_for_generation(self, group_id: str, *, above: int, timeout_s: float = TIMEOUT_S) -> GroupView:
        found = self._wait("generation", timeout_s, group_id=group_id, above=above)
        return view_of(found, self.timeline(group_id))

    def wait_for_commit(
        self, group_id: str, partition: str, *, at_least: int, timeout_s: float = TIMEOUT_S
    ) -> CommittedOffset:
        return CommittedOffset(
            **self._wait("commit", timeout_s, group_id=group_id, partition=partition, at_least=at_least)
        )

    def wait_for_request(
        self,
        api: str | None = None,
        client_id: str | None = None,
        *,
        count: int = 1,
        timeout_s: float = TIMEOUT_S,
        **filters: Unpack[Filters],
    ) -> list[Call]:
        self._wait("request", timeout_s, api=api, client_id=client_id, count=count, **named_error(filters))
        return self.requests(api, client_id, **filters)
