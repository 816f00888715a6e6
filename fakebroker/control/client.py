"""A client of the control server: the methods of `FakeCluster`, for a cluster in another process.

Standard library alone. What a method does is said there; each is one HTTP request, or few.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack
from urllib.parse import quote, urlencode

from fakebroker.cluster.deadlines import Deadline
from fakebroker.cluster.dialect import Broker, VersionCap
from fakebroker.cluster.group_seed import GroupSeed, MemberSeed, Offsets, PlaceName
from fakebroker.control.client_http import Http, NotThere
from fakebroker.control.client_views import broker_of, deadline_of, group_path, moment_of, plain_seed, view_of
from fakebroker.coordinator.offsets import CommittedOffset
from fakebroker.errors import ConfigError
from fakebroker.server.detours import Accept
from fakebroker.server.fake_cluster import FailoverOptions
from fakebroker.server.faulting import FaultOptions
from fakebroker.server.journaling import JournalQueries, JournalView, parse_journal
from fakebroker.server.scripting import Hold
from fakebroker.server.timeline import Timeline
from fakebroker.server.views import BrokerView, GroupView

_TIMEOUT_S = 10.0
_MORE_S = 10.0
"""How much longer than the brokers a caller waits."""


class RemoteFault:
    """A fault in force. As a context manager it is removed at the end."""

    def __init__(self, client: "Client", fault_id: str) -> None:
        self._client = client
        self.id = fault_id

    @property
    def hits(self) -> int:
        """How many requests it did its work on."""
        found: int = self._client.get(f"faults/{self.id}")["hits"]
        return found

    def remove(self) -> None:
        """End it, if it is still in force."""
        if any(fault.id == self.id for fault in self._client.faults):
            self._client.delete(f"faults/{self.id}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


class GroupOptions(TypedDict, total=False):
    """Which groups, in which order: "busy", "name" or "unstable"."""

    state: str
    search: str
    sort: str
    limit: int
    offset: int


class Client(JournalQueries):
    """A cluster in another process.

    Args:
        url: Where its control server is, such as "http://127.0.0.1:9644".
        token: What that wants to be shown, if it does.
        cluster: The cluster's name there.
        timeout_s: How long to wait for an answer; waiters wait longer if they are told to.

    Raises:
        ConfigError: By every method: what is asked for cannot be.
        Unreachable: By every method: nobody answers there.
    """

    def __init__(
        self, url: str, token: str | None = None, cluster: str = "default", *, timeout_s: float = _TIMEOUT_S
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

    # Clusters

    def create_cluster(self, name: str, **arguments: Any) -> "Client":
        """Start another cluster in that process, with the arguments of `FakeCluster`; its client."""
        self._http.ask("POST", "/v1/clusters", {"name": name, **arguments})
        return Client(self.url, self._http.token, name, timeout_s=self._http.timeout_s)

    def delete_cluster(self) -> None:
        """End this cluster; the one that the process began with ends with the process alone."""
        self._http.ask("DELETE", self._base)

    def overview(self) -> dict[str, Any]:
        """The cluster as a whole: brokers, groups by state, rates."""
        found: dict[str, Any] = self._http.ask("GET", self._base)
        return found

    # Looking

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{broker.host}:{broker.port}" for broker in self.brokers)

    @property
    def brokers(self) -> tuple[BrokerView, ...]:
        return tuple(map(broker_of, self.get("brokers")["brokers"]))

    def coordinator_of(self, group_id: str) -> BrokerView:
        node_id = self.get(group_path(group_id))["coordinator"]
        if node_id is None:
            raise ConfigError(f"group {group_id!r} has no coordinator now")
        return broker_of(self.get(f"brokers/{node_id}"))

    def group(self, group_id: str) -> GroupView:
        try:
            return view_of(self.get(group_path(group_id)), self.timeline(group_id))
        except NotThere as error:
            if error.field != "group":
                raise
            return GroupView.of(group_id, None)

    def groups(self, **which: Unpack[GroupOptions]) -> list[dict[str, Any]]:
        """Rows of the list of groups: id, state, generation, members, and why."""
        found: list[dict[str, Any]] = self.get("groups", **which)["groups"]
        return found

    def offsets(self, group_id: str) -> dict[tuple[str, int], CommittedOffset]:
        rows = self.get(group_path(group_id))["offsets"]
        return {(row.pop("topic"), row.pop("partition")): CommittedOffset(**row) for row in rows}

    def timeline(self, group_id: str) -> Timeline:
        try:
            found = self.get(f"{group_path(group_id)}/timeline")
        except NotThere as error:
            if error.field != "group":
                raise
            return Timeline(group_id, (), 0.0)
        return Timeline(group_id, tuple(map(moment_of, found["moments"])), found["taken_ms"])

    def explain(self, group_id: str) -> str:
        text: str = self.get(f"{group_path(group_id)}/explain")["text"]
        return text

    def journal_view(self) -> JournalView:
        return parse_journal(self._http.text(f"{self._base}/journal.jsonl").splitlines(), f"{self.url}, journal")

    # Topics and coordinators

    def create_topic(self, name: str, partitions: int = 1, replication_factor: int | None = None) -> None:
        self.perform("create_topic", name=name, partitions=partitions, replication_factor=replication_factor)

    def create_partitions(self, name: str, total: int) -> None:
        self.perform("create_partitions", name=name, total=total)

    def delete_topic(self, name: str) -> None:
        self.perform("delete_topic", name=name)

    def move_coordinator(self, group_id: str, to: int | None, **how: Unpack[FailoverOptions]) -> None:
        self.perform("move_coordinator", group_id=group_id, to=to, **how)

    def move_offsets_partition(self, partition: int, to: int | None, **how: Unpack[FailoverOptions]) -> None:
        self.perform("move_offsets_partition", partition=partition, to=to, **how)

    def finish_loading(self) -> None:
        self.perform("finish_loading")

    def stop_zombies(self) -> None:
        self.perform("stop_zombies")

    # Brokers

    def stop_broker(self, node_id: int, *, elect: bool = True, **how: Unpack[FailoverOptions]) -> None:
        self.perform("stop_broker", node_id=node_id, elect=elect, **how)

    def start_broker(self, node_id: int, **how: Unpack[FailoverOptions]) -> None:
        self.perform("start_broker", node_id=node_id, **how)

    def restart_broker(self, node_id: int, **how: Unpack[FailoverOptions]) -> None:
        self.perform("restart_broker", node_id=node_id, **how)

    def rolling_restart(self, **how: Unpack[FailoverOptions]) -> None:
        self.perform("rolling_restart", **how)

    def upgrade_broker(
        self,
        node_id: int,
        as_version: str | None,
        api_versions: Mapping[str, VersionCap] | None = None,
        **how: Unpack[FailoverOptions],
    ) -> None:
        self.perform("upgrade_broker", node_id=node_id, as_version=as_version, api_versions=api_versions, **how)

    def add_broker(self, like: Broker | None = None) -> BrokerView:
        return broker_of(self.perform("add_broker", like=None if like is None else asdict(like)))

    def remove_broker(self, node_id: int, **how: Unpack[FailoverOptions]) -> None:
        self.perform("remove_broker", node_id=node_id, **how)

    def set_broker(
        self,
        node_id: int,
        *,
        accept: Accept | None = None,
        accept_delay_s: float | None = None,
        round_trip_s: float | None = None,
    ) -> None:
        self.perform(
            "set_broker", node_id=node_id, accept=accept, accept_delay_s=accept_delay_s, round_trip_s=round_trip_s
        )

    # Rebalances by hand

    def hold(self, group_id: str, state: str) -> Hold:
        self.perform("hold", group_id=group_id, state=state)
        return Hold(lambda: self._end_hold(group_id, state))

    def _end_hold(self, group_id: str, state: str) -> None:
        with suppress(ConfigError):  # It may have been released before.
            self.release(group_id, state)

    def release(self, group_id: str, state: str | None = None) -> None:
        self.perform("release", group_id=group_id, state=state)

    def force_rebalance(self, group_id: str) -> None:
        self.perform("force_rebalance", group_id=group_id)

    def choose_leader(self, group_id: str, member: str) -> None:
        self.perform("choose_leader", group_id=group_id, member=member)

    def evict(self, group_id: str, member: str) -> None:
        self.perform("evict", group_id=group_id, member=member)

    def expire(self, group_id: str, member: str) -> None:
        self.perform("expire", group_id=group_id, member=member)

    def fence(self, group_id: str, instance_id: str) -> None:
        self.perform("fence", group_id=group_id, instance_id=instance_id)

    def delay_sync(self, group_id: str, member: str, seconds: float | None = None) -> None:
        self.perform("delay_sync", group_id=group_id, member=member, seconds=seconds)

    def release_sync(self, group_id: str, member: str) -> None:
        self.perform("release_sync", group_id=group_id, member=member)

    # Seeds and snapshots

    def seed_group(
        self,
        group_id: str,
        members: int | Sequence[MemberSeed | str] = 0,
        *,
        topics: Sequence[str] | None = None,
        generation: int | None = None,
        state: str | None = None,
        offsets: Offsets | None = None,
        lag: int | Offsets | None = None,
        protocol: str = "range",
        assignment: Mapping[str, Sequence[PlaceName]] | None = None,
    ) -> None:
        seed = GroupSeed(
            group_id=group_id,
            members=members,
            topics=topics,
            generation=generation,
            state=state,
            offsets=offsets,
            lag=lag,
            protocol=protocol,
            assignment=assignment,
        )
        self.seed_groups([seed])

    def seed_groups(self, groups: Iterable[GroupSeed]) -> None:
        self.post("groups/seed", {"groups": [plain_seed(seed) for seed in groups]})

    def snapshot(self) -> str:
        """Keep what the cluster is; the id is what `restore` takes."""
        snapshot_id: str = self.post("snapshots")["id"]
        return snapshot_id

    def restore(self, snapshot: str) -> None:
        self.post(f"snapshots/{quote(snapshot, safe='')}/restore")

    def reset(self) -> None:
        self.post("reset")

    # Faults

    def fail(self, api: str | None, **options: Unpack[FaultOptions]) -> RemoteFault:
        return RemoteFault(self, self.post("faults", {"api": api, **options})["id"])

    @property
    def faults(self) -> list[RemoteFault]:
        return [RemoteFault(self, row["id"]) for row in self.get("faults")["faults"]]

    def clear_faults(self) -> None:
        self.delete("faults")

    # Time

    def advance(self, seconds: float) -> None:
        self.post("clock/advance", {"seconds": seconds})

    def advance_to_next_deadline(self) -> list[Deadline] | None:
        return [deadline_of(each) for each in self.post("clock/advance_to_next_deadline")["deadlines"]] or None

    def pending_deadlines(self) -> list[Deadline]:
        return [deadline_of(each) for each in self.get("deadlines")["deadlines"]]

    # Waiting

    def _wait(self, what: str, timeout_s: float, **arguments: Any) -> Any:
        given = {name: value for name, value in arguments.items() if value is not None}
        return self.post(f"wait/{what}", {**given, "timeout_s": timeout_s}, timeout_s=timeout_s + _MORE_S)

    def wait_for_state(
        self, group_id: str, state: str, *, members: int | None = None, timeout_s: float = _TIMEOUT_S
    ) -> GroupView:
        found = self._wait("state", timeout_s, group_id=group_id, state=state, members=members)
        return view_of(found, self.timeline(group_id))

    def wait_for_generation(self, group_id: str, *, above: int, timeout_s: float = _TIMEOUT_S) -> GroupView:
        found = self._wait("generation", timeout_s, group_id=group_id, above=above)
        return view_of(found, self.timeline(group_id))

    def wait_for_commit(
        self, group_id: str, partition: str, *, at_least: int, timeout_s: float = _TIMEOUT_S
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
        timeout_s: float = _TIMEOUT_S,
        **filters: Any,
    ) -> list[dict[str, Any]]:
        """Wait until requests have come; they are rows of the journal."""
        found: list[dict[str, Any]] = self._wait(
            "request", timeout_s, api=api, client_id=client_id, count=count, **filters
        )["requests"]
        return found
