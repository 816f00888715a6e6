"""Groups put there by a test, in any state, with or without a table that says which.

What a seed means is `fakebroker.cluster.seed`'s business; where tables come from, `seed_tables`'s.
"""

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike

from fakebroker.cluster.seed import GroupSeed, MemberSeed, Offsets, PartitionName, seed_groups
from fakebroker.server.lifecycle import RunningCluster
from fakebroker.server.seed_tables import Table, seeds_from


class Seeding(RunningCluster):
    """Groups without clients."""

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
        assignment: Mapping[str, Sequence[PartitionName]] | None = None,
    ) -> None:
        """Put a group there, as if clients had brought it to where it is.

        It is written to __consumer_offsets and loaded from there; PreparingRebalance is then a rebalance in which
        nobody has joined yet, CompletingRebalance one in which all have and the leader's SyncGroup is missing.

        Args:
            group_id: The group.
            members: How many; or a client id or `MemberSeed` for each, the leader first; a table of what that takes is
                as good. Their sessions begin now.
            topics: What all members subscribe to; by default the topics of `assignment` and of the offsets.
            generation: The generation that it is in: 1 by default, 2 for one that is being completed.
            state: Kafka's name; by default Stable with members, Empty without. Dead is one that has been deleted.
            offsets: What it has committed, such as {"orders-0": 5}.
            lag: How far behind the ends of the logs as they are its committed offsets are: a number for all partitions
                of `topics`, or {"orders-0": 3}. `offsets` goes before it.
            protocol: The assignor's name.
            assignment: Partitions by client id, instance id or member id; by default all of `topics`, shared out.

        Raises:
            ConfigError: There is such a group already, or it cannot be like this.
        """
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

    def seed_groups(self, groups: "Iterable[GroupSeed] | Table | str | PathLike[str]") -> None:
        """Put many groups there at once; if one of them cannot be, none is.

        Args:
            groups: Seeds; or a table (pandas.DataFrame, pyarrow.Table) or the path of a Parquet file with the columns
                that `fakebroker.server.seed_tables` tells.

        Raises:
            ConfigError: A group is there already, or cannot be as it is said; or pyarrow is needed and missing.
        """
        seeds = seeds_from(groups)
        self._call(lambda: seed_groups(self.cluster, seeds, self.clock.now_ms()))
