"""The comparison of designs: means over seeds with confidence intervals. The contents of `summary.json`.

Intervals are 95 % confidence intervals of the mean by Student's t distribution, over seeds. The same seed gives all
designs the same script. So designs are compared by pairs of runs: the interval is for the mean of the pairs'
differences, without the variation between seeds.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

import msgspec

from fakebroker.lab.estimate import Estimate, estimate_of
from fakebroker.lab.measures import CauseResult
from fakebroker.lab.study.figures import FIGURES
from fakebroker.lab.study.plan import StudyPlan
from fakebroker.lab.study.results import RunRow

SUMMARY_VERSION = 1


class ScenarioSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario.

    Attributes:
        name: Its name.
        groups, members: Their numbers; of members the expected one.
        duration_s: Length of a run.
    """

    name: str
    groups: int
    members: int
    duration_s: float


class FigureEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of a design in a scenario.

    Attributes:
        scenario, design: Their names.
        figure: Name of the figure.
        value: Its mean over seeds.
        difference: The difference to the first design with the same seeds; none for the first design, and without
            common seeds.
    """

    scenario: str
    design: str
    figure: str
    value: Estimate
    difference: Estimate | None

    @property
    def differs(self) -> bool:
        """Whether the difference to the first design is more than chance: its interval excludes 0.

        A single seed has no interval.
        """
        found = self.difference
        return found is not None and found.seeds > 1 and not found.low <= 0 <= found.high


class CauseSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The rebalances of a design in a scenario with one cause: means over seeds; see `CauseResult`."""

    scenario: str
    design: str
    cause: str
    count: float
    never_ended: float
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None
    messages: float | None
    bytes: float | None


class RunCost(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of running a design in a scenario.

    Attributes:
        scenario, design: Their names.
        runs: Number of runs.
        cpu_s: Mean CPU time of a run.
    """

    scenario: str
    design: str
    runs: int
    cpu_s: float


class FailedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that failed.

    Attributes:
        scenario, design, seed: The run.
        error: The last line of the traceback.
        traceback: The traceback.
    """

    scenario: str
    design: str
    seed: int
    error: str
    traceback: str


class StudySummary(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of `summary.json`.

    Attributes:
        version: Version of this schema.
        scale: The factor of `--scale`.
        seeds: The seeds.
        designs: The names of designs, in their order.
        complete: Whether all runs are over; else the study was interrupted.
        scenarios: The scenarios.
        figures: The figures that occur, by scenario and design.
        causes: Rebalances by cause.
        costs: The CPU time of runs.
        failed: Runs that failed.
    """

    version: int
    scale: float
    seeds: list[int]
    designs: list[str]
    complete: bool
    scenarios: list[ScenarioSummary]
    figures: list[FigureEstimate]
    causes: list[CauseSummary]
    costs: list[RunCost]
    failed: list[FailedRun]

    def estimates(self, scenario: str) -> dict[str, dict[str, FigureEstimate]]:
        """Return the figures of a scenario, by figure and design."""
        found: dict[str, dict[str, FigureEstimate]] = {}
        for each in self.figures:
            if each.scenario == scenario:
                found.setdefault(each.figure, {})[each.design] = each
        return found


def summarize(plan: StudyPlan, rows: Sequence[RunRow], scale: float) -> StudySummary:
    """Return the comparison of designs.

    Args:
        plan: The study.
        rows: The runs that are over.
        scale: The factor of `--scale`.
    """
    by_run: dict[tuple[str, str], list[RunRow]] = {}
    for row in rows:
        by_run.setdefault((row.scenario, row.design), []).append(row)
    pairs = [(scenario, design) for scenario in plan.scenarios for design in plan.designs]
    first = next(iter(plan.designs))
    figures: list[FigureEstimate] = []
    for scenario, design in pairs:
        baseline = [] if design == first else by_run.get((scenario, first), [])
        figures += _figures(scenario, design, by_run.get((scenario, design), []), baseline)
    return StudySummary(
        version=SUMMARY_VERSION,
        scale=scale,
        seeds=list(plan.seeds),
        designs=list(plan.designs),
        complete=len(rows) == len(plan.runs()),
        scenarios=[
            ScenarioSummary(name=name, groups=each.group_count, members=each.member_count, duration_s=each.duration_s)
            for name, each in plan.scenarios.items()
        ],
        figures=figures,
        causes=[each for pair in pairs for each in _causes(*pair, by_run.get(pair, []))],
        costs=[
            RunCost(scenario=pair[0], design=pair[1], runs=len(found), cpu_s=round(fmean(r.cpu_s for r in found), 3))
            for pair in pairs
            if (found := by_run.get(pair))
        ],
        failed=[
            FailedRun(**row.key._asdict(), error=row.error.strip().splitlines()[-1], traceback=row.error)
            for row in rows
            if row.error is not None
        ],
    )


def _figures(
    scenario: str, design: str, rows: Sequence[RunRow], baseline: Sequence[RunRow]
) -> Iterable[FigureEstimate]:
    for figure in FIGURES:
        values = _values(figure.name, rows)
        before = _values(figure.name, baseline)
        if values:
            common = [values[seed] - before[seed] for seed in values.keys() & before.keys()]
            yield FigureEstimate(
                scenario=scenario,
                design=design,
                figure=figure.name,
                value=_rounded(estimate_of(list(values.values()))),
                difference=_rounded(estimate_of(sorted(common))) if common else None,
            )


def _values(figure: str, rows: Sequence[RunRow]) -> Mapping[int, float]:
    """Return the values of a figure by seed."""
    found = {row.seed: getattr(row.result, figure) for row in rows if row.result is not None}
    return {seed: value for seed, value in found.items() if value is not None}


def _rounded(estimate: Estimate) -> Estimate:
    """Return an estimate with the digits that are worth storing."""
    mean, low, high = (float(f"{each:.6g}") for each in (estimate.mean, estimate.low, estimate.high))
    return Estimate(mean, low, high, estimate.seeds)


def _causes(scenario: str, design: str, rows: Sequence[RunRow]) -> Iterable[CauseSummary]:
    results = [row.result for row in rows if row.result is not None]
    found: dict[str, list[CauseResult]] = {}
    for result in results:
        for each in result.causes:
            found.setdefault(each.cause, []).append(each)
    for cause, of_cause in sorted(found.items()):
        means: dict[str, float | None] = {}
        for name in ("p50_ms", "p99_ms", "max_ms", "messages", "bytes"):
            values = [value for each in of_cause if (value := getattr(each, name)) is not None]
            means[name] = float(f"{fmean(values):.6g}") if values else None
        yield CauseSummary(
            scenario=scenario,
            design=design,
            cause=cause,
            count=sum(each.count for each in of_cause) / len(results),
            never_ended=sum(each.never_ended for each in of_cause) / len(results),
            **means,
        )
