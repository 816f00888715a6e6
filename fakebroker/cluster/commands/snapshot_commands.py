"""Commands that save the state of a cluster and return to it."""

from fakebroker.cluster import snapshot as snapshots
from fakebroker.cluster.commands.base import CommandsBase
from fakebroker.cluster.commands.definition import (
    check_type,
    command,
)
from fakebroker.cluster.snapshot import Snapshot


class SnapshotCommands(CommandsBase):
    """Commands for snapshots, and for a new start."""

    def snapshot(self) -> Snapshot:
        """Take a snapshot, for `restore`.

        It contains topics with their records, brokers, leaders, configs, groups with their offsets, and transactional
        ids. Groups and ids are saved as their last record describes them; a rebalance in progress is not saved.
        """
        return self._run(lambda: snapshots.take(self._cluster))

    def restore(self, snapshot: Snapshot) -> None:
        """Restore a snapshot of this cluster.

        Groups and transactional ids are loaded from their logs, and all sessions start again. Parked joins and syncs
        get NOT_COORDINATOR. Holds, delays and faults are removed. Connections to brokers that are not in the snapshot,
        or stopped in it, are closed; others remain open. The clock and the sequences of ids are not set back. The
        timeouts of open transactions count from their start.

        Args:
            snapshot: A snapshot of this cluster.

        Raises:
            ConfigError: The snapshot was taken of another cluster.
            ListenError: The port of a broker that was removed after the snapshot is not available.
        """
        check_type("snapshot", snapshot, Snapshot, "a Snapshot")
        snapshots.check(self._cluster, snapshot)

        def restore() -> None:
            with self._environment.replacing_brokers(snapshot.brokers, cut_all=False):
                snapshots.restore(self._cluster, snapshot, self._now_ms())

        self._change(restore, snapshots.stored_bytes(self._cluster, snapshot))

    @command
    def reset(self) -> None:
        """Return the cluster to its initial state, with the same topics, brokers and ids.

        Removes groups, offsets, records, holds and faults, empties the journal, and closes all connections. Ports and
        the clock do not change.
        """

        def reset() -> None:
            fresh = self._new_cluster()
            with self._environment.replacing_brokers(fresh.brokers, cut_all=True):
                snapshots.start_over(self._cluster, fresh, self._now_ms())

        self._change(reset)
