"""Members of real clients, and of `fakebroker.client`, whose coordinator stops, moves, loads, or becomes a zombie.

In each test, afterwards each partition is assigned to one member, committed offsets are kept, and generations did not
decrease.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fakebroker import FakeCluster
from fakebroker.cluster.call import Call
from fakebroker.errors import ErrorCode
from fakebroker.server.clock import ManualClock
from fakebroker.server.fake_cluster import internals
from tests.interop.conftest import closed_together
from tests.interop.test_migration import CommittingMember
from tests.support.kafka_clients.aiokafka_client import AioConsumer
from tests.support.kafka_clients.client import GroupConsumer, Place, Record, Settings
from tests.support.kafka_clients.confluent_client import CONFLUENT, ConfluentConsumer
from tests.support.kafka_clients.coordinator_deaths import (
    NEWCOMER,
    PHASES,
    CoordinatorDeath,
    generation_is_written,
)
from tests.support.kafka_clients.fakebroker_client import FakebrokerConsumer
from tests.support.kafka_clients.helpers import (
    committed_total,
    numbered,
    partitions_per_member,
    poll_records,
    poll_until,
    values,
)
from tests.support.kafka_clients.remote_clients import FRANZ_GO, JAVA, SARAMA, RemoteClient, only_in_soak

pytestmark = [pytest.mark.slow, pytest.mark.fake_cluster(topics={"orders": 6})]

PLACES: list[Place] = [("orders", partition) for partition in range(6)]


def with_each_member(*more: RemoteClient) -> pytest.MarkDecorator:
    """Run a test with members of three clients, and in `make soak` with these clients, too."""
    members = {"fakebroker": FakebrokerConsumer, "confluent-kafka": ConfluentConsumer, "aiokafka": AioConsumer}
    return pytest.mark.parametrize(
        "make", [*(pytest.param(make, id=name) for name, make in members.items()), *only_in_soak(*more)]
    )


StartMember = Callable[[str], GroupConsumer]


@pytest.fixture
def start_member(make: Callable[[str, Settings], GroupConsumer], fake_cluster: FakeCluster) -> Iterator[StartMember]:
    """A function that starts a member of group "g" with a client id; closed after the test."""
    with closed_together() as consumers:

        def start(client_id: str) -> GroupConsumer:
            consumer = make(fake_cluster.bootstrap_servers, Settings(group_id="g", client_id=client_id))
            consumers.append(consumer)
            consumer.subscribe("orders")
            return consumer

        yield start


@pytest.fixture
def pair(fake_cluster: FakeCluster, start_member: StartMember) -> list[GroupConsumer]:
    """Two members of a stable group, which have read and committed 60 records."""
    members = [start_member("first"), start_member("second")]
    wait_for_owners(fake_cluster, members)
    read_and_commit(fake_cluster, range(60), members)
    return members


def is_shared(cluster: FakeCluster, members: list[GroupConsumer]) -> bool:
    """Return whether each partition is assigned to one of the members, and the members know."""
    share = len(PLACES) // len(members)
    owned = sorted(place for member in members for place in member.assignment())
    return partitions_per_member(cluster, "g") == [share] * len(members) and owned == PLACES


def wait_for_owners(cluster: FakeCluster, members: list[GroupConsumer]) -> None:
    """Wait until each partition is assigned to one member; no records may be read meanwhile."""
    assert poll_until(cluster, "one owner each", lambda _: is_shared(cluster, members), *members) == []


def read_and_commit(cluster: FakeCluster, numbers: range, members: list[GroupConsumer]) -> None:
    """Produce records; check that the members read each of them once, and no others; commit."""
    CONFLUENT.produce(cluster.bootstrap_servers, "orders", numbered(numbers), None)
    assert values(poll_records(cluster, len(numbers), *members)) == values(numbered(numbers))
    for member in members:
        member.commit()
    assert committed_total(cluster, "g") == numbers.stop


def read_again_and_commit(cluster: FakeCluster, numbers: range, members: list[GroupConsumer]) -> None:
    """Like `read_and_commit`, but a rebalance may repeat records that are not committed."""
    CONFLUENT.produce(cluster.bootstrap_servers, "orders", numbered(numbers), None)
    committing = [CommittingMember(member) for member in members]
    read = poll_until(cluster, "commits", lambda _: committed_total(cluster, "g") == numbers.stop, *committing)
    for member in committing:
        read += member.finish()
    assert set(values(read)) == set(values(numbered(numbers)))


def assert_generations_did_not_decrease(cluster: FakeCluster) -> None:
    """Check the generations of successful syncs: a generation without one is not in the log, and may be reused."""
    synced = [call.request.generation_id for call in succeeded(cluster, "SyncGroup")]
    assert synced == sorted(synced)


def errors(cluster: FakeCluster, api: str, client_id: str, node_id: int) -> list[ErrorCode]:
    """Return the errors in the responses of a broker to a member."""
    calls = [call for call in cluster.journal.requests(api, client_id) if call.response and call.node_id == node_id]
    return [ErrorCode(call.response.error_code) for call in calls]


def succeeded(cluster: FakeCluster, api: str) -> list[Any]:
    """Return the successful calls of a group API, in the order of their responses."""
    calls = [
        call for call in cluster.journal.requests(api) if call.response and call.response.error_code == ErrorCode.NONE
    ]
    return sorted(calls, key=lambda call: call.answered_ms or 0)


@pytest.mark.parametrize("phase", PHASES.values(), ids=PHASES)
@with_each_member(JAVA, FRANZ_GO, SARAMA)
def test_the_coordinator_stops_in_a_rebalance(
    phase: Callable[[CoordinatorDeath], None],
    fake_cluster: FakeCluster,
    start_member: StartMember,
    pair: list[GroupConsumer],
) -> None:
    before, committed = fake_cluster.group("g").describe(), fake_cluster.group("g").offsets()
    death = CoordinatorDeath(fake_cluster)
    phase(death)
    newcomer = start_member(NEWCOMER)
    poll_until(fake_cluster, "the coordinator's death", lambda _: death.loaded is not None, newcomer, *pair)
    if phase is not generation_is_written:
        assert death.loaded == before, "only what is in the log survives"
    elif death.loaded:
        assert (death.loaded.state, death.loaded.generation_id) == ("Stable", before.generation_id + 1)
        assert len(death.loaded.members) == 3

    wait_for_owners(fake_cluster, [newcomer, *pair])
    assert fake_cluster.group("g").coordinator().node_id != death.node_id
    assert fake_cluster.group("g").offsets() == committed
    assert fake_cluster.group("g").describe().generation_id > before.generation_id
    if phase is generation_is_written:
        # Members may repeat SyncGroup, and share the written generation until the first of the others joins again.
        read_again_and_commit(fake_cluster, range(60, 120), [newcomer, *pair])
    else:
        read_and_commit(fake_cluster, range(60, 120), [newcomer, *pair])
    assert_generations_did_not_decrease(fake_cluster)


def other_broker(cluster: FakeCluster) -> int:
    """Return a broker that is up and does not coordinate the group."""
    home = cluster.group("g").coordinator()
    return next(broker.node_id for broker in cluster.brokers if broker.up and broker != home)


@with_each_member(JAVA)
def test_the_coordinator_stops_before_it_answers_a_commit(fake_cluster: FakeCluster, pair: list[GroupConsumer]) -> None:
    CONFLUENT.produce(fake_cluster.bootstrap_servers, "orders", numbered(range(60, 90)), None)
    poll_records(fake_cluster, 30, *pair)
    death = CoordinatorDeath(fake_cluster)
    death.stop_after("OffsetCommit")
    for member in pair:
        member.commit()
    assert death.node_id is not None
    assert committed_total(fake_cluster, "g") == 90
    read_and_commit(fake_cluster, range(90, 120), pair)


@with_each_member(JAVA)
def test_the_coordinator_restarts(fake_cluster: FakeCluster, pair: list[GroupConsumer]) -> None:
    home, before = fake_cluster.group("g").coordinator(), fake_cluster.group("g").describe()
    fake_cluster.broker(home.node_id).stop()
    read_and_commit(fake_cluster, range(60, 120), pair)
    fake_cluster.broker(home.node_id).start()
    fake_cluster.group("g").move_coordinator(to=home.node_id)
    assert fake_cluster.group("g").coordinator() == home
    read_and_commit(fake_cluster, range(120, 180), pair)
    assert fake_cluster.group("g").describe() == before


@with_each_member(JAVA)
def test_a_rolling_restart_causes_no_rebalance(fake_cluster: FakeCluster, pair: list[GroupConsumer]) -> None:
    before = fake_cluster.group("g").describe()
    for number in range(1, 3):
        fake_cluster.brokers.rolling_restart()
        read_and_commit(fake_cluster, range(60 * number, 60 * number + 60), pair)
    assert fake_cluster.group("g").describe() == before


@with_each_member(JAVA)
def test_brokers_are_added_and_removed(
    fake_cluster: FakeCluster, start_member: StartMember, pair: list[GroupConsumer]
) -> None:
    home, added = fake_cluster.group("g").coordinator(), fake_cluster.brokers.add()
    fake_cluster.group("g").move_coordinator(to=added.node_id)
    fake_cluster.broker(home.node_id).remove()
    read_and_commit(fake_cluster, range(60, 120), pair)
    newcomer = start_member(NEWCOMER)
    wait_for_owners(fake_cluster, [newcomer, *pair])
    fake_cluster.broker(added.node_id).remove()
    read_and_commit(fake_cluster, range(120, 180), [newcomer, *pair])
    assert_generations_did_not_decrease(fake_cluster)


@with_each_member(JAVA)
def test_the_new_coordinator_is_loading(
    fake_cluster: FakeCluster, start_member: StartMember, pair: list[GroupConsumer]
) -> None:
    to = other_broker(fake_cluster)
    fake_cluster.group("g").move_coordinator(to=to, load_ms=None)
    newcomer = start_member(NEWCOMER)

    def all_have_met_it(_: list[Record]) -> bool:
        beats = [errors(fake_cluster, "Heartbeat", name, to) for name in ("first", "second")]
        return all(beats) and bool(errors(fake_cluster, "JoinGroup", NEWCOMER, to))

    poll_until(fake_cluster, "requests to the one that loads", all_have_met_it, newcomer, *pair)
    assert set(errors(fake_cluster, "JoinGroup", NEWCOMER, to)) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    assert set(errors(fake_cluster, "Heartbeat", "first", to)) == {ErrorCode.NONE}
    assert newcomer.assignment() == []
    fake_cluster.brokers.finish_loading()
    wait_for_owners(fake_cluster, [newcomer, *pair])
    read_and_commit(fake_cluster, range(60, 120), [newcomer, *pair])


@with_each_member(JAVA)
@pytest.mark.fake_cluster(topics={"orders": 6}, clock="manual")
def test_find_coordinator_returns_the_old_coordinator(fake_cluster: FakeCluster, pair: list[GroupConsumer]) -> None:
    before, old = fake_cluster.group("g").describe(), fake_cluster.group("g").coordinator().node_id
    fake_cluster.group("g").move_coordinator(to=other_broker(fake_cluster), stale_ms=5_000)

    def were_sent_back(_: list[Record]) -> bool:
        refused = [errors(fake_cluster, "Heartbeat", name, old) for name in ("first", "second")]
        return all(errors.count(ErrorCode.NOT_COORDINATOR) >= 2 for errors in refused)

    poll_until(fake_cluster, "members sent back to the old coordinator", were_sent_back, *pair)
    assert isinstance(internals(fake_cluster).server.clock, ManualClock)
    internals(fake_cluster).server.clock.advance(5)
    read_and_commit(fake_cluster, range(60, 120), pair)
    assert fake_cluster.group("g").describe() == before


@with_each_member(JAVA)
def test_the_old_coordinator_is_a_zombie(
    fake_cluster: FakeCluster, start_member: StartMember, pair: list[GroupConsumer]
) -> None:
    committed = fake_cluster.group("g").offsets()
    fake_cluster.group("g").move_coordinator(to=other_broker(fake_cluster), zombie=True)
    CONFLUENT.produce(fake_cluster.bootstrap_servers, "orders", numbered(range(60, 120)), None)
    poll_records(fake_cluster, 60, *pair)
    for member in pair:
        member.commit()
    assert fake_cluster.group("g").offsets() == committed, "the zombie has acknowledged the commit, which is lost"

    newcomer = start_member(NEWCOMER)
    poll_until(
        fake_cluster,
        "a rebalance",
        lambda _: fake_cluster.group("g").describe().state == "PreparingRebalance",
        newcomer,
        *pair,
    )
    fake_cluster.brokers.stop_zombies()
    again = poll_records(fake_cluster, 60, newcomer, *pair)
    assert values(again) == values(numbered(range(60, 120)))
    wait_for_owners(fake_cluster, [newcomer, *pair])
    for member in [newcomer, *pair]:
        member.commit()
    assert committed_total(fake_cluster, "g") == 120
    assert_generations_did_not_decrease(fake_cluster)


@with_each_member(JAVA)
def test_there_is_no_coordinator_for_some_time(fake_cluster: FakeCluster, pair: list[GroupConsumer]) -> None:
    before, to = fake_cluster.group("g").describe(), other_broker(fake_cluster)
    fake_cluster.group("g").move_coordinator(to=None)

    def were_told_of_none(_: list[Record]) -> bool:
        # Members of `fakebroker.client` send FindCoordinator with another client id.
        reported = [error for call in fake_cluster.journal.requests("FindCoordinator") for error in found_errors(call)]
        return reported.count(ErrorCode.COORDINATOR_NOT_AVAILABLE) >= 2

    poll_until(fake_cluster, "members without a coordinator", were_told_of_none, *pair)
    fake_cluster.group("g").move_coordinator(to=to, load_fails=True)

    def were_refused(_: list[Record]) -> bool:
        refused = [errors(fake_cluster, "Heartbeat", name, to) for name in ("first", "second")]
        return all(ErrorCode.NOT_COORDINATOR in errors for errors in refused)

    poll_until(fake_cluster, "members refused by one that could not load", were_refused, *pair)
    fake_cluster.group("g").move_coordinator(to=to)
    read_and_commit(fake_cluster, range(60, 120), pair)
    assert fake_cluster.group("g").describe() == before


def found_errors(call: Call) -> list[ErrorCode]:
    """Return the errors in a FindCoordinator response, of one group or of several (since version 4)."""
    if call.response is None:
        return []
    return [ErrorCode(found.error_code) for found in call.response.coordinators or [call.response]]


@with_each_member(JAVA, FRANZ_GO, SARAMA)
def test_the_log_of_the_group_is_lost(fake_cluster: FakeCluster, pair: list[GroupConsumer]) -> None:
    old = fake_cluster.group("g").coordinator().node_id
    fake_cluster.group("g").move_coordinator(to=old % 3 + 1, lose_all=True)
    fake_cluster.broker(old).stop()
    assert fake_cluster.group("g").describe().state == "Dead"
    assert fake_cluster.group("g").offsets() == {}
    poll_until(fake_cluster, "a new group", lambda _: is_shared(fake_cluster, pair), *pair)
    CONFLUENT.produce(fake_cluster.bootstrap_servers, "orders", numbered(range(60, 120)), None)
    expected = set(values(numbered(range(60, 120))))
    poll_until(fake_cluster, "records up to the last", lambda records: expected <= set(values(records)), *pair)
    for member in pair:
        member.commit()
    assert committed_total(fake_cluster, "g") == 120
