"""Operations on clusters: list, create, delete, reset, clock, snapshots, and events by name."""

from typing import Any, TypedDict, Union

import msgspec
import trio

from fakebroker.cluster.commands.cluster_commands import COMMANDS
from fakebroker.cluster.commands.definition import Arguments, Command, arguments_of
from fakebroker.cluster.commands.handles import AppendFailureHandle, FaultHandle, Hold
from fakebroker.cluster.inspect.deadlines import Deadline, pending_deadlines
from fakebroker.control.clusters import DEFAULT, Clusters, ServedCluster
from fakebroker.control.routes.arguments import check_range
from fakebroker.control.routes.operations import CLUSTER, V1, operation
from fakebroker.control.routes.views.cluster_views import ClockView, Overview, clock_view, overview
from fakebroker.control.steps import Steps
from fakebroker.server.fake_cluster import FakeCluster

MAX_DEADLINES = 10_000


class ClusterRow(TypedDict):
    """One cluster in a list."""

    name: str
    bootstrap_servers: str
    brokers: int
    groups: int


class ClusterList(TypedDict):
    """All clusters."""

    clusters: list[ClusterRow]


class NewCluster(arguments_of(FakeCluster.__init__, "host", "port", "advertised_host", "data_dir")):  # type: ignore[misc]
    """A new cluster: its name, and the arguments of `FakeCluster`; it uses free ports on the first cluster's host.

    `data_dir` is the name of a directory in that of `--control-data-dirs`, without which there are no data directories.
    """

    name: str
    data_dir: str | None = None


@operation("GET", f"{V1}/clusters")
async def list_clusters(clusters: Clusters) -> ClusterList:
    """List all clusters of the process."""
    return {"clusters": [await served.read_in_steps(_row(served)) for served in clusters]}


def _row(served: ServedCluster) -> Steps[ClusterRow]:
    cluster, counts = served.cluster, (yield from served.index.counts())
    return {
        "name": served.name,
        "bootstrap_servers": cluster.bootstrap_servers,
        "brokers": len(cluster.brokers),
        "groups": counts.groups.total(),
    }


@operation("POST", f"{V1}/clusters", status=201, body=NewCluster)
async def create_cluster(clusters: Clusters, body: Arguments) -> Overview:
    """Start another, independent cluster."""
    given = body.given()
    name = given.pop("name")
    clusters.check_new(name)
    first = clusters.get(DEFAULT).cluster
    given |= {"host": first.host, "advertised_host": first.advertised_host}
    given["data_dir"] = clusters.data_directory(given.get("data_dir"))
    served = await clusters.create(name, await trio.to_thread.run_sync(lambda: FakeCluster(**given)))
    return await served.read_in_steps(overview(served))


@operation("GET", CLUSTER)
def get_cluster(served: ServedCluster) -> Steps[Overview]:
    """Get the current state of a cluster: brokers, groups by state, and request rates."""
    return (yield from overview(served))


@operation("DELETE", CLUSTER, status=204)
async def delete_cluster(clusters: Clusters, cluster: str) -> None:
    """Stop a cluster and close all its connections."""
    await clusters.delete(cluster)


@operation("POST", f"{CLUSTER}/reset")
def reset(served: ServedCluster) -> Steps[Overview]:
    """Reset a cluster to its state after the start; all connections are closed."""
    served.cluster.reset()
    return (yield from overview(served))


# Time


class Seconds(Arguments):
    """A duration."""

    seconds: float


class DeadlineList(TypedDict):
    """Pending deadlines of a cluster, earliest first."""

    deadlines: list[Deadline]


@operation("GET", f"{CLUSTER}/clock")
def get_clock(served: ServedCluster) -> ClockView:
    """Get the brokers' clock."""
    return clock_view(served)


@operation("POST", f"{CLUSTER}/clock/advance", body=Seconds)
def advance(served: ServedCluster, body: Seconds) -> ClockView:
    """Advance the brokers' clock, which must be a manual one."""
    served.cluster.advance(body.seconds)
    return clock_view(served)


@operation("POST", f"{CLUSTER}/clock/advance_to_next_deadline")
def advance_to_next_deadline(served: ServedCluster) -> DeadlineList:
    """Advance the manual clock to the next deadline, and return the deadlines that were due."""
    return {"deadlines": served.cluster.advance_to_next_deadline() or []}


class DeadlineQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The maximum number of deadlines; by default all, which takes time with thousands of groups."""

    limit: int | None = None


@operation("GET", f"{CLUSTER}/deadlines")
def list_deadlines(served: ServedCluster, query: DeadlineQuery) -> DeadlineList:
    """List the pending deadlines, earliest first."""
    if query.limit is not None:
        check_range("limit", query.limit, 1, MAX_DEADLINES)
    core, now_ms = served.cluster.cluster, served.cluster.clock.now_ms()
    return {"deadlines": pending_deadlines(core, now_ms, query.limit)}


# Snapshots


class SnapshotView(TypedDict):
    """A snapshot's id."""

    id: str


@operation("POST", f"{CLUSTER}/snapshots", status=201)
def take_snapshot(served: ServedCluster) -> SnapshotView:
    """Take a snapshot of topics with their records, brokers, leaders, configs, groups and offsets."""
    return {"id": served.store_snapshot(served.cluster.snapshot)}


@operation("POST", f"{CLUSTER}/snapshots/{{id}}/restore")
def restore_snapshot(served: ServedCluster, id: str) -> Steps[Overview]:  # noqa: A002  # the name in the path
    """Restore a snapshot."""
    served.cluster.restore(served.snapshot(id))
    return (yield from overview(served))


@operation("DELETE", f"{CLUSTER}/snapshots/{{id}}", status=204)
def delete_snapshot(served: ServedCluster, id: str) -> None:  # noqa: A002  # the name in the path
    """Delete a snapshot."""
    served.snapshot(id)
    del served.snapshots[id]


# Events


def _event(command: Command) -> type[Arguments]:
    """Return the arguments of a command, tagged by `do`."""
    arguments = command.arguments
    return msgspec.defstruct(  # type: ignore[return-value]  # It has the base.
        f"{arguments.__name__}Event",
        [],
        bases=(arguments,),
        namespace={"__doc__": arguments.__doc__},
        tag_field="do",
        tag=command.name,
    )


class EventResult(TypedDict):
    """The result of an event."""

    result: Any


@operation("POST", f"{CLUSTER}/events", body=Union[tuple(map(_event, COMMANDS.values()))])  # noqa: UP007  # generated from a table
def do_event(served: ServedCluster, body: Arguments) -> EventResult:
    """Perform any event: `do` names a method of `FakeCluster`, the other fields are its arguments."""
    result = getattr(served.cluster, str(body.__struct_config__.tag))(**body.given())
    if isinstance(result, FaultHandle):
        return {"result": {"id": served.fault_id(result)}}
    if isinstance(result, AppendFailureHandle):
        return {"result": {"id": result.id}}
    if body.__struct_config__.tag == "produce":
        result = [each._asdict() for each in result]
    return {"result": None if isinstance(result, Hold) else result}
