"""The verdict on a replay: availability of the cluster, promises of group coordinators, and expectations."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import msgspec

from fakebroker.replay.promises.availability import UNDISTURBED, Circumstances
from fakebroker.replay.run_summary import (
    ALL,
    AvailabilityCheck,
    ExpectationCheck,
    Number,
    Numbers,
    PromiseCheck,
    RequestNumbers,
    Verdict,
    VerdictOutcome,
)
from fakebroker.replay.wording import counted
from fakebroker.replay.workload.expectations import (
    COMPARISONS,
    COUNTS_OF_REQUESTS,
    DECIDED_BY_LATENESS,
    ERRORS,
    GROUPS_PER_REQUEST,
    UNDELAYED_LATENCIES,
    Expectation,
)

_MOST_NAMED = 3
"""Maximum number of violations of an availability check that a reason names."""

MEMBERS_JOIN = Expectation(metric="members_joined", comparison=">", value=0)
"""The default expectation, because a cluster that admits no members violates no promise."""


def judge(
    available: Sequence[AvailabilityCheck],
    promised: Sequence[PromiseCheck],
    expected: Sequence[Expectation],
    numbers: Numbers,
    run: Circumstances = UNDISTURBED,
    slack_ms: float = inf,
) -> Verdict:
    """Return the verdict for `summary.json`.

    Args:
        available: The results of `availability.checks_of`.
        promised: The results of `promise_checks`.
        expected: The expectations.
        numbers: The numbers of the run.
        run: The circumstances of the replay.
        slack_ms: As in `expectations`.
    """
    compared = [*expectations(expected, numbers, slack_ms), *events_done(run.timeline)]
    is_answered = numbers.total.max_ms is not None
    outcome, reasons = outcome_of(available, promised, compared, is_complete=run.is_complete, is_answered=is_answered)
    return Verdict(outcome, reasons, list(available), list(promised), compared)


def outcome_of(
    available: Sequence[AvailabilityCheck],
    promised: Sequence[PromiseCheck],
    compared: Sequence[ExpectationCheck],
    *,
    is_complete: bool = True,
    is_answered: bool = True,
) -> tuple[VerdictOutcome, list[str]]:
    """Return the outcome of a replay, and its reasons: a sentence for each check, promise and expectation.

    Args:
        available: The availability checks.
        promised: The promises.
        compared: The expectations.
        is_complete: Whether the replay ran to its end. If not, expectations that are not met prove nothing.
        is_answered: Whether any request was answered. If not, nothing is proved: the cluster may not be reachable from
            the machine of the replay.
    """
    failed = [_unavailable(each) for each in available if each.outcome == "failed"]
    failed += [
        f"Promise {each.name} is broken: {counted(each.broken, 'violation')}." for each in promised if each.broken
    ]
    untested = [
        f"Promise {each.name} is required, but was not exercised: there were no {each.case}."
        for each in promised
        if each.required and each.outcome == "not exercised"
    ]
    missed = [
        f"Expectation not met: {each.expectation}; {_actual(each.actual)}."
        for each in compared
        if not each.met and not each.doubt
    ]
    doubts = [_unavailable(each) for each in available if each.outcome == "inconclusive"]
    doubts += [
        f"Expectation not met: {each.expectation}; {_actual(each.actual)}, but {each.doubt}."
        for each in compared
        if each.doubt
    ]
    missed = [*untested, *missed]
    if not is_answered:
        return "inconclusive", [*doubts, *failed, *missed]
    if is_complete:
        failed += missed
    else:
        doubts += missed
    return "failed" if failed else "inconclusive" if doubts else "passed", [*failed, *doubts]


def _unavailable(check: AvailabilityCheck) -> str:
    """Return a check as a sentence. It lists up to `MOST_LISTED` failures, or doubts, and counts all failures."""
    listed = check.violations or check.doubts
    what = "; ".join(each.what for each in listed[:_MOST_NAMED])
    if len(listed) <= _MOST_NAMED:
        more = ""  # `failures` may be the number of members or requests, several of which are one violation
    elif not check.violations:
        more = "; and others"
    elif check.name == "members-answered":
        more = f"; {counted(check.failures, 'member')} in all"
    elif check.name == "scripts-done":
        more = f"; and {len(listed) - _MOST_NAMED} more"
    else:
        more = f"; and {check.failures - _MOST_NAMED:,} more"
    return f"Availability check {check.name}: {what}{more}."


def _actual(actual: Number | None) -> str:
    return "the run has no value" if actual is None else f"the actual value is {actual:g}"


def with_default_expectation(expected: Sequence[Expectation]) -> list[Expectation]:
    """Return the expectations. Adds `MEMBERS_JOIN` if none is about its metric."""
    is_overridden = any(expectation.metric == MEMBERS_JOIN.metric for expectation in expected)
    return [*expected] if is_overridden else [*expected, MEMBERS_JOIN]


def events_done(timeline: Sequence[Mapping[str, Any]]) -> list[ExpectationCheck]:
    """Return the implicit expectation that all events of the workload were done; none if it has no events."""
    if not timeline:
        return []
    done = sum(event["done"] for event in timeline)
    return [ExpectationCheck(f"events_done == {len(timeline)}", done == len(timeline), done)]


def expectations(expected: Sequence[Expectation], numbers: Numbers, slack_ms: float = inf) -> list[ExpectationCheck]:
    """Compare expectations with the numbers of a run; an expectation without a number is not met.

    Args:
        expected: The expectations.
        numbers: The numbers.
        slack_ms: How late a member may send a heartbeat before its session ends: the session timeout minus the
            heartbeat interval. Of all members, the shortest one.
    """
    checked = []
    for expectation in expected:
        actual = metric(expectation, numbers)
        met = actual is not None and COMPARISONS[expectation.comparison](actual, expectation.value)
        doubt = "" if met else _doubt(expectation, numbers, slack_ms)
        checked.append(ExpectationCheck(str(expectation), met, actual, doubt))
    return checked


def _doubt(expectation: Expectation, numbers: Numbers, slack_ms: float) -> str:
    """Return why an expectation that is not met says nothing about the cluster; empty if it does."""
    late_ms = numbers.sent_late.max_ms or 0.0
    if expectation.metric in UNDELAYED_LATENCIES.values():
        # The latency begins when the request was due. Was it the replay that was late?
        undelayed = metric(msgspec.structs.replace(expectation, metric=f"undelayed_{expectation.metric}"), numbers)
        if undelayed is not None and COMPARISONS[expectation.comparison](undelayed, expectation.value):
            return f"without the delay of the replay itself, it is {undelayed:g}"
    elif expectation.kind in DECIDED_BY_LATENESS and late_ms > slack_ms:
        # Members that send their heartbeats so late lose their session. Then groups rebalance, and requests fail.
        return f"the replay sent requests up to {late_ms / 1000:.1f} s late, so sessions may have ended"
    return ""


def metric(expectation: Expectation, numbers: Numbers) -> Number | None:
    """Return the number for an expectation; None without a value.

    The number of requests, of errors, and of requests without a response is 0 if there were no such requests.
    """
    number = _number(expectation, numbers)
    if number is None or expectation.per is None:
        return number
    rows = [row for row in numbers.populations if expectation.groups in (None, row.population)]
    count = sum(row.groups if expectation.per == "group" else row.members for row in rows)
    return round(number / count, 6) if count else None


def _number(expectation: Expectation, numbers: Numbers) -> Number | None:
    """Return the number for an expectation, without `per`."""
    metric, api, source = expectation.metric, expectation.api, expectation.source
    if expectation.groups is not None:
        return numbers.metrics.get(f"{metric}.{expectation.groups}")
    if metric == GROUPS_PER_REQUEST:
        lookups = [row for row in numbers.lookups if row.api == api and source in (None, row.source)]
        requests = sum(row.requests for row in lookups)
        return round(sum(row.keys for row in lookups) / requests, 6) if requests else None
    missing = 0 if expectation.kind in COUNTS_OF_REQUESTS else None
    if api is None and source is None:
        return numbers.metrics.get(metric, missing)
    if expectation.kind == ERRORS:
        found = [row for row in numbers.errors if metric == f"errors.{row.name}"]
        return sum(row.requests for row in found if api in (None, row.api) and source in (None, row.source))
    row = _requests(numbers, api or ALL, source)
    return missing if row is None else getattr(row, metric)


def _requests(numbers: Numbers, api: str, source: str | None) -> RequestNumbers | None:
    """Return the requests of an API; from one source, or from both if `source` is None."""
    rows = [row for row in (*numbers.subtotals, *numbers.apis) if row.api == api and source in (None, row.source)]
    return next((row for row in rows if row.source == (source or ALL)), rows[0] if rows else None)
