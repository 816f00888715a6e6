"""Every client goes on after brokers stop and start, after elections, and if only a broker is left that came late."""

from collections.abc import Callable, Iterable

import pytest
import trio

from fakebroker import FakeCluster
from fakebroker.client.admin.admin import Admin
from fakebroker.client.consumer.consumer import Consumer
from fakebroker.client.errors import BrokerUnreachable, CommitFailed
from fakebroker.replay.members.events import Event
from fakebroker.replay.members.member_loop import LoopSettings
from fakebroker.replay.script.script import Act, Script, Transactions
from fakebroker.replay.workload.loads import Load
from tests.support.client.consumer_over_tcp import DEADLINE_S, P0, committed, consumer, kip_848_consumer
from tests.support.replay.loop_player import LoopPlayer
from tests.support.trio_runner import in_trio_with_sockets

pytestmark = pytest.mark.usefixtures("frequent_reports")

GROUPS = [f"group-{number}" for number in range(6)]
CONFIG = {
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.heartbeat.interval.ms": 50,
    "default.replication.factor": 3,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 1,
}
Step = Callable[[FakeCluster], object]


def new_cluster() -> FakeCluster:
    return FakeCluster(3, {"orders": 3, "payments": 3}, CONFIG, seed=1)


def move_all(cluster: FakeCluster) -> None:
    """Move the coordinators of all groups and transactional ids to the next broker."""
    for topic in cluster.topics():
        if topic.name.startswith("__"):
            for each in topic.partitions:
                cluster.topic(topic.name).partition(each.partition).move_leader(to=each.leader % 3 + 1)


STEPS: dict[str, tuple[Step, ...]] = {
    "a broker stops and starts": (lambda cluster: cluster.broker(1).stop(), lambda cluster: cluster.broker(1).start()),
    "all brokers restart, one after the other": (lambda cluster: cluster.brokers.rolling_restart(),),
    "coordinators are elected": (move_all, move_all),
    "only the broker that came last is left": (
        lambda cluster: cluster.broker(3).start(),
        lambda cluster: (cluster.broker(1).stop(), cluster.broker(2).stop()),
    ),
}
"""What happens to a cluster. Before the last one, broker 3 has not started when the clients begin."""


def begin(cluster: FakeCluster, name: str) -> None:
    if name.startswith("only"):
        cluster.broker(3).stop()


async def check_consumer(name: str, new_consumer: Callable[..., Consumer]) -> None:
    async with new_cluster() as cluster:
        begin(cluster, name)
        read: set[int] = set()
        async with new_consumer(cluster) as reader:
            reader.subscribe(["orders"])

            async def work() -> None:
                """Read one more record and commit it. Meanwhile the consumer may report that it reaches no broker."""
                cluster.topic("orders").produce(["a"], partition=0)
                end = cluster.topic("orders").partition(0).describe().log_end_offset
                with trio.fail_after(DEADLINE_S):
                    while end - 1 not in read or committed(cluster, P0) != end:
                        try:
                            read.update(each.offset for each in await reader.poll(0.01))
                            await reader.commit(timeout=0.5)
                        except (BrokerUnreachable, CommitFailed):
                            pass

            await work()
            for step in STEPS[name]:
                step(cluster)
                await work()


@pytest.mark.parametrize("name", STEPS)
@in_trio_with_sockets
async def test_consumers_go_on(name: str) -> None:
    await check_consumer(name, consumer)


@pytest.mark.parametrize("name", STEPS)
@in_trio_with_sockets
async def test_consumers_of_kip_848_go_on(name: str) -> None:
    await check_consumer(name, kip_848_consumer)


@pytest.mark.parametrize("name", STEPS)
@in_trio_with_sockets
async def test_an_admin_client_goes_on(name: str) -> None:
    async with new_cluster() as cluster:
        cluster.topic("orders").produce(["a"] * len(GROUPS), partition=0)
        for number, group in enumerate(GROUPS):
            cluster.group(group).seed(offsets={"orders-0": number}, state="Empty")
        begin(cluster, name)
        async with Admin(cluster.bootstrap_servers, retry_backoff_ms=5) as admin:
            for step in [lambda _: None, *STEPS[name]]:
                step(cluster)
                coordinators = (await admin.find_coordinators(GROUPS)).all()
                assert {group: each.node_id for group, each in coordinators.items()} == {
                    group: cluster.group(group).coordinator().node_id for group in GROUPS
                }
                found = (await admin.list_group_offsets(dict.fromkeys(GROUPS))).all()
                offsets = [each["orders", 0] for each in found.values()]
                assert [offset and offset.offset for offset in offsets] == list(range(len(GROUPS)))
                assert {each.group_id for each in await admin.list_groups()} >= set(GROUPS)


TRANSACTIONS = Transactions("payments", 2, 50, 60_000, 0.0, 0.0, (0.0, 0.0), 0)
LEAVE_S = 60.0


def scripts() -> list[Script]:
    """Return two plain members, one of KIP-848, and one with transactions, each in a group of its own or of two."""
    acts = (Act(0.0, "start"), Act(LEAVE_S * 1000, "leave"))

    def script(group: str, index: int, **changes: object) -> Script:
        plain = Script(
            *("all", group, f"{group}-{index}", None, ("orders",), "range"),
            *(300_000, 300_000, 20, 30, 50.0, acts),
        )
        return plain._replace(**changes)  # type: ignore[arg-type]

    return [
        script("classic", 0),
        script("classic", 1),
        script("modern", 0, protocol="consumer"),
        script("exact", 0, commit_interval_ms=0, transactions=TRANSACTIONS),
    ]


class Progress:
    """Which clients of a loop have succeeded since `restart`: members by commits or transactions, loads by answers."""

    def __init__(self, player: LoopPlayer) -> None:
        self._player, self._from = player, 0

    def restart(self) -> None:
        self._from = len(self._player.events)

    def is_complete(self) -> bool:
        done = {self._client(each) for each in self._player.events[self._from :] if not each.error}
        return done >= {"classic-0", "classic-1", "modern-0", "exact-0", *APIS, "reader"}

    @staticmethod
    def _client(event: Event) -> str | None:
        if event.missing is not None:
            return None
        if event.api in APIS and event.member is None and event.source == "load":
            return event.api
        if event.api == "Fetch" and event.kind == "seen":
            return "reader"
        return event.member if event.api in ("OffsetCommit", "EndTxn") else None


LOADS = (
    Load(kind="describe-groups", for_s=600),
    Load(kind="fetch-offsets", batch=4, for_s=600),
    Load(kind="list-groups", for_s=600),
)
APIS = {"DescribeGroups", "OffsetFetch", "ListGroups"}


@pytest.mark.parametrize("name", STEPS)
def test_members_producers_readers_and_loads_of_replays_go_on(name: str) -> None:
    player = LoopPlayer()
    progress = Progress(player)
    with new_cluster() as cluster:
        begin(cluster, name)

        def then(step: Step) -> Callable[[], None]:
            def run() -> None:
                step(cluster)
                progress.restart()

            return run

        for step in STEPS[name]:
            player.when(progress.is_complete, then(step))
        player.when(progress.is_complete, lambda: player.skip(LEAVE_S + 600))
        groups: dict[str, Iterable[str]] = dict.fromkeys(["classic", "exact"], ())
        player.play(
            cluster.bootstrap_servers,
            scripts(),
            LoopSettings(duration_s=LEAVE_S + 1),
            loads=[(load, groups) for load in LOADS],  # type: ignore[misc]
        )
