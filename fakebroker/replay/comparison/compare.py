"""Comparison of two runs: what makes them incomparable, outcomes that changed, and figures with their noise.

Depends on summaries and `samples.parquet` only, not on Spark. `compared_figures` has the figures, `noise` the
estimates; `replay.comparison.comparison_report` shows the result.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import inf, lcm
from statistics import fmean
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from fakebroker.replay.comparison.compared_figures import Figure, Run, Where, figures_of, latency_quantile
from fakebroker.replay.comparison.noise import (
    Array,
    Estimate,
    Statistic,
    blocks,
    noise_of_chance,
    noise_of_parts,
    noise_of_rare_events,
    noise_of_repeats,
    skew,
    total,
)
from fakebroker.replay.comparison.samples import Selection, counted_by
from fakebroker.replay.run_summary import Summary
from fakebroker.replay.wording import counted

_RESOLUTION = 0.01
"""The noise is at least this share of a value: smaller differences of rates or latencies have no use."""

_MIN_TAIL = 5
"""Minimum number of values above a quantile (and below it)."""

_TOTALS = ("count", "member-s")
"""Kinds of figures that grow with the length of a run."""

_MIN_BURSTS = 9
"""With fewer bursts of events, even a count that is 0 in one of the runs cannot exceed its noise."""

_MIN_COVERED = 0.9
"""Minimum share of counts that belong to a group, for an estimate between groups."""

_NO_SETTINGS = ("file", "seed")
"""Keys of a workload that do not change what is measured."""

_MOST_KEYS = 5
"""Maximum number of keys listed that differ."""

_SAME_LENGTH = 0.02
"""Runs whose lengths differ by a larger share are compared by counts per second."""

RULE = (
    "The noise is the difference that two runs under equal conditions stay below with a probability of 99 %, so that "
    "about one figure in a hundred exceeds it by chance. It is estimated by a bootstrap within the two runs: over "
    "their time slices, in blocks of successive ones, and over 32 parts of their groups; the larger of "
    "the two applies. "
    "Counts of a few independent events have the noise of a Poisson distribution. The noise is at least 1 % of the "
    "value. Noise that affects a whole run, such as a busy machine, is only visible in repeats of BEFORE: with "
    "--again, given at least twice, the noise is the range in which one more repeat is expected (Student's t, 99 %). "
    "Two simulations of the same workload with the same seed have no noise: any difference is exact."
)


class Difference(msgspec.Struct, frozen=True):
    """A figure in both runs.

    Attributes:
        name: Name with unit: "Heartbeat p50 ms".
        before: Value in the first run, or the mean of this run and its repeats; None if there is none.
        after: Value in the second run; None if there is none.
        noise: The noise of the difference, in the unit of the figure; None if it cannot be estimated.
        basis: What the noise is estimated from.
        why: Why the figure cannot be judged; empty if it can.
        is_exact: Whether both runs were simulated from equal seeds, so that any difference is one.
        is_cost: Whether a lower value is better; see `compared_figures.Figure`.
    """

    name: str
    before: float | None
    after: float | None
    noise: float | None = None
    basis: str = ""
    why: str = ""
    is_exact: bool = False
    is_cost: bool = False

    @property
    def difference(self) -> float | None:
        return None if self.before is None or self.after is None else self.after - self.before

    @property
    def change(self) -> float | None:
        """The relative difference, such as 0.5 for +50 %; None if `before` is 0 or a value is missing."""
        return self.difference / abs(self.before) if self.before and self.difference is not None else None

    @property
    def times(self) -> float | None:
        """The difference as a multiple of the noise, without its sign; None if it cannot be judged."""
        if self.why or self.difference is None:
            return None
        if self.is_exact:
            return inf if self.difference else 0.0
        return abs(self.difference) / self.noise if self.noise else 0.0

    @property
    def exceeds(self) -> bool:
        """Whether the difference exceeds the noise."""
        return self.times is not None and self.times > 1

    @property
    def mark(self) -> str:
        """Return "worse" or "better" for a cost whose difference exceeds the noise; else an empty text."""
        if not self.is_cost or not self.exceeds or not self.difference:
            return ""
        return "worse" if self.difference > 0 else "better"


class ChangedOutcome(msgspec.Struct, frozen=True):
    """A check whose outcome is not the same in both runs.

    Attributes:
        kind: "promise", "availability" or "expectation".
        what: The sentence of the check.
        before: Its outcome in the first run, with what it is based on: "kept (1,204 cases)".
        after: Its outcome in the second run.
        is_worse: Whether the outcome is bad in the second run only.
    """

    kind: str
    what: str
    before: str
    after: str
    is_worse: bool


class Comparison(msgspec.Struct, frozen=True):
    """The result of comparing two runs.

    Attributes:
        problems: Why the runs cannot be compared, or only in part, as sentences.
        changed: Outcomes that changed, the worse ones first.
        same: A sentence about the outcomes that did not change.
        differences: All figures: those that exceed their noise, those that cannot be judged, and the others; each by
            how far it exceeds its noise.
    """

    problems: list[str]
    changed: list[ChangedOutcome]
    same: str
    differences: list[Difference]

    @property
    def exceeding(self) -> list[Difference]:
        return [each for each in self.differences if each.exceeds]

    @property
    def unjudged(self) -> list[Difference]:
        return [each for each in self.differences if each.why]

    @property
    def within(self) -> list[Difference]:
        return [each for each in self.differences if not each.why and not each.exceeds and each.difference]

    @property
    def equal(self) -> list[Difference]:
        return [each for each in self.differences if not each.why and not each.difference]


def compare(before: Run, after: Run, repeats: Sequence[Run] = ()) -> Comparison:
    """Compare two runs.

    Args:
        before: The first run.
        after: The second run.
        repeats: Runs that repeat the first one.
    """
    changed, same = _outcomes(before.summary, after.summary)
    return Comparison(
        problems=problems_of(before, after, repeats),
        changed=changed,
        same=same,
        differences=sorted(_Judge(before, after, repeats).differences(), key=_order),
    )


def _order(each: Difference) -> tuple[int, float]:
    """Return the place of a difference in the table."""
    if each.why:
        largest = max(abs(each.before or 0), abs(each.after or 0))
        return 1, -abs((each.after or 0) - (each.before or 0)) / (largest or 1)
    return (0 if each.exceeds else 2), -(each.times or 0)


class _Judge:
    """Estimates the noise of the figures of two runs."""

    def __init__(self, before: Run, after: Run, repeats: Sequence[Run]) -> None:
        self.runs = (before, after)
        self.repeats = [figures_of(run) for run in repeats]
        spans_s = [max(run.summary.numbers.span_s, 0.001) for run in self.runs]
        self.spans_s = (spans_s[0], spans_s[1])
        self.has_same_length = _has_same_length(before.summary, after.summary)
        # The same parts of runs of the same workload differ less than other parts.
        self.is_paired = self.has_same_length and not differing_workload(before.summary, after.summary)
        self.is_exact = is_exact(before.summary, after.summary)
        lengths_ms = [round(run.summary.numbers.over_time.slice_s * 1000) for run in self.runs]
        self.merged = [lcm(*lengths_ms) // length for length in lengths_ms]

    def differences(self) -> Iterator[Difference]:
        """Yield all figures of the two runs."""
        before, after = map(figures_of, self.runs)
        for name, figure in (before | after).items():
            # An API without requests has a rate of 0, for example JoinGroup with the consumer protocol.
            missing = figure._replace(value=0 if figure.kind in ("count", "rate") else None)
            repeated = [each.get(name, missing).value for each in self.repeats]
            found = self._difference(name, before.get(name, missing), after.get(name, missing), repeated)
            yield replace(found, is_cost=figure.is_cost)

    def _difference(self, name: str, before: Figure, figure: Figure, repeated: Sequence[float | None]) -> Difference:
        old, new = before.value, figure.value
        if old is None or new is None:
            missing = [run for run, value in (("BEFORE", old), ("AFTER", new)) if value is None]
            return Difference(name, old, new, why=f"not measured in {' and '.join(missing)}")
        known = [old, *(value for value in repeated if value is not None)]
        spans_s = (1.0, 1.0)
        if figure.kind in _TOTALS and not self.has_same_length:
            spans_s = self.spans_s
            name, old, new = f"{name} per s", old / spans_s[0], new / spans_s[1]
            known = [value / spans_s[0] for value in known]
        if old == new and len(set(known)) == 1:
            return Difference(name, old, new, basis="equal")
        if self.is_exact:
            return Difference(name, old, new, basis="exact", is_exact=True)
        resolution = _RESOLUTION * max(abs(old), abs(new))
        if (noise := noise_of_repeats(known)) is not None:
            return Difference(name, fmean(known), new, max(noise, resolution), f"{len(known) - 1} repeats")
        if len(before.chance) == len(figure.chance) == 2:
            return Difference(name, old, new, max(noise_of_chance(before.chance, figure.chance), resolution), "chance")
        found = self._noise(figure, (old, new), spans_s)
        if isinstance(found, str):
            if abs(new - old) <= resolution:  # the least noise
                return Difference(name, old, new, resolution, "least noise")
            return Difference(name, old, new, why=found)
        noise, basis = found
        if len(known) > 1:  # one repeat says something, but not enough for a range
            noise = max(noise, abs(known[1] - known[0]))
        return Difference(name, old, new, max(noise, resolution), basis)

    def _noise(
        self, figure: Figure, values: tuple[float, float], spans_s: tuple[float, float]
    ) -> tuple[float, str] | str:
        """Return the noise of a figure and what it was estimated from, or why there is no estimate."""
        if figure.kind in ("none", "chance"):
            return figure.why
        estimates: dict[str, Estimate] = {}
        if figure.divisions:
            samples = [run.samples for run in self.runs]
            if samples[0] is None or samples[1] is None:
                return "no samples.parquet"
            if figure.kind == "quantile" and (few := self._too_few(figure)):
                return few
            estimates = {division: self._estimate(figure, division, spans_s) for division in figure.divisions}
        noises = {name: each.noise for name, each in estimates.items() if each.noise is not None}
        if noises:
            return max(noises.values()), " and ".join(noises)
        if figure.kind == "count":
            counts = [round(value * span_s) for value, span_s in zip(values, spans_s, strict=True)]
            bursts = max((each.bursts for each in estimates.values()), default=float("inf"))
            noise = noise_of_rare_events(counts[0], counts[1], spans_s, burst=sum(counts) / max(bursts, 1.0))
            least = noise_of_rare_events(counts[0], counts[1], spans_s)
            # Single events are the least noise: a difference below it cannot exceed that of bursts.
            if bursts >= _MIN_BURSTS or abs(values[1] - values[0]) <= least:
                return max(noise, least), "counts"
        return f"{figure.noun} in only {_concentration(estimates)}"

    def _too_few(self, figure: Figure) -> str:
        """Return why the runs have too few values for a quantile; empty if they have enough."""
        needed = round(_MIN_TAIL / min(figure.q, 1 - figure.q))
        for run, name in zip(self.runs, ("BEFORE", "AFTER"), strict=True):
            assert run.samples is not None
            count = round(float(run.samples.select("time", self._where(figure, run)).n.sum()))
            if count < needed:
                return f"only {count:,} {figure.noun} in {name}; p{figure.q * 100:g} needs {needed:,}"
        return ""

    def _estimate(self, figure: Figure, division: str, spans_s: tuple[float, float]) -> Estimate:
        if division == "groups" and not self._covers_groups(figure):
            return Estimate(None, 0.0, 0)
        counts, statistics = self._counts(figure, division, spans_s)
        if division == "time":
            first = self._first_slice(figure)
            counts = [blocks(each[first:], merged) for each, merged in zip(counts, self.merged, strict=True)]
        return noise_of_parts(
            counts[0],
            counts[1],
            statistics,
            is_paired=self.is_paired,
            is_sum=figure.kind in (*_TOTALS, "rate"),
            is_time=division == "time",
        )

    def _covers_groups(self, figure: Figure) -> bool:
        """Return whether nearly all counts belong to a group: requests about no group, or several, do not."""
        if "time" not in figure.divisions or figure.kind == "member-s":
            return True
        of_groups, overall = (
            sum(float(each.n.sum()) for each in self._selections(figure, division)) for division in ("groups", "time")
        )
        return of_groups >= _MIN_COVERED * overall > 0

    def _selections(self, figure: Figure, division: str) -> list[Selection]:
        return [run.samples.select(division, self._where(figure, run)) for run in self.runs if run.samples is not None]

    def _where(self, figure: Figure, run: Run) -> Where:
        """Return the condition of a figure; in the steady state of the run, if the figure is of it."""
        if not figure.is_steady:
            return figure.where
        first = _steady_slice(run.summary)
        return lambda samples: np.asarray(figure.where(samples) & (samples.column("part") >= first))

    def _first_slice(self, figure: Figure) -> int:
        """Return the slice from which on both runs are in the steady state; 0 for figures of whole runs."""
        return max(_steady_slice(run.summary) for run in self.runs) if figure.is_steady else 0

    def _counts(
        self, figure: Figure, division: str, spans_s: tuple[float, float]
    ) -> tuple[list[Array], tuple[Statistic, Statistic]]:
        """Return the counts by part of both runs, and the statistics that compute the figure from them."""
        if figure.kind == "member-s" and division == "time":
            return [_waiting_member_s(run.summary) for run in self.runs], (total(spans_s[0]), total(spans_s[1]))
        selections = self._selections(figure, division)
        if figure.kind == "quantile":
            buckets, counts = counted_by("bucket", selections)
            statistic = latency_quantile(figure.q, buckets)
            return counts, (statistic, statistic)
        if figure.kind == "skew":
            return counted_by("broker", selections)[1], (skew, skew)
        per = self.spans_s if figure.kind == "rate" else spans_s
        unit = 1e6 if figure.kind == "member-s" else 1.0
        return [each.totals() / unit for each in selections], (total(per[0]), total(per[1]))


def _steady_slice(summary: Summary) -> int:
    """Return the first slice of the steady state."""
    return round((summary.numbers.measure_from_s or 0) / summary.numbers.over_time.slice_s)


def _has_same_length(before: Summary, after: Summary) -> bool:
    """Return whether totals of two runs can be compared: members leave at about the same time, then responses end."""
    runs = (before, after)
    durations_s = {run.head.workload["duration_s"] for run in runs}
    spans_s = [run.numbers.span_s for run in runs]
    is_planned = len(durations_s) == 1 and all(run.head.complete for run in runs)
    return is_planned or abs(spans_s[1] - spans_s[0]) <= _SAME_LENGTH * max(spans_s)


def _waiting_member_s(summary: Summary) -> Array:
    """Return the time that members were waiting for an assignment, by time slice."""
    over_time = summary.numbers.over_time
    return np.array(over_time.members.waiting, dtype=np.float64).reshape(-1, 1) * over_time.slice_s


def _concentration(estimates: Mapping[str, Estimate]) -> str:
    """Describe in how few parts of the runs the counts are."""
    of = {"time": "of the time", "groups": "of the groups"}
    found = [
        f"{max(1, round(each.parts))} of {each.of} parts {of[name]}" for name, each in estimates.items() if each.of
    ]
    return f"about {' and '.join(found)}"


def is_exact(before: Summary, after: Summary) -> bool:
    """Return whether two runs were simulated with the same workload, settings and seed.

    Then they differ only by what has changed in fakebroker, or in the cluster: nothing in them is by chance.
    """
    return (
        before.head.transport == after.head.transport == "memory"
        and before.head.seed == after.head.seed
        and before.head.complete
        and after.head.complete
        and not differing_workload(before, after)
        and not differing_settings(before, after)
    )


def differing_workload(before: Summary, after: Summary) -> list[str]:
    """Return the keys of the workloads that differ, with both values: "duration_s: 60 and 30"."""
    old, new = (dict(_flat(run.head.workload)) for run in (before, after))
    names = [name for name in old | new if name not in _NO_SETTINGS and old.get(name) != new.get(name)]
    return [f"{name}: {old.get(name, 'none')} and {new.get(name, 'none')}" for name in names]


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a nested document with their paths, such as `groups[0].count`."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _flat(each, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(each, Mapping) for each in value):
        for index, each in enumerate(value):
            yield from _flat(each, f"{path}[{index}]")
    else:
        yield path, value


def problems_of(before: Run, after: Run, repeats: Sequence[Run] = ()) -> list[str]:
    """Return why two runs cannot be compared, or only in part."""
    old, new = before.summary, after.summary
    found = []
    if old.head.transport != new.head.transport:
        tcp, memory = ("BEFORE", "AFTER") if old.head.transport == "tcp" else ("AFTER", "BEFORE")
        found.append(
            f"{memory} was simulated in memory and {tcp} ran over TCP: latencies and rates of the two have "
            "different causes."
        )
    if keys := differing_workload(old, new):
        more = f", and {len(keys) - _MOST_KEYS} more" if len(keys) > _MOST_KEYS else ""
        found.append(f"The workloads differ ({'; '.join(keys[:_MOST_KEYS])}{more}): differences may be due to that.")
    elif old.head.members != new.head.members:
        why = "their seeds differ" if old.head.seed != new.head.seed else "their scripts differ"
        counts = f"{old.head.members:,} and {new.head.members:,}"
        found.append(f"The runs had {counts} members, because {why}: totals grow with the number of members.")
    if settings := differing_settings(old, new):
        found.append(f"The settings of the runs differ ({'; '.join(settings)}): differences may be due to that.")
    for name, run in (("BEFORE", old), ("AFTER", new)):
        found.extend(_problems_of_run(name, run))
    spans_s = [run.numbers.span_s for run in (old, new)]
    if not _has_same_length(old, new):
        found.append(
            f"BEFORE lasted {spans_s[0]:,.1f} s and AFTER {spans_s[1]:,.1f} s: totals are compared per second, and "
            "phases such as the start have different weights."
        )
    without = [str(run.summary.directory) for run in (before, after) if run.samples is None]
    if without:
        found.append(
            f"{' and '.join(without)} {'has' if len(without) == 1 else 'have'} no samples.parquet, so that most "
            "noise cannot be estimated: `fakebroker report` writes it."
        )
    for repeat in (each.summary for each in repeats):
        if differing_workload(old, repeat) or differing_settings(old, repeat):
            found.append(f"{repeat.directory} is no repeat of BEFORE: its workload or settings differ.")
        elif repeat.head.transport == "memory" and repeat.head.seed == old.head.seed:
            found.append(f"{repeat.directory} shows no noise: BEFORE was simulated with the same seed.")
    return found


def _problems_of_run(name: str, run: Summary) -> Iterator[str]:
    """Yield why the numbers of one run are not those of a complete, healthy run."""
    if not run.head.complete:
        yield f"{name} was interrupted after {run.numbers.span_s:,.1f} s: its numbers cover the time until then."
    if run.head.cluster.reachable is False:
        yield f"The cluster of {name} was unreachable at the end: its latencies are those of the requests before."
    if run.verdict.outcome == "inconclusive":
        yield f"The verdict on {name} is inconclusive: its figures may miss what did not happen."
    elif run.verdict.outcome == "failed":
        yield f"The verdict on {name} is failed: its latencies are only those of the requests that were answered."


def differing_settings(before: Summary, after: Summary) -> list[str]:
    """Return the settings outside the workload that differ and may change figures: "lanes: 2 and none"."""
    old, new = map(_settings, (before, after))
    return [
        f"{name}: {'none' if value is None else value} and {'none' if new[name] is None else new[name]}"
        for name, value in old.items()
        if value != new[name]
    ]


def _settings(run: Summary) -> dict[str, Any]:
    """Return settings that are not in the workload and may change figures, by their keys in the summary."""
    head = run.head
    return {
        "scale": head.scale,
        "record": head.record,
        "lanes": head.lanes,
        "cluster.embedded": head.cluster.embedded,
        "spark.tasks": head.spark.tasks,
    }


class _Check(msgspec.Struct, frozen=True):
    """A check of a verdict: its sentence, its outcome, whether the outcome is bad, and what it is based on."""

    what: str
    outcome: str
    is_bad: bool
    detail: str

    def __str__(self) -> str:
        return f"{self.outcome} ({self.detail})" if self.detail else self.outcome


def _outcomes(before: Summary, after: Summary) -> tuple[list[ChangedOutcome], str]:
    """Return the checks whose outcomes differ, and a sentence about the others."""
    old, new = (dict(_checks(run)) for run in (before, after))
    changed, same = [], []
    for kind, name in old | new:
        one, other = (checks.get((kind, name)) for checks in (old, new))
        check = other or one
        assert check is not None
        if one is not None and other is not None and one.outcome == other.outcome:
            same.append(one)
            continue
        is_worse = bool(other and other.is_bad and not (one and one.is_bad))
        texts = ["not checked" if each is None else str(each) for each in (one, other)]
        changed.append(ChangedOutcome(kind, check.what, texts[0], texts[1], is_worse))
    sentence = (
        f"{'The other' if changed else 'All'} {len(same)} promises, availability checks and expectations have the same "
        "outcome in both runs"
    )
    counts = Counter(check.outcome for check in same)
    listed = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    sentence = f"{sentence}: {listed}." if same else ""
    return sorted(changed, key=lambda each: not each.is_worse), sentence


def _checks(run: Summary) -> Iterator[tuple[tuple[str, str], _Check]]:
    """Yield each check of the verdict by kind and name."""
    verdict = run.verdict
    for promise in verdict.promises:
        counts = ((promise.broken, "violation"), (promise.cases, "case"))
        detail = " in ".join(counted(count, noun) for count, noun in counts if count)
        is_bad = promise.outcome == "broken" or (promise.required and promise.outcome == "not exercised")
        yield ("promise", promise.name), _Check(promise.promise, promise.outcome, is_bad, detail)
    for check in verdict.availability:
        detail = counted(check.failures, "failure") if check.failures else ""
        yield ("availability", check.name), _Check(check.check, check.outcome, not check.passed, detail)
    for each in verdict.expectations:
        detail = "no value" if each.actual is None else f"{each.actual:g}"
        outcome = "met" if each.met else "missed"
        yield ("expectation", each.expectation), _Check(each.expectation, outcome, not each.met, detail)
