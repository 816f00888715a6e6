"""Admin: the admin client, for groups first of all. Usable against any Kafka from 0.10 on.

Where a broker takes many groups in one request it gets one request (KIP-699, KIP-709), else one request a group; each
broker is taken for what it is itself. What is said of a call here, the files `admin_*.py` do.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

import trio

from fakebroker.client.admin import group_queries, offset_queries
from fakebroker.client.admin.batching import Asking, Question
from fakebroker.client.admin.cluster_queries import ClusterCalls
from fakebroker.client.admin.descriptions import (
    ClusterDescription,
    GroupDescription,
    GroupListing,
    NewTopic,
    Node,
    OffsetAndMetadata,
    TopicDescription,
)
from fakebroker.client.admin.driver import Asker, Backoff, Finder
from fakebroker.client.admin.results import AdminError, Results
from fakebroker.client.connection import DEFAULT_CONNECT_TIMEOUT_MS, UnsupportedVersion
from fakebroker.client.member.assignors import TopicPartition
from fakebroker.client.pool import BrokerPool, addresses
from fakebroker.errors import ConfigError

V = TypeVar("V")

_LONGEST_KEY_BYTES = 32_767
"""The longest that a string of the protocol can be in every version."""

_MOST_INT32, _MOST_INT64 = 2**31 - 1, 2**63 - 1


class NoBatchJoin(UnsupportedVersion):
    """The broker has no JoinGroup for many members."""

    hint = "; adding members needs a broker with the batch-join proposal"


class Admin:
    """An admin client; use it as an async context manager.

    Where a call takes many groups, each group has its own value or error in the `Results`; one that fails does not keep
    others from theirs. Coordinators that move, load or are lost are looked up and asked again until the deadline.

    Args:
        bootstrap_servers: HOST:PORT of a broker, or several with commas, or a list of such.
        client_id: What the brokers are told in each request.
        fall_back: Whether brokers too old to take many groups in a request are asked about them one by one.
        request_timeout_ms: A connection on which an answer does not come for so long is given up (Kafka's
            `request.timeout.ms`).
        default_api_timeout_ms: How long a call may take, with all that it asks again (`default.api.timeout.ms`).
        retry_backoff_ms: How long to wait before asking again; twice as long each time (`retry.backoff.ms`).
        retry_backoff_max_ms: How long at most (`retry.backoff.max.ms`).
        connect_timeout_ms: How long connecting to a broker may take.

    Raises:
        ConfigError: An argument cannot be.
        BrokerUnreachable: On entering: none of the bootstrap servers answers.
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
            if not value > 0:
                raise ConfigError(f"{name}={value!r}: expected more than 0")
        self._bootstrap_servers, self._client_id = bootstrap_servers, client_id
        self._timeout_ms, self._connect_timeout_ms = default_api_timeout_ms, connect_timeout_ms
        self._asking = Asking(fall_back, request_timeout_ms)
        self._backoff = Backoff(retry_backoff_ms, retry_backoff_max_ms)
        self._opened: BrokerPool | None = None

    async def __aenter__(self) -> Self:
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
        """End the connections' tasks, which close them. They raise nothing: what the caller raised stays as it is."""
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
        return ClusterCalls(self._pool, self._asking, self._backoff, self._timeout_ms)

    # Groups

    async def find_coordinators(self, keys: Iterable[str], key_type: str = "group") -> Results[Node]:
        """The brokers that coordinate groups or transactions.

        Args:
            keys: Group ids or transactional ids.
            key_type: "group", "transaction" or "share".

        Raises:
            NoBatchedFindCoordinators: The broker asked looks up one a request, and falling back is forbidden.
            ConfigError: An argument cannot be.
        """
        if key_type not in group_queries.KEY_TYPES:
            raise ConfigError(f"key_type={key_type!r}: expected one of {', '.join(group_queries.KEY_TYPES)}")
        finder = Finder(self._pool, self._asking, self._backoff, group_queries.find_coordinators(key_type))
        return await finder.run(_keys("keys", keys), self._timeout_ms)

    async def describe_groups(self, groups: Iterable[str]) -> Results[GroupDescription]:
        """Groups with their members. A group that is not there has the error GROUP_ID_NOT_FOUND.

        Raises:
            NoBatchedFindCoordinators: As `find_coordinators` does.
        """
        return await self._ask(group_queries.describe_groups(), _keys("groups", groups))

    async def list_groups(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> tuple[GroupListing, ...]:
        """The groups of all brokers.

        Args:
            states: Only those in one of these states, such as "Stable" (KIP-518, brokers since 2.6).
            types: Only those of one of these types, "classic" or "consumer" (KIP-848, brokers since 3.8).

        Raises:
            UnsupportedVersion: A broker cannot pick groups in that way.
            WaitTimeout: Some broker did not tell in time.
            BrokerError: A broker refused to.
        """
        return await self._cluster.groups(_keys("states", states), _keys("types", types))

    async def delete_groups(self, groups: Iterable[str]) -> Results[None]:
        """Delete groups that have no members, with all that they have committed.

        A group whose deletion was done but not answered, as the connection broke, comes out as GROUP_ID_NOT_FOUND.

        Raises:
            NoBatchedFindCoordinators: As `find_coordinators` does.
        """
        return await self._ask(group_queries.delete_groups(), _keys("groups", groups))

    async def add_members_to_group(
        self,
        group: str,
        instance_ids: Iterable[str],
        *,
        session_timeout_ms: int = 45_000,
        rebalance_timeout_ms: int = 300_000,
    ) -> Results[str]:
        """Tell a group which static members to expect, in one request. Needs brokers with the proposal "batch-join".

        A member that was added but not told of, as the connection broke, comes out as DUPLICATE_RESOURCE.

        Args:
            group: The group.
            instance_ids: `group.instance.id` of each.
            session_timeout_ms: How long each may be silent.
            rebalance_timeout_ms: How long the group waits for them.

        Returns:
            For each instance id its member id, or a `MemberError`.

        Raises:
            NoBatchJoin: The group's coordinator does not have the proposal.
            ConfigError: An argument cannot be.
            GroupError: The group could not be told.
        """
        instances = _keys("instance_ids", instance_ids)
        timeouts = {"session_timeout_ms": session_timeout_ms, "rebalance_timeout_ms": rebalance_timeout_ms}
        for name, timeout_ms in timeouts.items():
            if type(timeout_ms) is not int or not 0 < timeout_ms <= _MOST_INT32:
                raise ConfigError(f"{name}={timeout_ms!r}: expected a whole number from 1 to {_MOST_INT32}")
        if not instances:
            return Results({})
        question = group_queries.add_members(instances, session_timeout_ms, rebalance_timeout_ms)
        outcome = (await self._ask(question, _keys("group", [group])))[group]
        if not isinstance(outcome, AdminError):
            return outcome
        match outcome.__cause__:
            case UnsupportedVersion(api=api, theirs=theirs, ours=ours, broker=broker):
                raise NoBatchJoin(api, theirs, ours, broker) from None
        raise outcome

    # Offsets

    async def list_group_offsets(
        self, groups: Mapping[str, Collection[TopicPartition] | None], require_stable: bool = False
    ) -> Results[offset_queries.Offsets]:
        """Groups' committed offsets. A group that is not there has none.

        Args:
            groups: For each group the partitions asked for; None is all for which it has offsets.
            require_stable: Whether to wait for offsets of transactions to be decided (KIP-447; brokers since 2.5, older
                ones tell what they have).

        Returns:
            For each group its offsets, None for partitions that it has none for.

        Raises:
            NoBatchedFindCoordinators: As `find_coordinators` does.
            NoBatchedOffsetFetch: A coordinator tells one group's a request, and falling back is forbidden.
        """
        for group, partitions in groups.items():
            _check_partitions(group, partitions or ())
        return await self._ask(offset_queries.list_offsets(groups, require_stable), _keys("groups", groups))

    async def alter_group_offsets(
        self, groups: Mapping[str, Mapping[TopicPartition, OffsetAndMetadata | int]]
    ) -> Results[None]:
        """Commit offsets for groups that have no members. The error of a group tells of its partitions that failed.

        Raises:
            NoBatchedFindCoordinators: As `find_coordinators` does.
        """
        wanted = {}
        for group, offsets in groups.items():
            _check_partitions(group, offsets)
            wanted[group] = {partition: _offset(group, partition, offset) for partition, offset in offsets.items()}
        return await self._ask(offset_queries.alter_offsets(wanted), _keys("groups", groups))

    async def delete_group_offsets(self, groups: Mapping[str, Collection[TopicPartition]]) -> Results[None]:
        """Forget offsets of topics that groups do not subscribe to; brokers since 2.4. Errors as `alter_group_offsets`.

        Raises:
            NoBatchedFindCoordinators: As `find_coordinators` does.
        """
        for group, partitions in groups.items():
            _check_partitions(group, partitions)
        return await self._ask(offset_queries.delete_offsets(groups), _keys("groups", groups))

    # Topics and brokers

    async def list_topics(self, *, internal: bool = False) -> dict[str, TopicDescription]:
        """The topics; with `internal` Kafka's own, too.

        Raises:
            WaitTimeout: No broker told in time.
        """
        topics = await self._cluster.topics()
        return {name: topic for name, topic in topics.items() if internal or not topic.is_internal}

    async def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> Results[None]:
        """Create topics, or with `validate_only` see whether they could be.

        Raises:
            UnsupportedVersion: The controller is too old for it, or for choosing partitions and replicas (before 2.4).
            ConfigError: A topic is named twice, or is no `NewTopic`.
        """
        wanted: dict[str, NewTopic] = {}
        for topic in topics:
            if not isinstance(topic, NewTopic):
                raise ConfigError(f"topics: {topic!r}: expected a NewTopic, such as NewTopic('orders', 3)")
            if wanted.setdefault(topic.name, topic) is not topic:
                raise ConfigError(f"topics: {topic.name!r} is there twice, expected each topic once")
        return await self._cluster.create(list(wanted.values()), validate_only=validate_only) if wanted else Results({})

    async def describe_cluster(self) -> ClusterDescription:
        """The brokers and their controller.

        Raises:
            WaitTimeout: No broker told in time.
        """
        return await self._cluster.describe()

    async def _ask(self, question: Question[V], keys: Sequence[str]) -> Results[V]:
        finding = group_queries.find_coordinators("group")
        return await Asker(self._pool, self._asking, self._backoff, finding, question).run(keys, self._timeout_ms)


def _keys(argument: str, keys: Iterable[str]) -> list[str]:
    """Each of them once, in their order."""
    if isinstance(keys, str):
        raise ConfigError(f"{argument}={keys!r}: expected several, such as [{keys!r}]")
    unique = list(dict.fromkeys(keys))
    for key in unique:
        if not isinstance(key, str) or len(key.encode()) > _LONGEST_KEY_BYTES:
            raise ConfigError(f"{argument}: {key!r:.100}: expected a string of at most {_LONGEST_KEY_BYTES} bytes")
    return unique


def _check_partitions(group: str, partitions: Iterable[TopicPartition]) -> None:
    for partition in partitions:
        is_one = isinstance(partition, tuple) and list(map(type, partition)) == [str, int]
        if not is_one or not 0 <= partition[1] <= _MOST_INT32:
            raise ConfigError(
                f"group {group!r}: partition {partition!r}: expected (topic, number), such as ('orders', 0)"
            )


def _offset(group: str, partition: TopicPartition, offset: OffsetAndMetadata | int) -> OffsetAndMetadata:
    made = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
    if type(made.offset) is not int or not 0 <= made.offset <= _MOST_INT64:
        place = f"{partition[0]}-{partition[1]}"
        raise ConfigError(f"group {group!r}: offset {made.offset!r} of {place}: expected a whole number from 0 on")
    return made
