"""Violations as reports show them: times since the start, names of errors, and marks on the decisive rows and values.

What is decisive is derived from a violation and from the events around it, by one rule per promise (`RULES`). Does not
depend on the form of the report.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from fakebroker.replay.run_summary import Unavailability, Violation
from fakebroker.replay.wording import error_name, listed, seconds

COLUMNS = ("sent s", "answered s", "API", "member", "generation", "broker", "response", "details")
"""The columns of a table of events. Times are in seconds since the start of the replay."""

MOST_LISTED = 6
"""Maximum number of partitions in one cell; decisive ones are always shown."""

_NOTHING = "nothing"

_SENT, _ANSWERED, _API, _MEMBER, _GENERATION, _BROKER, _RESPONSE, _DETAILS = range(len(COLUMNS))

_GROUP_APIS = ("JoinGroup", "SyncGroup", "Heartbeat", "ConsumerGroupHeartbeat", "OffsetCommit", "OffsetFetch")
_ACCEPTED = (0, 27)
"""Error codes of responses that accept the member: none, and REBALANCE_IN_PROGRESS."""
_NOT_COORDINATOR, _UNKNOWN_MEMBER_ID = 16, 25

Event = Mapping[str, Any]


class Mark(NamedTuple):
    """A decisive value.

    Attributes:
        event: Index of the event.
        column: Index of the column.
        value: In the column of details: the value, such as a partition or a member id.
    """

    event: int
    column: int
    value: str = ""


class Part(NamedTuple):
    """A piece of the text of a cell, and whether it is decisive."""

    text: str
    is_decisive: bool = False


class Row(NamedTuple):
    """An event.

    Attributes:
        cells: For each of `COLUMNS`, the pieces of its text.
        is_decisive: Whether the event is part of the violation.
    """

    cells: tuple[tuple[Part, ...], ...]
    is_decisive: bool


class Case(msgspec.Struct, frozen=True):
    """A violation of a promise, or a failure of an availability check.

    Attributes:
        what: What happened.
        facts: Group, generation, members and time, by name; those that do not apply are absent.
        marked: What the marks mean; empty without marks.
        rows: The events around it, in the order in which they were sent.
    """

    what: str
    facts: Mapping[str, str]
    marked: str = ""
    rows: tuple[Row, ...] = ()


def violated(promise: str, violation: Violation, began_us: int) -> Case:
    """Return a violation of a promise.

    Args:
        promise: Name of the promise.
        violation: The violation.
        began_us: Start of the replay, in microseconds since the Unix epoch.
    """
    meaning, rule = RULES.get(promise, (_BOUNDS, _at_bounds))
    events = sorted(violation.events, key=_sent_us)
    marks = set(rule(violation, events)) or set(_at_bounds(violation, events))
    return Case(
        violation.what,
        _facts(violation.group, violation.generation, violation.members, violation.at_us, violation.until_us, began_us),
        f"Marked: {meaning}." if marks else "",
        tuple(_row(index, event, began_us, marks) for index, event in enumerate(events)),
    )


def unavailable(violation: Unavailability, began_us: int) -> Case:
    """Return a failure of an availability check; `began_us` as for `violated`."""
    fields = (violation.group, violation.members, violation.at_us, violation.until_us)
    group, members, at_us, until_us = (None if value is UNSET else value for value in fields)
    return Case(violation.what, _facts(group, None, members, at_us, until_us, began_us))


def nearest(case: Case, count: int) -> tuple[Row, ...]:
    """Return at most `count` of the rows: first the decisive ones, then those next to them."""
    places = [index for index, row in enumerate(case.rows) if row.is_decisive] or [0]
    ranked = sorted(range(len(case.rows)), key=lambda index: (min(abs(index - place) for place in places), index))
    chosen = set(ranked[:count])
    return tuple(row for index, row in enumerate(case.rows) if index in chosen)


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


# Cells


def _row(index: int, event: Event, began_us: int, marks: Collection[Mark]) -> Row:
    values = {value for place, column, value in marks if place == index and column == _DETAILS}
    cells = [
        tuple(Part(text, Mark(index, column) in marks) for text in (text,) if text)
        for column, text in enumerate(_texts(event, began_us))
    ]
    details = [part for detail in _details(event, began_us, values) for part in (Part("; "), *detail)][1:]
    return Row((*cells, tuple(details)), any(place == index for place, _, _ in marks))


def _texts(event: Event, began_us: int) -> tuple[str, ...]:
    """Return the texts of all cells except the details."""
    is_act, is_request = event.get("kind") == "act", event.get("kind", "request") == "request"
    answered_us = _answered_us(event)
    answered = "never" if answered_us is None else seconds(answered_us - began_us)
    return (
        seconds(_sent_us(event) - began_us),
        "" if is_act else answered,
        event["api"] if is_request else f"({event['api']})",
        event.get("member") or "",
        _natural(event.get("generation")),
        _natural(event.get("broker")),
        "" if is_act else _response(event),
    )


def _natural(number: int | None) -> str:
    return "" if number is None or number < 0 else str(number)


def _response(event: Event) -> str:
    if _answered_us(event) is None:
        return str(event.get("missing") or "no response")
    return error_name(event["error"]) if event.get("error") else "no error"


def _details(event: Event, began_us: int, decisive: Collection[str]) -> Iterator[list[Part]]:
    """Yield what else is known about an event; `decisive` values are marked."""
    if event.get("kind") == "act":
        yield [Part("action of the member's script")]
    if (epoch := event.get("epoch")) is not None and epoch <= 0:
        yield [Part("leaves" if epoch else "joins")]
    if event.get("transaction"):
        yield _transaction(event, decisive)
    if (event.get("count") or 1) > 1:
        yield [Part(f"{event['count']} requests until {seconds(event['until_us'] - began_us)} s")]
    elif event.get("missing") and event.get("until_us") is not None:
        yield [Part(f"{event['missing']} at {seconds(event['until_us'] - began_us)} s")]
    if event.get("member_id") in decisive:
        yield [Part("member id "), Part(event["member_id"], True)]
        if event.get("instance_id"):
            yield [Part(f"instance id {event['instance_id']}")]
    if event.get("leader") in decisive:
        yield [Part("leader "), Part(event["leader"], True)]
    elif event.get("members"):
        yield [Part(f"leader of {event['members']:,} member{'s' if event['members'] > 1 else ''}")]
    if event.get("protocol"):
        yield [Part("protocol "), Part(event["protocol"], event["protocol"] in decisive)]
    if event.get("assigned") is not None:
        yield [Part("assigned "), *_enumerated([(each, each) for each in event["assigned"]], decisive)]
    if event.get("owned") is not None:
        yield [Part("lists "), *_enumerated([(each, each) for each in event["owned"]], decisive)]
    if event.get("offsets"):
        offsets = [
            (each["partition"], f"{each['partition']}: {'no offset' if each['offset'] < 0 else each['offset']}")
            for each in event["offsets"]
        ]
        yield [Part("offset of "), *_enumerated(offsets, decisive)]
    if event.get("found"):
        found = [
            (str(each["node"]), f"{each['key']}: {error_name(each['error']) if each['error'] else each['node']}")
            for each in event["found"]
        ]
        yield [Part("coordinator of "), *_enumerated(found, decisive)]


def _transaction(event: Event, decisive: Collection[str]) -> list[Part]:
    """Return the number of a transaction, its epoch, and its outcome for a producer or the reader."""
    made, outcome = event["transaction"], _outcome_of(event)
    texts = [f"transaction {made['number']}"] if made["number"] is not None else []
    texts += [f"epoch {made['epoch']}"] if made["epoch"] is not None else []
    texts += [outcome] if outcome else []
    return [part for text in texts for part in (Part(", "), Part(text, text in decisive))][1:]


def _outcome_of(event: Event) -> str:
    committed, is_seen = event["transaction"]["committed"], event.get("kind") == "seen"
    if committed is None:
        return "open" if is_seen else ""
    if is_seen:
        return "returned by the reader" if committed else "skipped by the reader"
    return "commit" if committed else "abort"


def _enumerated(items: Sequence[tuple[str, str]], decisive: Collection[str]) -> Iterator[Part]:
    """Yield a list of items, given as value and text: the decisive ones and the first of the others."""
    if not items:
        yield Part(_NOTHING, _NOTHING in decisive)
    others = MOST_LISTED - sum(value in decisive for value, _ in items)
    separator, left_out = "", 0
    for value, text in items:
        is_decisive = value in decisive
        others -= not is_decisive
        if not is_decisive and others < 0:
            left_out += 1
            continue
        yield Part(separator)
        yield Part(text, is_decisive)
        separator = ", "
    if left_out:
        yield Part(f" and {left_out:,} more")


# Rules


def _sent_us(event: Event) -> int:
    sent_us: int | None = event.get("sent_us")
    return event["scheduled_us"] if sent_us is None else sent_us


def _last_us(event: Event) -> int:
    """Return when the last of several folded requests was sent."""
    return event["until_us"] if (event.get("count") or 1) > 1 else _sent_us(event)


def _answered_us(event: Event) -> int | None:
    latency_us: int | None = event.get("latency_us")
    return None if latency_us is None else event["scheduled_us"] + latency_us


def _is_accepted(event: Event) -> bool:
    return event.get("error") in _ACCEPTED and event.get("kind") != "act"


_BOUNDS = "the events at the beginning and at the end of the violation"


def _at_bounds(violation: Violation, events: Sequence[Event]) -> Iterator[Mark]:
    """Mark the times at which the violation begins and ends."""
    bounds = (violation.at_us, violation.until_us)
    for index, event in enumerate(events):
        if event.get("kind") == "act":
            continue
        if _sent_us(event) in bounds or _last_us(event) in bounds:
            yield Mark(index, _SENT)
        if _answered_us(event) in bounds:
            yield Mark(index, _ANSWERED)


def _of_generation(violation: Violation, events: Sequence[Event], api: str) -> Iterator[tuple[int, Event]]:
    """Yield the successful responses of an API in the generation of the violation, with their indexes."""
    for index, event in enumerate(events):
        if event["api"] == api and not event.get("error") and event.get("generation") == violation.generation:
            yield index, event


def _one_owner(violation: Violation, events: Sequence[Event]) -> Iterator[Mark]:
    if violation.generation is None:
        yield from _taken_early(violation, events)
        return
    assignments = [
        (index, event)
        for index, event in _of_generation(violation, events, "SyncGroup")
        if event.get("member") in violation.members
    ]
    owners = Counter(
        partition
        for partition, _ in {
            (partition, event.get("member")) for _, event in assignments for partition in event.get("assigned") or ()
        }
    )
    shared = {partition for partition, count in owners.items() if count > 1}
    for index, event in assignments:
        for partition in shared.intersection(event.get("assigned") or ()):
            yield Mark(index, _MEMBER)
            yield Mark(index, _GENERATION)
            yield Mark(index, _DETAILS, partition)


def _taken_early(violation: Violation, events: Sequence[Event]) -> Iterator[Mark]:
    """Mark the response that assigns partitions too early, and the last request of their former owner."""
    former, new = violation.members
    for index, event in enumerate(events):
        if event.get("member") == new and _answered_us(event) == violation.at_us:
            yield Mark(index, _ANSWERED)
            yield Mark(index, _MEMBER)
            for partition in event.get("assigned") or ():
                if re.search(rf"(^|, ){re.escape(partition)}(,| of )", violation.what):
                    yield Mark(index, _DETAILS, partition)
        if event.get("member") == former and violation.until_us in (_sent_us(event), _last_us(event)):
            yield Mark(index, _SENT)
            yield Mark(index, _MEMBER)


def _epochs_rise(violation: Violation, events: Sequence[Event]) -> Iterator[Mark]:
    for index, event in enumerate(events):
        bounds = (violation.at_us, violation.until_us)
        if event["api"] == "ConsumerGroupHeartbeat" and _answered_us(event) in bounds and _is_accepted(event):
            yield Mark(index, _ANSWERED)
            yield Mark(index, _GENERATION)


def _revoked_committed(violation: Violation, events: Sequence[Event]) -> Iterator[Mark]:
    for index, event in enumerate(events):
        if event.get("member") not in violation.members:
            continue
        if _answered_us(event) == violation.at_us:
            yield Mark(index, _ANSWERED)
            for partition in event.get("assigned") or (_NOTHING,):
                yield Mark(index, _DETAILS, partition)
        is_after = violation.at_us <= _sent_us(event) <= violation.until_us
        if event["api"] == "OffsetCommit" and is_after and event.get("error"):
            yield Mark(index, _RESPONSE)


def _targets_reached(violation: Violation, events: Sequence[Event]) -> Iterator[Mark]:
    """Mark the last heartbeat of each member, and what it was assigned."""
    last: dict[str, int] = {}
    for index, event in enumerate(events):
        is_of_member = event["api"] == "ConsumerGroupHeartbeat" and event.get("member") in violation.members
        if is_of_member and _is_accepted(event) and _sent_us(event) <= violation.until_us:
            last[event["member"]] = index
            for partition in event.get("assigned") or ():
                yield Mark(index, _DETAILS, partition)
    for index in last.values():
        yield Mark(index, _SENT)
        yield Mark(index, _GENERATION)


def _covered(violation: Violation, events: Sequence[Event]) -> Iterator[Mark]:
    for index, event in _of_generation(violation, events, "SyncGroup"):
        if event.get("assigned") is not None:
            yield Mark(index, _MEMBER)
            yield Mark(index, _GENERATION)
            for partition in event["assigned"][:MOST_LISTED] or (_NOTHING,):
                yield Mark(index, _DETAILS, partition)


def _one_leader(violation: Violation, events: Sequence[Event]) -> Iterator[Mark]:
    joined = [*_of_generation(violation, events, "JoinGroup")]
    differing = [key for key in ("leader", "protocol") if len({event.get(key) for _, event in joined}) > 1]
    for index, event in joined:
        yield Mark(index, _GENERATION)
        for key in differing:
            yield Mark(index, _DETAILS, event.get(key) or "")


def _generations_rise(violation: Violation, events: Sequence[Event]) -> Iterator[Mark]:
    for index, event in enumerate(events):
        is_response = event["api"] in ("JoinGroup", "SyncGroup") and _answered_us(event) is not None
        bounds = (violation.at_us, violation.until_us)
        if (
            is_response
            and not event.get("error")
            and (
                event.get("generation") == violation.generation
                or _sent_us(event) in bounds
                or _answered_us(event) in bounds
            )
        ):
            yield Mark(index, _GENERATION)


def _commits_kept(violation: Violation, events: Sequence[Event]) -> Iterator[Mark]:
    commits = [
        (index, event)
        for index, event in enumerate(events)
        if event["api"] == "OffsetCommit" and _sent_us(event) == violation.at_us
    ]
    fetches = [
        (index, event)
        for index, event in enumerate(events)
        if event["api"] == "OffsetFetch" and _answered_us(event) == violation.until_us
    ]
    for index, commit in commits:
        for other, fetch in fetches:
            committed = _offsets(commit)
            lower = [each for each, offset in _offsets(fetch).items() if offset < committed.get(each, offset)]
            about = [each for each in lower if f" {each} " in violation.what]
            for partition in about or lower:
                yield Mark(index, _DETAILS, partition)
                yield Mark(other, _DETAILS, partition)


def _offsets(event: Event) -> dict[str, int]:
    return {each["partition"]: each["offset"] for each in event.get("offsets") or ()}


def _silent_out(violation: Violation, events: Sequence[Event]) -> Iterator[Mark]:
    own = [index for index, event in enumerate(events) if event.get("member") in violation.members]
    sent = [index for index in own if events[index].get("kind") != "act" and _last_us(events[index]) <= violation.at_us]
    yield from (Mark(index, _SENT) for index in sent[-1:])
    for index, event in enumerate(events):
        if violation.until_us in (_sent_us(event), _last_us(event)) and _is_accepted(event):
            yield Mark(index, _SENT)
            yield Mark(index, _RESPONSE)


def _beating_stays(violation: Violation, events: Sequence[Event]) -> Iterator[Mark]:
    for index, event in enumerate(events):
        if event.get("member") not in violation.members:
            continue
        if _last_us(event) == violation.at_us and _is_accepted(event):
            yield Mark(index, _SENT)
            yield Mark(index, _RESPONSE)
        if event.get("error") == _UNKNOWN_MEMBER_ID and violation.until_us in (_answered_us(event), _sent_us(event)):
            yield Mark(index, _ANSWERED)
            yield Mark(index, _RESPONSE)


def _accepted_late(violation: Violation, events: Sequence[Event]) -> Iterator[Mark]:
    """Mark the response at the beginning of the violation, and the last request accepted after it."""
    for index, event in enumerate(events):
        if event["api"] in ("SyncGroup", "ConsumerGroupHeartbeat") and _answered_us(event) == violation.at_us:
            yield Mark(index, _ANSWERED)
            yield Mark(index, _GENERATION)
            yield Mark(index, _DETAILS, event.get("member_id") or "")
        is_last = violation.until_us in (_last_us(event), _answered_us(event))
        if is_last and event.get("member") in violation.members and _is_accepted(event):
            yield Mark(index, _SENT)
            yield Mark(index, _GENERATION)
            yield Mark(index, _RESPONSE)
            yield Mark(index, _DETAILS, event.get("member_id") or "")


def _unknown_refused(violation: Violation, events: Sequence[Event]) -> Iterator[Mark]:
    accepted_ids = set()
    for index, event in enumerate(events):
        if event.get("member") in violation.members and _sent_us(event) == violation.until_us and _is_accepted(event):
            accepted_ids.add(event.get("member_id"))
            yield Mark(index, _SENT)
            yield Mark(index, _RESPONSE)
            yield Mark(index, _DETAILS, event.get("member_id") or "")
    for index, event in enumerate(events):
        is_before = event.get("member_id") in accepted_ids and _sent_us(event) < violation.until_us
        leaves = event["api"] == "LeaveGroup" or (event.get("epoch") or 0) < 0
        if is_before and (event.get("error") == _UNKNOWN_MEMBER_ID or leaves):
            yield Mark(index, _API if leaves else _RESPONSE)
            yield Mark(index, _DETAILS, event.get("member_id") or "")


def _answered_at_all(violation: Violation, events: Sequence[Event]) -> Iterator[Mark]:
    for index, event in enumerate(events):
        is_silent = event.get("kind") != "act" and _answered_us(event) is None
        is_of_member = event.get("member") in violation.members and _sent_us(event) in (
            violation.at_us,
            violation.until_us,
        )
        if is_silent and (is_of_member or _sent_us(event) == violation.at_us):
            yield Mark(index, _API)
            yield Mark(index, _ANSWERED)
            yield Mark(index, _RESPONSE)


def _coordinator_found(violation: Violation, events: Sequence[Event]) -> Iterator[Mark]:
    refusing = {
        index: event
        for index, event in enumerate(events)
        if event.get("error") == _NOT_COORDINATOR
        and violation.at_us <= (_answered_us(event) or 0) <= violation.until_us
    }
    brokers = {str(event.get("broker")) for event in refusing.values()}
    for index in refusing:
        yield Mark(index, _BROKER)
        yield Mark(index, _RESPONSE)
    for index, event in enumerate(events):
        if event["api"] == "FindCoordinator":
            for broker in brokers & {str(each["node"]) for each in event.get("found") or ()}:
                yield Mark(index, _DETAILS, broker)


def _one_coordinator(violation: Violation, events: Sequence[Event]) -> Iterator[Mark]:
    for index, event in enumerate(events):
        is_served = event["api"] in _GROUP_APIS and event.get("error") != _NOT_COORDINATOR
        if is_served and violation.at_us <= (_answered_us(event) or 0) <= violation.until_us:
            yield Mark(index, _BROKER)


def _of_transaction(violation: Violation, events: Sequence[Event]) -> Iterator[tuple[int, Event]]:
    """Yield the events of the transaction that the violation is about, with their indexes."""
    for index, event in enumerate(events):
        number = (event.get("transaction") or {}).get("number")
        if number is not None and f"transaction {number} of {event.get('member')}" in f"{violation.what}:":
            yield index, event


def _atomic(violation: Violation, events: Sequence[Event]) -> Iterator[Mark]:
    for index, event in _of_transaction(violation, events):
        if outcome := _outcome_of(event):
            yield Mark(index, _DETAILS, outcome)
        if event["api"] == "TxnOffsetCommit":
            yield from _named(violation, index, event)
    for index, event in enumerate(events):
        if event["api"] == "OffsetFetch" and _answered_us(event) == violation.until_us:
            yield from _named(violation, index, event)


def _named(violation: Violation, index: int, event: Event) -> Iterator[Mark]:
    """Mark the partitions of an event that the description of the violation names."""
    for partition in _offsets(event):
        if f" {partition} " in violation.what:
            yield Mark(index, _DETAILS, partition)


def _old_epochs(violation: Violation, events: Sequence[Event]) -> Iterator[Mark]:
    for index, event in enumerate(events):
        made, answered_us = event.get("transaction"), _answered_us(event)
        if not made or event.get("error") or event.get("member") not in violation.members:
            continue
        is_later = event["api"] != "InitProducerId" and answered_us == violation.until_us
        if is_later or (event["api"] == "InitProducerId" and answered_us == violation.at_us):
            yield Mark(index, _RESPONSE)
            yield Mark(index, _DETAILS, f"epoch {made['epoch']}")


def _overdue(violation: Violation, events: Sequence[Event]) -> Iterator[Mark]:
    for index, event in _of_transaction(violation, events):
        is_listed = event["api"] == "ListTransactions" and _sent_us(event) == violation.until_us
        if is_listed or _sent_us(event) == violation.at_us:
            yield Mark(index, _SENT)


def _stable(violation: Violation, events: Sequence[Event]) -> Iterator[Mark]:
    for index, event in enumerate(events):
        if event["api"] == "Fetch" and {_sent_us(event), _last_us(event)} & {violation.at_us, violation.until_us}:
            yield from _named(violation, index, event)


Rule = Callable[[Violation, Sequence[Event]], Iterator[Mark]]

RULES: Mapping[str, tuple[str, Rule]] = {
    "one-owner": ("the assignments that share partitions, these partitions", _one_owner),
    "covered": ("the assignments of the generation, which together must be the topics subscribed to", _covered),
    "one-leader": ("what the JoinGroup responses of one generation disagree about", _one_leader),
    "generations-rise": ("the generations that do not follow each other", _generations_rise),
    "commits-kept": ("the offset that was committed, and the lower one that was fetched later", _commits_kept),
    "silent-out": (
        "the member's last request, and the response that shows that its session had not ended",
        _silent_out,
    ),
    "beating-stays": ("the accepted heartbeat, and the response that no longer knows the member", _beating_stays),
    "stale-refused": (
        "the response with the later generation, and the request of the old one accepted after it",
        _accepted_late,
    ),
    "fenced-refused": (
        "the response to the new member id, and the request of the old one accepted after it",
        _accepted_late,
    ),
    "unknown-refused": (
        "the response that ended the membership, and the request of the same member id accepted after it",
        _unknown_refused,
    ),
    "answered": ("the request without a response", _answered_at_all),
    "coordinator-found": ("the broker that FindCoordinator names, and its refusals", _coordinator_found),
    "one-coordinator": ("the brokers that answered in turn", _one_coordinator),
    "epochs-rise": ("the lower epoch, and the one before", _epochs_rise),
    "revoked-committed": ("the new assignment, and the commits that were rejected after it", _revoked_committed),
    "targets-reached": ("the last heartbeats and assignments of the members", _targets_reached),
    "atomic": ("the outcome of the transaction, and what became visible of it", _atomic),
    "old-epochs-refused": ("the newer epoch, and the request of the old one accepted after it", _old_epochs),
    "overdue-aborted": ("the beginning of the transaction, and when it was still open", _overdue),
    "stable-offset-rises": ("the offset that went back, and the one before", _stable),
}
"""By the name of a promise: what the marks mean, and the rule that sets them."""
