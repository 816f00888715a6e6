"""Events written by hand: builders, and `HEALTHY`, a group of two members with one rebalance."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from fakebroker.replay.members.event_recorder import EventRecorder
from fakebroker.replay.members.events import SCHEMA, Event
from fakebroker.replay.members.request_outcomes import CUT_OFF, LOST
from fakebroker.replay.script.script import Act, Script, Transactions

PARTITIONS = {"orders": 2}
SECOND = 1_000_000
START_US = 1_700_000_000 * SECOND


def event(api: str, at_s: float, **more: Any) -> Event:
    """Return a request of g-0 to broker 2, sent when it was due and answered without error after 1 ms.

    Args:
        api: The API, or the action of a script.
        at_s: Time, in seconds from the start.
        more: Fields of `Event` to override. `done_s` (time of the response) and `until_s` (for `until_us`) are seconds
            from the start, too.
    """
    at_us = START_US + round(at_s * SECOND)
    done_us = START_US + round(more.pop("done_s", at_s + 0.001) * SECOND)
    if "until_s" in more:
        more["until_us"] = START_US + round(more.pop("until_s") * SECOND)
    fields: dict[str, Any] = {"group": "g", "member": "g-0", "error": 0, "broker": 2, "version": 9}
    fields |= {"latency_us": done_us - at_us} | more
    fields.setdefault("member_id", f"{fields['member']}-id")
    return Event(scheduled_us=at_us, sent_us=at_us, api=api, **fields)


def lost(api: str, at_s: float, **more: Any) -> Event:
    """Return a request without a response; its connection was lost, or with `lost=False` it is pending at the end."""
    default = {"missing": LOST, "until_s": at_s + 0.001} if more.pop("lost", True) else {"missing": CUT_OFF}
    return event(api, at_s, **(default | more | {"error": None, "latency_us": None}))


def found(at_s: float, node: int = 2, *, again: bool = True, **more: Any) -> Event:
    """Return an answered FindCoordinator.

    Args:
        at_s: Time, in seconds from the start.
        node: Node id of the coordinator in the response.
        again: Whether the member had lost its coordinator.
        more: Fields of `Event` to override.
    """
    fields: dict[str, Any] = {"member": None, "member_id": None, "lookups": 1, "found": [("g", node, 0, again)]}
    return event("FindCoordinator", at_s, **(fields | more))


def join(at_s: float, generation: int, **more: Any) -> Event:
    """Return an answered JoinGroup; the leader is g-0."""
    fields: dict[str, Any] = {"leader": "g-0-id", "protocol": "range", "members": 0}
    return event("JoinGroup", at_s, **(fields | more | {"generation": generation}))


def sync(at_s: float, generation: int, *assigned: int, **more: Any) -> Event:
    """Return an answered SyncGroup that assigns these partitions of the topic "orders"."""
    partitions = [f"orders-{number}" for number in assigned]
    return event("SyncGroup", at_s, **({"assigned": partitions} | more | {"generation": generation}))


def commit(at_s: float, offset: int, **more: Any) -> Event:
    """Return an acknowledged commit to partition 0."""
    return event("OffsetCommit", at_s, **({"offsets": [("orders-0", offset)], "generation": 2} | more))


def fetch(at_s: float, offset: int, **more: Any) -> Event:
    """Return an answered OffsetFetch of partition 0."""
    return event("OffsetFetch", at_s, **({"offsets": [("orders-0", offset)], "member_id": None} | more))


def beat(at_s: float, generation: int = 2, **more: Any) -> Event:
    return event("Heartbeat", at_s, **({"generation": generation} | more))


def beats(first_s: float, last_s: float, generation: int = 2, **more: Any) -> Event:
    """Return heartbeats with an interval of one second, aggregated into one row."""
    return beat(first_s, generation, count=round(last_s - first_s) + 1, until_s=last_s, **more)


def reports(
    at_s: float,
    epoch: int,
    generation: int,
    *,
    assigned: Sequence[int] | None = None,
    owned: Sequence[int] | None = None,
    **more: Any,
) -> Event:
    """Return an answered ConsumerGroupHeartbeat.

    Args:
        at_s: Time, in seconds from the start.
        epoch: Member epoch in the request.
        generation: Member epoch in the response.
        assigned: Partitions of the topic "orders" in the response.
        owned: Partitions of the topic "orders" in the request.
        more: Fields of `Event` to override.
    """
    lists = {"assigned": assigned, "owned": owned}
    named = {key: None if each is None else [f"orders-{number}" for number in each] for key, each in lists.items()}
    return event("ConsumerGroupHeartbeat", at_s, **({"epoch": epoch, "generation": generation} | named | more))


def steady(first_s: float, last_s: float, epoch: int, **more: Any) -> Event:
    """Return heartbeats of the consumer protocol with an interval of five seconds, aggregated into one row."""
    return reports(first_s, epoch, epoch, count=round((last_s - first_s) / 5) + 1, until_s=last_s, **more)


def initialized(at_s: float, epoch: int, producer_id: int = 7) -> Event:
    """Return an answered InitProducerId."""
    return event("InitProducerId", at_s, member_id=None, transaction=(producer_id, epoch, None, None))


def produced(at_s: float, number: int = 1, **more: Any) -> Event:
    """Return an answered Produce of a transaction."""
    fields: dict[str, Any] = {"offsets": [("payments-0", 5)], "member_id": None, "transaction": (7, 0, number, None)}
    return event("Produce", at_s, **(fields | more))


def stored(at_s: float, offset: int, number: int = 1, **more: Any) -> Event:
    """Return an answered TxnOffsetCommit of partition 0."""
    fields: dict[str, Any] = {"offsets": [("orders-0", offset)], "transaction": (7, 0, number, None)}
    return event("TxnOffsetCommit", at_s, **(fields | more))


def ended(at_s: float, number: int = 1, *, committed: bool = True, epoch: int = 0, **more: Any) -> Event:
    """Return an answered EndTxn."""
    return event("EndTxn", at_s, **({"member_id": None, "transaction": (7, epoch, number, committed)} | more))


def read(at_s: float, number: int = 1, *, committed: bool = True, partition: str = "payments-0") -> Event:
    """Return a batch that the reader of committed records has returned or skipped."""
    made = (7, 0, number, committed)
    return event("Fetch", at_s, kind="seen", member_id="reader", offsets=[(partition, 5)], transaction=made)


def still_open(at_s: float, since_s: float, number: int = 1) -> Event:
    """Return a transaction that the reader has seen open since some time."""
    seen = event("ListTransactions", at_s, kind="seen", member_id="reader", transaction=(7, None, number, None))
    return seen._replace(scheduled_us=START_US + round(since_s * SECOND), latency_us=None)


def list_transactions(at_s: float) -> Event:
    """Return an answered ListTransactions of the reader."""
    return event("ListTransactions", at_s, member=None, member_id="reader")


def stable(at_s: float, offset: int, **more: Any) -> Event:
    """Return a Fetch of the reader, with a last stable offset."""
    fields: dict[str, Any] = {"member": None, "member_id": "reader", "offsets": [("payments-0", offset)]}
    return event("Fetch", at_s, **(fields | more))


OF_1: dict[str, Any] = {"member": "g-1"}

HEALTHY = [
    event("start", 0, kind="act", error=None, latency_us=None, version=-1, broker=-1, member_id=None),
    found(0, again=False),
    # Generation 1: g-0 alone. The response to its first JoinGroup is MEMBER_ID_REQUIRED.
    event("JoinGroup", 0.01, error=79),
    join(0.02, 1, done_s=3.02, members=1),
    sync(3.03, 1, 0, 1),
    fetch(3.04, -1),
    # Generation 2: g-1 joins; g-0 gets REBALANCE_IN_PROGRESS for a heartbeat, and commits before it joins again.
    event("JoinGroup", 4, error=79, **OF_1),
    join(4.01, 2, done_s=5.02, **OF_1),
    beat(5, 1, error=27),
    commit(5.01, 10, generation=1),
    join(5.015, 2, done_s=5.021, members=2),
    sync(5.03, 2, 1, done_s=5.06, **OF_1),
    sync(5.04, 2, 0, done_s=5.05),
    fetch(5.1, 10),
    beats(6, 30),
    beats(6, 30, **OF_1),
    commit(10, 20),
]


def member(name: str, **more: Any) -> Script:
    """Return the script of a member. It only starts: promises depend on the settings of scripts, not on actions."""
    script = Script(
        "all", "g", name, None, ("orders",), "range", 10_000, 20_000, 1_000, 5_000, 0.0, (Act(0.0, "start"),)
    )
    return script._replace(**more)


MEMBERS = [member("g-0"), member("g-1"), member("g-2")]

TRANSACTIONAL = [
    each._replace(transactions=Transactions("payments", 10, 2_000, 5_000, 0.0, 0.0, (0.0, 0.0), 0)) for each in MEMBERS
]
"""Scripts with a transaction timeout of 5 s."""


def event_of(group: str, each: Event, broker_offset: int = 0) -> Event:
    """Return a copy of an event for another group, so that several cases can be checked at once.

    Args:
        group: Group id; also the prefix of the member's name.
        each: The event.
        broker_offset: Added to node ids, for groups with brokers of their own.
    """
    found = each.found and [(group, broker_offset + node, error, again) for _, node, error, again in each.found]
    broker = broker_offset + each.broker if each.broker >= 0 else each.broker
    return each._replace(group=group, member=each.member and f"{group}/{each.member}", broker=broker, found=found)


def script_of(group: str, script: Script) -> Script:
    """Return a copy of a script for another group, with the name that `event_of` gives to the member."""
    return script._replace(group=group, member=f"{group}/{script.member}")


def table(events: Sequence[Event]) -> pa.Table:
    """Return events as an Arrow table."""
    recorder = EventRecorder()
    for each in events:
        recorder.add(each)
    return pa.Table.from_batches(recorder.take(), SCHEMA)
