"""How the client asks, and what it can look at: brokers, groups, offsets, the journal. Standard library alone."""

from collections.abc import Mapping
from typing import Any, TypedDict, Unpack
from urllib.parse import quote, urlencode

from fakebroker.cluster.inspect.journal_queries import JournalView
from fakebroker.cluster.inspect.timeline import Timeline
from fakebroker.cluster.inspect.views import BrokerView, GroupView
from fakebroker.control.client.http import Http, NotThere
from fakebroker.control.client.views_client import broker_of, group_path, moments_of, view_of
from fakebroker.coordinator.group.offsets import CommittedOffset
from fakebroker.errors import ConfigError
from fakebroker.server.journal_files import JournalExport, parse_journal

TIMEOUT_S = 10.0
_GROUPS_AT_ONCE = 100


class GroupOptions(TypedDict, total=False):
    """Which groups, in which order: "busy", "name" or "unstable"."""

    state: str
    search: str
    sort: str
    limit: int
    offset: int


class Looking(JournalExport):
    """Where a cluster is, and what there is to see of it; see `Client`."""

    def __init__(
        self, url: str, token: str | None = None, cluster: str = "default", *, timeout_s: float = TIMEOUT_S
    ) -> None:
        self.url = url
        self.cluster = cluster
        self._http = Http(url, token, timeout_s)
        self._base = f"/v1/clusters/{quote(cluster, safe='')}"

    # Asking

    def get(self, path: str, **query: Any) -> Any:
        """What stands at a path below the cluster's."""
        given = {name: value for name, value in query.items() if value is not None}
        return self._http.ask("GET", f"{self._base}/{path}" + (f"?{urlencode(given)}" if given else ""))

    def post(self, path: str, body: Mapping[str, Any] | None = None, *, timeout_s: float | None = None) -> Any:
        """Post something to a path below the cluster's."""
        return self._http.ask("POST", f"{self._base}/{path}", body or {}, timeout_s=timeout_s)

    def delete(self, path: str) -> None:
        """Delete what stands at a path below the cluster's."""
        self._http.ask("DELETE", f"{self._base}/{path}")

    def perform(self, event: str, /, **arguments: Any) -> Any:
        """Do an event: a method of `FakeCluster` by its name."""
        return self.post("events", {"do": event, **arguments})["result"]

    # Looking

    def overview(self) -> dict[str, Any]:
        """The cluster as a whole: brokers, groups by state, rates."""
        found: dict[str, Any] = self._http.ask("GET", self._base)
        return found

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{broker.host}:{broker.port}" for broker in self.brokers)

    @property
    def brokers(self) -> tuple[BrokerView, ...]:
        return tuple(map(broker_of, self.get("brokers")["brokers"]))

    def coordinator_of(self, group_id: str) -> BrokerView:
        node_id = self.get(f"{group_path(group_id)}/coordinator")["node_id"]
        if node_id is None:
            raise ConfigError(f"group {group_id!r} has no coordinator now")
        return broker_of(self.get(f"brokers/{node_id}"))

    def group(self, group_id: str) -> GroupView:
        found = self._about(group_id, "")
        return GroupView.of(group_id, None) if found is None else view_of(found, self.timeline(group_id))

    def groups(self) -> list[GroupView]:
        """All groups, by name; each hundred of them is a request of its own."""
        views: list[GroupView] = []
        after: str | None = None
        while True:
            page = self.get("group_views", after=after, limit=_GROUPS_AT_ONCE)
            for row in page["groups"]:
                after = row["group_id"]
                views.append(view_of(row, Timeline(after, moments_of(row), page["taken_ms"])))
            if len(page["groups"]) < _GROUPS_AT_ONCE:
                return views

    def group_rows(self, **which: Unpack[GroupOptions]) -> list[dict[str, Any]]:
        """Rows of the list of groups, 100 by default: id, state, generation, how many members, and why."""
        found: list[dict[str, Any]] = self.get("groups", **which)["groups"]
        return found

    def offsets(self, group_id: str) -> dict[tuple[str, int], CommittedOffset]:
        found = self._about(group_id, "") or {"offsets": []}
        return {(row.pop("topic"), row.pop("partition")): CommittedOffset(**row) for row in found["offsets"]}

    def timeline(self, group_id: str) -> Timeline:
        found = self._about(group_id, "/timeline")
        return Timeline(group_id, moments_of(found), found["taken_ms"]) if found else Timeline(group_id, (), 0.0)

    def explain(self, group_id: str) -> str:
        text: str = self.get(f"{group_path(group_id)}/explain")["text"]
        return text

    def journal_view(self) -> JournalView:
        lines = self._http.text(f"{self._base}/journal.jsonl").splitlines()
        return parse_journal(lines, f"{self.url}, journal").journal_view()

    def _about(self, group_id: str, what: str) -> Any:
        """What stands at a path below a group's; None if nothing is known of the group."""
        try:
            return self.get(group_path(group_id) + what)
        except NotThere as error:
            if error.field != "group":
                raise
            return None
