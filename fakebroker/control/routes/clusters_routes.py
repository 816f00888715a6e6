"""Operations on clusters: list, create, delete, reset, clock, snapshots, and events by name."""

from typing import Any, TypedDict, Union

import msgspec
import trio

from fakebroker.cluster.handles.definition import Arguments, Definition, arguments_of, commands, perform, plain_result
from fakebroker.cluster.handles.undo import Hold
from fakebroker.control.clusters import DEFAULT, Clusters, ServedCluster
from fakebroker.control.routes.operations import CLUSTER, V1, operation
from fakebroker.control.routes.views.cluster_views import ClockView, Overview, clock_view, overview
from fakebroker.control.steps import Steps
from fakebroker.server.fake_cluster import FakeCluster


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

    `data_dir` is the name of a folder in `--control-data-dirs`. Without this option, clusters have no data directories.
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
    given |= {"host": first._host, "advertised_host": first._advertised_host}
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


# Time


@operation("GET", f"{CLUSTER}/clock")
def get_clock(served: ServedCluster) -> ClockView:
    """Get the brokers' clock."""
    return clock_view(served)


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


def _event(command: Definition) -> type[Arguments]:
    """Return the key and the arguments of a command, tagged by `do`."""
    return msgspec.defstruct(  # type: ignore[return-value]  # It has the base.
        f"{command.event.__name__}Event",
        [],
        bases=(command.event,),
        namespace={"__doc__": command.event.__doc__},
        tag_field="do",
        tag=command.name,
    )


class EventResult(TypedDict):
    """The result of an event."""

    result: Any


@operation("POST", f"{CLUSTER}/events", body=Union[tuple(map(_event, commands().values()))])  # noqa: UP007  # generated from a table
def do_event(served: ServedCluster, body: Arguments) -> EventResult:
    """Perform any event: `do` names a command, the other fields are the key of its handle and its arguments."""
    result = perform(served.local, {"do": str(body.__struct_config__.tag), **body.given()})
    return {"result": None if isinstance(result, Hold) else plain_result(result)}
