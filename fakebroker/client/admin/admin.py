"""`Admin`, the admin client for groups, offsets, transactions, topics and brokers, for Kafka 0.10 and later.

Requests about many groups are batched (KIP-699, KIP-709) for brokers that support it. Each other broker gets one
request per group.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Literal, Self, TypeVar

import trio

from fakebroker.client.admin import (
    group_handlers,
    member_handlers,
    offset_handlers,
    partition_handlers,
    transaction_handlers,
)
from fakebroker.client.admin.cluster_calls import ClusterCalls
from fakebroker.client.admin.descriptions import (
    TRANSACTION_STATES,
    ClusterDescription,
    GroupDescription,
    GroupListing,
    ListedOffset,
    NewTopic,
    Node,
    OffsetAndMetadata,
    ProducerDescription,
    ProducerIdAndEpoch,
    Results,
    TopicDescription,
    TransactionDescription,
    TransactionListing,
)
from fakebroker.client.admin.driver import AdminApiDriver, AdminApiHandler
from fakebroker.client.backoff import Backoff
from fakebroker.client.coordinators import KEY_TYPES
from fakebroker.client.errors import AdminError, NoBatchJoin, UnsupportedVersion
from fakebroker.client.isolation_level import IsolationLevel, isolation_number
from fakebroker.client.security import PLAINTEXT, ClientSecurity
from fakebroker.client.transport import DEFAULT_CONNECT_TIMEOUT_MS, addresses
from fakebroker.client.transport_security import TransportSecurity
from fakebroker.client.trio_brokers import TrioBrokers, check_in_trio
from fakebroker.errors import ConfigError, check_integer, check_number, one_of
from fakebroker.protocol.messages.list_transactions import ListTransactionsRequest
from fakebroker.topic_partition import (
    MAX_INT16,
    MAX_INT32,
    MAX_INT64,
    TopicPartition,
    format_partitions,
    is_offset,
    is_partition,
)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_MAX_KEY_BYTES = 32_767
"""The maximum length of a string in every version of the protocol."""


class Admin:
    """An admin client; use it as an async context manager.

    In calls about several groups, transactional ids or partitions each of them has its own value or error in the
    `Results`. Requests are retried until `default_api_timeout_ms` while coordinators and leaders move, load or are
    unreachable.

    Args:
        bootstrap_servers: "HOST:PORT", several separated by commas, or a list of them.
        client_id: The client id in each request.
        fall_back: Whether brokers that are too old for batches get one request per group.
        request_timeout_ms: A connection without a response for this long is closed (`request.timeout.ms`).
        default_api_timeout_ms: Maximum duration of a call, retries included (`default.api.timeout.ms`).
        retry_backoff_ms: Delay before the first retry; doubles with each retry (`retry.backoff.ms`).
        retry_backoff_max_ms: Maximum delay before a retry (`retry.backoff.max.ms`).
        connect_timeout_ms: Maximum duration of connecting to a broker.
        security: How connections are encrypted and authenticated.

    Raises:
        ConfigError: An argument is invalid, or a file of `security` cannot be read.
        BrokerUnreachable: On entering the context: no bootstrap server could be reached.
        AuthenticationFailed: On entering the context, and from all calls: a broker has refused this client, or its
            certificate is not valid. This is not retried.
        FakebrokerError: On entering the context: the caller does not run in trio.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        client_id: str = "fakebroker-admin",
        *,
        fall_back: bool = True,
        request_timeout_ms: float = 30_000,
        default_api_timeout_ms: float = 60_000,
        retry_backoff_ms: float = 100,
        retry_backoff_max_ms: float = 1_000,
        connect_timeout_ms: float = DEFAULT_CONNECT_TIMEOUT_MS,
        security: ClientSecurity = PLAINTEXT,
    ) -> None:
        addresses(bootstrap_servers)
        times = {
            "request_timeout_ms": request_timeout_ms,
            "default_api_timeout_ms": default_api_timeout_ms,
            "retry_backoff_ms": retry_backoff_ms,
            "retry_backoff_max_ms": retry_backoff_max_ms,
            "connect_timeout_ms": connect_timeout_ms,
        }
        for name, value in times.items():
            check_number(name, value, above=0)
        self._bootstrap_servers, self._client_id = bootstrap_servers, client_id
        self._security = TransportSecurity(security)
        self._timeout_ms, self._connect_timeout_ms = default_api_timeout_ms, connect_timeout_ms
        self._fall_back, self._request_timeout_ms = fall_back, request_timeout_ms
        self._backoff = Backoff(retry_backoff_ms, max(retry_backoff_ms, retry_backoff_max_ms))
        self._opened: TrioBrokers | None = None

    async def __aenter__(self) -> Self:
        check_in_trio("the admin client")
        if self._opened is not None:
            raise trio.BusyResourceError("the admin client is open already: expected to be entered after it was left")
        self._nursery_manager = trio.open_nursery()
        nursery = await self._nursery_manager.__aenter__()
        self._cancel_scope = nursery.cancel_scope
        self._opened = TrioBrokers(
            self._bootstrap_servers,
            self._client_id,
            nursery,
            request_timeout_ms=self._request_timeout_ms,
            connect_timeout_ms=self._connect_timeout_ms,
            security=self._security,
        )
        try:
            await self._opened.reach_any()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        """Cancel the connections' tasks. They close the connections and raise nothing that could hide another error."""
        self._opened = None
        self._cancel_scope.cancel()
        await self._nursery_manager.__aexit__(None, None, None)

    @property
    def _brokers(self) -> TrioBrokers:
        if self._opened is None:
            raise trio.ClosedResourceError("the admin client is not open: use it in `async with`")
        return self._opened

    @property
    def _cluster(self) -> ClusterCalls:
        return ClusterCalls(self._brokers, self._backoff, self._request_timeout_ms, self._timeout_ms)

    # Groups

    async def find_coordinators(self, keys: Iterable[str], key_type: str = "group") -> Results[str, Node]:
        """Return the coordinators of groups or transactions.

        Args:
            keys: Group ids or transactional ids.
            key_type: "group", "transaction" or "share".

        Raises:
            NoBatchedFindCoordinators: The broker looks up one coordinator per request, and `fall_back` is False.
            ConfigError: An argument is invalid.
        """
        if key_type not in KEY_TYPES:
            raise ConfigError.of("key_type", key_type, one_of(KEY_TYPES, key_type))
        lookup = group_handlers.find_coordinators(key_type)
        driver: AdminApiDriver[str, Node] = AdminApiDriver(
            self._brokers, self._backoff, lookup, None, fall_back=self._fall_back
        )
        return await driver.run(_keys("keys", keys), self._timeout_ms)

    async def describe_groups(self, groups: Iterable[str]) -> Results[str, GroupDescription]:
        """Describe groups of both types with their members.

        A group that does not exist has the error GROUP_ID_NOT_FOUND. Coordinators are asked for a group of KIP-848
        first, and for a classic one if there is none, as Kafka's admin client does.

        Raises:
            NoBatchedFindCoordinators: As `find_coordinators` does.
        """
        return await self._run(member_handlers.describe_groups(), _keys("groups", groups))

    async def list_groups(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> tuple[GroupListing, ...]:
        """List the groups of all brokers.

        Args:
            states: List only groups in one of these states, such as "Stable" (KIP-518, brokers since 2.6).
            types: List only groups of one of these types, "classic" or "consumer" (KIP-848, brokers since 3.8).

        Raises:
            UnsupportedVersion: A broker does not support the filter.
            WaitTimeout: A broker did not answer in time.
            BrokerError: A broker returned an error.
        """
        return await self._cluster.groups(_keys("states", states), _keys("types", types))

    async def delete_groups(self, groups: Iterable[str]) -> Results[str, None]:
        """Delete groups without members, with their committed offsets.

        If the connection is lost after a group was deleted, the retry reports GROUP_ID_NOT_FOUND for it.

        Raises:
            NoBatchedFindCoordinators: As `find_coordinators` does.
        """
        return await self._run(group_handlers.delete_groups(), _keys("groups", groups))

    async def remove_members_from_group(
        self,
        group: str,
        *,
        instance_ids: Iterable[str] = (),
        member_ids: Iterable[str] = (),
        reason: str = "removed by an administrator",
    ) -> Results[str, None]:
        """Remove members from a group of either type (KIP-345). They may join again.

        If the connection is lost after a member was removed, the retry reports UNKNOWN_MEMBER_ID for it.

        Args:
            group: The group id.
            instance_ids: Static members, by `group.instance.id` (brokers since 2.4).
            member_ids: Members by member id; several at once need brokers since 2.4.
            reason: Why, for the log of the broker (KIP-800).

        Returns:
            For each instance id and member id None or a `MemberError`, such as UNKNOWN_MEMBER_ID.

        Raises:
            ConfigError: An argument is invalid.
            GroupError: The request failed for the whole group, for example because the broker is too old.
        """
        instances, members = _keys("instance_ids", instance_ids), _keys("member_ids", member_ids)
        if not instances and not members:
            return Results({})
        handler = member_handlers.remove_members(instances, members, reason)
        outcome = (await self._run(handler, _keys("group", [group])))[group]
        if isinstance(outcome, AdminError):
            raise outcome
        return outcome

    async def add_members_to_group(
        self,
        group: str,
        instance_ids: Iterable[str],
        *,
        session_timeout_ms: int = 45_000,
        rebalance_timeout_ms: int = 300_000,
    ) -> Results[str, str]:
        """Register static members that a group expects, in one request. Needs brokers with the proposal "batch-join".

        If the connection is lost after a member was registered, the retry reports DUPLICATE_RESOURCE for it.

        Args:
            group: The group id.
            instance_ids: `group.instance.id` of each member.
            session_timeout_ms: Session timeout of the members.
            rebalance_timeout_ms: How long the group waits for the members.

        Returns:
            For each instance id its member id or a `MemberError`.

        Raises:
            NoBatchJoin: The group's coordinator does not support the proposal.
            ConfigError: An argument is invalid.
            GroupError: The request failed for the whole group.
        """
        instances = _keys("instance_ids", instance_ids)
        timeouts = {"session_timeout_ms": session_timeout_ms, "rebalance_timeout_ms": rebalance_timeout_ms}
        for name, timeout_ms in timeouts.items():
            check_integer(name, timeout_ms, least=1, most=MAX_INT32)
        if not instances:
            return Results({})
        handler = group_handlers.add_members(instances, session_timeout_ms, rebalance_timeout_ms)
        outcome = (await self._run(handler, _keys("group", [group])))[group]
        if not isinstance(outcome, AdminError):
            return outcome
        match outcome.__cause__:
            case UnsupportedVersion(api=api, theirs=theirs, ours=ours, broker=broker):
                raise NoBatchJoin(api, theirs, ours, broker) from None
        raise outcome

    # Offsets

    async def list_group_offsets(
        self, groups: Mapping[str, Collection[TopicPartition] | None], require_stable: bool = False
    ) -> Results[str, offset_handlers.Offsets]:
        """Return the committed offsets of groups. A group that does not exist has none.

        Args:
            groups: The partitions of each group; None for all with committed offsets.
            require_stable: Whether to wait for offsets in open transactions (KIP-447; ignored by brokers before 2.5).

        Returns:
            For each group its offsets by partition; None for a partition without a committed offset.

        Raises:
            NoBatchedFindCoordinators: As `find_coordinators` does.
            NoBatchedOffsetFetch: A coordinator returns the offsets of one group per request, and `fall_back` is False.
            ConfigError: An argument is invalid.
        """
        for group, partitions in groups.items():
            _check_partitions(group, partitions or ())
        return await self._run(offset_handlers.list_offsets(groups, require_stable), _keys("groups", groups))

    async def alter_group_offsets(
        self, groups: Mapping[str, Mapping[TopicPartition, OffsetAndMetadata | int]]
    ) -> Results[str, None]:
        """Commit offsets for groups without members. A `GroupError` contains the errors of its partitions.

        Raises:
            NoBatchedFindCoordinators: As `find_coordinators` does.
            ConfigError: An argument is invalid.
        """
        wanted = {}
        for group, offsets in groups.items():
            _check_partitions(group, offsets)
            wanted[group] = {partition: _offset(group, partition, offset) for partition, offset in offsets.items()}
        return await self._run(offset_handlers.alter_offsets(wanted), _keys("groups", groups))

    async def delete_group_offsets(self, groups: Mapping[str, Collection[TopicPartition]]) -> Results[str, None]:
        """Delete offsets of topics that groups do not subscribe to (brokers since 2.4).

        A `GroupError` contains the errors of its partitions.

        Raises:
            NoBatchedFindCoordinators: As `find_coordinators` does.
            ConfigError: An argument is invalid.
        """
        for group, partitions in groups.items():
            _check_partitions(group, partitions)
        return await self._run(offset_handlers.delete_offsets(groups), _keys("groups", groups))

    # Transactions

    async def list_transactions(
        self,
        *,
        producer_ids: Iterable[int] = (),
        states: Iterable[str] = (),
        duration_ms: int | None = None,
        id_pattern: str | None = None,
    ) -> tuple[TransactionListing, ...]:
        """List the transactional ids of all brokers (KIP-664, brokers since 3.0). All filters must match.

        Args:
            producer_ids: List only ids with one of these producer ids.
            states: List only ids in one of these states, such as "Ongoing".
            duration_ms: List only ids whose transaction has been running for longer (KIP-994, brokers since 3.8).
            id_pattern: List only ids that match this regular expression of Google RE2 as a whole (KIP-1152, brokers
                since 4.1).

        Raises:
            UnsupportedVersion: A broker does not support the request or a filter.
            WaitTimeout: A broker did not answer in time.
            BrokerError: A broker returned an error, such as INVALID_REGULAR_EXPRESSION.
            ConfigError: An argument is invalid.
        """
        wanted_ids, wanted_states = list(producer_ids), _keys("states", states)
        for index, producer_id in enumerate(wanted_ids):
            check_integer(f"producer_ids[{index}]", producer_id, least=0, most=MAX_INT64)
        for index, state in enumerate(wanted_states):
            if state not in TRANSACTION_STATES:
                raise ConfigError.of(f"states[{index}]", state, one_of(TRANSACTION_STATES, state))
        if duration_ms is not None:
            check_integer("duration_ms", duration_ms, least=0, most=MAX_INT64)
        request = ListTransactionsRequest(
            producer_id_filters=wanted_ids,
            state_filters=wanted_states,
            duration_filter=-1 if duration_ms is None else duration_ms,
            transactional_id_pattern=id_pattern,
        )
        return await self._cluster.transactions(request)

    async def describe_transactions(self, transactional_ids: Iterable[str]) -> Results[str, TransactionDescription]:
        """Describe transactional ids (KIP-664, brokers since 3.0). A missing one has TRANSACTIONAL_ID_NOT_FOUND.

        Raises:
            NoBatchedFindCoordinators: As `find_coordinators` does.
        """
        ids = _keys("transactional_ids", transactional_ids)
        return await self._run(transaction_handlers.describe_transactions(), ids, key_type="transaction")

    async def fence_producers(self, transactional_ids: Iterable[str]) -> Results[str, ProducerIdAndEpoch]:
        """Raise the epochs of transactional ids, so that their producers are refused (KIP-692, brokers since 0.11).

        A transaction of a producer is aborted; the call waits for it. The ids have the request timeout as transaction
        timeout afterwards, until their next producers start, as with Kafka's admin client.

        Raises:
            NoBatchedFindCoordinators: As `find_coordinators` does.
        """
        handler = transaction_handlers.fence_producers(int(self._request_timeout_ms))
        return await self._run(handler, _keys("transactional_ids", transactional_ids), key_type="transaction")

    # Partitions

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, broker_id: int | None = None
    ) -> Results[TopicPartition, tuple[ProducerDescription, ...]]:
        """Describe the producers of partitions (KIP-664, brokers since 2.8).

        Partitions that do not exist are looked up until the call times out.

        Args:
            partitions: The partitions.
            broker_id: The node id of the replica that is asked; the leader by default.
        """
        handler = partition_handlers.describe_producers(waits_for_leader=broker_id is None)
        if broker_id is None:
            lookup = partition_handlers.find_leaders(waits_for_topics=True)
        else:
            check_integer("broker_id", broker_id, least=0, most=MAX_INT32)
            lookup = partition_handlers.find_broker(broker_id)
        return await self._run_with(lookup, handler, _partitions(partitions))

    async def abort_transaction(
        self, partition: TopicPartition, *, producer_id: int, producer_epoch: int, coordinator_epoch: int = 0
    ) -> None:
        """Abort a hanging transaction in one partition: write its marker (KIP-664, brokers since 0.11).

        The transaction coordinator is not informed: for it, the transaction stays open. `describe_producers` returns
        the values of the arguments.

        Args:
            partition: The partition.
            producer_id: The producer.
            producer_epoch: Its epoch.
            coordinator_epoch: The epoch of the coordinator; 0 if the producer has none, because it has no marker yet.

        Raises:
            PartitionError: The broker refused the marker, for example with TRANSACTION_COORDINATOR_FENCED because the
                partition has a marker of a later coordinator.
            ConfigError: An argument is invalid.
        """
        check_integer("producer_id", producer_id, least=0, most=MAX_INT64)
        check_integer("producer_epoch", producer_epoch, least=0, most=MAX_INT16)
        check_integer("coordinator_epoch", coordinator_epoch, least=-1, most=MAX_INT32)
        lookup = partition_handlers.find_leaders(waits_for_topics=True)
        handler = partition_handlers.abort_transaction(producer_id, producer_epoch, coordinator_epoch)
        (await self._run_with(lookup, handler, _partitions([partition]))).all()

    async def list_offsets(
        self,
        partitions: Mapping[TopicPartition, Literal["earliest", "latest"] | int],
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> Results[TopicPartition, ListedOffset]:
        """Look up offsets (brokers since 0.11).

        Args:
            partitions: What to look up in each partition: its first offset ("earliest"), the offset after its last
                record ("latest"), or the first offset with a timestamp at or after this one, in milliseconds since the
                Unix epoch.
            isolation_level: With "read_committed" no offset is above the last stable offset (KIP-98).

        Raises:
            ConfigError: An argument is invalid.
        """
        special = {"earliest": -2, "latest": -1}
        timestamps: dict[TopicPartition, int] = {}
        for partition, wanted in partitions.items():
            if not (is_offset(wanted) or (isinstance(wanted, str) and wanted in special)):
                where = f"partition {format_partitions(_partitions([partition]))}"
                expected = "'earliest', 'latest' or a timestamp in milliseconds"
                raise ConfigError.of("partitions", wanted, expected, where=where)
            timestamps[partition] = wanted if isinstance(wanted, int) else special[wanted]
        handler = partition_handlers.list_offsets(timestamps, isolation_number(isolation_level), int(self._timeout_ms))
        lookup = partition_handlers.find_leaders(waits_for_topics=False)
        return await self._run_with(lookup, handler, _partitions(partitions))

    # Topics and brokers

    async def list_topics(self, *, internal: bool = False) -> dict[str, TopicDescription]:
        """Return the topics by name.

        Args:
            internal: Whether to include Kafka's internal topics.

        Raises:
            WaitTimeout: No broker answered in time.
        """
        topics = await self._cluster.topics()
        return {name: topic for name, topic in topics.items() if internal or not topic.is_internal}

    async def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> Results[str, None]:
        """Create topics.

        Args:
            topics: The topics.
            validate_only: Only check whether they could be created.

        Raises:
            UnsupportedVersion: The controller does not support the request, or default numbers of partitions and
                replicas (before 2.4).
            ConfigError: A topic is listed twice, or is not a `NewTopic`.
        """
        wanted: dict[str, NewTopic] = {}
        for index, topic in enumerate(topics):
            if not isinstance(topic, NewTopic):
                raise ConfigError.of(f"topics[{index}]", topic, "a NewTopic, such as NewTopic('orders', 3)")
            if wanted.setdefault(topic.name, topic) is not topic:
                raise ConfigError.of(f"topics[{index}].name", topic.name, "each topic once")
        return await self._cluster.create(list(wanted.values()), validate_only=validate_only) if wanted else Results({})

    async def describe_cluster(self) -> ClusterDescription:
        """Return the brokers and their controller.

        Raises:
            WaitTimeout: No broker answered in time.
        """
        return await self._cluster.describe()

    async def _run(
        self, handler: AdminApiHandler[str, V], keys: Sequence[str], key_type: str = "group"
    ) -> Results[str, V]:
        """Send requests to the coordinators of keys."""
        return await self._run_with(group_handlers.find_coordinators(key_type), handler, keys)

    async def _run_with(
        self, lookup: AdminApiHandler[K, Node], handler: AdminApiHandler[K, V], keys: Sequence[K]
    ) -> Results[K, V]:
        driver = AdminApiDriver(self._brokers, self._backoff, lookup, handler, fall_back=self._fall_back)
        return await driver.run(keys, self._timeout_ms)


def _keys(argument: str, keys: Iterable[str]) -> list[str]:
    """Return the keys without duplicates, in order."""
    if isinstance(keys, str):
        raise ConfigError.of(argument, keys, f"a list of strings, such as [{keys!r}]")
    given = list(keys)
    for index, key in enumerate(given):
        if not isinstance(key, str) or len(key.encode()) > _MAX_KEY_BYTES:
            raise ConfigError.of(f"{argument}[{index}]", key, f"a string of at most {_MAX_KEY_BYTES} bytes")
    return list(dict.fromkeys(given))


def _partitions(partitions: Iterable[TopicPartition], *, where: str = "") -> list[TopicPartition]:
    """Return the partitions without duplicates, in order."""
    given = list(partitions)
    for partition in given:
        if not is_partition(partition):
            raise ConfigError.of("partition", partition, "(topic, number), such as ('orders', 0)", where=where)
    return list(dict.fromkeys(given))


def _check_partitions(group: str, partitions: Iterable[TopicPartition]) -> None:
    _partitions(partitions, where=f"group {group!r}")


def _offset(group: str, partition: TopicPartition, offset: OffsetAndMetadata | int) -> OffsetAndMetadata:
    made = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
    if not is_offset(made.offset):
        where = f"group {group!r}: {format_partitions([partition])}"
        raise ConfigError.of("offset", made.offset, f"an integer from 0 to {MAX_INT64}", where=where)
    return made
