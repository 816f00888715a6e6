"""The generated parts of the lab's documents: tables of keys, of scenarios, and of recorded results.

`python -m tests.documents.lab DIRECTORY` records the results of a study.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec

from fakebroker.lab.report.wording import estimate, short
from fakebroker.lab.scenario import groups
from fakebroker.lab.scenario.scenario import Cluster, Event, Scenario
from fakebroker.lab.study.figures import FIGURES
from fakebroker.lab.study.summary import StudySummary
from fakebroker.replay.workload.behavior import Crash, Restart
from tests.documents.markdown import table
from tests.documents.workloads import keys_table

FOLDER = Path(__file__).parents[2] / "scenarios" / "lab"
RECORDED = FOLDER / "recorded.json"
"""The study that the document discusses: its `summary.json` without rebalances by cause, one line for each figure."""

TABLES: dict[str, type[msgspec.Struct]] = {
    "scenario": Scenario,
    "cluster": Cluster,
    "groups": groups.Groups,
    "leave": Crash,
    "cut": groups.Cut,
    "slow": groups.Slow,
    "restart": Restart,
    "pause": groups.Pauses,
    "lose": groups.Losses,
    "event": Event,
}


def scenarios_table() -> str:
    """Return each shipped scenario with the first sentence of its comment."""
    rows = []
    for file in sorted(FOLDER.glob("*.toml")):
        head = re.match(r"(# [^\n]+\n)+", file.read_text())
        assert head, f"{file} does not begin with a comment that describes it"
        about = re.sub(r"\n?# ", " ", head[0]).strip()
        rows.append((f"[{file.stem}]({file.name})", re.split(r"(?<=[.])\s", about)[0]))
    return table(("scenario", "description"), rows)


def tables() -> dict[str, Callable[[], str]]:
    """Return what generates each table of the guide, by name."""
    return {"scenarios": scenarios_table, **{name: partial(keys_table, struct) for name, struct in TABLES.items()}}


def recorded() -> StudySummary:
    """Return the recorded study."""
    return msgspec.convert(json.loads(RECORDED.read_text()), StudySummary)


def study() -> str:
    """Return a sentence on the recorded study."""
    found = recorded()
    scale = "" if found.scale == 1 else f" with `--scale {found.scale:g}`"
    runs = sum(each.runs for each in found.costs)
    cpu_s = sum(each.cpu_s * each.runs for each in found.costs)
    designs, seeds = len(found.designs), len(found.seeds)
    return (
        f"{runs} runs of {designs} designs with {seeds} seeds{scale}, in {short(cpu_s / 60)} minutes "
        "of CPU time. Each number is\nthe mean over seeds, with half of its 95 % confidence interval. Bold: the "
        f"difference to {found.designs[0]} with the same seeds\nis more than chance."
    )


def results() -> str:
    """Return a table of the decisive figures for each scenario."""
    return "\n\n".join(_of_scenarios(recorded()))


def _of_scenarios(summary: StudySummary) -> Iterator[str]:
    for scenario in summary.scenarios:
        estimates = summary.estimates(scenario.name)
        rows = []
        for figure in FIGURES:
            of_figure = estimates.get(figure.name, {})
            if figure.is_decisive and any(each.value.mean for each in of_figure.values()):
                cells = [of_figure.get(name) for name in summary.designs]
                texts = ["-" if each is None else estimate(figure, each.value) for each in cells]
                marked = [
                    f"**{text}**" if each is not None and each.differs else text
                    for text, each in zip(texts, cells, strict=True)
                ]
                rows.append((figure.title, *marked))
        sizes = f"{scenario.groups:,} groups, {scenario.members:,} members, {scenario.duration_s:g} s"
        yield f"### {scenario.name}\n\n{sizes}:\n\n{table(('', *summary.designs), rows)}"


def record(directory: Path) -> None:
    """Record the results of a study.

    Args:
        directory: The directory of its results.
    """
    summary = {**json.loads((directory / "summary.json").read_text()), "causes": []}
    lines = []
    for key, value in summary.items():
        text = json.dumps(value)
        if isinstance(value, list) and value and isinstance(value[0], dict):
            text = "[\n" + ",\n".join(f"    {json.dumps(each)}" for each in value) + "\n  ]"
        lines.append(f"  {json.dumps(key)}: {text}")
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    record(Path(sys.argv[1]))
