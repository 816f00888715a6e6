"""A client of the control server: the handles of `FakeCluster`, for a cluster in another process.

`RemoteOwner` runs the commands and views of handles: each is one HTTP request, whose path is derived from the handle.
"""

import threading
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypedDict, TypeVar, Unpack
from urllib.parse import quote, urlencode

import msgspec

from fakebroker.cluster.call import Call
from fakebroker.cluster.faults.rule import actions_of
from fakebroker.cluster.handles.conditions import (
    All,
    Condition,
    Found,
    HandleCondition,
    Not,
    handle_conditions,
    has_predicates,
)
from fakebroker.cluster.handles.definition import Definition, Handle, check_type, key_of, result_of
from fakebroker.cluster.handles.transaction import TransactionHandle
from fakebroker.cluster.inspect.journal_queries import JournalView
from fakebroker.cluster.inspect.timelines import Timeline, TransactionTimeline
from fakebroker.cluster.inspect.transaction_views import TransactionView
from fakebroker.cluster.inspect.views import GroupView, RecordView
from fakebroker.control.client.http import Http, NotFound, Unreachable
from fakebroker.errors import ClusterStopped, ConfigError, ErrorCode, FakebrokerError, WaitTimeout, one_of
from fakebroker.host_port import format_host_port
from fakebroker.server.event_loops import run_in_thread
from fakebroker.server.journal_files import JournalExport, parse_journal, restored_call
from fakebroker.server.waits import WaitingCluster, WaitOwner
from fakebroker.topic_partition import is_partition, partition_name
from fakebroker.validation import Base64, data_bytes, plain

T = TypeVar("T")

TIMEOUT_S = 10.0

MAX_WAIT_S = 60.0
"""The longest wait that the server accepts in one request; longer ones take several."""

_WAIT_GRACE_S = 10.0
"""How many seconds longer than a wait the client waits for its response."""

_GROUPS_PER_REQUEST = 100
_TRANSACTIONS_PER_REQUEST = 1_000


class RemoteOwner(WaitOwner):
    """The owner of handles of a cluster in another process.

    Args:
        http: Sends requests.
        base: The path of the cluster.
    """

    def __init__(self, http: Http, base: str) -> None:
        self._http = http
        self._base = base

    # Commands and views

    def get(self, path: str, **query: Any) -> Any:
        """GET a path below the cluster's."""
        given = {  # JSON's true and false, also in a query
            name: str(value).lower() if isinstance(value, bool) else _plain(value)
            for name, value in query.items()
            if value is not None
        }
        return self._http.request_json("GET", f"{self._base}{path}" + (f"?{urlencode(given)}" if given else ""))

    def post(self, path: str, body: Mapping[str, Any] | None = None, *, timeout_s: float | None = None) -> Any:
        """POST to a path below the cluster's."""
        return self._http.request_json("POST", f"{self._base}{path}", body or {}, timeout_s=timeout_s)

    def perform(self, handle: Handle, definition: Definition, arguments: dict[str, Any]) -> Any:
        special = _SPECIAL.get(definition.name)
        if special is not None:
            return special(self, handle, **arguments)
        path = definition.path.format(**{name: _escaped(str(value)) for name, value in key_of(handle).items()})
        data = self.get(path, **arguments) if definition.kind == "view" else self.post(path, _plain(arguments))
        kind = definition.result
        return kind(self, **data) if isinstance(kind, type) and issubclass(kind, Handle) else result_of(data, kind)

    def groups(self, handle: Handle) -> list[GroupView]:
        """Return all groups sorted by name, with one request for each hundred."""
        views: list[GroupView] = []
        after: str | None = None
        while True:
            page = self.get("/group_views", after=after, limit=_GROUPS_PER_REQUEST)
            for row in page["groups"]:
                after = row["group_id"]
                views.append(_with_history(GroupView, row, {**row, "taken_ms": page["taken_ms"]}))
            if len(page["groups"]) < _GROUPS_PER_REQUEST:
                return views

    def transactions(self, handle: Handle, **filters: Any) -> list[TransactionView]:
        """Return transactional ids sorted by name: one request for each thousand, and one for the history of each."""
        rows: list[dict[str, Any]] = []
        while True:
            page = self.get("/transactions", **filters, offset=len(rows), limit=_TRANSACTIONS_PER_REQUEST)
            rows += page["transactions"]
            if len(page["transactions"]) < _TRANSACTIONS_PER_REQUEST:
                break
        return [
            _with_history(TransactionView, row, TransactionHandle(self, row["transactional_id"]).timeline())
            for row in rows
        ]

    def timeline(self, handle: Any) -> Timeline | TransactionTimeline:
        """Return the history of a group or a transactional id, which need not exist."""
        history: Timeline | TransactionTimeline = handle.describe().history
        return history

    def records(self, handle: Any, partition: int | None = None, committed: bool = False) -> list[RecordView]:
        """Return the records of a topic, with one request for each thousand."""
        path = f"/topics/{_escaped(handle.topic)}"
        indexes = range(len(self.get(f"{path}/describe")["partitions"])) if partition is None else [partition]
        query = {"committed": "true"} if committed else {}
        return [record for index in indexes for record in self._records(f"{path}/records", handle.topic, index, query)]

    def _records(self, path: str, topic: str, partition: int, query: Mapping[str, str]) -> Iterator[RecordView]:
        is_complete, offset = False, 0
        while not is_complete:
            page = self.get(path, partition=partition, offset=offset, **query)
            for row in page["records"]:
                yield _record_view(topic, row)
                offset = row["offset"] + 1
            is_complete = page["is_complete"]

    # Waits

    def watch(self, condition: Condition[Any]) -> "RemoteWatch":
        return RemoteWatch(self, condition)

    def look(self, leaves: Sequence[HandleCondition[Any]]) -> list[Found | None]:
        rows = self.post("/look", {"conditions": [leaf.plain() for leaf in leaves]})["found"]
        pairs = zip(leaves, rows, strict=True)
        return [None if row is None else Found(_value_of(leaf, row[0])) for leaf, row in pairs]

    def call(self, step: Callable[[], T]) -> T:
        return step()

    async def call_async(self, step: Callable[[], T]) -> T:
        return await run_in_thread(step)


class RemoteWatch:
    """A pending wait for a condition of a cluster in another process. Each pause is a request that waits there."""

    def __init__(self, owner: RemoteOwner, condition: Condition[Any]) -> None:
        self.found: Found | None = None
        self.error: Exception | None = None
        self.changes = 0
        self._owner = owner
        self._condition = condition
        self._has_predicates = has_predicates(condition)
        self._wait_id: str | None = None
        self._state = ""

    def begin(self) -> None:
        if not self._has_predicates:
            self._wait({"condition": self._condition.plain()}, 0.0)

    def pause(self, changes: int, timeout_s: float) -> None:
        if self._has_predicates:
            # Changes of the cluster are not known here. `time.sleep` may be replaced in tests that freeze the time.
            threading.Event().wait(timeout_s)
        elif self.found is None and self.error is None:
            try:
                self._wait({"wait": self._wait_id}, min(timeout_s, MAX_WAIT_S))
            except (Unreachable, NotFound) as error:
                self.error = ClusterStopped(f"the cluster stopped during a wait: {error}")
            except FakebrokerError as error:
                self.error = error

    async def pause_async(self, changes: int, timeout_s: float) -> None:
        await run_in_thread(lambda: self.pause(changes, timeout_s))

    def _wait(self, what: Mapping[str, Any], timeout_s: float) -> None:
        try:
            data = self._owner.post("/wait", {**what, "timeout_s": timeout_s}, timeout_s=timeout_s + _WAIT_GRACE_S)
        except WaitTimeout as error:
            self._wait_id, self._state = error.wait, error.state
        else:
            self.found = Found(_value_of(self._condition, data["found"]))

    def state(self, *, has_timed_out: bool = True) -> str:
        leaves = handle_conditions(self._condition)
        if self._wait_id is None and leaves:
            # Nothing has waited there: the error of a wait that does not wait has the state.
            try:
                self._owner.post("/wait", {"condition": All([*leaves, Not(leaves[0])]).plain(), "timeout_s": 0})
            except WaitTimeout as error:
                return error.state
        return self._state

    def close(self) -> None:
        """Do nothing: the server forgets a wait that is not continued within a minute."""


class ClientJournal(JournalExport):
    """The journal of a cluster in another process. Each query fetches it as a whole."""

    def __init__(self, http: Http, base: str, url: str) -> None:
        self._http, self._base, self._url = http, base, url

    def view(self) -> JournalView:
        lines = self._http.request_text(f"{self._base}/journal.jsonl").splitlines()
        return parse_journal(lines, f"{self._url}, journal").view()

    @property
    def dropped(self) -> int:
        """Number of requests that the journal has dropped because of its limits."""
        return self.view().dropped


class GroupOptions(TypedDict, total=False):
    """Filters and order ("busy", "name" or "unstable") of the list of groups; types are "classic" and "consumer"."""

    type: str
    state: str
    search: str
    sort: str
    limit: int
    offset: int


class Client(WaitingCluster):
    """A cluster in another process, with the handles, views, commands and waits of `FakeCluster`.

    Functions cannot be sent: actions of faults are `fakebroker.actions`, and predicates of conditions are called here.

    Args:
        url: URL of the control server, such as "http://127.0.0.1:9644".
        token: Bearer token, if the server requires one.
        cluster: Name of the cluster.
        timeout_s: Seconds to wait for a response; waits have their own timeouts.

    Attributes:
        url: URL of the control server.
        cluster: Name of the cluster.
        journal: The requests and responses, with queries and assertions; each query fetches the whole journal.

    Raises:
        ConfigError: By every method: an argument is invalid.
        Unreachable: By every method: the server does not respond.
    """

    def __init__(
        self, url: str, token: str | None = None, cluster: str = "default", *, timeout_s: float = TIMEOUT_S
    ) -> None:
        self.url = url
        self.cluster = cluster
        self._http = Http(url, token, timeout_s)
        self._base = f"/v1/clusters/{quote(cluster, safe='')}"
        self._remote = RemoteOwner(self._http, self._base)
        super().__init__(self._remote)
        self.journal = ClientJournal(self._http, self._base, url)

    @property
    def bootstrap_servers(self) -> str:
        """`bootstrap.servers` for clients: comma-separated host:port of all brokers, IPv6 addresses in brackets."""
        return ",".join(format_host_port(broker.host, broker.port) for broker in self.brokers)

    def bootstrap_servers_of(self, listener: str) -> str:
        """Return `bootstrap.servers` for clients of a listener.

        Raises:
            ConfigError: There is no such listener.
        """
        known: dict[str, str] = {each["name"]: each["bootstrap_servers"] for each in self.overview()["listeners"]}
        if listener not in known:
            raise ConfigError.of("listener", listener, one_of(known, listener))
        return known[listener]

    # What the page and `fakebroker top` show

    def overview(self) -> dict[str, Any]:
        """Return the state of the cluster: brokers, groups by state, request rates."""
        overview: dict[str, Any] = self._remote.get("")
        return overview

    def group_rows(self, **options: Unpack[GroupOptions]) -> list[dict[str, Any]]:
        """Return rows of the list of groups, 100 by default: id, state, generation, number of members, lag, reason."""
        rows: list[dict[str, Any]] = self._remote.get("/groups", **options)["groups"]
        return rows

    def blocked_groups(self, *, limit: int = 20) -> dict[str, Any]:
        """Return groups whose rebalances wait for members, longest first, and the total number of such groups."""
        blocked: dict[str, Any] = self._remote.get("/blocked_groups", limit=limit)
        return blocked

    def transaction_rows(self, *, sort: str = "name", limit: int = 100) -> list[dict[str, Any]]:
        """Return rows of the list of transactional ids: id, state, producer, partitions, reason."""
        rows: list[dict[str, Any]] = self._remote.get("/transactions", sort=sort, limit=limit)["transactions"]
        return rows

    # Clusters and snapshots

    def create_cluster(self, name: str, **arguments: Any) -> "Client":
        """Start another cluster in that process, with the arguments of `FakeCluster`; return its client."""
        self._http.request_json("POST", "/v1/clusters", {"name": name, **arguments})
        return Client(self.url, self._http.token, name, timeout_s=self._http.timeout_s)

    def delete_cluster(self) -> None:
        """Stop this cluster. The default cluster stops with its process only."""
        self._http.request_json("DELETE", self._base)

    def snapshot(self) -> str:
        """Take a snapshot of the cluster; return its id, for `restore`."""
        snapshot_id: str = self._remote.post("/snapshots")["id"]
        return snapshot_id

    def restore(self, snapshot: str) -> None:
        """Restore a snapshot, by its id.

        Raises:
            ConfigError: There is no such snapshot.
        """
        check_type("snapshot", snapshot, str, "the id of a snapshot")
        self._remote.post(f"/snapshots/{quote(snapshot, safe='')}/restore")


_SPECIAL: Mapping[str, Callable[..., Any]] = {
    "groups": RemoteOwner.groups,
    "transactions": RemoteOwner.transactions,
    "topic.records": RemoteOwner.records,
    "group.timeline": RemoteOwner.timeline,
    "transaction.timeline": RemoteOwner.timeline,
}
"""Views whose paths belong to operations with other results: in pages, or with pictures."""


def _escaped(text: str) -> str:
    """Return an id as a segment of a path; see `fakebroker.control.routes.arguments.ANY_TEXT`."""
    escaped = text.replace("~", "~7E")
    return quote(escaped.replace(".", "~2E") if escaped in (".", "..") else escaped, safe="")


def _plain(value: Any, name: str = "") -> Any:
    """Return arguments as JSON: error codes by name, partitions as "orders-0", no fields of structs that are null."""
    if isinstance(value, Condition):
        return value.plain()
    if isinstance(value, ErrorCode):
        return value.name
    if isinstance(value, msgspec.Struct) and not isinstance(value, Base64):
        fields = msgspec.structs.asdict(value)
        return {key: _plain(each) for key, each in fields.items() if each is not None}
    if is_partition(value):
        return partition_name(value)
    if isinstance(value, Mapping):
        return {
            partition_name(key) if is_partition(key) else key: _plain(each, str(key)) for key, each in value.items()
        }
    if callable(value) or (name in ("before", "then") and any(callable(action) for action in actions_of(value))):
        raise ConfigError.of(name, value, "actions or events: functions cannot be sent to another process")
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return plain(value)


def _value_of(condition: Condition[Any], data: Any) -> Any:
    """Return what a condition has found, from its JSON."""
    if isinstance(condition, All):
        return tuple(_value_of(part, each) for part, each in zip(condition.parts, data, strict=True))
    if not isinstance(condition, HandleCondition):
        return None
    kind = condition.definition.result
    return [restored_call(each) for each in data] if kind == list[Call] | None else result_of(data, kind)


def _with_history(kind: type[T], row: Mapping[str, Any], history: object) -> T:
    """Convert the JSON of a group or a transactional id to its view, with a timeline or the JSON of one."""
    return msgspec.convert({**row, "history": history}, kind)


def _record_view(topic: str, row: Mapping[str, Any]) -> RecordView:
    """Convert a `RecordRow`."""
    return RecordView(
        topic,
        row["partition"],
        row["offset"],
        row["timestamp"],
        _data(row["key"]),
        _data(row["value"]),
        tuple((name, _data(value)) for name, value in row["headers"]),
    )


def _data(data: str | Mapping[str, str] | None) -> bytes | None:
    """Convert a key or value of a record; see `fakebroker.validation.json_data`."""
    return b64decode(data["base64"]) if isinstance(data, Mapping) else data_bytes(data)
