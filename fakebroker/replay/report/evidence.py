"""Violations as reports show them, with the events that prove them.

Times are relative to the start of the replay, and errors have names. The observer of the promise has chosen the events.
Reports show exactly these events. Does not depend on the form of the report.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from fakebroker.replay.run_summary import Unavailability, Violation
from fakebroker.replay.wording import error_name, listed, seconds

COLUMNS = ("sent s", "answered s", "API", "member", "generation", "broker", "response", "details")
"""The columns of a table of events. Times are in seconds since the start of the replay."""

MOST_LISTED = 6
"""Maximum number of partitions in one cell. Partitions that the description names are always shown."""

Event = Mapping[str, Any]
"""An event, as returned by `promises.rows.event_of`."""

Row = tuple[str, ...]
"""One text for each of `COLUMNS`; empty if the column does not apply."""


class Case(msgspec.Struct, frozen=True):
    """A violation of a promise, or a failure of an availability check.

    Attributes:
        what: What happened.
        facts: Group, generation, members and time, by name. A fact that does not apply is absent.
        rows: The events that show it, by the time at which they were sent.
    """

    what: str
    facts: Mapping[str, str]
    rows: tuple[Row, ...] = ()


def violated(violation: Violation, began_us: int) -> Case:
    """Return a violation of a promise.

    Args:
        violation: The violation.
        began_us: Start of the replay, in microseconds since the Unix epoch.
    """
    facts = _facts(
        violation.group, violation.generation, violation.members, violation.at_us, violation.until_us, began_us
    )
    named = set(re.findall(r"[\w.-]+", violation.what))
    events = sorted(violation.events, key=lambda event: event["sent_us"])
    return Case(violation.what, facts, tuple(_row(event, began_us, named) for event in events))


def unavailable(violation: Unavailability, began_us: int) -> Case:
    """Return a failure of an availability check. `began_us` means the same as in `violated`."""
    fields = (violation.group, violation.members, violation.at_us, violation.until_us)
    group, members, at_us, until_us = (None if value is UNSET else value for value in fields)
    return Case(violation.what, _facts(group, None, members, at_us, until_us, began_us))


def _facts(
    group: Any, generation: int | None, members: Any, at_us: Any, until_us: Any, began_us: int
) -> dict[str, str]:
    facts: dict[str, str] = {}
    if group is not None:
        facts["group"] = group
    if generation is not None:
        facts["generation"] = str(generation)
    if members:
        facts["members" if len(members) > 1 else "member"] = listed(members)
    if at_us is not None:
        times = dict.fromkeys(seconds(each - began_us) for each in (at_us, until_us) if each is not None)
        facts["time"] = f"{' to '.join(times)} s after the start"
    return facts


def _row(event: Event, began_us: int, named: Collection[str]) -> Row:
    """Return the cells of an event. `named` are the words of the description, such as partitions and member ids."""
    is_request = event["kind"] == "request"
    if event["latency_us"] is not None:
        answered = seconds(event["scheduled_us"] + event["latency_us"] - began_us)
        response = error_name(event["error"]) if event["error"] else "no error"
    elif is_request:
        answered, response = "never", event["missing"] or "no response"
    else:  # An action, or an open transaction in a response to ListTransactions.
        answered = response = ""
    return (
        seconds(event["sent_us"] - began_us),
        answered,
        event["api"] if is_request else f"({event['api']})",
        event["member"] or "",
        _natural(event["generation"]),
        _natural(event["broker"]),
        response,
        "; ".join(_details(event, began_us, named)),
    )


def _natural(number: int | None) -> str:
    return "" if number is None or number < 0 else str(number)


def _details(event: Event, began_us: int, named: Collection[str]) -> Iterator[str]:
    """Yield what else is known about an event."""
    if event["kind"] == "act":
        yield "action of the member's script"
    if (epoch := event["epoch"]) is not None and epoch <= 0:
        yield "leaves" if epoch else "joins"
    elif epoch is not None and epoch != event["generation"]:
        yield f"sent with epoch {epoch}"
    if event["transaction"]:
        yield ", ".join(_transaction(event))
    if event["count"] > 1:
        yield f"{event['count']} requests until {seconds(event['until_us'] - began_us)} s"
    elif event["missing"] and event["until_us"] is not None:
        yield f"{event['missing']} at {seconds(event['until_us'] - began_us)} s"
    if event["member_id"] in named:
        yield f"member id {event['member_id']}"
        if event["instance_id"]:
            yield f"instance id {event['instance_id']}"
    if event["leader"] in named:
        yield f"leader {event['leader']}"
    elif event["members"]:
        yield f"leader of {event['members']:,} member{'s' if event['members'] > 1 else ''}"
    if event["protocol"]:
        yield f"protocol {event['protocol']}"
    if event["assigned"] is not None:
        yield f"assigned {_enumerated([(each, each) for each in event['assigned']], named)}"
    if event["owned"] is not None:
        yield f"lists {_enumerated([(each, each) for each in event['owned']], named)}"
    if event["offsets"]:
        offsets = [
            (each["partition"], "no offset" if each["offset"] < 0 else each["offset"]) for each in event["offsets"]
        ]
        yield f"offset of {_enumerated([(name, f'{name}: {offset}') for name, offset in offsets], named)}"
    if event.get("found"):
        found = [(each["key"], error_name(each["error"]) if each["error"] else each["node"]) for each in event["found"]]
        yield f"coordinator of {_enumerated([(key, f'{key}: {result}') for key, result in found], named)}"


def _transaction(event: Event) -> Iterator[str]:
    """Yield the number of a transaction, its epoch, and its outcome for a producer or the reader."""
    number, epoch, committed = (event["transaction"][name] for name in ("number", "epoch", "committed"))
    if number is not None:
        yield f"transaction {number}"
    if epoch is not None:
        yield f"epoch {epoch}"
    if event["kind"] == "seen":
        yield "open" if committed is None else "returned by the reader" if committed else "skipped by the reader"
    elif committed is not None:
        yield "commit" if committed else "abort"


def _enumerated(items: Sequence[tuple[str, str]], named: Collection[str]) -> str:
    """Return a list of items, given as name and text: those that the description names, then the first others."""
    ranked = sorted(items, key=lambda item: item[0] not in named)
    most = max(MOST_LISTED, sum(name in named for name, _ in items))
    return listed([text for _, text in ranked], most) or "nothing"
