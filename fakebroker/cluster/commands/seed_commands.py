"""Commands that create groups and transactional ids in a given state."""

from collections.abc import Sequence
from typing import Annotated, Unpack

from msgspec import Meta

from fakebroker.cluster.commands.base import CommandsBase
from fakebroker.cluster.commands.definition import (
    command,
)
from fakebroker.cluster.seeding.seed import GroupSeed, GroupTable, MemberSeed, SeedOptions, seed_groups
from fakebroker.cluster.seeding.transaction_seed import (
    ProducerEpoch,
    ProducerId,
    TransactionSeed,
    TransactionSeedOptions,
    seed_hanging_transaction,
    seed_transaction,
)


class SeedCommands(CommandsBase):
    """Commands that create groups and transactional ids."""

    @command
    def seed_group(
        self, group_id: str, members: int | Sequence[MemberSeed | str] = 0, **options: Unpack[SeedOptions]
    ) -> None:
        """Create a group in a given state, as if clients had created it.

        The group is written to __consumer_offsets and loaded from there. In PreparingRebalance, no member has rejoined
        yet; in CompletingRebalance, all members have joined, and the leader's SyncGroup is missing.

        Args:
            group_id: Id of the group.
            members: A number, or a list with one entry per member, leader first. An entry is a client id, a
                `fakebroker.MemberSeed`, or a mapping with its fields. The sessions of the members start now.
            options: Subscription, state, offsets, lag, assignment, and type "consumer" for a group of KIP-848; see
                `fakebroker.GroupSeed`.

        Raises:
            ConfigError: The group exists already, or the arguments contradict each other.
        """
        self._seed([GroupSeed(group_id=group_id, members=members, **options)])

    @command
    def seed_groups(self, groups: Sequence[GroupTable]) -> None:
        """Create several groups, or none if one of them cannot be created.

        Args:
            groups: The groups, each with `group_id` and the options of `seed_group`.

        Raises:
            ConfigError: As `seed_group`.
        """
        self._seed(groups)

    def _seed(self, seeds: Sequence[GroupSeed]) -> None:
        self._change(lambda: seed_groups(self._cluster, seeds, self._now_ms()))

    @command
    def seed_transaction(self, transactional_id: str, **options: Unpack[TransactionSeedOptions]) -> None:
        """Create a transactional id as if a producer had used it; by default with an open transaction.

        The records of the transaction are appended to the logs, and the state to __transaction_state. With
        PrepareCommit or PrepareAbort, the coordinator then writes the markers. With `producer_id` and `epoch`, also
        states near the last epoch of a producer id can be created.

        Args:
            transactional_id: The transactional id, which must not exist.
            options: State, producer and records; see `fakebroker.TransactionSeed`.

        Raises:
            ConfigError: The id exists or has no coordinator, the producer id is in use, a partition does not exist or
                has no leader, the record of the id cannot be stored, or the options contradict each other.
        """
        seed = TransactionSeed(transactional_id=transactional_id, **options)
        self._change(lambda: seed_transaction(self._cluster, seed, self._now_ms()))

    @command
    def seed_hanging_transaction(
        self,
        partition: str,
        *,
        offset: Annotated[int, Meta(ge=0)] | None = None,
        records: Annotated[int, Meta(ge=1, le=100_000)] = 1,
        producer_id: ProducerId | None = None,
        epoch: ProducerEpoch = 0,
    ) -> None:
        """Leave a transaction open in a partition that no coordinator knows: a hanging transaction (KIP-664).

        Nothing ends it but WriteTxnMarkers of an admin client (`abortTransaction`), or the deletion of its records.
        Until then the last stable offset of the partition stays at its first record.

        Args:
            partition: The partition, such as "orders-0".
            offset: The offset of its first record, from the end of the log on. Other records are appended up to it.
                None: the end of the log.
            records: Number of its records. Their values are their offsets, as text.
            producer_id: The producer id. None: the next one that is not in use.
            epoch: The producer epoch.

        Raises:
            ConfigError: The partition does not exist or has no leader, its log ends after the offset or more than
                1,000,000 records before it, or its leader refuses the records up to the offset.
        """
        self._change(
            lambda: seed_hanging_transaction(
                self._cluster,
                partition,
                offset=offset,
                records=records,
                producer_id=producer_id,
                epoch=epoch,
                now_ms=self._now_ms(),
            )
        )
