"""A client of the control server: the methods of `FakeCluster`, for a cluster in another process.

Each method is one HTTP request, or a few; `FakeCluster` documents what it does.
"""

import inspect
import time
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any, Literal, ParamSpec, TypedDict, TypeVar, Unpack
from urllib.parse import quote, urlencode

import msgspec

from fakebroker.cluster.acl_rules import AclOptions, OperationName
from fakebroker.cluster.commands.cluster_commands import COMMANDS
from fakebroker.cluster.commands.definition import check_type
from fakebroker.cluster.commands.environment import Accept
from fakebroker.cluster.commands.events import checked
from fakebroker.cluster.commands.handles import Hold
from fakebroker.cluster.configs.topic_configs import TopicConfigValue
from fakebroker.cluster.emulation import Broker, VersionCap
from fakebroker.cluster.faults.rule import Fault, FaultOptions, actions_of
from fakebroker.cluster.inspect.deadlines import Deadline
from fakebroker.cluster.inspect.journal_queries import JournalView
from fakebroker.cluster.inspect.timelines import Timeline, TransactionTimeline
from fakebroker.cluster.inspect.transaction_views import HangingTransaction, TransactionView
from fakebroker.cluster.inspect.views import BrokerView, GroupView, RecordView
from fakebroker.cluster.replication.coordinator_moves import FailoverOptions
from fakebroker.cluster.seeding.producer import Headers, ProducedRecord
from fakebroker.cluster.seeding.seed import GroupSeed, MemberSeed, SeedOptions
from fakebroker.cluster.seeding.transaction_seed import TransactionSeedOptions
from fakebroker.control.client.http import Http, NotFound, Unreachable
from fakebroker.control.client.remote_handles import RemoteAppendFailure, RemoteFault
from fakebroker.coordinator.offset_store import CommittedOffset
from fakebroker.errors import ClusterStopped, ConfigError, ErrorCode, WaitTimeout, check_number, one_of
from fakebroker.host_port import format_host_port
from fakebroker.server.journal_files import JournalExport, parse_journal, restored_fault
from fakebroker.server.seed_tables import Seeds, seeds_from
from fakebroker.server.waits.blocking_waits import BlockingWaits, WaitKind
from fakebroker.server.waits.polling import SETTLE_S, STABLE, ConsumerPoller, Polled, collecting, have_received
from fakebroker.topic_partition import is_partition, partition_name
from fakebroker.validation import Data, convert, data_bytes, plain

P = ParamSpec("P")
V = TypeVar("V", GroupView, TransactionView)

TIMEOUT_S = 10.0

MAX_WAIT_S = 60.0
"""The longest wait that the server accepts in one request; longer ones take several."""

_WAIT_GRACE_S = 10.0
"""How many seconds longer than a wait the client waits for its response."""

_POLLING_STEP_S = 0.01
"""How long a request waits between two polls of consumers."""

_GROUPS_PER_REQUEST = 100
_TRANSACTIONS_PER_REQUEST = 1_000


def _command(method: Callable[P, None]) -> Callable[P, None]:
    """Implement a method by sending the command of the same name with the given arguments."""
    signature = inspect.signature(method)

    @wraps(method)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        arguments = signature.bind(*args, **kwargs).arguments
        options = arguments.pop("how", {})
        arguments.pop("self").perform(method.__name__, **arguments, **options)

    return run


def _with_history(kind: type[V], row: Mapping[str, Any], history: object) -> V:
    """Convert the JSON of a group or a transactional id to its view, with a timeline or the JSON of one."""
    return msgspec.convert({**row, "history": history}, kind)


class GroupOptions(TypedDict, total=False):
    """Filters and order ("busy", "name" or "unstable") of the list of groups; types are "classic" and "consumer"."""

    type: str
    state: str
    search: str
    sort: str
    limit: int
    offset: int


class Client(BlockingWaits, JournalExport):
    """A cluster in another process.

    Methods that query requests (`requests`, `count`, `assert_order` and so on) fetch the whole journal each time. There
    is no `wait_until`, because a predicate cannot be sent to another process.

    Args:
        url: URL of the control server, such as "http://127.0.0.1:9644".
        token: Bearer token, if the server requires one.
        cluster: Name of the cluster.
        timeout_s: Seconds to wait for a response; `wait_for_...` methods have their own timeouts. With `polling`, they
            send many short requests, so that `wait_for_commit` can miss an offset that is replaced within 10 ms.

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

    # Requests

    def get(self, path: str, **query: Any) -> Any:
        """GET a path below the cluster's."""
        given = {name: value for name, value in query.items() if value is not None}
        return self._http.request_json("GET", f"{self._base}/{path}" + (f"?{urlencode(given)}" if given else ""))

    def post(self, path: str, body: Mapping[str, Any] | None = None, *, timeout_s: float | None = None) -> Any:
        """POST to a path below the cluster's."""
        return self._http.request_json("POST", f"{self._base}/{path}", body or {}, timeout_s=timeout_s)

    def delete(self, path: str) -> None:
        """DELETE a path below the cluster's."""
        self._http.request_json("DELETE", f"{self._base}/{path}")

    def perform(self, event: str, /, **arguments: Any) -> Any:
        """Call a method of `FakeCluster` by its name."""
        name, valid = checked({"do": event, **arguments})
        return self.post("events", {"do": name, **valid})["result"]

    # State

    def overview(self) -> dict[str, Any]:
        """Return the state of the cluster: brokers, groups by state, request rates."""
        overview: dict[str, Any] = self._http.request_json("GET", self._base)
        return overview

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(format_host_port(broker.host, broker.port) for broker in self.brokers)

    def bootstrap_servers_of(self, listener: str) -> str:
        known: dict[str, str] = {each["name"]: each["bootstrap_servers"] for each in self.overview()["listeners"]}
        if listener not in known:
            raise ConfigError.of("listener", listener, one_of(known, listener))
        return known[listener]

    @property
    def brokers(self) -> tuple[BrokerView, ...]:
        return msgspec.convert(self.get("brokers")["brokers"], tuple[BrokerView, ...])

    def coordinator_of(self, group_id: str) -> BrokerView:
        node_id = self.get(f"{_group_path(group_id)}/coordinator")["node_id"]
        if node_id is None:
            raise ConfigError.of("group_id", group_id, "a group that has a coordinator now")
        return msgspec.convert(self.get(f"brokers/{node_id}"), BrokerView)

    def group(self, group_id: str) -> GroupView:
        detail = self._get_of_group(group_id, "")
        if detail is None:
            return GroupView.of(group_id, None)
        return _with_history(GroupView, detail, self.timeline(group_id))

    def groups(self) -> list[GroupView]:
        """Return all groups sorted by name, with one request for each hundred."""
        views: list[GroupView] = []
        after: str | None = None
        while True:
            page = self.get("group_views", after=after, limit=_GROUPS_PER_REQUEST)
            for row in page["groups"]:
                after = row["group_id"]
                views.append(_with_history(GroupView, row, {**row, "taken_ms": page["taken_ms"]}))
            if len(page["groups"]) < _GROUPS_PER_REQUEST:
                return views

    def group_rows(self, **options: Unpack[GroupOptions]) -> list[dict[str, Any]]:
        """Return rows of the list of groups, 100 by default: id, state, generation, number of members, reason."""
        rows: list[dict[str, Any]] = self.get("groups", **options)["groups"]
        return rows

    def blocked_groups(self, *, limit: int = 20) -> dict[str, Any]:
        """Return groups whose rebalances wait for members, longest first, and the total number of such groups."""
        blocked: dict[str, Any] = self.get("blocked_groups", limit=limit)
        return blocked

    def offsets(self, group_id: str) -> dict[tuple[str, int], CommittedOffset]:
        detail = self._get_of_group(group_id, "") or {"offsets": []}
        return {(row["topic"], row["partition"]): msgspec.convert(row, CommittedOffset) for row in detail["offsets"]}

    def timeline(self, group_id: str) -> Timeline:
        timeline = self._get_of_group(group_id, "/timeline")
        return Timeline(group_id, (), 0.0) if timeline is None else msgspec.convert(timeline, Timeline)

    def explain(self, group_id: str) -> str:
        text: str = self.get(f"{_group_path(group_id)}/explain")["text"]
        return text

    def transaction(self, transactional_id: str) -> TransactionView:
        try:
            detail = self.get(_transaction_path(transactional_id))
        except NotFound as error:
            if error.field != "transaction":
                raise
            raise ConfigError.of("transactional_id", transactional_id, error.expected or "") from None
        row = detail["transaction"]
        return _with_history(TransactionView, row, {**detail, "transactional_id": transactional_id})

    def transactions(
        self, *, state: str | None = None, producer_id: int | None = None, longer_than_s: float | None = None
    ) -> list[TransactionView]:
        """Return the transactional ids that match, sorted by name, with one request for each thousand, and for each."""
        filters = {"state": state, "producer_id": producer_id, "longer_than_s": longer_than_s}
        rows: list[dict[str, Any]] = []
        while True:
            page = self.get("transactions", **filters, offset=len(rows), limit=_TRANSACTIONS_PER_REQUEST)
            rows += page["transactions"]
            if len(page["transactions"]) < _TRANSACTIONS_PER_REQUEST:
                return list(map(self._transaction_of, rows))

    def transaction_rows(self, *, sort: str = "name", limit: int = 100) -> list[dict[str, Any]]:
        """Return rows of the list of transactional ids: id, state, producer, partitions, reason."""
        rows: list[dict[str, Any]] = self.get("transactions", sort=sort, limit=limit)["transactions"]
        return rows

    def hanging_transactions(self) -> list[HangingTransaction]:
        found = self.get("hanging_transactions")["hanging_transactions"]
        return msgspec.convert(found, list[HangingTransaction])

    def transaction_timeline(self, transactional_id: str) -> TransactionTimeline:
        try:
            timeline = self.get(f"{_transaction_path(transactional_id)}/timeline")
        except NotFound as error:
            if error.field != "transaction":
                raise
            return TransactionTimeline(transactional_id, (), 0.0)
        return msgspec.convert(timeline, TransactionTimeline)

    def _transaction_of(self, row: Mapping[str, Any]) -> TransactionView:
        return _with_history(TransactionView, row, self.transaction_timeline(row["transactional_id"]))

    def explain_transaction(self, transactional_id: str) -> str:
        text: str = self.get(f"{_transaction_path(transactional_id)}/explain")["text"]
        return text

    def journal_view(self) -> JournalView:
        lines = self._http.request_text(f"{self._base}/journal.jsonl").splitlines()
        return parse_journal(lines, f"{self.url}, journal").journal_view()

    def _get_of_group(self, group_id: str, path: str) -> Any:
        """GET a path below a group's; return None if the group is unknown."""
        try:
            return self.get(_group_path(group_id) + path)
        except NotFound as error:
            if error.field != "group":
                raise
            return None

    # Waits

    def _wait_for(
        self, kind: WaitKind, arguments: Mapping[str, Any], timeout_s: float, polling: Sequence[Any] | None
    ) -> Any:
        """Wait with one request, or several if it is long or consumers are polled in between."""
        check_number("timeout_s", timeout_s, least=0)
        if kind != "request":  # An id that is None would be left out of the request.
            for name in ("group_id", "member", "transactional_id"):
                if name in arguments:
                    check_type(name, arguments[name], str, "a string")
        poller = None if polling is None else ConsumerPoller(polling, is_async=False)
        with collecting(poller):
            value = self._waited(kind, arguments, self._wait_in_steps(kind, timeout_s, poller, _named_error(arguments)))
            if poller is not None and kind == "state" and arguments["state"] == STABLE:
                value = self._wait_for_assignments(value, arguments["members"], poller)
        return value if poller is None else Polled(value, poller.records)

    def _waited(self, kind: WaitKind, arguments: Mapping[str, Any], found: Any) -> Any:
        """Return the result of a wait, from the JSON of its response."""
        if kind == "commit":
            return msgspec.convert(found, CommittedOffset)
        if kind == "transaction":
            return self._transaction_of(found)
        if kind == "request":
            return self.requests(**{name: value for name, value in arguments.items() if name != "count"})
        return _with_history(GroupView, found, self.timeline(found["group_id"]))

    def _wait_in_steps(
        self, kind: str, timeout_s: float, poller: ConsumerPoller | None, arguments: Mapping[str, Any]
    ) -> Any:
        given = {name: value for name, value in arguments.items() if value is not None}
        until_s = time.monotonic() + timeout_s
        step_s = 0.0 if poller else min(timeout_s, MAX_WAIT_S)
        has_polled, has_begun = poller is None, False
        while True:
            try:
                return self.post(f"wait/{kind}", {**given, "timeout_s": step_s}, timeout_s=step_s + _WAIT_GRACE_S)
            except (Unreachable, NotFound) as error:
                if not has_begun:
                    raise
                raise ClusterStopped(f"the cluster stopped during a wait: {error}") from None
            except WaitTimeout as error:
                has_begun = True
                left_s = until_s - time.monotonic()
                if left_s <= 0 and has_polled:
                    raise WaitTimeout.of(error.condition, timeout_s, error.state) from None
                if error.changes is not None:
                    given["seen_changes"] = error.changes  # Changes between two requests are not missed.
            step_s = max(0.0, min(left_s, MAX_WAIT_S))
            if poller is not None:
                poller.poll(lambda: False)
                has_polled, step_s = True, min(step_s, _POLLING_STEP_S)

    def _wait_for_assignments(self, reached: Any, members: int | None, poller: ConsumerPoller) -> Any:
        """Poll consumers until they have received their partitions, as the waits of `FakeCluster` do."""
        until_s = time.monotonic() + SETTLE_S
        while time.monotonic() < until_s:
            group = self.group(reached.group_id)
            if have_received(group, poller.assignments()):
                return group if group.state == STABLE and members in (None, len(group.members)) else reached
            poller.poll(lambda: False)
        return reached

    # Clusters

    def create_cluster(self, name: str, **arguments: Any) -> "Client":
        """Start another cluster in that process, with the arguments of `FakeCluster`; return its client."""
        self._http.request_json("POST", "/v1/clusters", {"name": name, **arguments})
        return Client(self.url, self._http.token, name, timeout_s=self._http.timeout_s)

    def delete_cluster(self) -> None:
        """Stop this cluster. The default cluster stops with its process only."""
        self._http.request_json("DELETE", self._base)

    # Topics

    @_command
    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        configs: Mapping[str, TopicConfigValue] | None = None,
    ) -> None: ...

    @_command
    def create_partitions(self, name: str, total: int) -> None: ...

    @_command
    def delete_topic(self, name: str) -> None: ...

    # Records

    def produce(
        self,
        topic: str,
        values: Sequence[Data],
        *,
        key: Data = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp: int | None = None,
    ) -> list[ProducedRecord]:
        options = {"key": key, "partition": partition, "headers": headers, "timestamp": timestamp}
        return [ProducedRecord(**row) for row in self.perform("produce", topic=topic, values=values, **options)]

    def records(self, topic: str, partition: int | None = None) -> list[RecordView]:
        """Return the records of a topic, with one request for each thousand."""
        check_type("topic", topic, str, "a string")
        path = f"topics/{quote(topic, safe='')}"
        indexes = range(len(self.get(path)["partitions"])) if partition is None else [partition]
        return [record for index in indexes for record in self._records(f"{path}/records", topic, index)]

    def _records(self, path: str, topic: str, partition: int) -> Iterator[RecordView]:
        is_complete, offset = False, 0
        while not is_complete:
            page = self.get(path, partition=partition, offset=offset)
            for row in page["records"]:
                yield _record_view(topic, row)
                offset = row["offset"] + 1
            is_complete = page["is_complete"]

    # Coordinators

    @_command
    def move_coordinator(self, group_id: str, to: int | None, **how: Unpack[FailoverOptions]) -> None: ...

    @_command
    def move_offsets_partition(self, partition: int, to: int | None, **how: Unpack[FailoverOptions]) -> None: ...

    @_command
    def move_transaction_coordinator(
        self, transactional_id: str, to: int | None, **how: Unpack[FailoverOptions]
    ) -> None: ...

    @_command
    def finish_loading(self) -> None: ...

    @_command
    def stop_zombies(self) -> None: ...

    @_command
    def elect_preferred(self, **how: Unpack[FailoverOptions]) -> None: ...

    def hold_reassignments(self, topic: str | None = None) -> Hold:
        self.perform("hold_reassignments", topic=topic)
        return Hold(lambda: self._end_hold_of_reassignments(topic))

    def _end_hold_of_reassignments(self, topic: str | None) -> None:
        with suppress(ConfigError):  # The reassignments may have been released.
            self.release_reassignments(topic)

    @_command
    def release_reassignments(self, topic: str | None = None) -> None: ...

    @_command
    def finish_reassignments(self) -> None: ...

    # Brokers

    @_command
    def stop_broker(self, node_id: int, *, elect: bool = True, **how: Unpack[FailoverOptions]) -> None: ...

    @_command
    def start_broker(self, node_id: int, **how: Unpack[FailoverOptions]) -> None: ...

    @_command
    def restart_broker(self, node_id: int, **how: Unpack[FailoverOptions]) -> None: ...

    @_command
    def renew_certificates(self, *, expired: bool = False) -> None: ...

    @_command
    def rolling_restart(self, **how: Unpack[FailoverOptions]) -> None: ...

    @_command
    def upgrade_broker(
        self,
        node_id: int,
        as_version: str | None,
        api_versions: Mapping[str, VersionCap] | None = None,
        **how: Unpack[FailoverOptions],
    ) -> None: ...

    def add_broker(self, like: Broker | None = None) -> BrokerView:
        return msgspec.convert(self.perform("add_broker", like=like), BrokerView)

    @_command
    def remove_broker(self, node_id: int, **how: Unpack[FailoverOptions]) -> None: ...

    @_command
    def set_broker(
        self,
        node_id: int,
        *,
        accept: Accept | None = None,
        accept_delay_s: float | None = None,
        round_trip_s: float | None = None,
    ) -> None: ...

    # Groups
    def hold(self, group_id: str, state: str, member: str | None = None) -> Hold:
        self.perform("hold", group_id=group_id, state=state, member=member)
        return Hold(lambda: self._end_hold(group_id, state, member))

    def _end_hold(self, group_id: str, state: str, member: str | None) -> None:
        with suppress(ConfigError):  # The hold may have been released.
            self.release(group_id, state, member)

    @_command
    def release(self, group_id: str, state: str | None = None, member: str | None = None) -> None: ...

    @_command
    def force_rebalance(self, group_id: str) -> None: ...

    @_command
    def choose_leader(self, group_id: str, member: str) -> None: ...

    @_command
    def choose_assignment(self, group_id: str, assignment: Mapping[str, Sequence[str]]) -> None: ...

    @_command
    def evict(self, group_id: str, member: str) -> None: ...

    @_command
    def expire(self, group_id: str, member: str) -> None: ...

    @_command
    def fence(self, group_id: str, instance_id: str) -> None: ...

    @_command
    def fence_epoch(self, group_id: str, member: str) -> None: ...

    @_command
    def delay_sync(self, group_id: str, member: str, seconds: float | None = None) -> None: ...

    @_command
    def release_sync(self, group_id: str, member: str) -> None: ...

    # Transactions

    def hold_markers(self, transactional_id: str, partition: str | None = None) -> Hold:
        self.perform("hold_markers", transactional_id=transactional_id, partition=partition)
        return Hold(lambda: self._end_hold_of_markers(transactional_id, partition))

    def _end_hold_of_markers(self, transactional_id: str, partition: str | None) -> None:
        with suppress(ConfigError):  # The markers may have been released.
            self.release_markers(transactional_id, partition)

    @_command
    def release_markers(self, transactional_id: str, partition: str | None = None) -> None: ...

    @_command
    def abort_transaction(self, transactional_id: str) -> None: ...

    @_command
    def fence_producer(self, transactional_id: str) -> None: ...

    def seed_transaction(self, transactional_id: str, **options: Unpack[TransactionSeedOptions]) -> None:
        self.perform("seed_transaction", transactional_id=transactional_id, **options)

    @_command
    def seed_hanging_transaction(
        self,
        partition: str,
        *,
        offset: int | None = None,
        records: int = 1,
        producer_id: int | None = None,
        epoch: int = 0,
    ) -> None: ...

    # Seeds and snapshots

    def seed_group(
        self, group_id: str, members: int | Sequence[MemberSeed | str] = 0, **options: Unpack[SeedOptions]
    ) -> None:
        given = {"group_id": group_id, "members": members, **options}
        self.seed_groups([GroupSeed(**COMMANDS["seed_group"].checked(given))])

    def seed_groups(self, groups: Seeds) -> None:
        seeds = COMMANDS["seed_groups"].checked({"groups": seeds_from(groups)})["groups"]
        self.post("groups/seed", {"groups": [_plain_seed(seed) for seed in seeds]})

    def snapshot(self) -> str:
        """Take a snapshot of the cluster; return its id, for `restore`."""
        snapshot_id: str = self.post("snapshots")["id"]
        return snapshot_id

    def restore(self, snapshot: str) -> None:
        self.post(f"snapshots/{quote(snapshot, safe='')}/restore")

    @_command
    def reset(self) -> None: ...

    # Faults

    def fail(self, api: str | None, **options: Unpack[FaultOptions]) -> RemoteFault:
        return self.add_fault(Fault(**COMMANDS["fail"].checked({"api": api, **options})))

    def add_fault(self, fault: Fault) -> RemoteFault:
        valid = convert(plain(fault), Fault, where="fault")
        for name in ("before", "then"):
            if any(callable(action) for action in actions_of(getattr(valid, name))):
                raise ConfigError.of(name, getattr(valid, name), "events: functions cannot be sent to another process")
        row = self.post("faults", _named_error(msgspec.structs.asdict(valid)))
        return RemoteFault(self._http, self._base, row["id"], valid)

    @property
    def faults(self) -> list[RemoteFault]:
        return [
            RemoteFault(self._http, self._base, row["id"], restored_fault(row["rule"]))
            for row in self.get("faults")["faults"]
        ]

    @property
    def action_errors(self) -> tuple[str, ...]:
        return tuple(self.get("faults")["action_errors"])

    def remove_fault(self, handle: RemoteFault) -> None:
        handle.remove()

    def fail_append(
        self, group_id: str, error: ErrorCode | str = "NOT_ENOUGH_REPLICAS", times: int | None = 1
    ) -> RemoteAppendFailure:
        return self._fail_append("fail_append", error, group_id=group_id, times=times)

    def fail_transaction_append(
        self, transactional_id: str, error: ErrorCode | str = "NOT_ENOUGH_REPLICAS", times: int | None = 1
    ) -> RemoteAppendFailure:
        return self._fail_append("fail_transaction_append", error, transactional_id=transactional_id, times=times)

    def _fail_append(self, command: str, error: ErrorCode | str, **arguments: Any) -> RemoteAppendFailure:
        name = error.name if isinstance(error, ErrorCode) else error
        return RemoteAppendFailure(self._http, self._base, self.perform(command, error=name, **arguments)["id"])

    @_command
    def clear_faults(self) -> None: ...

    # Permissions

    def allow(self, principal: str, operation: OperationName, **resource: Unpack[AclOptions]) -> Hold:
        return self._acl("allow", principal, operation, resource)

    def deny(self, principal: str, operation: OperationName, **resource: Unpack[AclOptions]) -> Hold:
        return self._acl("deny", principal, operation, resource)

    def _acl(
        self, permission: Literal["allow", "deny"], principal: str, operation: OperationName, resource: AclOptions
    ) -> Hold:
        self.perform(permission, principal=principal, operation=operation, **resource)

        def remove() -> None:
            with suppress(ConfigError):  # it is removed already
                self.remove_acl(principal, operation, permission, **resource)

        return Hold(remove)

    def remove_acl(
        self,
        principal: str,
        operation: OperationName,
        permission: Literal["allow", "deny"],
        **resource: Unpack[AclOptions],
    ) -> None:
        self.perform("remove_acl", principal=principal, operation=operation, permission=permission, **resource)

    # Time

    @_command
    def advance(self, seconds: float) -> None: ...

    def advance_to_next_deadline(self) -> list[Deadline] | None:
        return msgspec.convert(self.post("clock/advance_to_next_deadline")["deadlines"], list[Deadline]) or None

    def pending_deadlines(self) -> list[Deadline]:
        return msgspec.convert(self.get("deadlines")["deadlines"], list[Deadline])


def _group_path(group_id: str) -> str:
    """Return the path of a group below its cluster's.

    Raises:
        ConfigError: The id is not a string.
    """
    check_type("group_id", group_id, str, "a string")
    return f"groups/{_escaped(group_id)}"


def _transaction_path(transactional_id: str) -> str:
    """Return the path of a transactional id below its cluster's.

    Raises:
        ConfigError: The id is not a string.
    """
    check_type("transactional_id", transactional_id, str, "a string")
    return f"transactions/{_escaped(transactional_id)}"


def _escaped(text: str) -> str:
    """Return an id as a segment of a path; see `fakebroker.control.routes.arguments.ANY_TEXT`."""
    escaped = text.replace("~", "~7E")
    return quote(escaped.replace(".", "~2E") if escaped in (".", "..") else escaped, safe="")


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


def _named_error(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with error codes replaced by their names."""
    return {name: value.name if isinstance(value, ErrorCode) else value for name, value in options.items()}


def _plain_seed(seed: GroupSeed) -> dict[str, Any]:
    """Return a seed as JSON: without null, and with partitions as "orders-0"."""
    plain = {name: value for name, value in msgspec.structs.asdict(seed).items() if value is not None}
    for name in ("offsets", "lag"):
        if isinstance(plain.get(name), Mapping):
            plain[name] = {
                partition_name(partition) if is_partition(partition) else partition: number
                for partition, number in plain[name].items()
            }
    return plain
