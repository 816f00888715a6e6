"""A client of the control server: the methods of `FakeCluster`, for a cluster in another process.

Standard library alone. What a method does is said there; each is one HTTP request, or few.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Unpack
from urllib.parse import quote

from fakebroker.cluster.emulation import Broker, VersionCap
from fakebroker.cluster.environment import Accept
from fakebroker.cluster.faults.rule import Fault
from fakebroker.cluster.group_seed import GroupSeed, MemberSeed, Offsets, PlaceName
from fakebroker.cluster.inspect.deadlines import Deadline
from fakebroker.cluster.inspect.views import BrokerView
from fakebroker.control.client.faults_client import RemoteFault
from fakebroker.control.client.views_client import broker_of, deadline_of, named_error, plain_seed
from fakebroker.control.client.waiting import Waiting
from fakebroker.errors import ConfigError
from fakebroker.server.fake_cluster import FailoverOptions
from fakebroker.server.faulting import FaultOptions
from fakebroker.server.journal_files import restored_fault
from fakebroker.server.scripting import Hold


class Client(Waiting):
    """A cluster in another process.

    What looks at requests (`requests`, `count`, `assert_order` and so on) fetches all of the journal each time, and
    looks here. There is no `wait_until`: what it would run cannot go to another process.

    Args:
        url: Where its control server is, such as "http://127.0.0.1:9644".
        token: What that wants to be shown, if it does.
        cluster: The cluster's name there.
        timeout_s: How long to wait for an answer; waiters wait longer if they are told to.

    Raises:
        ConfigError: By every method: what is asked for cannot be.
        Unreachable: By every method: nobody answers there.
    """

    # Clusters

    def create_cluster(self, name: str, **arguments: Any) -> "Client":
        """Start another cluster in that process, with the arguments of `FakeCluster`; its client."""
        self._http.ask("POST", "/v1/clusters", {"name": name, **arguments})
        return Client(self.url, self._http.token, name, timeout_s=self._http.timeout_s)

    def delete_cluster(self) -> None:
        """End this cluster; the one that the process began with ends with the process alone."""
        self._http.ask("DELETE", self._base)

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
        return self.add_fault(Fault(api=api, **options))

    def add_fault(self, fault: Fault) -> RemoteFault:
        made = self.post("faults", named_error(asdict(fault)))
        return RemoteFault(self, made["id"], fault)

    @property
    def faults(self) -> list[RemoteFault]:
        return [RemoteFault(self, row["id"], restored_fault(row["rule"])) for row in self.get("faults")["faults"]]

    def remove_fault(self, handle: RemoteFault) -> None:
        handle.remove()

    def clear_faults(self) -> None:
        self.delete("faults")

    # Time

    def advance(self, seconds: float) -> None:
        self.post("clock/advance", {"seconds": seconds})

    def advance_to_next_deadline(self) -> list[Deadline] | None:
        return [deadline_of(each) for each in self.post("clock/advance_to_next_deadline")["deadlines"]] or None

    def pending_deadlines(self) -> list[Deadline]:
        return [deadline_of(each) for each in self.get("deadlines")["deadlines"]]
