"""Comparison of two runs: why they may not be comparable, which outcomes changed, and which figures differ.

Depends on summaries only, not on Spark. `compared_figures` has the figures, and `noise` estimates their noise.
`replay.comparison.comparison_report` shows the result.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from statistics import fmean
from typing import Any

import msgspec
from msgspec.structs import replace

from fakebroker.replay.comparison.compared_figures import Figure, figures_of, is_cost
from fakebroker.replay.comparison.noise import least_noise_of_counts, noise_of_chance, noise_of_repeats
from fakebroker.replay.run_summary import Summary
from fakebroker.replay.wording import counted

_RESOLUTION = 0.01
"""The noise is at least this share of a value, because smaller differences of rates or latencies do not matter."""

_NO_REPEATS = "two repeats, of BEFORE or AFTER, show its noise"

_NO_SETTINGS = ("file", "seed")
"""Keys of a workload that do not change what is measured."""

_MOST_KEYS = 5
"""Maximum number of different keys that are listed."""

_SAME_LENGTH = 0.02
"""Runs whose lengths differ by a larger share are compared by counts per second."""

RULE = (
    "The noise is the difference that two runs under equal conditions stay below with a probability of 99 %: about one "
    "figure in a hundred exceeds it by chance. It is estimated from repeats, simulations with other seeds or further "
    "runs over TCP: --again names those of BEFORE, --again-after those of AFTER, at least two in all (Student's t). "
    "Without repeats, only small differences can be judged: below 1 % of the value, or below what independent events "
    "differ by (Poisson), they are noise. Two simulations of the same workload with the same seed have no noise: any "
    "difference is exact."
)


class Difference(msgspec.Struct, frozen=True):
    """A figure in both runs.

    Attributes:
        name: Name with unit: "Heartbeat p50 ms".
        before: Value in the first run, or the mean of this run and its repeats; None if there is none.
        after: Value in the second run, or the mean of this run and its repeats; None if there is none.
        noise: The noise of the difference, in the unit of the figure; None if it cannot be estimated.
        basis: What the noise is estimated from.
        why: Why the figure cannot be judged; empty if it can.
        is_exact: Whether both runs were simulated from equal seeds. Then the figure has no noise.
        is_cost: Whether a lower value is better.
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
        before: Its outcome in the first run, and what the outcome is based on: "kept (1,204 cases)".
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
        differences: All figures. First come figures whose difference exceeds the noise, by how far it does. Then come
            figures that cannot be judged, and then all others.
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


def compare(
    before: Summary, after: Summary, repeats: Sequence[Summary] = (), repeats_after: Sequence[Summary] = ()
) -> Comparison:
    """Compare two runs.

    Args:
        before: The first run.
        after: The second run.
        repeats: Runs that repeat the first one.
        repeats_after: Runs that repeat the second one.
    """
    changed, same = _outcomes(before, after)
    return Comparison(
        problems=problems_of(before, after, repeats, repeats_after),
        changed=changed,
        same=same,
        differences=sorted(_Judge(before, after, repeats, repeats_after).differences(), key=_order),
    )


def _order(each: Difference) -> tuple[int, float]:
    """Return the place of a difference in the table."""
    if each.why:
        largest = max(abs(each.before or 0), abs(each.after or 0))
        return 1, -abs((each.after or 0) - (each.before or 0)) / (largest or 1)
    return (0 if each.exceeds else 2), -(each.times or 0)


class _Judge:
    """Judges the figures of two runs."""

    def __init__(
        self, before: Summary, after: Summary, repeats: Sequence[Summary], repeats_after: Sequence[Summary]
    ) -> None:
        self.before = [figures_of(run) for run in (before, *repeats)]
        self.after = [figures_of(run) for run in (after, *repeats_after)]
        self.spans_s = (max(before.numbers.span_s, 0.001), max(after.numbers.span_s, 0.001))
        self.has_same_length = _has_same_length(before, after)
        self.is_exact = is_exact(before, after)

    def differences(self) -> Iterator[Difference]:
        """Yield all figures of the two runs."""
        for name, figure in (self.before[0] | self.after[0]).items():
            # An API without requests has a rate of 0, for example JoinGroup with the consumer protocol.
            missing = figure._replace(value=0 if figure.kind in ("count", "rate") else None)
            before, after = ([run.get(name, missing) for run in runs] for runs in (self.before, self.after))
            yield replace(self._difference(name, before, after), is_cost=is_cost(name))

    def _difference(self, name: str, before: Sequence[Figure], after: Sequence[Figure]) -> Difference:
        first, second = before[0], after[0]
        if first.value is None or second.value is None:
            missing = [run for run, each in (("BEFORE", first), ("AFTER", second)) if each.value is None]
            return Difference(name, first.value, second.value, why=f"not measured in {' and '.join(missing)}")
        spans_s = (1.0, 1.0)
        if first.kind in ("count", "total") and not self.has_same_length:
            name, spans_s = f"{name} per s", self.spans_s
        olds = [each.value / spans_s[0] for each in before if each.value is not None]
        news = [each.value / spans_s[1] for each in after if each.value is not None]
        old, new = fmean(olds), fmean(news)
        if len({*olds, *news}) == 1:
            return Difference(name, old, new, basis="equal")
        if self.is_exact:
            return Difference(name, old, new, basis="exact", is_exact=True)
        least, basis = _RESOLUTION * max(abs(old), abs(new)), "least noise"
        if (noise := noise_of_repeats(olds, news)) is not None:
            return Difference(name, old, new, max(noise, least), counted(len(olds) + len(news) - 2, "repeat"))
        if len(first.chance) == len(second.chance) == 2:
            return Difference(name, old, new, max(noise_of_chance(first.chance, second.chance), least), "chance")
        # What is known without enough repeats: the noise is not less than this.
        if first.kind == "count":
            least = max(least, least_noise_of_counts(olds[0] * spans_s[0], news[0] * spans_s[1], spans_s))
            basis = "counts"
        spread = max(max(values) - min(values) for values in (olds, news))
        if spread > least:
            least, basis = spread, "1 repeat"
        if abs(new - old) <= least:
            return Difference(name, old, new, least, basis)
        return Difference(name, old, new, why=_NO_REPEATS)


def _has_same_length(before: Summary, after: Summary) -> bool:
    """Return whether totals of two runs can be compared: members leave at about the same time, then responses end."""
    runs = (before, after)
    durations_s = {run.head.workload["duration_s"] for run in runs}
    spans_s = [run.numbers.span_s for run in runs]
    is_planned = len(durations_s) == 1 and all(run.head.complete for run in runs)
    return is_planned or abs(spans_s[1] - spans_s[0]) <= _SAME_LENGTH * max(spans_s)


def is_exact(before: Summary, after: Summary) -> bool:
    """Return whether two runs were simulated with the same workload, settings and seed.

    Then nothing in them is by chance. They differ only if fakebroker or the cluster has changed.
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


def problems_of(
    before: Summary, after: Summary, repeats: Sequence[Summary] = (), repeats_after: Sequence[Summary] = ()
) -> list[str]:
    """Return why two runs cannot be compared, or only in part."""
    old, new = before, after
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
    for name, run, repeated in (("BEFORE", old, repeats), ("AFTER", new, repeats_after)):
        for repeat in repeated:
            if differing_workload(run, repeat) or differing_settings(run, repeat):
                found.append(f"{repeat.directory} is no repeat of {name}: its workload or settings differ.")
            elif repeat.head.transport == "memory" and repeat.head.seed == run.head.seed:
                found.append(f"{repeat.directory} shows no noise: {name} was simulated with the same seed.")
    return found


def _problems_of_run(name: str, run: Summary) -> Iterator[str]:
    """Yield the reasons why the numbers of a run may be wrong: it was interrupted, or not healthy."""
    if not run.head.complete:
        yield f"{name} ended early, after {run.numbers.span_s:,.1f} s: its numbers cover the time until then."
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
    """A check of a verdict: its sentence, its outcome, whether the outcome is bad, and its evidence."""

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
