"""`KafkaCluster`: a real Kafka with the handles of `FakeCluster`, for tests that run on both.

A test may only touch its own topics and groups. So topics and groups that exist before it are refused, and the test's
topics and groups are deleted at its end.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import trio

from fakebroker.client.admin.descriptions import NewTopic
from fakebroker.client.client_config import read_client_config
from fakebroker.client.errors import AdminError
from fakebroker.client.security import PLAINTEXT, ClientSecurity
from fakebroker.client.transport import addresses
from fakebroker.cluster.configs.definitions import config_text
from fakebroker.cluster.handles.group import GroupHandle
from fakebroker.cluster.handles.topic import TopicHandle
from fakebroker.conform.removal import delete_groups
from fakebroker.errors import ConfigError, FakebrokerError, NotOnKafka, check_integer
from fakebroker.kafka.kafka_owner import (
    KafkaLoop,
    KafkaOwner,
    create_topics,
    existed_before,
)
from fakebroker.server.event_loops import run_in_thread
from fakebroker.server.fake_cluster import FakeCluster
from fakebroker.server.waits import WaitingCluster
from fakebroker.topic_partition import LEGAL_NAME, is_legal_name

END_S = 20.0
"""How long the end of a test may take. Kafka may have stopped."""
_MOST_GROUPS = 1_000
"""Up to this number of groups that existed before, the end of a test looks which of them it has used."""


class KafkaCluster(WaitingCluster):
    """A real Kafka with the handles of `FakeCluster`: `with KafkaCluster("127.0.0.1:9092", topics={"orders": 6})`.

    Views, commands and conditions that Kafka can answer work. Others, such as faults and the clock, raise `NotOnKafka`.
    Kafka does not tell some values: timeouts of members, times of commits and histories. They are -1 or empty.

    Conditions are sampled, every 10 to 200 ms. So a wait can miss a state that lasts shorter, and `stays` means that
    the condition held in each sample.

    Args:
        bootstrap_servers: "HOST:PORT", several separated by commas.
        topics: Topics to create, with their numbers of partitions. They are deleted at the end.
        client_config: How to connect: a file of properties, as Kafka's tools take it, or a `ClientSecurity`.
        prefix: Begins the names of topics, groups and transactional ids in Kafka. Handles add it. The application must
            use it, too: `cluster.name("orders")`.
        acls: Whether `acls` may be changed. ACLs that were added are removed at the end.
        clean: Whether topics that exist may be deleted, and groups without members that have offsets of these topics
            alone, or none. With a prefix: all topics, and all groups without members, whose names begin with it.
        owned: Whether the test is alone on this Kafka. Everything that is new at the end is deleted then.

    Attributes:
        earlier: Names in Kafka of topics and groups that earlier tests of this run have made. A client that still runs
            may have made them again. They are deleted, also with members, and are not refused.
        is_fresh: Whether Kafka has just been started. Then its internal topics are created first, so that the first
            commit of a client does not get NOT_COORDINATOR.
        required: Arguments of a `FakeCluster` that this Kafka is compared with when it is entered; see `require`.
        release: The release of Kafka; None if unknown.
        left: After the end: sentences about what this test has left behind, or has found to be used by others.

    Raises:
        ConfigError: When it is entered: a topic existed before, or an argument is invalid.
        BrokerUnreachable, AuthenticationFailed: When it is entered: Kafka cannot be used.
    """

    _owner: KafkaOwner

    def __init__(
        self,
        bootstrap_servers: str,
        topics: Mapping[str, int] | None = None,
        *,
        client_config: str | Path | ClientSecurity | None = None,
        prefix: str = "",
        acls: bool = False,
        clean: bool = False,
        owned: bool = False,
    ) -> None:
        addresses(bootstrap_servers)
        if prefix and not is_legal_name(prefix):
            raise ConfigError.of("prefix", prefix, LEGAL_NAME)
        for name, partitions in (topics or {}).items():
            check_integer("topics", partitions, least=1, where=f"topic {name!r}")
        self.bootstrap_servers = bootstrap_servers
        self.left: tuple[str, ...] = ()
        self.earlier: set[str] = set()
        self.is_fresh = False
        self.required: Mapping[str, Any] = {}
        self.release: str | None = None
        self._topics = dict(topics or {})
        if client_config is None:
            client_config = PLAINTEXT
        elif not isinstance(client_config, ClientSecurity):
            client_config = read_client_config(Path(client_config))
        self._clean, self._owned = clean, owned
        self._loop = KafkaLoop(bootstrap_servers, client_config)
        super().__init__(KafkaOwner(self._loop, prefix, allows_acls=acls, is_owned=owned, is_clean=clean))
        self._owner.description = f"Kafka at {bootstrap_servers}"
        self._owner.start_over = self._start_over

    def __getattr__(self, name: str) -> NoReturn:
        # Only for names that this class does not have.
        if not name.startswith("_") and (hasattr(FakeCluster, name) or name in ("journal", "seed")):
            raise NotOnKafka.fake(f"cluster.{name}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def group(self, group_id: str) -> GroupHandle:
        """Return the handle of a group, which need not exist yet.

        Raises:
            ConfigError: It existed before the test.
        """
        handle = super().group(group_id)
        self._owner.note(handle)
        return handle

    def topic(self, topic: str) -> TopicHandle:
        """Return the handle of a topic, which need not exist yet.

        Raises:
            ConfigError: It existed before the test.
        """
        handle = super().topic(topic)
        self._owner.note(handle)
        return handle

    # Beginning and end

    def __enter__(self) -> Self:
        self._loop.start()
        try:
            self.require(self.required)
            self._loop.call(self._open)
        except BaseException:
            self._loop.stop()
            raise
        return self

    def check(self) -> None:
        """Check that Kafka can be reached, without creating anything.

        Raises:
            BrokerUnreachable, AuthenticationFailed: It cannot be used.
        """
        self._loop.start()
        self._loop.stop()

    async def __aenter__(self) -> Self:
        return await run_in_thread(self.__enter__)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.left = tuple(self._loop.call(self._remove_all))
        except (FakebrokerError, trio.TooSlowError) as failure:
            self.left = (f"topics and groups of this test may be left: {str(failure) or 'Kafka is too slow'}",)
        finally:
            self._loop.stop()
        if self.left and error is None:
            raise FakebrokerError(f"{self._owner.description}: {'; '.join(self.left)}")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await run_in_thread(lambda: self.__exit__(kind, error, trace))

    async def _open(self) -> None:
        if self.is_fresh:
            await self._owner.clients.raw.warm_up()
        await self._find_foreign()
        await self._create_declared()
        # Groups of the test write their records from here on.
        await self._owner.clients.raw.forget_records()

    async def _create_declared(self) -> None:
        declared = [NewTopic(self._owner.real(name), partitions) for name, partitions in self._topics.items()]
        for topic in declared:
            self._owner.named_topics[topic.name] = None
        await create_topics(self._owner, declared)

    async def _find_foreign(self) -> None:
        """Find topics and groups that exist, and delete those that may be deleted.

        Raises:
            ConfigError: A declared topic exists and may not be deleted.
        """
        owner = self._owner
        topics = set(await owner.clients.admin.list_topics())
        groups = {each.group_id: each for each in await owner.clients.admin.list_groups()}
        declared = {owner.real(name) for name in self._topics}
        doomed, doomed_groups = topics & self.earlier, groups.keys() & self.earlier
        if self._clean:
            doomed |= {name for name in topics if name in declared or (owner.prefix and owner.is_own(name))}
            idle = [name for name, each in groups.items() if each.state in ("Empty", "Dead")]
            if owner.prefix:
                doomed_groups |= {name for name in idle if owner.is_own(name)}
            else:
                doomed_groups |= await self._with_offsets_only_of(idle, declared)
        await self._delete(sorted(doomed_groups), sorted(doomed))
        topics, groups = topics - doomed, {name: groups[name] for name in groups.keys() - doomed_groups}
        for name in sorted(topics & declared):
            raise existed_before("topic", name, owner.description, is_clean=False)
        owner.foreign_topics, owner.foreign_groups = topics, set(groups)

    async def _with_offsets_only_of(self, groups: Iterable[str], topics: set[str]) -> set[str]:
        """Return the groups that have committed offsets of these topics alone, or none."""
        found = await self._owner.clients.admin.list_group_offsets(dict.fromkeys(groups))
        return {
            name
            for name, offsets in found.values_by_key.items()
            if all(topic in topics for (topic, _), offset in offsets.items() if offset is not None)
        }

    async def _delete(self, groups: Sequence[str], topics: Sequence[str]) -> list[str]:
        """Delete groups, also with members, and topics. Return a sentence for each one that could not be deleted."""
        raw = self._owner.clients.raw
        left = await delete_groups(raw, groups)
        kept = await raw.delete_topics(topics)
        if not kept:
            for name in topics:
                await raw.wait_until_gone(name)
        return left + kept

    async def _remove_all(self) -> list[str]:
        """Delete what the test has made. Return a sentence for each thing that it leaves or should not have used."""
        with trio.fail_after(END_S):
            return await self._remove()

    async def _remove(self) -> list[str]:
        owner = self._owner
        await owner.clients.raw.remove_acls()
        owner.acls.clear()
        new = {*await owner.clients.admin.list_topics()} - owner.foreign_topics
        mine = {name for name in new if self._is_mine(name, owner.named_topics)}
        # With a prefix, topics without it belong to others, unless the application has forgotten the prefix.
        unknown = {name for name in new - mine if not owner.prefix or owner.prefix + name in owner.named_topics}
        left = [f"topic {name} is new and was not deleted: {_ADVICE[bool(owner.prefix)]}" for name in sorted(unknown)]
        groups = {each.group_id for each in await owner.clients.admin.list_groups()}
        new_groups = groups - owner.foreign_groups
        my_groups = {name for name in new_groups if self._is_mine(name, owner.named_groups)}
        my_groups |= await self._users_of(mine, new_groups - my_groups)
        if len(owner.foreign_groups) <= _MOST_GROUPS:
            used = await self._users_of(mine, groups & owner.foreign_groups)
            left += [f"group {name} existed before, and uses topics of this test" for name in sorted(used)]
        self.earlier |= mine | my_groups
        return await self._delete(sorted(my_groups), sorted(mine)) + left

    def _is_mine(self, real: str, named: Mapping[str, None]) -> bool:
        return self._owned or real in named or bool(self._owner.prefix and self._owner.is_own(real))

    async def _users_of(self, topics: set[str], groups: Iterable[str]) -> set[str]:
        """Return the groups that have offsets of these topics, or members that subscribe to them."""
        names = sorted(groups)
        if not topics or not names:
            return set()
        offsets = (await self._owner.clients.admin.list_group_offsets(dict.fromkeys(names))).values_by_key
        used = {name for name, found in offsets.items() if any(topic in topics for topic, _ in found)}
        described = await self._owner.clients.admin.describe_groups([name for name in names if name not in used])
        for name, group in described.items():
            if not isinstance(group, AdminError):
                assigned = {topic for member in group.members for topic, _ in member.assignment or ()}
                subscribed = {topic for member in group.members for topic in member.subscribed_topic_names or ()}
                used |= {name} if topics & (assigned | subscribed) else set()
        return used

    async def _start_over(self) -> None:
        """Delete what the test has made, and create the declared topics again."""
        left = await self._remove_all()
        if left:
            raise FakebrokerError(f"{self._owner.description}: {'; '.join(left)}")
        self._owner.named_groups.clear()
        self._owner.named_topics.clear()
        self._owner.next_partition.clear()
        await self._create_declared()

    # What a test needs

    def require(self, arguments: Mapping[str, Any]) -> None:
        """Check that this Kafka is as a test needs it, which was written for a `FakeCluster` with these arguments.

        Args:
            arguments: Arguments of `FakeCluster`, such as `config`. Those that only concern a fake cluster, such as
                its seed, its ports, its journal and its clock, do not matter.

        Raises:
            NotOnKafka: It is not: "needs group.max.size=5; this Kafka has 2147483647".
        """
        settings = self._owner.clients.raw.settings
        for name, value in (arguments.get("config") or {}).items():
            wanted = config_text(value)
            actual = settings.get(name)
            if actual != wanted:
                has = "no such setting" if actual is None else actual
                raise NotOnKafka(f"needs {name}={wanted}; {self._owner.description} has {has}")
        brokers, wanted_brokers = self.brokers.describe(), arguments.get("brokers")
        if isinstance(wanted_brokers, int) and len(brokers) != wanted_brokers:
            raise NotOnKafka(f"needs {wanted_brokers} brokers; {self._owner.description} has {len(brokers)}")
        if wanted_brokers is not None and not isinstance(wanted_brokers, int):
            raise NotOnKafka.fake("brokers with releases or racks of their own")
        first = arguments.get("first_node_id")
        if first is not None and brokers[0].node_id != first:
            raise NotOnKafka(f"needs first_node_id={first}; {self._owner.description} has {brokers[0].node_id}")
        release = arguments.get("as_version")
        if release is not None and not f"{self.release}.".startswith(f"{release}."):
            raise NotOnKafka.fake(f"as_version={release!r}")
        if arguments.get("first_use") == "kafka":
            raise NotOnKafka.fake("first_use='kafka'")
        for name in _FAKE_ALONE:
            if arguments.get(name):
                raise NotOnKafka.fake(f"{name}={arguments[name]!r}")


_ADVICE = {
    False: "name it in `topics`, use a handle, or a prefix",
    True: "the application has to use the name that `cluster.name` returns",
}
"""What to do about a topic that no handle names, by whether there is a prefix."""

_FAKE_ALONE = ("api_versions", "proposals", "acls", "users", "listeners", "tls", "data_dir")
"""Arguments of `FakeCluster` that a running Kafka cannot follow."""
