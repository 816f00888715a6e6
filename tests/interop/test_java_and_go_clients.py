"""Java and Go clients: members join, share, fail over and resume, and transform records in transactions."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial
from random import Random
from typing import Any

import pytest

from fakebroker import FakeCluster
from tests.interop.conftest import closed_together
from tests.interop.test_failover import read_and_commit
from tests.interop.test_migration import CommittingMember
from tests.support.kafka_clients.client import GroupConsumer, Record, Settings
from tests.support.kafka_clients.confluent_client import CONFLUENT, ConfluentConsumer
from tests.support.kafka_clients.driver import DriverError
from tests.support.kafka_clients.helpers import (
    committed_total,
    numbered,
    partitions_per_member,
    poll_records,
    poll_until,
    values,
)
from tests.support.kafka_clients.remote_clients import (
    FRANZ_GO,
    JAVA,
    KIP_848_JAVA,
    REMOTE_CLIENTS,
    SARAMA,
    RemoteClient,
    Transformer,
    of_each,
)
from tests.support.soak import cases, soak

pytestmark = [
    pytest.mark.slow,
    pytest.mark.fake_cluster(topics={"orders": 6}, config={"group.consumer.heartbeat.interval.ms": 100}),
]

StartMember = Callable[..., GroupConsumer]

with_each_client = of_each(*REMOTE_CLIENTS)
with_transactions = of_each(*(each for each in REMOTE_CLIENTS if each.transformer))


@pytest.fixture
def start_member(client: RemoteClient, fake_cluster: FakeCluster) -> Iterator[StartMember]:
    """A function that starts a member of group "g" from fields of `Settings`; closed after the test."""
    with closed_together() as members:

        def start(**settings: Any) -> GroupConsumer:
            member = client.member(fake_cluster.bootstrap_servers, Settings(group_id="g", **settings))
            members.append(member)
            member.subscribe("orders")
            return member

        yield start


def wait_for(
    cluster: FakeCluster, client: RemoteClient, partitions: list[int], *members: GroupConsumer
) -> list[Record]:
    """Poll until the members have these numbers of partitions, and know, if they tell."""

    def is_shared(_: list[Record]) -> bool:
        if partitions_per_member(cluster, "g") != partitions:
            return False
        return not client.knows_its_partitions or partitions == sorted(len(each.assignment()) for each in members)

    return poll_until(cluster, f"{partitions} partitions per member", is_shared, *members)


@with_each_client
def test_join(client: RemoteClient, fake_cluster: FakeCluster, start_member: StartMember) -> None:
    sent = [Record(b"value %d" % number, b"key %d" % number, (("name", b"\x00\xff"),)) for number in range(60)]
    client.produce(fake_cluster.bootstrap_servers, "orders", sent)
    member = start_member(client_id="joiner")
    read = poll_records(fake_cluster, 60, member)
    assert sorted((each.value, each.key, each.headers) for each in read) == sorted(
        (each.value, each.key, each.headers) for each in sent
    )
    member.commit()
    assert committed_total(fake_cluster, "g") == 60
    group = fake_cluster.group("g").describe()
    assert (group.state, [each.client_id for each in group.members]) == ("Stable", ["joiner"])
    member.close()
    assert fake_cluster.group("g").describe().state == "Empty"


@with_each_client
def test_share(client: RemoteClient, fake_cluster: FakeCluster, start_member: StartMember) -> None:
    members = [start_member(), start_member()]
    assert wait_for(fake_cluster, client, [3, 3], *members) == []
    read_and_commit(fake_cluster, range(60), members)
    members[0].close()
    wait_for(fake_cluster, client, [6], members[1])
    read_and_commit(fake_cluster, range(60, 120), [members[1]])


@with_each_client
def test_failover(client: RemoteClient, fake_cluster: FakeCluster, start_member: StartMember) -> None:
    members = [start_member(), start_member()]
    wait_for(fake_cluster, client, [3, 3], *members)
    read_and_commit(fake_cluster, range(60), members)
    home = fake_cluster.group("g").coordinator().node_id
    fake_cluster.broker(home).stop()
    read = read_until_committed(fake_cluster, range(60, 120), members)
    fake_cluster.broker(home).start()
    fake_cluster.group("g").move_coordinator(to=home)
    read += read_until_committed(fake_cluster, range(120, 180), members)
    # The Go clients may join again, and repeat what they had not committed.
    assert set(values(read)) == set(values(numbered(range(60, 180))))


def read_until_committed(cluster: FakeCluster, numbers: range, members: list[GroupConsumer]) -> list[Record]:
    """Produce records, and poll and commit until all are committed."""
    CONFLUENT.produce(cluster.bootstrap_servers, "orders", numbered(numbers), None)
    committing = [CommittingMember(member) for member in members]
    read = poll_until(cluster, "commits", lambda _: committed_total(cluster, "g") == numbers.stop, *committing)
    return [*read, *(record for member in committing for record in member.finish())]


@with_each_client
def test_resume(client: RemoteClient, fake_cluster: FakeCluster, start_member: StartMember) -> None:
    first = start_member()
    read_and_commit(fake_cluster, range(60), [first])
    CONFLUENT.produce(fake_cluster.bootstrap_servers, "orders", numbered(range(60, 90)), None)
    poll_records(fake_cluster, 30, first)
    first.close()
    assert committed_total(fake_cluster, "g") == 60
    second = start_member()
    assert values(poll_records(fake_cluster, 30, second)) == values(numbered(range(60, 90)))
    read_and_commit(fake_cluster, range(90, 120), [second])


# franz-go joins once more if the member that restarts is the leader, and kafka-go has no static membership.
@of_each(JAVA, KIP_848_JAVA, SARAMA)
def test_a_static_member_restarts_without_a_rebalance(
    client: RemoteClient, fake_cluster: FakeCluster, start_member: StartMember
) -> None:
    one, two = (start_member(instance_id=name) for name in ("one", "two"))
    wait_for(fake_cluster, client, [3, 3], one, two)
    before, places = fake_cluster.group("g").describe(), one.assignment()
    one.close()
    again = start_member(instance_id="one")
    poll_until(fake_cluster, "the same share", lambda _: again.assignment() == places, again, two)
    after = fake_cluster.group("g").describe()
    assert (after.state, after.generation_id) == ("Stable", before.generation_id)
    assert {member.instance_id for member in after.members} == {"one", "two"}
    assert len({member.member_id for member in before.members + after.members}) == 3, "the restarted one has a new id"


class Transforming:
    """Polls a transformer."""

    def __init__(self, transformer: Transformer, *, commits: bool = True) -> None:
        self._transformer, self._commits = transformer, commits

    def poll(self) -> list[Record]:
        return self._transformer.transform(commits=self._commits)


@with_transactions
@pytest.mark.fake_cluster(topics={"orders": 6, "output": 3}, config={"group.consumer.heartbeat.interval.ms": 100})
def test_transaction(client: RemoteClient, fake_cluster: FakeCluster) -> None:
    servers = fake_cluster.bootstrap_servers
    make = client.transformer
    assert make is not None
    with ExitStack() as stack:

        def start(name: str) -> Transformer:
            transformer = make(servers, Settings(group_id="g"), "output", name)
            stack.callback(transformer.close)
            transformer.subscribe("orders")
            return transformer

        first = start("first")
        CONFLUENT.produce(servers, "orders", numbered(range(30)), None)
        assert poll_records(fake_cluster, 1, Transforming(first, commits=False))
        assert fake_cluster.group("g").offsets() == {}
        assert fake_cluster.transaction("first").describe().state == "CompleteAbort"

        read = poll_records(fake_cluster, 30, Transforming(first))
        assert values(read) == values(numbered(range(30)))
        assert committed_total(fake_cluster, "g") == 30

        CONFLUENT.produce(servers, "orders", numbered(range(30, 60)), None)
        fake_cluster.broker(fake_cluster.group("g").coordinator().node_id).stop()
        second = start("second")

        def is_done(_: list[Record]) -> bool:
            return committed_total(fake_cluster, "g") == 60 and partitions_per_member(fake_cluster, "g") == [3, 3]

        poll_until(fake_cluster, "commits of both", is_done, Transforming(first), Transforming(second))
    assert committed_output(fake_cluster, 60) == values(numbered(range(60)))


def committed_output(cluster: FakeCluster, count: int) -> list[bytes]:
    """Return the values of all committed records of the output, sorted; there must be at least this number."""
    settings = Settings(group_id="readers", isolation_level="read_committed")
    with closing(ConfluentConsumer(cluster.bootstrap_servers, settings)) as reader:
        reader.subscribe("output")
        return values(poll_records(cluster, count, reader) + reader.poll())


class Failing:
    """A transformer that is replaced by another one with the same transactional id if it fails."""

    def __init__(self, start: Callable[[], Transformer]) -> None:
        self._start = start
        self._transformer: Transformer | None = None

    def poll(self) -> list[Record]:
        try:
            if self._transformer is None:
                self._transformer = self._start()
                self._transformer.subscribe("orders")
            return self._transformer.transform()
        except DriverError:
            self.close()
            return []

    def close(self) -> None:
        transformer, self._transformer = self._transformer, None
        if transformer is not None:
            with suppress(DriverError):
                transformer.close()


# sarama sends offsets without the generation of the group, and may double records in a rebalance.
@soak
@of_each(JAVA, KIP_848_JAVA, FRANZ_GO)
def test_failures_lose_and_double_no_record(client: RemoteClient) -> None:
    for seed in cases(1, soak=20):
        with FakeCluster(
            seed=seed, topics={"orders": 6, "output": 3}, config={"group.consumer.heartbeat.interval.ms": 100}
        ) as cluster:
            transform_with_failures(client, cluster, Random(seed))
            assert committed_output(cluster, 120) == values(numbered(range(120))), f"seed={seed}"


def transform_with_failures(client: RemoteClient, cluster: FakeCluster, random: Random) -> None:
    """Transform 120 records, while coordinators move, brokers restart and members leave."""
    make = client.transformer
    assert make is not None
    settings = Settings(group_id="g", session_timeout_ms=6_000)
    members = {
        name: Failing(partial(make, cluster.bootstrap_servers, settings, "output", name)) for name in ("a", "b", "c")
    }
    failures: list[Callable[[], object]] = [
        lambda: cluster.group("g").move_coordinator(to=random.randint(1, 3)),
        lambda: cluster.transaction(random.choice([*members])).move_coordinator(to=random.randint(1, 3)),
        lambda: cluster.broker(random.randint(1, 3)).restart(),
        lambda: random.choice([*members.values()]).close(),
    ]
    with ExitStack() as stack:
        for member in members.values():
            stack.callback(member.close)
        for number in range(0, 120, 10):
            CONFLUENT.produce(cluster.bootstrap_servers, "orders", numbered(range(number, number + 10)), None)
            random.choice(failures)()
            for member in random.sample([*members.values()], random.randint(1, 3)):
                member.poll()
        poll_until(cluster, "all commits", lambda _: committed_total(cluster, "g") == 120, *members.values())


@with_transactions
@pytest.mark.fake_cluster(topics={"orders": 6, "output": 3}, config={"group.consumer.heartbeat.interval.ms": 100})
def test_a_second_transactional_producer_fences_the_first(client: RemoteClient, fake_cluster: FakeCluster) -> None:
    servers = fake_cluster.bootstrap_servers
    assert client.transformer is not None
    CONFLUENT.produce(servers, "orders", numbered(range(30)), None)
    first = client.transformer(servers, Settings(group_id="g"), "output", "one-id")
    try:
        first.subscribe("orders")
        poll_records(fake_cluster, 30, Transforming(first))
        second = client.transformer(servers, Settings(group_id="others"), "output", "one-id")
        try:
            second.subscribe("orders")
            poll_records(fake_cluster, 30, Transforming(second))
            CONFLUENT.produce(servers, "orders", numbered(range(30, 60)), None)
            with pytest.raises(DriverError, match=r"(?i)fenced|epoch|code = 90"):
                poll_records(fake_cluster, 30, Transforming(first))
            poll_records(fake_cluster, 30, Transforming(second))
        finally:
            second.close()
    finally:
        first.close()
    assert (committed_total(fake_cluster, "g"), committed_total(fake_cluster, "others")) == (30, 60)
