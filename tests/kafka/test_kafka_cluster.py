"""`KafkaCluster`. In most tests its Kafka is a fake cluster, whose own handles say what is true."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from fakebroker import (
    ConditionNotMet,
    ConfigError,
    FakebrokerError,
    FakeCluster,
    KafkaCluster,
    NotOnKafka,
    RecordSeed,
    WaitTimeout,
    predicate,
)
from fakebroker.client.errors import BrokerUnreachable
from fakebroker.cluster.seeding.producer import partition_for_key
from fakebroker.kafka import kafka_cluster
from fakebroker.kafka.kafka_owner import FIRST_PAUSE_S, LONGEST_PAUSE_S, UNKNOWN


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=2, config={"group.min.session.timeout.ms": 1}, first_use="ready") as cluster:
        yield cluster


@pytest.fixture
def kafka(fake: FakeCluster) -> Iterator[KafkaCluster]:
    with KafkaCluster(fake.bootstrap_servers, {"orders": 2}) as cluster:
        yield cluster


@pytest.fixture
def prefixed(fake: FakeCluster) -> Iterator[KafkaCluster]:
    with KafkaCluster(fake.bootstrap_servers, {"orders": 2}, prefix="ci-") as cluster:
        yield cluster


def kafka_of(fake: FakeCluster, **options: Any) -> KafkaCluster:
    return KafkaCluster(fake.bootstrap_servers, {"orders": 2}, **options)


def topics(fake: FakeCluster) -> set[str]:
    return {each.name for each in fake.topics() if not each.is_internal}


# Views


def test_topics_are_created_and_deleted(fake: FakeCluster) -> None:
    with KafkaCluster(fake.bootstrap_servers, {"orders": 2, "payments": 3}):
        assert {each.name: len(each.partitions) for each in fake.topics()} == {"orders": 2, "payments": 3}
    assert topics(fake) == set()


def test_a_topic_is_described(fake: FakeCluster, kafka: KafkaCluster) -> None:
    kafka.topic("orders").produce(["a", "b", "c"])
    assert kafka.topic("orders").describe() == fake.topic("orders").describe()
    assert kafka.topic("orders").partition(1).describe() == fake.topic("orders").partition(1).describe()
    assert kafka.topics() == [fake.topic("orders").describe()]


def test_records_are_produced_and_read(fake: FakeCluster, kafka: KafkaCluster) -> None:
    orders = kafka.topic("orders")
    assert orders.produce(["a", "b", "c"]) == [(0, 0), (1, 0), (0, 1)]
    (produced,) = orders.produce(records=[RecordSeed(value="d", key="k", headers={"h": "1"}, timestamp=5)])
    assert produced == (partition_for_key(b"k", 2), 2)
    assert orders.records() == fake.topic("orders").records()
    assert orders.records(1) == fake.topic("orders").records(1)
    assert orders.end_offsets() == fake.topic("orders").end_offsets()


def test_topics_and_partitions_of_handles(fake: FakeCluster, kafka: KafkaCluster) -> None:
    payments = kafka.topic("payments")
    payments.create(1, configs={"retention.ms": 5_000, "unclean.leader.election.enable": True})
    payments.create_partitions(3)
    assert len(fake.topic("payments").describe().partitions) == 3
    with pytest.raises(ConfigError, match="partition=7"):
        payments.records(7)
    with pytest.raises(ConfigError, match="TOPIC_ALREADY_EXISTS"):
        payments.create(1)
    payments.delete()
    assert topics(fake) == {"orders"}
    with pytest.raises(ConfigError, match="topic='payments'"):
        payments.delete()


def test_large_values_are_produced_in_several_batches(fake: FakeCluster, kafka: KafkaCluster) -> None:
    values = [bytes([number]) * 400_000 for number in range(5)]
    kafka.topic("orders").produce(values, partition=0)
    assert [record.value for record in kafka.topic("orders").records()] == values


def test_committed_records_leave_out_those_of_open_and_aborted_transactions(
    fake: FakeCluster, kafka: KafkaCluster
) -> None:
    fake.transaction("pay").seed(state="Ongoing", records={"orders-0": 2})
    kafka.topic("orders").produce(["after"], partition=0)
    assert (len(kafka.topic("orders").records()), kafka.topic("orders").records(committed=True)) == (3, [])
    for committed in (True, False):
        ends = kafka.topic("orders").end_offsets(committed=committed)
        assert ends == fake.topic("orders").end_offsets(committed=committed)
    assert kafka.topic("orders").end_offsets() == {"orders-0": 3, "orders-1": 0}
    assert kafka.holds(kafka.topic("orders").has(3) & ~kafka.topic("orders").has(1, committed=True))
    kafka.group("billing").set_offsets({"orders-0": 0})
    assert (kafka.group("billing").lag(), kafka.group("billing").lag(committed=True)) == (
        {"orders-0": 3},
        {"orders-0": 0},
    )
    fake.transaction("pay").abort()
    assert [record.value for record in kafka.topic("orders").records(committed=True)] == [b"after"]


@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_a_group_is_described(fake: FakeCluster, kafka: KafkaCluster, kind: Any) -> None:
    fake.group("billing").seed(members=["one", "two"], topics=["orders"], type=kind, generation=7)
    theirs, ours = fake.group("billing").describe(), kafka.group("billing").describe()
    for name in ("group_id", "state", "generation_id", "protocol_type", "leader_id", "type", "assignment_epoch"):
        assert getattr(ours, name) == getattr(theirs, name), name
    for mine, other in zip(ours.members, theirs.members, strict=True):
        for name in ("member_id", "client_id", "client_host", "member_epoch", "assigned_partitions", "target", "type"):
            assert getattr(mine, name) == getattr(other, name), name
        assert mine.subscribed_topics == ("orders",)
        assert (mine.session_timeout_ms, mine.rebalance_timeout_ms) == (UNKNOWN, UNKNOWN)
    assert [each.group_id for each in kafka.groups()] == ["billing"]


def test_a_group_that_does_not_change_is_described_once(fake: FakeCluster, kafka: KafkaCluster) -> None:
    fake.group("billing").seed(members=1, topics=["orders"])
    kafka.group("billing").describe()
    before = fake.journal.count("DescribeGroups")
    kafka.group("billing").describe()
    assert fake.journal.count("DescribeGroups") == before + 1


def test_a_group_that_does_not_exist_is_dead(kafka: KafkaCluster) -> None:
    assert kafka.group("nobody").describe().state == "Dead"


def test_offsets_and_lag(fake: FakeCluster, kafka: KafkaCluster) -> None:
    billing = kafka.group("billing")
    kafka.topic("orders").produce(["a", "b", "c"], partition=0)
    billing.set_offsets({"orders-0": 1, "orders-1": 0})
    assert {place: each.offset for place, each in billing.offsets().items()} == {("orders", 0): 1, ("orders", 1): 0}
    assert billing.lag() == fake.group("billing").lag() == {"orders-0": 2, "orders-1": 0}
    billing.set_offsets({"orders-1": None})
    assert fake.group("billing").offsets().keys() == {("orders", 0)}


def test_offsets_of_a_group_with_members_are_refused(fake: FakeCluster, kafka: KafkaCluster) -> None:
    fake.group("billing").seed(members=1, topics=["orders"])
    with pytest.raises(ConfigError, match="UNKNOWN_MEMBER_ID"):
        kafka.group("billing").set_offsets({"orders-0": 1})
    with pytest.raises(NotOnKafka, match="force=True"):
        kafka.group("billing").set_offsets({"orders-0": 1}, force=True)


def test_a_partition_that_does_not_exist_is_named(kafka: KafkaCluster) -> None:
    with pytest.raises(ConfigError, match="orders-7"):
        kafka.group("billing").set_offsets({"orders-7": 1})
    with pytest.raises(ConfigError, match="did you mean 'orders'"):
        kafka.topic("ordres").describe()


@pytest.mark.parametrize("name", ["a", "member_id"])
@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_a_member_is_removed(fake: FakeCluster, kafka: KafkaCluster, kind: Any, name: str) -> None:
    fake.group("billing").seed(members=["a", "b"], topics=["orders"], type=kind)
    member = fake.group("billing").describe().members[0]
    kafka.group("billing").evict(member.member_id if name == "member_id" else name)
    assert [each.client_id for each in fake.group("billing").describe().members] == ["b"]


def test_a_group_is_deleted(fake: FakeCluster, kafka: KafkaCluster) -> None:
    kafka.group("billing").set_offsets({"orders-0": 1})
    kafka.group("billing").delete()
    assert fake.group("billing").describe().state == "Dead"
    with pytest.raises(ConfigError, match="GROUP_ID_NOT_FOUND"):
        kafka.group("billing").delete()


def test_transactions(fake: FakeCluster, kafka: KafkaCluster) -> None:
    fake.transaction("pay").seed(state="Ongoing", records={"orders-0": 1})
    theirs, ours = fake.transaction("pay").describe(), kafka.transaction("pay").describe()
    for name in ("state", "producer_id", "producer_epoch", "timeout_ms", "partitions", "coordinator"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert [each.transactional_id for each in kafka.transactions(state="Ongoing")] == ["pay"]
    assert kafka.transactions(state="Empty") == []
    assert kafka.transaction("nobody").describe().state == "Dead"
    assert kafka.transaction("pay").coordinator().node_id == theirs.coordinator
    kafka.transaction("pay").fence_producer()
    assert fake.transaction("pay").describe().producer_epoch > theirs.producer_epoch


def test_hanging_transactions_are_found(fake: FakeCluster, kafka: KafkaCluster) -> None:
    fake.transaction("pay").seed(state="Ongoing", records={"orders-1": 1})
    fake.topic("orders").partition(0).seed_hanging_transaction()
    assert kafka.hanging_transactions() == fake.hanging_transactions()


def test_brokers_and_coordinators(fake: FakeCluster, kafka: KafkaCluster) -> None:
    assert list(kafka.brokers) == list(fake.brokers)
    assert kafka.broker(2).describe() == fake.broker(2).describe()
    assert kafka.group("billing").coordinator() == fake.group("billing").coordinator()
    assert kafka.holds(kafka.broker(1).up())
    with pytest.raises(ConfigError, match="node_id=9"):
        kafka.broker(9).describe()


def test_the_report_has_partitions_records_and_groups(fake: FakeCluster, kafka: KafkaCluster) -> None:
    kafka.topic("orders").produce(["a"], partition=1)
    kafka.group("billing").set_offsets({"orders-1": 0})
    report = kafka.report()
    assert "orders-1   0      1    billing  0          1" in report
    assert "orders-1 @0  key None, value b'a'" in report
    assert "billing: Empty" in report


# Conditions


def seed(fake: FakeCluster, **options: Any) -> None:
    fake.group("g").seed(topics=["orders"], **options)


@pytest.mark.parametrize(
    ("change", "condition"),
    [
        (
            lambda fake: fake.group("g").seed(members=2, topics=["orders"]),
            lambda kafka: kafka.group("g").stable(members=2),
        ),
        (
            lambda fake: fake.group("g").seed(members=0, topics=["orders"]),
            lambda kafka: kafka.group("g").state("Empty"),
        ),
        (
            lambda fake: seed(fake, members=1, generation=9),
            lambda kafka: kafka.group("g").stable(above=8),
        ),
        (
            lambda fake: seed(fake, members=["a"], type="consumer"),
            lambda kafka: kafka.group("g").member("a"),
        ),
        (
            lambda fake: fake.group("g").set_offsets({"orders-1": 5}),
            lambda kafka: kafka.group("g").committed("orders-1", at_least=5),
        ),
        (lambda fake: fake.topic("orders").produce(["a", "b"]), lambda kafka: kafka.topic("orders").has(2)),
        (
            lambda fake: fake.topic("orders").produce(["a"], partition=1),
            lambda kafka: kafka.topic("orders").partition(1).has(1),
        ),
        (lambda fake: fake.topic("new").create(3), lambda kafka: kafka.topic("new").exists(partitions=3)),
        (
            lambda fake: fake.transaction("t").seed(state="Ongoing", records={"orders-0": 1}),
            lambda kafka: kafka.transaction("t").state("Ongoing"),
        ),
    ],
)
def test_a_wait_sees_a_change(
    fake: FakeCluster,
    kafka: KafkaCluster,
    change: Callable[[FakeCluster], object],
    condition: Callable[[KafkaCluster], Any],
) -> None:
    wanted = condition(kafka)
    assert not kafka.holds(wanted)
    with pytest.raises(ConditionNotMet, match="it does not hold"):
        kafka.expect(wanted)
    with pytest.raises(WaitTimeout, match="not reached within 0 s"):
        kafka.wait(wanted, 0)
    changing = threading.Timer(0.02, change, [fake])
    changing.start()
    found = kafka.wait(wanted)
    changing.join()
    assert found is not None
    kafka.expect(wanted)
    kafka.stays(wanted, 0.05)
    with pytest.raises(ConditionNotMet):
        kafka.stays(~wanted, 0.05)


def test_parts_of_a_condition_are_looked_at_together(fake: FakeCluster, kafka: KafkaCluster) -> None:
    both = kafka.group("g").committed("orders-0", at_least=1) & kafka.topic("orders").has(1)
    kafka.topic("orders").produce(["a"], partition=0)
    assert not kafka.holds(both)
    assert kafka.holds(both | kafka.topic("orders").exists())
    fake.group("g").set_offsets({"orders-0": 1})
    committed, records = kafka.wait(both)
    assert (committed.offset, records[0].value) == (1, b"a")


def test_many_groups_take_a_few_requests_a_sample(fake: FakeCluster, kafka: KafkaCluster) -> None:
    for number in range(30):
        fake.group(f"g{number}").set_offsets({"orders-0": 1})
    condition = kafka.group("g0").committed("orders-0", at_least=1)
    for number in range(1, 30):
        condition = condition & kafka.group(f"g{number}").committed("orders-0", at_least=1)  # type: ignore[assignment]
    before = fake.journal.count("OffsetFetch")
    assert kafka.holds(condition)
    assert fake.journal.count("OffsetFetch") - before <= 2  # one for each broker


def test_a_predicate_is_called_between_samples(kafka: KafkaCluster) -> None:
    calls = iter(range(100))
    both = predicate("three calls", lambda: next(calls) >= 3) & kafka.topic("orders").exists()
    assert kafka.wait(both)[0] is True


def test_pauses_grow_while_nothing_changes_and_are_short_after_a_change(fake: FakeCluster, kafka: KafkaCluster) -> None:
    watch: Any = kafka._owner.watch(kafka.topic("orders").has(5))
    pauses = []
    for number in range(14):
        if number == 12:
            fake.topic("orders").produce(["a"])
        watch._sample()
        pauses.append(watch._pause_s)
    assert pauses[:2] == [FIRST_PAUSE_S, FIRST_PAUSE_S * 1.5]
    assert pauses[11] == LONGEST_PAUSE_S
    assert pauses[12] == FIRST_PAUSE_S


def test_in_tasks(fake: FakeCluster) -> None:
    async def main() -> int:
        async with KafkaCluster(fake.bootstrap_servers, {"orders": 1}) as kafka:
            kafka.topic("orders").produce(["a"])
            await kafka.stays_async(kafka.topic("orders").has(1), 0.02)
            return len(await kafka.wait_async(kafka.topic("orders").has(1)))

    assert trio.run(main) == 1
    import asyncio

    assert asyncio.run(main()) == 1


# What only a fake cluster can do


@pytest.mark.parametrize(
    ("use", "what"),
    [
        (lambda kafka: kafka.advance(5), "cluster.advance"),
        (lambda kafka: kafka.inject_fault("Fetch", error="NOT_COORDINATOR"), "cluster.inject_fault"),
        (lambda kafka: kafka.journal.count("Fetch"), "cluster.journal"),
        (lambda kafka: kafka.snapshot(), "cluster.snapshot"),
        (lambda kafka: kafka.wait(kafka.requested("Fetch")), "cluster.requested"),
        (lambda kafka: kafka.group("g").hold("PreparingRebalance"), "cluster.group('g').hold"),
        (lambda kafka: kafka.group("g").explain(), "cluster.group('g').explain"),
        (lambda kafka: kafka.group("g").commits(), "cluster.group('g').commits"),
        (lambda kafka: kafka.broker(1).stop(), "cluster.broker(1).stop"),
        (lambda kafka: kafka.brokers.rolling_restart(), "cluster.brokers.rolling_restart"),
        (lambda kafka: kafka.transaction("t").hold_markers(), "cluster.transaction('t').hold_markers"),
        (lambda kafka: kafka.wait(kafka.group("g").member("a", "STABLE")), "group('g').member"),
        (lambda kafka: kafka.acls.deny("ANONYMOUS", "READ", group="g"), "cluster.acls.deny"),
        (lambda kafka: kafka.seed_groups([]), "cluster.seed_groups"),
    ],
)
def test_it_is_named(kafka: KafkaCluster, use: Callable[[KafkaCluster], object], what: str) -> None:
    if what == "group('g').member":
        kafka.group("g").set_offsets({"orders-0": 1})
    with pytest.raises(NotOnKafka) as caught:
        use(kafka)
    assert str(caught.value).startswith("needs fakebroker: ")
    assert what in str(caught.value)


def test_other_attributes_do_not_exist(kafka: KafkaCluster) -> None:
    with pytest.raises(AttributeError):
        kafka.no_such_thing  # noqa: B018


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"config": {"group.max.size": 5}}, "needs group.max.size=5; Kafka at 127.0.0.1:"),
        ({"config": {"no.such": 5}}, "has no such setting"),
        ({"brokers": 3}, "needs 3 brokers; "),
        ({"as_version": "2.8"}, "needs fakebroker: as_version='2.8'"),
        ({"tls": True}, "needs fakebroker: tls=True"),
        ({"users": {"alice": "secret"}}, "needs fakebroker: users="),
        ({"first_use": "kafka"}, "first_use='kafka'"),
        ({"first_node_id": 0}, "needs first_node_id=0; "),
    ],
)
def test_what_a_test_needs_is_compared(fake: FakeCluster, kafka: KafkaCluster, arguments: Any, message: str) -> None:
    with pytest.raises(NotOnKafka) as caught:
        kafka.require(arguments)
    assert message in str(caught.value)


def test_equal_settings_and_those_of_a_fake_alone_are_accepted(kafka: KafkaCluster) -> None:
    kafka.release = "4.4.0"
    config = {"group.min.session.timeout.ms": 1, "auto.create.topics.enable": True}
    kafka.require({"config": config, "brokers": 2, "clock": "manual", "seed": 5, "as_version": "4.4"})


# Safety


def test_a_topic_that_exists_is_refused(fake: FakeCluster) -> None:
    fake.topic("orders").create(1)
    fake.topic("orders").produce(["kept"])
    with pytest.raises(ConfigError, match="topic='orders': expected a name that is free"), kafka_of(fake):
        pass
    assert len(fake.topic("orders").records()) == 1


def test_handles_of_things_that_exist_are_refused(fake: FakeCluster) -> None:
    fake.topic("others").create(1)
    fake.group("billing").set_offsets({"others-0": 1})
    with kafka_of(fake) as kafka:
        with pytest.raises(ConfigError, match="group='billing': expected a name that is free"):
            kafka.group("billing")
        with pytest.raises(ConfigError, match="topic='others'"):
            kafka.topic("others")
    assert fake.group("billing").offsets()["others-0"].offset == 1


def test_clean_deletes_the_declared_topics_and_idle_groups_of_them(fake: FakeCluster) -> None:
    for name in ("orders", "others"):
        fake.topic(name).create(1)
    fake.group("billing").set_offsets({"orders-0": 1})
    fake.group("shared").set_offsets({"orders-0": 1, "others-0": 1})
    fake.group("busy").seed(members=1, topics=["others"])
    with kafka_of(fake, clean=True) as kafka:
        assert kafka.group("billing").describe().state == "Dead"
        assert len(kafka.topic("orders").describe().partitions) == 2
        for name in ("shared", "busy"):
            with pytest.raises(ConfigError, match="has members or offsets of other topics"):
                kafka.group(name)
    assert {each.group_id for each in fake.groups()} == {"shared", "busy"}
    assert topics(fake) == {"others"}


def test_clean_with_a_prefix_deletes_what_begins_with_it(fake: FakeCluster) -> None:
    for name in ("ci-old", "old"):
        fake.topic(name).create(1)
        fake.group(f"{name}-group").set_offsets({f"{name}-0": 1})
    with kafka_of(fake, clean=True, prefix="ci-"):
        assert topics(fake) == {"old", "ci-orders"}
    assert {each.group_id for each in fake.groups()} == {"old-group"}


def test_internal_topics_keep_their_names_and_are_kept(fake: FakeCluster) -> None:
    with kafka_of(fake, clean=True, prefix="__") as kafka:
        kafka.group("billing").set_offsets({"orders-0": 1})
        offsets = kafka.topic("__consumer_offsets")
        assert offsets.describe() == fake.topic("__consumer_offsets").describe()
        assert offsets.end_offsets() == fake.topic("__consumer_offsets").end_offsets()
        assert [each.name for each in kafka.topics()] == ["orders"]
    assert fake.topic("__consumer_offsets").describe().is_internal
    assert (topics(fake), fake.groups()) == (set(), [])


def test_what_the_test_has_made_is_deleted_also_after_a_failure(fake: FakeCluster) -> None:
    def fail() -> None:
        with kafka_of(fake) as kafka:
            kafka.topic("more").create(1)
            kafka.group("named").set_offsets({"more-0": 1})
            fake.group("unnamed").set_offsets({"orders-0": 1})  # as the application does
            fake.group("busy").seed(members=2, topics=["orders"])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (topics(fake), fake.groups()) == (set(), [])


def test_what_others_make_meanwhile_is_not_deleted(fake: FakeCluster) -> None:
    kafka = kafka_of(fake).__enter__()
    fake.topic("others").create(1)
    fake.group("theirs").set_offsets({"others-0": 1})
    with pytest.raises(FakebrokerError, match="topic others is new and was not deleted"):
        kafka.__exit__(None, None, None)
    assert kafka.left == ("topic others is new and was not deleted: name it in `topics`, use a handle, or a prefix",)
    assert [each.group_id for each in fake.groups()] == ["theirs"]


def test_on_a_kafka_of_its_own_everything_new_is_deleted(fake: FakeCluster) -> None:
    with kafka_of(fake, owned=True):
        fake.topic("others").create(1)
        fake.group("theirs").set_offsets({"others-0": 1})
    assert (topics(fake), fake.groups()) == (set(), [])


def test_the_use_of_a_group_that_existed_is_an_error(fake: FakeCluster) -> None:
    fake.topic("others").create(1)
    fake.group("billing").set_offsets({"others-0": 1})
    with (
        pytest.raises(FakebrokerError, match="group billing existed before, and uses topics of this test"),
        kafka_of(fake),
    ):
        fake.group("billing").set_offsets({"orders-0": 1})


def test_a_reset_begins_again(fake: FakeCluster) -> None:
    with kafka_of(fake) as kafka:
        kafka.topic("orders").produce(["a"])
        kafka.topic("more").create(1)
        fake.group("g").set_offsets({"orders-0": 1})
        kafka.reset()
        assert topics(fake) == {"orders"}
        assert kafka.topic("orders").records() == []
        assert kafka.group("g").describe().state == "Dead"
    assert topics(fake) == set()


def test_what_a_client_has_made_again_after_an_earlier_test_is_deleted(fake: FakeCluster) -> None:
    fake.topic("others").create(1)
    with kafka_of(fake) as first:
        fake.group("g").set_offsets({"orders-0": 1})
    fake.group("g").seed(members=1, topics=["others"])  # A client of the first test lives on.
    second = kafka_of(fake)
    second.earlier = first.earlier
    with second:
        assert second.group("g").describe().state == "Dead"


# Prefixes


def test_a_prefix_is_in_kafka_and_not_in_handles(fake: FakeCluster, prefixed: KafkaCluster) -> None:
    assert (prefixed.name("orders"), fake.name("orders")) == ("ci-orders", "orders")
    prefixed.topic("orders").produce(["a"])
    fake.group("ci-billing").seed(members=["one"], topics=["ci-orders"])
    fake.transaction("ci-pay").seed(state="Ongoing", records={"ci-orders-0": 1})
    prefixed.group("other").set_offsets({"orders-0": 1})
    assert fake.group("ci-other").offsets().keys() == {("ci-orders", 0)}
    assert prefixed.group("other").offsets().keys() == prefixed.group("other").lag().keys() == {("orders", 0)}
    (member,) = prefixed.group("billing").describe().members
    assert member.subscribed_topics == ("orders",)
    assert member.assigned_partitions == ("orders-0", "orders-1")
    assert prefixed.topic("orders").records()[0].topic == "orders"
    assert prefixed.transaction("pay").describe().partitions == ("orders-0",)
    assert [each.name for each in prefixed.topics()] == ["orders"]
    assert [each.group_id for each in prefixed.groups()] == ["billing", "other"]
    assert [each.transactional_id for each in prefixed.transactions()] == ["pay"]
    fake.transaction("ci-pay").abort()


def test_a_consumer_group_with_a_prefix(fake: FakeCluster, prefixed: KafkaCluster) -> None:
    fake.group("ci-billing").seed(members=["one"], topics=["ci-orders"], type="consumer")
    (member,) = prefixed.group("billing").describe().members
    assert (member.subscribed_topics, member.target) == (("orders",), ("orders-0", "orders-1"))


# ACLs


@pytest.fixture
def guarded() -> Iterator[FakeCluster]:
    with FakeCluster(
        config={"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    ) as fake:
        fake.acls.allow("*", "ALL", topic="*")
        fake.acls.allow("*", "ALL", group="*")
        fake.acls.allow("*", "ALL", cluster=True)
        yield fake


def test_acls_are_added_and_removed(guarded: FakeCluster) -> None:
    with kafka_of(guarded, acls=True) as kafka:
        hold = kafka.acls.deny("ANONYMOUS", "DESCRIBE", topic="orders")
        with hold, pytest.raises(FakebrokerError):
            kafka.topic("orders").describe()
        kafka.topic("orders").describe()
        kafka.acls.deny("ANONYMOUS", "READ", group="g")
        kafka.acls.allow("ANONYMOUS", "READ", group="g")
        with pytest.raises(ConfigError, match="an ACL that exists"):
            guarded.acls.remove("ANONYMOUS", "READ", "deny", group="g")
        kafka.acls.deny("bob", "READ", group="g")
    with pytest.raises(ConfigError, match="none of the 3"):
        guarded.acls.remove("bob", "READ", "deny", group="g")


@pytest.mark.parametrize("kind", ["topic", "group", "transactional_id"])
def test_acls_name_what_has_the_prefix(guarded: FakeCluster, kind: str) -> None:
    with kafka_of(guarded, acls=True, prefix="ci-") as kafka:
        for name, real in (("pay", "ci-pay"), ("*", "*")):
            named: dict[str, Any] = {kind: name}
            kafka.acls.deny("bob", "DESCRIBE", **named)
            guarded.acls.remove("bob", "DESCRIBE", "deny", **{**named, kind: real})


def test_on_a_kafka_of_its_own_the_first_acl_denies_nothing_else(guarded: FakeCluster) -> None:
    with kafka_of(guarded, acls=True, owned=True) as kafka:
        kafka.acls.deny("bob", "READ", group="g")
        kafka.acls.deny("bob", "READ", group="h")
        guarded.acls.remove("*", "ALL", "allow", transactional_id="*")


def test_acls_of_others_are_not_removed(guarded: FakeCluster) -> None:
    with kafka_of(guarded, acls=True) as kafka, pytest.raises(ConfigError, match="an ACL that this test has added"):
        kafka.acls.remove("*", "ALL", "allow", topic="*")


def test_acls_need_an_authorizer(fake: FakeCluster) -> None:
    with kafka_of(fake, acls=True) as kafka, pytest.raises(NotOnKafka, match=r"a Kafka with authorizer\.class\.name"):
        kafka.acls.deny("bob", "READ", group="g")


# Connections

CLIENT_CONFIG = """
security.protocol=SASL_PLAINTEXT
sasl.mechanism=SCRAM-SHA-256
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="{}";
"""


def test_it_authenticates_as_the_file_says(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(CLIENT_CONFIG.format("secret"))
    with (
        FakeCluster(users={"alice": "secret"}, acls=[{"principal": "alice", "operation": "ALL", "topic": "*"}]) as fake,  # type: ignore[list-item]
        KafkaCluster(fake.bootstrap_servers, client_config=file) as kafka,
    ):
        kafka.topic("orders").create(1)
        assert topics(fake) == {"orders"}


def test_it_encrypts_as_the_file_says(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    with FakeCluster(brokers=2, tls=True) as fake:
        trusted = f"ssl.truststore.type=PEM\nssl.truststore.location={fake.tls.ca_file}\n"
        file.write_text(f"security.protocol=SSL\n{trusted}")
        with KafkaCluster(fake.bootstrap_servers, {"orders": 2}, client_config=file) as kafka:
            kafka.topic("orders").produce(["a", "b"])
            assert [each.value for each in kafka.wait(kafka.topic("orders").has(2))] == [b"a", b"b"]
        file.write_text("security.protocol=SSL\n")
        untrusting = KafkaCluster(fake.bootstrap_servers, client_config=file)
        with pytest.raises(FakebrokerError, match="certificate"), untrusting:
            pass


def test_a_wrong_password_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(CLIENT_CONFIG.format("wrong"))
    with (
        FakeCluster(users={"alice": "secret"}) as fake,
        pytest.raises(FakebrokerError, match="Authentication failed"),
        KafkaCluster(fake.bootstrap_servers, client_config=file),
    ):
        pass


# Errors


def test_no_kafka_at_the_address() -> None:
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1 "), KafkaCluster("127.0.0.1:1"):
        pass


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bootstrap_servers": "nowhere"}, "nowhere"),
        ({"prefix": "a/b"}, "prefix='a/b'"),
        ({"topics": {"orders": 0}}, "orders"),
        ({"client_config": "/no/such/file"}, "/no/such/file"),
    ],
)
def test_invalid_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        KafkaCluster(**{"bootstrap_servers": "127.0.0.1:1", **arguments})
    assert message in str(caught.value)


def test_it_says_that_it_is_closed(fake: FakeCluster) -> None:
    kafka = kafka_of(fake)
    with pytest.raises(FakebrokerError, match="not open"):
        kafka.topics()
    with kafka:
        pass
    with pytest.raises(FakebrokerError, match="not open"):
        kafka.wait(kafka.topic("orders").exists())


def test_a_kafka_that_has_stopped_may_have_something_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_cluster, "END_S", 0.2)
    with FakeCluster(brokers=1) as fake:
        kafka = kafka_of(fake).__enter__()
    with pytest.raises(FakebrokerError, match="topics and groups of this test may be left: Kafka is too slow"):
        kafka.__exit__(None, None, None)


def test_an_error_at_the_end_does_not_hide_the_error_of_the_test(fake: FakeCluster) -> None:
    kafka = kafka_of(fake)
    fake.inject_fault("DeleteTopics", error="TOPIC_DELETION_DISABLED")
    kafka.__enter__()
    kafka.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert kafka.left == ("topic orders: TOPIC_DELETION_DISABLED",)
