"""Each promise, on events written by hand: minimal violations, and similar events without a violation."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest

from fakebroker.replay.members.events import Event
from fakebroker.replay.promises.catalog import PROMISES
from fakebroker.replay.promises.observer import Found
from fakebroker.replay.report.promise_checks import SCHEMA, promise_checks, write_violations
from fakebroker.replay.run_summary import PromiseCheck, Violation
from tests.support.replay.observed import DEFAULT_TIMES, BrokerTimes, observed
from tests.support.replay.recorded_events import (
    HEALTHY,
    MEMBERS,
    OF_1,
    SECOND,
    START_US,
    TRANSACTIONAL,
    beat,
    beats,
    commit,
    ended,
    event,
    event_of,
    fetch,
    found,
    initialized,
    join,
    list_transactions,
    lost,
    member,
    produced,
    read,
    reports,
    script_of,
    stable,
    steady,
    still_open,
    stored,
    sync,
)

OF_2: dict[str, Any] = {"member": "g-2"}
SYNC_OF_0 = next(
    index for index, each in enumerate(HEALTHY) if each.api == "SyncGroup" and each.assigned == ["orders-0"]
)
OLD: dict[str, Any] = {"member_id": "old", "instance_id": "i"}
NEW: dict[str, Any] = {"member_id": "new", "instance_id": "i"}


def healthy_with(index: int, *others: Event) -> list[Event]:
    """Return `HEALTHY` with other events in place of one."""
    return [*HEALTHY[:index], *others, *HEALTHY[index + 1 :]]


def healthy_then(*more: Event) -> list[Event]:
    """Return `HEALTHY` followed by more events; it ends at second 30."""
    return [*HEALTHY, *more]


def next_generation(generation: int, *partitions: int, at_s: float = 31) -> list[Event]:
    """Return the events of a generation after those of `HEALTHY`, with g-0 as its only member."""
    return [join(at_s, generation, members=1), sync(at_s + 0.1, generation, *partitions)]


def unassigned(node: int) -> list[Event]:
    """Return the events of a member that joins for 28 s, and loses the connection after each SyncGroup."""
    return [
        each
        for n in range(10)
        for each in (
            join(3 * n + 1, n + 1, members=1),
            lost("SyncGroup", 3 * n + 1.1, until_s=3 * n + 1.1, generation=n + 1),
            found(3 * n + 1.2, node),
        )
    ]


def rejected(leave_s: float) -> list[Event]:
    """Return the events of a member whose SyncGroups are rejected, and that leaves while its JoinGroup is parked."""
    joins = [join(6 * n + 0.2, n + 1, members=1, latency_us=5_500_000, member_id=f"{n}") for n in range(5)]
    syncs = [event("SyncGroup", 6 * n + 5.9, generation=n + 1, error=25, member_id=f"{n}") for n in range(4)]
    return [found(0, again=False), *joins, *syncs, event("leave", leave_s, **ACT)]


ACT: dict[str, Any] = {"kind": "act", "error": None, "latency_us": None, "version": -1, "broker": -1}
PATIENT = [member(f"g-{number}", session_timeout_ms=60_000, rebalance_timeout_ms=60_000) for number in range(3)]
UNHURRIED = [member(f"g-{number}", rebalance_timeout_ms=60_000) for number in range(3)]
UNJOINED = [lost("JoinGroup", 31, lost=False), lost("JoinGroup", 31, lost=False, **OF_1)]
ANSWERING = fetch(78.5, 20, member=None)
"""A response of the coordinator to a tool, shortly before the end of the events of all cases."""
UNSYNCED = lost("SyncGroup", 31.1, lost=False, generation=3, **OF_1)


class Case(NamedTuple):
    """A group's events, the names of the promises that they break, and the scripts of its members."""

    events: Sequence[Event]
    broken: Sequence[str] = ()
    members: Sequence[Any] = MEMBERS


REPLACED = [
    found(0),
    join(1, 1, leader="old", members=1, **OLD),
    sync(1.1, 1, 0, 1, **OLD),
    join(3, 1, leader="new", members=1, **NEW),
    sync(3.1, 1, 0, 1, **NEW),
]

COMMITTED = [produced(1), stored(1.1, 10), ended(1.2)]
"""The requests of a transaction."""

TIMES = BrokerTimes(session_us=10 * SECOND, heartbeat_us=SECOND)
LAST_COMMIT = commit(15.01, 7, generation=1, offsets=[("orders-1", 7)])
CONSUMERS: tuple[Event, ...] = (
    reports(0, 0, 1, assigned=(0, 1), owned=()),
    reports(0.01, 1, 1, owned=(0, 1)),
    steady(5, 10, 1),
    reports(10.5, 0, 2, assigned=(), owned=(), **OF_1),
    reports(10.51, 2, 2, owned=(), **OF_1),
    reports(15, 1, 1, assigned=(0,)),
    LAST_COMMIT,
    reports(15.02, 1, 2, owned=(0,)),
    reports(15.6, 2, 2, assigned=(1,), **OF_1),
    reports(15.61, 2, 2, owned=(1,), **OF_1),
    steady(20, 60, 2),
    steady(20.5, 60.5, 2, **OF_1),
)
"""Members of the consumer protocol: g-1 joins, and g-0 gives up orders-1."""


def consumers(without: Sequence[int] = (), *more: Event) -> list[Event]:
    """Return `CONSUMERS` without some events, and with others."""
    return [*(each for index, each in enumerate(CONSUMERS) if index not in without), *more]


TAKEN_OVER = [
    reports(0, 0, 1, assigned=(0, 1), owned=(), **OLD),
    reports(0.01, 1, 1, owned=(0, 1), **OLD),
    reports(20, 0, 2, assigned=(0, 1), owned=(), **NEW),
    reports(20.01, 2, 2, owned=(0, 1), **NEW),
]
"""A static member of the consumer protocol, whose session ends, and another one with its instance id."""


CASES: dict[str, Case] = {
    "members of the consumer protocol": Case(consumers()),
    "a partition is assigned before it was given up": Case(
        consumers((3,), reports(10.5, 0, 2, assigned=(1,), owned=(), **OF_1)), ["one-owner"]
    ),
    "a partition moves again": Case(
        consumers(
            (10, 11),
            reports(18, -1, -1, owned=(), **OF_1),
            reports(20, 2, 3, assigned=(0, 1)),
            reports(20.01, 3, 3, owned=(0, 1)),
            steady(25, 60, 3),
        )
    ),
    "an epoch goes back": Case(consumers((), reports(17, 2, 1)), ["epochs-rise"]),
    "a new member gets an older epoch": Case(
        consumers(
            (),
            reports(30, 0, 1, assigned=(), owned=(), **OF_2),
            reports(31, -1, -1, owned=(), **OF_2),
        ),
        ["epochs-rise"],
    ),
    "a new member joins, and the others leave before the group starts over": Case(
        consumers(
            (),
            reports(59, 0, 1, assigned=(), owned=(), done_s=61.5, **OF_2),
            reports(62, -1, -1, owned=(), **OF_2),
        )
    ),
    "the last commit before a partition is given up is rejected": Case(
        consumers((6,), LAST_COMMIT._replace(error=25, offsets=None)), ["revoked-committed"]
    ),
    "a last commit is rejected, and accepted when it is repeated": Case(
        consumers((6,), LAST_COMMIT._replace(error=113, offsets=None), commit(15.015, 7, offsets=[("orders-1", 7)]))
    ),
    "a member does not reach the newest epoch": Case(
        consumers((5, 6, 7, 8, 9, 10), steady(15, 60, 1)), ["targets-reached"]
    ),
    "a heartbeat is sent before another member leaves, and answered with the epoch after that": Case(
        consumers((), reports(60.59, 2, 3, done_s=60.62, assigned=(0, 1)), reports(60.6, -1, -1, owned=(), **OF_1))
    ),
    "a member leaves while there is no coordinator, and its session begins again with the next one": Case(
        consumers(
            (10, 11),
            event("leave", 16, **ACT, **OF_1),
            lost("ConsumerGroupHeartbeat", 16.01, epoch=-1, **OF_1),
            steady(20, 34, 2),
            found(24, node=3),
            reports(34.5, 2, 3, assigned=(0, 1)),
            reports(34.51, 3, 3, owned=(0, 1)),
            steady(35, 60, 3),
        )
    ),
    "the partitions of a member that has left are not assigned": Case(
        consumers(
            (10, 11),
            event("leave", 16, **ACT, **OF_1),
            reports(16.01, -1, -1, owned=(), **OF_1),
            reports(20, 2, 3),
            steady(25, 60, 3),
        ),
        ["targets-reached"],
    ),
    "a partition that was given up is not assigned": Case(consumers((8, 9)), ["targets-reached"]),
    "a slow member does not give up its partitions": Case(
        consumers(
            range(5, 12),
            event("slow", 12, kind="act", error=None, latency_us=None),
            steady(15, 30, 1),
            steady(15.5, 30.5, 2, **OF_1),
        )
    ),
    "a silent member of the consumer protocol is not removed": Case(
        consumers((10, 11), event("crash", 16, kind="act", error=None, latency_us=None, **OF_1), steady(20, 60, 2)),
        ["silent-out", "targets-reached"],
    ),
    "a silent member of the consumer protocol is removed": Case(
        consumers(
            (10, 11),
            event("crash", 16, kind="act", error=None, latency_us=None, **OF_1),
            steady(20, 25, 2),
            reports(30, 2, 3, assigned=(0, 1)),
            reports(30.01, 3, 3, owned=(0, 1)),
            steady(35, 60, 3),
        )
    ),
    "a member of the consumer protocol is removed while it sends heartbeats": Case(
        consumers((), reports(61, 2, 2, error=25)), ["beating-stays"]
    ),
    "a member of the consumer protocol joins again before its lost goodbye is handled": Case(
        consumers(
            (),
            lost("ConsumerGroupHeartbeat", 61, epoch=-1, generation=None),
            *[reports(61.5, 0, 2, assigned=(0, 1)), reports(62, 2, 2, error=25)],
        )
    ),
    "an unknown member of the consumer protocol is accepted": Case(
        consumers((), reports(74, 2, 2, error=25), reports(75, 2, 2)), ["unknown-refused"]
    ),
    "a commit of an unknown member of the consumer protocol is accepted": Case(
        consumers((), reports(74, 2, 2, error=25), commit(75, 3)), ["unknown-refused"]
    ),
    "a commit of an unknown member of the consumer protocol is rejected": Case(
        consumers((), reports(74, 2, 2, error=25), commit(75, 3, error=25, offsets=[]))
    ),
    "a commit is accepted while a static member of the consumer protocol is away": Case(
        consumers((), reports(61, -2, -2), commit(62, 3)), ["unknown-refused"]
    ),
    "a heartbeat with an old epoch is accepted": Case(consumers((), reports(61, 1, 2)), ["stale-refused"]),
    "a heartbeat with an old epoch that lists a partition given up is accepted": Case(
        consumers((), reports(61, 1, 2, owned=(0, 1))), ["stale-refused"]
    ),
    "a heartbeat with an old epoch that lists the partitions of the member is accepted": Case(
        consumers((), reports(61, 1, 2, owned=(0,)))
    ),
    "an OffsetFetch with an old epoch is accepted": Case(
        consumers((), fetch(61, 20, generation=1, member_id="g-0-id")), ["stale-refused"]
    ),
    "an OffsetFetch with an old epoch is rejected": Case(
        consumers((), fetch(61, 20, generation=1, member_id="g-0-id", error=113, offsets=None))
    ),
    "an OffsetFetch in a version without epochs is accepted": Case(
        consumers((), fetch(61, 20, generation=1, member_id="g-0-id", version=8))
    ),
    "a commit with an old epoch of a partition given up is accepted": Case(
        consumers((), commit(61, 9, generation=1, offsets=[("orders-0", 9), ("orders-1", 9)])), ["stale-refused"]
    ),
    "a commit with an old epoch of a partition that the member still has is accepted": Case(
        consumers((), commit(61, 9, generation=1))
    ),
    "a commit with an old epoch is sent before the response with the newer one": Case(
        consumers((), commit(15.0205, 9, generation=1, offsets=[("orders-1", 9)]))
    ),
    "a TxnOffsetCommit with an old epoch of a partition given up is accepted": Case(
        consumers((), stored(61, 9, generation=1, offsets=[("orders-1", 9)])), ["stale-refused"]
    ),
    "a commit is accepted after another static member of the consumer protocol has taken over": Case(
        [*TAKEN_OVER, commit(21, 3, generation=1, **OLD)], ["fenced-refused"]
    ),
    "a TxnOffsetCommit is accepted after another static member has taken over": Case(
        [*TAKEN_OVER, stored(21, 3, generation=1, **OLD)], ["fenced-refused"]
    ),
    "a request is rejected after another static member of the consumer protocol has taken over": Case(
        [*TAKEN_OVER, reports(21, 1, 1, error=82, **OLD)]
    ),
    "a static member of the consumer protocol had joined before the replay": Case(TAKEN_OVER[1:]),
    "a static member of the consumer protocol takes its instance id over again": Case(
        [
            *TAKEN_OVER,
            reports(30, -2, -2, owned=(), **NEW),
            reports(31, 0, 2, assigned=(0, 1), owned=(), **OLD),
            commit(32, 3, **OLD),
        ]
    ),
    "a healthy group": Case(HEALTHY),
    # one-owner
    "a partition is assigned to two members": Case(healthy_with(SYNC_OF_0, sync(5.04, 2, 0, 1)), ["one-owner"]),
    "a partition is assigned to the same member again": Case(healthy_then(sync(31, 2, 0))),
    "a static member returns with a new member id": Case(REPLACED),
    # covered
    "a partition is not assigned": Case(healthy_with(SYNC_OF_0, sync(5.04, 2)), ["covered"]),
    "a partition of another topic is assigned": Case(
        healthy_with(SYNC_OF_0, sync(5.04, 2, 0)._replace(assigned=["orders-0", "o-1"])), ["covered"]
    ),
    "a partition that was added is assigned": Case(healthy_with(SYNC_OF_0, sync(5.04, 2, 0, 2))),
    "the assignment of a member is unknown": Case(healthy_with(SYNC_OF_0, lost("SyncGroup", 5.04, generation=2))),
    "a cooperative generation withholds a partition": Case(
        healthy_with(SYNC_OF_0, sync(5.04, 2)),
        members=[each._replace(assignor="cooperative-sticky") for each in MEMBERS],
    ),
    "a cooperative generation withholds a partition for too long": Case(
        [*healthy_with(SYNC_OF_0, sync(5.04, 2)), beats(31, 40), beats(31, 40, **OF_1)],
        ["covered"],
        [each._replace(assignor="cooperative-sticky") for each in MEMBERS],
    ),
    # one-leader
    "a generation has two leaders": Case(
        healthy_then(
            *[join(31, 3, members=2), join(31, 3, leader="g-1-id", members=2, **OF_1)],
            *[sync(31.1, 3, 0), sync(31.1, 3, 1, **OF_1)],
        ),
        ["one-leader"],
    ),
    "a generation has two protocols": Case(
        healthy_then(
            *[join(31, 3, members=2), join(31, 3, protocol="sticky", **OF_1)],
            *[sync(31.1, 3, 0), sync(31.1, 3, 1, **OF_1)],
        ),
        ["one-leader"],
    ),
    "a generation that was never complete has another leader after a move": Case(
        healthy_then(
            *[join(31, 3, members=2), join(31, 3, **OF_1), event("SyncGroup", 31.1, generation=3, error=16)],
            *[found(31.2, 1), join(32, 3, leader="g-1-id", broker=1), sync(32.1, 3, 0, broker=1)],
            *[join(32, 3, leader="g-1-id", members=2, broker=1, **OF_1), sync(32.1, 3, 1, broker=1, **OF_1)],
        )
    ),
    "a member joins again while another one finds the coordinator, and a generation has another leader": Case(
        healthy_then(
            *[join(31, 3, leader="g-1-id", members=1, **OF_1), found(31.2, 1), found(34, 1)],
            join(32, 3, latency_us=3_000_000, broker=1, **OF_1),
            *[join(34.9, 3, members=2, broker=1), sync(35.1, 3, 0, broker=1), sync(35.1, 3, 1, broker=1, **OF_1)],
        )
    ),
    # generations-rise
    "a generation id is skipped": Case(healthy_then(*next_generation(4, 0, 1)), ["generations-rise"]),
    "a generation id is skipped after a lost JoinGroup": Case(
        healthy_then(lost("JoinGroup", 30.5), *next_generation(4, 0, 1))
    ),
    "a generation id is skipped while the group is empty": Case(
        healthy_then(
            *[event("LeaveGroup", 31), event("LeaveGroup", 31, **OF_1)],
            *[join(40, 4, leader="g-2-id", members=1, **OF_2), sync(40.1, 4, 0, 1, **OF_2)],
        )
    ),
    "a new member joins a complete generation": Case(
        healthy_then(event("JoinGroup", 31, error=79, **OF_2), join(31.1, 2, **OF_2)), ["generations-rise"]
    ),
    "a leader joins again and gets the same generation": Case(
        healthy_then(join(31, 2, members=2)), ["generations-rise"]
    ),
    "a follower joins again and gets the same generation": Case(
        healthy_then(join(31, 2, **OF_1), sync(31.1, 2, 1, **OF_1))
    ),
    "a group returns to an earlier generation": Case(
        healthy_then(*next_generation(3, 0, 1), join(40, 2, **OF_1)), ["generations-rise"]
    ),
    "a group returns to the last complete generation after a move": Case(
        healthy_then(
            join(31, 3, **OF_1), event("SyncGroup", 31.1, generation=3, error=22, **OF_1), join(31.2, 2, **OF_1)
        )
    ),
    "a group starts over while it has members": Case(
        healthy_then(join(32, 1, leader="g-2-id", members=1, **OF_2), sync(32.1, 1, 0, 1, **OF_2)), ["generations-rise"]
    ),
    "a group starts over after it was empty": Case(
        healthy_then(
            *[event("LeaveGroup", 31), event("LeaveGroup", 31, **OF_1)],
            *[join(40, 1, leader="g-2-id", members=1, **OF_2), sync(40.1, 1, 0, 1, **OF_2)],
            *[beat(41, 1, **OF_2), commit(41, 1, generation=1, **OF_2)],
        )
    ),
    # commits-kept
    "an earlier commit is fetched": Case(healthy_then(fetch(31, 10)), ["commits-kept"]),
    "no commit is fetched": Case(healthy_then(fetch(31, -1)), ["commits-kept"]),
    "a later offset is fetched": Case(healthy_then(fetch(31, 25))),
    "an earlier commit is fetched with those of other groups": Case(
        healthy_then(fetch(31, 10, kind="seen", member=None, source="load")), ["commits-kept"]
    ),
    "a later offset is fetched with those of other groups": Case(
        healthy_then(fetch(31, 25, kind="seen", member=None, source="load"))
    ),
    "an older offset is committed again and fetched": Case(healthy_then(commit(30.5, 10), fetch(31, 10))),
    "a commit is fetched before it is acknowledged": Case(healthy_then(commit(31, 5, done_s=32), fetch(31.5, 5))),
    "a commit is fetched whose response was lost": Case(healthy_then(lost("OffsetCommit", 30.5), fetch(31, 5))),
    "a commit is not acknowledged yet": Case(healthy_then(commit(30.5, 30, done_s=32), fetch(31, 20))),
    "offsets may have expired": Case(healthy_then(fetch(80, -1))),
    # silent-out
    "a silent member is not removed": Case(
        [*HEALTHY[:-3], beats(6, 22), beat(22.5, error=27, **OF_1)], ["silent-out", "silent-out"]
    ),
    "a silent member is not removed, while a tool looks up the coordinator": Case(
        [
            *[*HEALTHY[:-3], beats(6, 22), beat(22.5, error=27, **OF_1)],
            *(found(at_s, again=False) for at_s in (8, 13, 18)),
        ],
        ["silent-out", "silent-out"],
    ),
    "a silent member is removed": Case([*HEALTHY[:-3], beats(6, 14), beat(23, error=25, **OF_1)]),
    "a silent member is not removed after a move": Case(
        [*HEALTHY[:-3], beat(22, error=16, **OF_1), found(22.1, 1), beat(23, broker=1, **OF_1)]
    ),
    "a generation continues with a silent member": Case([*HEALTHY[:-2], commit(10, 20)], ["silent-out"]),
    "a member joins a generation that its next coordinator uses without it": Case(
        healthy_then(
            *[join(31, 3, members=2), join(31, 3, **OF_1), event("SyncGroup", 31.1, generation=3, error=16, **OF_1)],
            *[event("crash", 31.2, kind="act", error=None, latency_us=None, **OF_1), found(31.3)],
            *[join(40, 3, members=1), sync(40.1, 3, 0, 1), beats(41, 60, 3)],
        )
    ),
    "a generation continues after a member was fenced": Case(
        [*HEALTHY[:-2], event("JoinGroup", 5.5, error=82, **OF_1), commit(10, 20)]
    ),
    "a generation ends after a member is silent": Case([*HEALTHY[:-3], beats(6, 18), beat(19, error=27)]),
    "a generation continues with a silent member after a move": Case([*HEALTHY[:-2], found(15)]),
    # beating-stays
    "a member is removed": Case(healthy_then(beat(31, error=25, **OF_1)), ["beating-stays"]),
    "a member is removed while another one starts": Case(
        healthy_then(found(30.9, again=False), beat(31, error=25, **OF_1)), ["beating-stays"]
    ),
    "a member is removed after another one finds another coordinator": Case(
        healthy_then(found(30.9, 1, again=False), beat(31, error=25, **OF_1))
    ),
    "a member is removed after it left": Case(
        healthy_then(event("LeaveGroup", 30.5, **OF_1), beat(31, error=25, **OF_1))
    ),
    "a member is removed after it was silent": Case(healthy_then(beat(40, error=25, **OF_1), beat(31))),
    "a member is removed before its generation is complete": Case(
        healthy_then(join(31, 3, **OF_1), beat(31.5, 3, **OF_1), beat(32, 3, error=25, **OF_1))
    ),
    "a member is removed because it did not join in time": Case(
        healthy_then(beats(31, 34, **OF_1), beats(35, 53, error=27, **OF_1), beat(54, error=25, **OF_1)),
        members=[member("g-0"), member("g-1", session_timeout_ms=60_000), member("g-2")],
    ),
    # stale-refused
    "a commit of an old generation is accepted": Case(
        healthy_then(*next_generation(3, 0, 1), commit(32, 30, **OF_1)), ["stale-refused"]
    ),
    "a heartbeat of an old generation is accepted": Case(
        healthy_then(*next_generation(3, 0, 1), beat(32, **OF_1)), ["stale-refused"]
    ),
    "a heartbeat of an old generation is accepted while the coordinator loads": Case(
        healthy_then(*next_generation(3, 0, 1), found(31.5), beat(32, **OF_1))
    ),
    "a heartbeat of an old generation is rejected": Case(
        healthy_then(*next_generation(3, 0, 1), beat(32, error=22, **OF_1))
    ),
    "a heartbeat is accepted before the next generation is complete": Case(healthy_then(join(31, 3, **OF_1), beat(32))),
    # fenced-refused
    "a commit of a replaced static member is accepted": Case(
        [*REPLACED, commit(4, 1, generation=1, **OLD)], ["fenced-refused"]
    ),
    "a commit of a replaced static member is rejected": Case(
        [*REPLACED, commit(4, 1, generation=1, **OLD)._replace(error=82, offsets=[])]
    ),
    # unknown-refused
    "a heartbeat of a removed member is accepted": Case(
        healthy_then(beat(41, error=25, **OF_1), beat(42, **OF_1), beats(31, 40)), ["unknown-refused"]
    ),
    "a heartbeat of a member that left is accepted": Case(
        healthy_then(event("LeaveGroup", 31, **OF_1), beat(32, **OF_1)), ["unknown-refused"]
    ),
    "a heartbeat of a member that left is accepted after a move": Case(
        healthy_then(event("LeaveGroup", 31, **OF_1), found(31.5), beat(32, **OF_1))
    ),
    # answered
    "a Heartbeat is never answered": Case(healthy_then(lost("Heartbeat", 31, generation=2, lost=False)), ["answered"]),
    "requests are unanswered when the replay ends": Case(
        healthy_then(lost("Heartbeat", 60, lost=False), lost("JoinGroup", 60, lost=False))
    ),
    "a JoinGroup is never answered": Case(healthy_then(lost("JoinGroup", 54, lost=False)), ["answered"]),
    "the connection of a Heartbeat is lost": Case(healthy_then(lost("Heartbeat", 31, generation=2))),
    "a JoinGroup times out": Case(
        healthy_then(
            lost("JoinGroup", 31, until_s=56.1, **OF_1),
            *(beat(54 + n / 2, error=27) for n in range(4)),
            beats(31, 53, error=27),
        ),
        ["answered"],
    ),
    "a JoinGroup times out that was sent again after a lost connection": Case(
        healthy_then(
            lost("JoinGroup", 30.8, **OF_1),
            lost("JoinGroup", 31, until_s=56.1, **OF_1),
            *(beat(54 + n / 2, error=27) for n in range(4)),
            beats(31, 53, error=27),
        )
    ),
    "a JoinGroup times out before the rebalance timeout of another member": Case(
        healthy_then(
            lost("JoinGroup", 31, until_s=56.1, **OF_1),
            *(beat(54 + n / 2, error=27) for n in range(4)),
            beats(31, 53, error=27),
        ),
        members=[member("g-0", rebalance_timeout_ms=60_000), member("g-1")],
    ),
    "a SyncGroup is never answered": Case(
        healthy_then(*next_generation(3, 0, 1), UNSYNCED, beat(40, 3)), ["answered"], PATIENT
    ),
    "a SyncGroup is unanswered when the replay ends": Case(
        healthy_then(*next_generation(3, 0, 1), UNSYNCED._replace(sent_us=START_US + 77 * SECOND)), members=PATIENT
    ),
    "a SyncGroup of an incomplete generation is unanswered": Case(
        healthy_then(
            *[join(31, 3, members=2), UNSYNCED._replace(member="g-0", member_id="g-0-id")],
            *[join(31, 3, **OF_1), UNSYNCED],
        ),
        members=PATIENT,
    ),
    "a SyncGroup is unanswered by a former coordinator": Case(
        healthy_then(*next_generation(3, 0, 1), UNSYNCED, found(33), beat(40, 3)), members=PATIENT
    ),
    "a SyncGroup of a paused member is unanswered": Case(
        healthy_then(
            *[*next_generation(3, 0, 1), UNSYNCED, beat(40, 3)],
            event("pause", 31.2, kind="act", error=None, latency_us=None, version=-1, broker=-1, **OF_1),
        ),
        members=PATIENT,
    ),
    "a SyncGroup times out": Case(
        healthy_then(
            *[*next_generation(3, 0, 1), lost("SyncGroup", 31.1, until_s=41.1, generation=3, **OF_1)],
            *(beat(at_s, 3) for at_s in (38, 39, 40)),
        ),
        ["answered"],
        PATIENT,
    ),
    "the connection of a SyncGroup is lost": Case(
        healthy_then(
            *[*next_generation(3, 0, 1), lost("SyncGroup", 31.1, until_s=35.1, generation=3, **OF_1)],
            *(beat(at_s, 3) for at_s in (33, 34, 35)),
        ),
        members=PATIENT,
    ),
    "an OffsetFetch times out": Case(
        healthy_then(lost("OffsetFetch", 25, until_s=55, **OF_1), beats(31, 51), beat(53), beat(54)),
        ["answered"],
        PATIENT,
    ),
    "an OffsetFetch times out while its broker does not respond": Case(
        healthy_then(lost("OffsetFetch", 25, until_s=55, **OF_1)), members=PATIENT
    ),
    "all JoinGroups of a group are unanswered": Case(
        healthy_then(*UNJOINED, ANSWERING), ["answered", "answered"], UNHURRIED
    ),
    "all JoinGroups of a group are unanswered until its members leave": Case(
        healthy_then(
            *[*UNJOINED, event("leave", 58, **ACT), event("leave", 58, **(ACT | OF_1))],
            fetch(56.5, 20, member=None),
        ),
        ["answered", "answered"],
        UNHURRIED,
    ),
    "all JoinGroups of a group are unanswered, and the broker answers nothing": Case(
        healthy_then(*UNJOINED), members=UNHURRIED
    ),
    "a JoinGroup waits for a member that does not join": Case(
        healthy_then(UNJOINED[0], beats(31, 77, error=27, **OF_1), ANSWERING), members=UNHURRIED
    ),
    "a JoinGroup is unanswered while heartbeats of another member succeed": Case(
        healthy_then(UNJOINED[1], beats(31, 40)), ["answered"], UNHURRIED
    ),
    "a JoinGroup is unanswered while heartbeats succeed, but the coordinator may be loading": Case(
        healthy_then(UNJOINED[1], found(33), beats(31, 40)), members=UNHURRIED
    ),
    "a JoinGroup waits for expected instances while heartbeats succeed": Case(
        healthy_then(event("JoinGroup", 30.9, member=None), UNJOINED[1], beats(31, 40)), members=UNHURRIED
    ),
    "the SyncGroup of the leader is unanswered": Case(
        healthy_then(
            *[join(31, 3, members=2), lost("SyncGroup", 31.1, lost=False, generation=3)],
            *[join(31, 3, **OF_1), UNSYNCED, ANSWERING],
        ),
        ["answered", "answered"],
        PATIENT,
    ),
    "a member whose SyncGroup is lost leads the same generation after a move": Case(
        healthy_then(
            *[join(31, 3, leader="gone", members=3, **OF_1), lost("SyncGroup", 31.1, until_s=60, generation=3, **OF_1)],
            *[fetch(58.5, 20, member=None), found(60.1, 1), join(61, 3, leader="g-1-id", broker=1, members=1, **OF_1)],
            sync(61.1, 3, 0, 1, broker=1, **OF_1),
        ),
        members=PATIENT,
    ),
    "a member joins again and again without an assignment": Case(
        healthy_then(
            *(
                each
                for n in range(7)
                for each in (
                    join(31 + 5 * n, 3 + n, **OF_2),
                    event("SyncGroup", 32 + 5 * n, generation=3 + n, error=27, **OF_2),
                )
            )
        ),
        ["answered"],
    ),
    "all SyncGroups of a group are lost": Case([found(0, again=False), *unassigned(2)], ["answered"]),
    "all SyncGroups of a group are rejected until its members leave": Case(rejected(29), ["answered"]),
    "all SyncGroups of a group are rejected for a short time": Case(rejected(9)),
    "all SyncGroups of a group are lost, and its coordinator moves": Case([found(0, 1, again=False), *unassigned(2)]),
    "some SyncGroups of a group are lost": Case(
        [found(0, again=False), *unassigned(2), join(31, 11, members=1), sync(31.1, 11, 0, 1)]
    ),
    # coordinator-found
    "the broker named as coordinator answers NOT_COORDINATOR": Case(
        [each for n in range(4) for each in (found(2 * n, 9), event("JoinGroup", 2 * n + 0.1, error=16, broker=9))],
        ["coordinator-found"],
    ),
    "the broker named as coordinator answers NOT_COORDINATOR for a short time": Case(
        [each for n in range(4) for each in (found(n, 9), event("JoinGroup", n + 0.1, error=16, broker=9))]
    ),
    "the broker named as coordinator serves the group, and then answers NOT_COORDINATOR": Case(
        [
            *[found(0, 9), beat(0.1, broker=9), beat(3, error=16, broker=9), found(8.5, 9)],
            beat(9, error=16, broker=9),
        ],
        ["coordinator-found"],
    ),
    "the broker named as coordinator loads": Case(
        [each for n in range(4) for each in (found(2 * n, 9), event("JoinGroup", 2 * n + 0.1, error=14, broker=9))]
    ),
    "a broker is named as coordinator again after another one": Case(
        [
            *[
                found(0, 9),
                event("JoinGroup", 0.1, error=16, broker=9),
                found(1, 8),
                event("JoinGroup", 20, error=16, broker=8),
            ],
            *[found(21, 9), event("JoinGroup", 21.1, error=16, broker=9), found(22, 9)],
        ]
    ),
    # one-coordinator
    "two brokers serve a group at the same time": Case(
        healthy_then(*(beat(31 + n, broker=2 - n % 2, member=f"g-{n % 2}") for n in range(10))), ["one-coordinator"]
    ),
    "a broker rejects invalid requests while another one serves the group": Case(
        healthy_then(
            *(beat(31 + n, broker=2 - n % 2, error=42 * (n % 2), member=f"g-{n % 2}") for n in range(10)),
            beats(31, 40, **OF_1),
        )
    ),
    "a coordinator moves back and forth, and a member looks it up each time": Case(
        healthy_then(
            *(each for n in range(5) for each in (found(31 + 4 * n, 2 - n % 2), beat(32 + 4 * n, broker=2 - n % 2)))
        )
    ),
    "two brokers serve a group one after the other": Case(
        healthy_then(*(beat(31 + n, broker=2 - (n > 5), member=f"g-{n % 2}") for n in range(10)))
    ),
    "a coordinator moves back and forth": Case(
        healthy_then(
            *(
                each
                for n in range(10)
                for each in (
                    beat(31 + n, error=16, broker=1 + n % 2),
                    found(31.2 + n, 2 - n % 2),
                    beat(31.5 + n, broker=2 - n % 2),
                )
            ),
            beats(31, 40, **OF_1),
        )
    ),
    # atomic
    "a transaction is committed": Case([*COMMITTED, read(2), read(2, partition="payments-1"), fetch(3, 10)]),
    "a transaction is aborted": Case(
        [
            fetch(0.5, 5),
            produced(1),
            stored(1.1, 10),
            ended(1.2, committed=False),
            read(2, committed=False),
            fetch(3, 5),
        ]
    ),
    "the response to a commit is lost": Case(
        [produced(1), stored(1.1, 10), lost("EndTxn", 1.2, transaction=(7, 0, 1, True)), read(2), fetch(3, 10)]
    ),
    "the response to a commit that had no effect is lost": Case(
        [produced(1), stored(1.1, 10), lost("EndTxn", 1.2, transaction=(7, 0, 1, True)), read(2, committed=False)]
    ),
    "records are visible in one partition only": Case(
        [*COMMITTED, read(2), read(2, committed=False, partition="payments-1")], ["atomic"]
    ),
    "records are visible before the commit": Case([produced(1), stored(1.1, 10), read(1.15), ended(1.2)], ["atomic"]),
    "records of an aborted transaction are visible": Case(
        [produced(1), ended(1.2, committed=False), read(2)], ["atomic"]
    ),
    "records of a transaction whose commit was rejected are visible": Case(
        [produced(1), ended(1.2, error=90), read(2)], ["atomic"]
    ),
    "records are visible whose only commit had an old epoch": Case(
        [
            *[initialized(0, 0), produced(1), initialized(1.1, 1)],
            *[lost("EndTxn", 1.2, transaction=(7, 0, 1, True)), read(2)],
        ],
        ["atomic"],
    ),
    "records of a committed transaction are not visible": Case([*COMMITTED, read(2, committed=False)], ["atomic"]),
    "offsets of a committed transaction are lost": Case([*COMMITTED, fetch(3, 5)], ["atomic"]),
    "offsets are lost although the records are visible": Case(
        [produced(1), stored(1.1, 10), lost("EndTxn", 1.2, transaction=(7, 0, 1, True)), read(2), fetch(3, 5)],
        ["atomic"],
    ),
    "offsets are fetched before the commit": Case([fetch(1.15, 5), *COMMITTED]),
    "offsets of a later transaction are fetched": Case(
        [*COMMITTED, produced(2, 2), stored(2.1, 20, 2), ended(2.2, 2), fetch(3, 20), fetch(3.1, 20, **OF_1)]
    ),
    "a later transaction commits a lower offset": Case(
        [*COMMITTED, produced(2, 2), stored(2.1, 7, 2), ended(2.2, 2), fetch(3, 7)]
    ),
    "offsets of an aborted transaction are fetched": Case(
        [produced(1), stored(1.1, 10), ended(1.2, committed=False), fetch(3, 10)], ["atomic"]
    ),
    "offsets are fetched before they are committed": Case(
        [produced(1), stored(1.1, 10), fetch(1.15, 10), ended(1.2)], ["atomic"]
    ),
    "an offset is committed after it was aborted": Case(
        [produced(1), stored(1.1, 10), ended(1.2, committed=False), stored(2.1, 10, 2), ended(2.2, 2), fetch(3, 10)]
    ),
    # old-epochs-refused
    "an old epoch is refused": Case([initialized(0, 0), produced(1), initialized(2, 2), ended(3, error=90)]),
    "an old epoch is accepted": Case(
        [initialized(0, 0), produced(1), initialized(2, 2), ended(3)], ["old-epochs-refused"]
    ),
    "an old producer id is accepted": Case(
        [initialized(0, 32_766), produced(1), initialized(2, 0, 8), ended(3, epoch=32_766)], ["old-epochs-refused"]
    ),
    "an epoch that a commit has returned is accepted": Case(
        [initialized(0, 0), ended(1), ended(2, 2, epoch=1), ended(3, 3, transaction=(9, 0, 3, True))]
    ),
    "a repeated batch of an old epoch is acknowledged": Case([initialized(0, 0), initialized(1, 2), produced(2)]),
    # overdue-aborted
    "an overdue transaction is aborted": Case(
        [produced(1), still_open(4, 4), still_open(14, 4), list_transactions(30), initialized(31, 2)],
        members=TRANSACTIONAL,
    ),
    "an overdue transaction stays open": Case(
        [produced(1), still_open(4, 4), still_open(30, 4), list_transactions(30)], ["overdue-aborted"], TRANSACTIONAL
    ),
    "an overdue transaction is open at a broker that has just started": Case(
        [produced(1), still_open(4, 4), still_open(30, 20), list_transactions(30)], members=TRANSACTIONAL
    ),
    "a transaction is left open for a short time": Case(
        [produced(1), still_open(4, 4), initialized(9, 2), list_transactions(30)], members=TRANSACTIONAL
    ),
    # stable-offset-rises
    "the last stable offset goes back": Case([stable(1, 5), stable(2, 9), stable(3, 8)], ["stable-offset-rises"]),
    "the last stable offset rises": Case([stable(1, 5), stable(2, 9, count=3, until_s=2.6), stable(3, 9)]),
    "a new leader returns a lower last stable offset for a moment": Case(
        [stable(1, 9), stable(2, 8, broker=3), stable(3, 9, broker=3)]
    ),
    "a new leader returns a lower last stable offset": Case(
        [stable(1, 9), stable(2, 8, broker=3), stable(9, 8, broker=3)], ["stable-offset-rises"]
    ),
}


@pytest.fixture(scope="module")
def checked() -> tuple[list[Found], dict[str | None, Counter[str]]]:
    """Return the violations of all cases, and the numbers of cases of the promises by group.

    Each case is a group of its own.
    """
    cases = list(enumerate(CASES.values()))
    events = [event_of(f"c{number}", each, 10 * number) for number, case in cases for each in case.events]
    members = [script_of(f"c{number}", each) for number, case in cases for each in case.members]
    return observed(events, members, TIMES)


def test_violations_are_found_and_nothing_else(
    checked: tuple[list[Found], dict[str | None, Counter[str]]], subtests: pytest.Subtests
) -> None:
    for number, (name, case) in enumerate(CASES.items()):
        violations = [(each.promise, each.what) for each in checked[0] if each.group == f"c{number}"]
        with subtests.test(case=name):
            assert sorted(promise for promise, _ in violations) == sorted(case.broken), violations


def test_every_violation_is_in_a_case_of_its_promise(
    checked: tuple[list[Found], dict[str | None, Counter[str]]], subtests: pytest.Subtests
) -> None:
    for number, (name, case) in enumerate(CASES.items()):
        for promise, broken in Counter(case.broken).items():
            with subtests.test(case=name, promise=promise):
                assert checked[1][f"c{number}"][promise] >= broken


def test_every_violation_points_at_events_of_its_group(
    checked: tuple[list[Found], dict[str | None, Counter[str]]],
) -> None:
    for each in checked[0]:
        assert 1 <= len(each.events) <= 10, each
        assert {event.group for event in each.events} == {each.group}


NUMBERS_OF_CASES: dict[str, dict[str, int]] = {
    "members of the consumer protocol": {
        "one-owner": 1,
        "epochs-rise": 10,
        "revoked-committed": 1,
        "targets-reached": 2,
        "beating-stays": 2,
        "silent-out": 0,
        "unknown-refused": 0,
        "generations-rise": 0,
        "stale-refused": 0,
        "fenced-refused": 0,
    },
    "a commit of an unknown member of the consumer protocol is rejected": {"unknown-refused": 1, "stale-refused": 0},
    "an OffsetFetch with an old epoch is rejected": {"stale-refused": 1, "unknown-refused": 0},
    "an OffsetFetch in a version without epochs is accepted": {"stale-refused": 0},
    "a heartbeat with an old epoch that lists the partitions of the member is accepted": {"stale-refused": 0},
    "a commit with an old epoch of a partition that the member still has is accepted": {"stale-refused": 0},
    "a commit with an old epoch is sent before the response with the newer one": {"stale-refused": 0},
    "a request is rejected after another static member of the consumer protocol has taken over": {"fenced-refused": 1},
    "a static member of the consumer protocol takes its instance id over again": {"fenced-refused": 0},
    "a silent member of the consumer protocol is removed": {"silent-out": 1},
    "a slow member does not give up its partitions": {"targets-reached": 1},  # before it is slow
    "a last commit is rejected, and accepted when it is repeated": {"revoked-committed": 1},
    "a healthy group": {"one-owner": 2, "covered": 2, "one-leader": 1, "generations-rise": 2, "commits-kept": 0}
    | {"silent-out": 0, "beating-stays": 2, "stale-refused": 0, "fenced-refused": 0, "unknown-refused": 0}
    | {"answered": 64, "coordinator-found": 1, "one-coordinator": 0},
    "an OffsetFetch times out": {"answered": 88},
    "an OffsetFetch times out while its broker does not respond": {"answered": 64},
    "the assignment of a member is unknown": {"one-owner": 0, "covered": 1, "one-leader": 0},
    "a cooperative generation withholds a partition": {"covered": 1},
    "a later offset is fetched": {"commits-kept": 1},
    "a later offset is fetched with those of other groups": {"commits-kept": 1},
    "a commit is fetched whose response was lost": {"commits-kept": 0},
    "offsets may have expired": {"commits-kept": 0},
    "a silent member is removed": {"silent-out": 1},
    "a silent member is not removed after a move": {"silent-out": 0, "beating-stays": 0, "one-coordinator": 1},
    "a generation ends after a member is silent": {"silent-out": 0},
    "a generation continues with a silent member after a move": {"silent-out": 0},
    "a JoinGroup times out": {"silent-out": 0},
    "a heartbeat of an old generation is rejected": {"stale-refused": 1},
    "a heartbeat of an old generation is accepted while the coordinator loads": {"stale-refused": 0},
    "a heartbeat is accepted before the next generation is complete": {"stale-refused": 0},
    "a static member returns with a new member id": {"fenced-refused": 0, "beating-stays": 0},
    "a commit of a replaced static member is rejected": {"fenced-refused": 1},
    "a member is removed after it left": {"unknown-refused": 1},
    "a heartbeat of a member that left is accepted after a move": {"unknown-refused": 0},
    "the broker named as coordinator loads": {"coordinator-found": 4, "covered": 0},
    "two brokers serve a group one after the other": {"one-coordinator": 1},
    "a transaction is committed": {"atomic": 2, "old-epochs-refused": 0, "overdue-aborted": 0, "commits-kept": 0},
    "a transaction is aborted": {"atomic": 2},
    "offsets are fetched before the commit": {"atomic": 1},
    "an old epoch is refused": {"old-epochs-refused": 1},
    "an epoch that a commit has returned is accepted": {"old-epochs-refused": 0},
    "a repeated batch of an old epoch is acknowledged": {"old-epochs-refused": 0},
    "an overdue transaction is aborted": {"overdue-aborted": 1},
    "a transaction is left open for a short time": {"overdue-aborted": 0},
    "the last stable offset rises": {"stable-offset-rises": 2},
    "a new leader returns a lower last stable offset for a moment": {"stable-offset-rises": 0},
}
"""Numbers of cases of promises, by the name in `CASES`; also of situations in which a violation would not be seen."""


def test_the_number_of_cases_is_that_of_situations_in_which_a_violation_would_be_seen(
    checked: tuple[list[Found], dict[str | None, Counter[str]]], subtests: pytest.Subtests
) -> None:
    for name, expected in NUMBERS_OF_CASES.items():
        cases = checked[1][f"c{list(CASES).index(name)}"]
        with subtests.test(case=name):
            assert {promise: cases[promise] for promise in expected} == expected
    assert set(PROMISES) == {promise for expected in NUMBERS_OF_CASES.values() for promise in expected}


def test_every_promise_has_a_case_that_breaks_it() -> None:
    with_case = {name for case in CASES.values() for name in case.broken}
    assert [name for name in PROMISES if name not in with_case] == [], "expected an entry in CASES"


def checks(events: Sequence[Event], names: Sequence[str], required: Sequence[str] = ()) -> list[PromiseCheck]:
    violations, cases = observed(events, MEMBERS, DEFAULT_TIMES, names)
    return promise_checks(names, sum(cases.values(), Counter()), violations, required)


def test_a_violation_is_described_with_the_events_that_show_it() -> None:
    beats_before = [beat(30 + n / 100) for n in range(100)]
    events = healthy_then(*beats_before, beat(31, error=25, **OF_1), beat(50, error=22))
    (check,) = checks(events, ["beating-stays"])
    (violation,) = check.violations
    assert (check.outcome, check.broken) == ("broken", 1)
    assert violation == Violation(
        group="g",
        generation=2,
        members=["g-1"],
        at_us=START_US + 30 * SECOND,
        until_us=START_US + 31 * SECOND + 1_000,
        what="g-1 got UNKNOWN_MEMBER_ID from g 1.001 s after a successful heartbeat",
        events=violation.events,
    )
    assert [(each["api"], each["member"], each["error"]) for each in violation.events] == [
        ("Heartbeat", "g-1", 0),
        ("Heartbeat", "g-1", 25),
    ]


def test_a_promise_that_is_required_says_so() -> None:
    checked = checks(HEALTHY, ["one-owner", "silent-out", "answered"], ["silent-out", "one-owner"])
    assert [(check.name, check.outcome, check.required) for check in checked] == [
        ("one-owner", "kept", True),
        ("silent-out", "not exercised", True),
        ("answered", "kept", False),
    ]


def test_the_file_of_violations_replaces_an_earlier_one(tmp_path: Path) -> None:
    file = tmp_path / "violations.parquet"
    file.mkdir()
    (file / "part-0.parquet").write_text("of an earlier report")
    write_violations(file, [])
    assert pq.read_table(file).schema == SCHEMA
    assert pq.read_table(file).num_rows == 0
