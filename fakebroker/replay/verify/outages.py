"""Planned outages: intervals in which the events of a workload keep the cluster from serving its members.

What happens during a planned outage is no failure of the cluster. Does not depend on Spark.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

from fakebroker.client.brokers import REQUEST_TIMEOUT_MS
from fakebroker.replay.workload.timeline import actions_of

_SUPPRESSES_RESPONSES = ("drop", "silent", "delay_s", "delay_before_s", "cut_bytes")
"""Options of the event `inject_fault` that delay or suppress responses."""
_MATCHES_SOME = ("nth", "every", "probability", "times")
"""Options of the event `inject_fault` that restrict the fault to some of the matching requests."""


class Outage(NamedTuple):
    """An interval in which the workload's own events keep a broker from responding.

    Attributes:
        broker: Node id; None if it affects all brokers, or if the affected ones are not known.
        from_s: Start, in seconds from the start of the replay.
        until_s: End of its effects on clients, in seconds from the start of the replay. None if the workload never ends
            it: then missing responses are failures. Infinite if it affects only some requests: then they are excused
            until the end of the replay.
        is_fault: Whether the broker is up and a fault suppresses responses.
    """

    broker: int | None
    from_s: float
    until_s: float | None = None
    is_fault: bool = False


def planned_outages(timeline: Sequence[Mapping[str, Any]], *, includes_errors: bool = False) -> list[Outage]:
    """Return the outages caused by those events of a replay that were performed.

    Args:
        timeline: Events as in `timeline.EventOutcome`.
        includes_errors: Whether to include faults that return errors. Clients get responses, but no service.
    """
    done = sorted((event for event in timeline if event["done"]), key=lambda event: float(event["at_s"]))
    outages = []
    for index, event in enumerate(done):
        later = done[index + 1 :]
        outage = _outage(event) or (_rejection(event) if includes_errors else None)
        if outage is not None:
            ends = [outage.until_s, *(float(each["at_s"]) for each in later if _ends(each, event))]
            until_s = min((end + _lasts_s(event) for end in ends if end is not None), default=None)
            outages.append(outage._replace(until_s=until_s))
    return outages


def _outage(event: Mapping[str, Any]) -> Outage | None:
    """Return the outage that an event begins; `until_s` is set only if the event itself specifies the end."""
    at_s = float(event["at_s"])
    match event["do"]:
        case "broker.stop":
            return Outage(event["node_id"], at_s)
        case "broker.set_network":
            return Outage(event["node_id"], at_s, is_fault=True)
        case "group.move_coordinator" | "partition.move_leader" | "transaction.move_coordinator" if event.get("to") in (
            None,
            "none",
        ):
            return Outage(None, at_s)
        case "group.hold" | "transaction.hold":
            return Outage(None, at_s)
        case "group.delay_sync":
            return Outage(None, at_s, None if event.get("seconds") is None else at_s + float(event["seconds"]))
        case "inject_fault" if any(event.get(what) for what in _SUPPRESSES_RESPONSES):
            return _fault(event)
        case "inject_fault":
            # When an action begins its outage is not known: affects the rest of the replay.
            begun = [_outage({**action, "at_s": at_s}) for action in actions_of(event)]
            brokers = {outage.broker for outage in begun if outage is not None}
            if brokers:
                return Outage(brokers.pop() if len(brokers) == 1 else None, at_s, inf)
    return None


def _fault(event: Mapping[str, Any]) -> Outage:
    from_s, for_s = float(event["at_s"]) + float(event.get("after_s", 0.0)), event.get("for_s")
    until_s = None if for_s is None else from_s + float(for_s)
    if any(event.get(which) is not None for which in _MATCHES_SOME):
        until_s = inf  # only some requests match: affects the rest of the replay
    return Outage(event.get("broker"), from_s, until_s, is_fault=True)


def _rejection(event: Mapping[str, Any]) -> Outage | None:
    """Return the interval in which a fault, or an ACL, returns errors."""
    match event["do"]:
        case "inject_fault" if event.get("error"):
            return _fault(event)
        case "group.fail_append" | "transaction.fail_append" | "acls.deny":
            return Outage(None, float(event["at_s"]), inf)
    return None


def _lasts_s(event: Mapping[str, Any]) -> float:
    """Return how many seconds an outage affects clients after it has ended.

    If the broker was silent, clients wait for the request timeout.
    """
    return REQUEST_TIMEOUT_MS / 1e3 if event.get("silent") or event.get("accept") == "half_open" else 0.0


def _ends(event: Mapping[str, Any], begun_by: Mapping[str, Any]) -> bool:
    """Return whether an event ends the outage that an earlier one began."""
    if event["do"] == "reset":
        return True
    match begun_by["do"]:
        case "broker.stop":
            return bool(event["do"] == "broker.start" and event["node_id"] == begun_by["node_id"])
        case "broker.set_network":
            return bool(
                event["do"] in ("broker.set_network", "broker.stop") and event["node_id"] == begun_by["node_id"]
            )
        case "inject_fault":
            return bool(event["do"] == "clear_faults")
        case "transaction.hold":
            same = event.get("transactional_id") == begun_by["transactional_id"]
            return bool(event["do"] == "transaction.release" and same)
        case "group.hold" | "group.delay_sync":
            end = "group.release" if begun_by["do"] == "group.hold" else "group.release_sync"
            return bool(event["do"] == end and event["group_id"] == begun_by["group_id"])
        case _:
            return bool(event["do"] == begun_by["do"] and event.get("to") not in (None, "none"))
