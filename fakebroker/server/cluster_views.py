"""The methods of `FakeCluster` that return what is in the cluster: brokers, groups, offsets, transactions, records."""

from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.commands.definition import check_type
from fakebroker.cluster.inspect.deadlines import Deadline, pending_deadlines
from fakebroker.cluster.inspect.explain import explain
from fakebroker.cluster.inspect.explain_transaction import explain_transaction
from fakebroker.cluster.inspect.journal_queries import JournalView, view_journal
from fakebroker.cluster.inspect.timelines import Timeline, TransactionTimeline, transaction_timeline_of
from fakebroker.cluster.inspect.transaction_views import (
    HangingTransaction,
    TransactionView,
    checked_filters,
    hanging_transactions,
    view_transaction,
    view_transactions,
)
from fakebroker.cluster.inspect.views import (
    BrokerView,
    GroupView,
    RecordView,
    batches_of,
    committed_offsets,
    report,
    timeline_of,
    view_group,
    view_groups,
)
from fakebroker.coordinator.offset_store import CommittedOffset
from fakebroker.errors import ConfigError, cut_lines
from fakebroker.server.clock import Clock
from fakebroker.server.lifecycle import ClusterServer


class ClusterViews:
    """Views of a cluster. They are copies, which later changes do not affect.

    Attributes:
        cluster: The state of the cluster. Use it only in the cluster's thread, see `FakeCluster.call`.
        clock: The brokers' clock.
        seed: The seed, also if it was random.
    """

    cluster: Cluster
    clock: Clock
    seed: int
    _server: ClusterServer

    @property
    def brokers(self) -> tuple[BrokerView, ...]:
        """All brokers, ordered by node id. They have ports from the start of the cluster on, also after its end."""
        self._server.check_started()
        return tuple(BrokerView.of(broker) for broker in self.cluster.brokers.values())

    def coordinator_of(self, group_id: str) -> BrokerView:
        """Return the broker that coordinates a group.

        Args:
            group_id: The group, which need not exist.

        Raises:
            ConfigError: The group has no coordinator now.
        """
        self._server.check_started()
        check_type("group_id", group_id, str, "a string")
        broker = self._server.run(lambda: self.cluster.coordinator_of(group_id))
        if broker is None:
            raise ConfigError.of("group_id", group_id, "a group that has a coordinator now")
        return BrokerView.of(broker)

    def group(self, group_id: str) -> GroupView:
        """Return the current state of a group.

        Its `type` is "classic" or, with the protocol of KIP-848, "consumer". Members that are consumers have
        `assigned_partitions`, `owned_partitions` and `subscribed_topics`. For members that are not consumers, such as
        Connect workers, these are None; `assignment` and `metadata` contain the bytes. In a group of type "consumer",
        members also have `member_epoch`, `state`, `target` and `pending_revocation`. Their `awaited` has the partitions
        that other members still hold.

        Args:
            group_id: The group. If it does not exist, its state is "Dead", as in a DescribeGroups response.

        Raises:
            ConfigError: The id is not a string.
        """
        check_type("group_id", group_id, str, "a string")
        return self._server.run(lambda: view_group(self.cluster, group_id, self.clock.now_ms()))

    def groups(self) -> list[GroupView]:
        """Return the current state of all groups, ordered by the node id of their coordinator."""
        return self._server.run(lambda: view_groups(self.cluster, self.clock.now_ms()))

    def offsets(self, group_id: str) -> dict[tuple[str, int], CommittedOffset]:
        """Return the committed offsets of a group by (topic, partition).

        Args:
            group_id: The group. If it does not exist, the result is empty.

        Raises:
            ConfigError: The id is not a string.
        """
        check_type("group_id", group_id, str, "a string")
        return self._server.run(lambda: committed_offsets(self.cluster, group_id))

    def timeline(self, group_id: str) -> Timeline:
        """Return the state transitions of a group with their causes; `str()` of the result is a text diagram.

        The timeline of a consumer group (KIP-848) has all changes of its members: their epochs, their partitions,
        and the partitions that they have to give up.

        The history is limited to the newest changes: up to 256 changes of a group, fewer if the group is large, and
        20,000 changes in all. `Timeline.dropped` counts the changes that were dropped; the diagram mentions them.

        Args:
            group_id: The group, which may have been deleted since.

        Raises:
            ConfigError: The id is not a string.
        """
        check_type("group_id", group_id, str, "a string")
        return self._server.run(lambda: timeline_of(self.cluster, group_id, self.clock.now_ms()))

    def explain(self, group_id: str) -> str:
        """Explain in a few sentences why a group is in its state, which members it waits for, and until when.

        Args:
            group_id: The group, which need not exist.

        Raises:
            ConfigError: The id is not a string.
        """
        check_type("group_id", group_id, str, "a string")
        return self._server.run(lambda: explain(self.cluster, group_id, self.clock.now_ms()))

    def transaction(self, transactional_id: str) -> TransactionView:
        """Return the current state of a transactional id, as its coordinator knows it.

        Args:
            transactional_id: The transactional id.

        Raises:
            ConfigError: The id does not exist, or its coordinator does not know it: it is loading, or there is none.
        """
        check_type("transactional_id", transactional_id, str, "a string")
        return self._server.run(lambda: view_transaction(self.cluster, transactional_id, self.clock.now_ms()))

    def transactions(
        self, *, state: str | None = None, producer_id: int | None = None, longer_than_s: float | None = None
    ) -> list[TransactionView]:
        """Return the current state of the transactional ids that match all filters, ordered by their coordinators.

        Args:
            state: Only ids in this state, by Kafka's name, such as "Ongoing".
            producer_id: Only the id with this producer id.
            longer_than_s: Only ids whose transaction has begun more than this number of seconds ago and has not ended.

        Raises:
            ConfigError: There is no such state, or a number has the wrong type or is negative.
        """
        filters = checked_filters(state, producer_id, longer_than_s)
        return self._server.run(lambda: view_transactions(self.cluster, self.clock.now_ms(), **filters))

    def hanging_transactions(self) -> list[HangingTransaction]:
        """Return the transactions that are open in partitions, but not at a coordinator (KIP-664).

        Their records, and later ones of their partitions, stay invisible to read_committed consumers until an admin
        client aborts them. While a coordinator is loading, its open transactions are among them.
        """
        return self._server.run(lambda: hanging_transactions(self.cluster))

    def transaction_timeline(self, transactional_id: str) -> TransactionTimeline:
        """Return the transitions of a transactional id with their causes; `str()` of the result is a text diagram.

        The history is limited like the history of a group; see `timeline`.

        Args:
            transactional_id: The transactional id, which may have expired since.

        Raises:
            ConfigError: The id is not a string.
        """
        check_type("transactional_id", transactional_id, str, "a string")
        return self._server.run(lambda: transaction_timeline_of(self.cluster, transactional_id, self.clock.now_ms()))

    def explain_transaction(self, transactional_id: str) -> str:
        """Explain in a few sentences why a transactional id is in its state, which events are pending, and until when.

        Args:
            transactional_id: The transactional id, which need not exist.

        Raises:
            ConfigError: The id is not a string.
        """
        check_type("transactional_id", transactional_id, str, "a string")
        return self._server.run(lambda: explain_transaction(self.cluster, transactional_id, self.clock.now_ms()))

    def pending_deadlines(self) -> list[Deadline]:
        """Return the pending timers of all groups, transactional ids and brokers, earliest first.

        Each heartbeat changes them, since it extends a session.
        """
        return self._server.run(lambda: pending_deadlines(self.cluster, self.clock.now_ms()))

    def journal_view(self) -> JournalView:
        """Return the journal as it is now."""
        return self._server.run(lambda: view_journal(self.cluster))

    @property
    def journal_dropped(self) -> int:
        """Number of requests that the journal has dropped because of its limits."""
        return self.cluster.journal.dropped

    def report(self) -> str:
        """Return seed, groups, transactional ids, last requests and closed connections as text, as for a failed test.

        The report has the 20 groups and 20 transactional ids that changed last, the first 20 members of each group, the
        last 20 requests, and the first 200 characters of each line. It mentions omissions.
        """
        text = report(self.seed, self.groups(), self.transactions(), self.journal_view())
        errors = [cut_lines(f"an action of a fault failed: {error}") for error in self.action_errors]
        refusals = self._server.run(self._server.refusals.text)
        return "\n".join([text, *errors, *(["", refusals] if refusals else [])])

    @property
    def action_errors(self) -> tuple[str, ...]:
        """The last errors of actions of faults (see `Fault.before` and `Fault.then`) since the last reset, as text."""
        return tuple(self.cluster.faults.actions.errors)

    def records(self, topic: str, partition: int | None = None) -> list[RecordView]:
        """Return the records of a topic: those that a consumer could read now, ordered by partition and offset.

        Records that retention, compaction or DeleteRecords have removed are missing, as are control records.

        Args:
            topic: The topic. Internal topics can be read, too.
            partition: The partition; None for all.

        Raises:
            ConfigError: There is no such topic or partition.
        """
        check_type("topic", topic, str, "a string")
        found = self._server.run(lambda: batches_of(self.cluster, topic, partition))
        return [record for each in found for record in each.records()]
