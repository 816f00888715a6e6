"""`Admin`, the admin client for groups, offsets, topics and brokers, for Kafka 0.10 and later.

Requests about many groups are batched (KIP-699, KIP-709) for brokers that support it. Each other broker gets one
request per group.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

import trio

from fakebroker.client.admin import group_handlers, offset_handlers
from fakebroker.client.admin.batched_requests import AdminApiHandler, RequestSender
from fakebroker.client.admin.cluster_calls import ClusterCalls
from fakebroker.client.admin.descriptions import (
    ClusterDescription,
    GroupDescription,
    GroupListing,
    NewTopic,
    Node,
    OffsetAndMetadata,
    Results,
    TopicDescription,
)
from fakebroker.client.admin.driver import AdminApiDriver
from fakebroker.client.backoff import Backoff
from fakebroker.client.coordinators import KEY_TYPES
from fakebroker.client.errors import AdminError, NoBatchJoin, UnsupportedVersion
from fakebroker.client.pool import BrokerPool, check_in_trio
from fakebroker.client.transport import DEFAULT_CONNECT_TIMEOUT_MS, addresses
from fakebroker.errors import ConfigError, check_integer, check_number, one_of
from fakebroker.topic_partition import (
    MAX_INT32,
    MAX_INT64,
    TopicPartition,
    format_partitions,
    is_offset,
    is_partition,
)

V = TypeVar("V")

_MAX_KEY_BYTES = 32_767
"""The maximum length of a string in every version of the protocol."""


class Admin:
    """An admin client; use it as an async context manager.

    In calls about several groups each group has its own value or error in the `Results`. Requests are retried until
    `default_api_timeout_ms` while coordinators move, load or are unreachable.

    Args:
        bootstrap_servers: "HOST:PORT", several separated by commas, or a list of them.
        client_id: The client id in each request.
        fall_back: Whether brokers that are too old for batches get one request per group.
        request_timeout_ms: A connection without a response for this long is closed (`request.timeout.ms`).
        default_api_timeout_ms: Maximum duration of a call, retries included (`default.api.timeout.ms`).
        retry_backoff_ms: Delay before the first retry; doubles with each retry (`retry.backoff.ms`).
        retry_backoff_max_ms: Maximum delay before a retry (`retry.backoff.max.ms`).
        connect_timeout_ms: Maximum duration of connecting to a broker.

    Raises:
        ConfigError: An argument is invalid.
        BrokerUnreachable: On entering the context: no bootstrap server could be reached.
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
        self._timeout_ms, self._connect_timeout_ms = default_api_timeout_ms, connect_timeout_ms
        self._sender = RequestSender(fall_back, request_timeout_ms)
        self._backoff = Backoff(retry_backoff_ms, max(retry_backoff_ms, retry_backoff_max_ms))
        self._opened: BrokerPool | None = None

    async def __aenter__(self) -> Self:
        check_in_trio("the admin client")
        if self._opened is not None:
            raise trio.BusyResourceError("the admin client is open already: expected to be entered after it was left")
        self._nursery_manager = trio.open_nursery()
        nursery = await self._nursery_manager.__aenter__()
        self._cancel_scope = nursery.cancel_scope
        self._opened = BrokerPool(
            self._bootstrap_servers, self._client_id, nursery, connect_timeout_ms=self._connect_timeout_ms
        )
        try:
            await self._opened.any()
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
    def _pool(self) -> BrokerPool:
        if self._opened is None:
            raise trio.ClosedResourceError("the admin client is not open: use it in `async with`")
        return self._opened

    @property
    def _cluster(self) -> ClusterCalls:
        return ClusterCalls(self._pool, self._sender, self._backoff, self._timeout_ms)

    # Groups

    async def find_coordinators(self, keys: Iterable[str], key_type: str = "group") -> Results[Node]:
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
        driver: AdminApiDriver[Node] = AdminApiDriver(self._pool, self._sender, self._backoff, lookup, None)
        return await driver.run(_keys("keys", keys), self._timeout_ms)

    async def describe_groups(self, groups: Iterable[str]) -> Results[GroupDescription]:
        """Describe groups with their members. A group that does not exist has the error GROUP_ID_NOT_FOUND.

        Raises:
            NoBatchedFindCoordinators: As `find_coordinators` does.
        """
        return await self._run(group_handlers.describe_groups(), _keys("groups", groups))

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

    async def delete_groups(self, groups: Iterable[str]) -> Results[None]:
        """Delete groups without members, with their committed offsets.

        If the connection is lost after a group was deleted, the retry reports GROUP_ID_NOT_FOUND for it.

        Raises:
            NoBatchedFindCoordinators: As `find_coordinators` does.
        """
        return await self._run(group_handlers.delete_groups(), _keys("groups", groups))

    async def add_members_to_group(
        self,
        group: str,
        instance_ids: Iterable[str],
        *,
        session_timeout_ms: int = 45_000,
        rebalance_timeout_ms: int = 300_000,
    ) -> Results[str]:
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
    ) -> Results[offset_handlers.Offsets]:
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
    ) -> Results[None]:
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

    async def delete_group_offsets(self, groups: Mapping[str, Collection[TopicPartition]]) -> Results[None]:
        """Delete offsets of topics that groups do not subscribe to (brokers since 2.4).

        A `GroupError` contains the errors of its partitions.

        Raises:
            NoBatchedFindCoordinators: As `find_coordinators` does.
            ConfigError: An argument is invalid.
        """
        for group, partitions in groups.items():
            _check_partitions(group, partitions)
        return await self._run(offset_handlers.delete_offsets(groups), _keys("groups", groups))

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

    async def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> Results[None]:
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

    async def _run(self, handler: AdminApiHandler[V], keys: Sequence[str]) -> Results[V]:
        lookup = group_handlers.find_coordinators("group")
        driver = AdminApiDriver(self._pool, self._sender, self._backoff, lookup, handler)
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


def _check_partitions(group: str, partitions: Iterable[TopicPartition]) -> None:
    for partition in partitions:
        if not is_partition(partition):
            expected = "(topic, number), such as ('orders', 0)"
            raise ConfigError.of("partition", partition, expected, where=f"group {group!r}")


def _offset(group: str, partition: TopicPartition, offset: OffsetAndMetadata | int) -> OffsetAndMetadata:
    made = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
    if not is_offset(made.offset):
        where = f"group {group!r}: {format_partitions([partition])}"
        raise ConfigError.of("offset", made.offset, f"an integer from 0 to {MAX_INT64}", where=where)
    return made
