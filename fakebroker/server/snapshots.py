"""Many tests on one cluster: keeping what it is, being that again, and starting over; always at the same ports.

Takes care of ports and connections; what a snapshot holds is `fakebroker.cluster.snapshot`' business.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from fakebroker.cluster import snapshot as snapshots
from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.snapshot import Snapshot
from fakebroker.server.lifecycle import RunningCluster


class Snapshots(RunningCluster):
    """Snapshots, and the one of the start."""

    _new_cluster: Callable[[], Cluster]
    """Makes the cluster as it was at the start, ids included."""

    def snapshot(self) -> Snapshot:
        """Keep topics with their records, brokers, leaders, configs, groups and offsets, for `restore`.

        What groups are is what their log says: rounds under way are not in it.
        """
        return self._call(lambda: snapshots.take(self.cluster))

    def restore(self, snapshot: Snapshot) -> None:
        """Let the cluster be what it was.

        Groups come back as after a move of their coordinator: as they were last stored, with full sessions. Joins and
        syncs that wait get NOT_COORDINATOR. Holds, delays and faults end. Connections stay, but for those to brokers
        that were down or not there. Time and ids go on.

        Raises:
            ConfigError: The snapshot is another cluster's.
            ListenError: A broker that has been removed since cannot have its port back.
        """
        snapshots.check(self.cluster, snapshot)

        def restore() -> None:
            with self._ports_for(snapshot.brokers, cuts_all=False):
                snapshots.restore(self.cluster, snapshot, self.clock.now_ms())

        self._call(restore)

    def reset(self) -> None:
        """Be as at the start: the same topics and brokers, and nothing that anybody did since.

        No groups, offsets, records, holds or faults; an empty journal; the ids that are made next are those that were
        made first. Every connection is cut. Ports stay, and so does the time.
        """

        def reset() -> None:
            fresh = self._new_cluster()
            with self._ports_for(fresh.brokers, cuts_all=True):
                snapshots.start_over(self.cluster, fresh, self.clock.now_ms())

        self._call(reset)

    @contextmanager
    def _ports_for(self, wanted: Mapping[int, BrokerNode], *, cuts_all: bool) -> Iterator[None]:
        """Close the ports of brokers that are not to be up or there; at the end open those of brokers that are now.

        Args:
            wanted: The brokers that are to be there.
            cuts_all: Whether all ports are closed meanwhile, so that every connection is cut, also one being made.
        """
        if self._token is None:  # It does not run.
            yield
            return
        kept = []
        for node_id, broker in self.cluster.brokers.items():
            if node_id not in wanted:
                self._drop(broker)
            elif broker.up and (cuts_all or not wanted[node_id].up):
                self._shut(broker, keep_port=True)
            elif broker.up:
                self._refuse(broker, False)
                kept.append(node_id)
        self._reactor.detours.reach.clear()
        yield
        for node_id, broker in self.cluster.brokers.items():
            if broker.up and node_id not in kept:
                self._open(broker, self._ports.get(node_id, 0))

    def _drop(self, broker: BrokerNode) -> None:
        """Give a broker's port away."""
        self._shut(broker, keep_port=False)
        held = self._held_ports.pop(broker.node_id, None)
        if held is not None:
            held.close()
