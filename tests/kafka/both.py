"""The recipes and the tests of `scenarios/service`, on a fake cluster and on Apache Kafka: who passes where.

    python -m tests.kafka.both            # writes the table in scenarios/reference/kafka.md
    python -m tests.kafka.both --check    # one broker of the newest release alone; compares with the table

Each run is a pytest of its own, as users start it.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.documents.markdown import fill, table

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "scenarios" / "recipes" / "README.md"
SERVICE = ROOT / "scenarios" / "service"
PAGE = ROOT / "scenarios" / "reference" / "kafka.md"

RUNS: Mapping[str, tuple[str, ...]] = {
    "fake": (),
    "4.4, 1 broker": ("--kafka", "4.4"),
    "4.4, 3 brokers": ("--kafka", "4.4", "--kafka-brokers", "3"),
    "4.0, 1 broker": ("--kafka", "4.0"),
    "4.0, 3 brokers": ("--kafka", "4.0", "--kafka-brokers", "3"),
}
"""The options of pytest by the heading of the column."""

CHECKED = "4.4, 1 broker"
_RECORDER = """
import json, os

def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        reason = report.longrepr[2] if report.skipped else ""
        with open(os.environ["OUTCOMES"], "a") as file:
            file.write(json.dumps([report.nodeid, report.outcome, reason]) + chr(10))
"""


def write_tests(folder: Path) -> None:
    """Write the recipes and the service with its tests into an empty folder."""
    for number, _, code in recipes():
        (folder / f"test_recipe_{number:02}.py").write_text(code)
    for path in SERVICE.glob("*.py"):
        (folder / path.name).write_text(path.read_text())
    (folder / "conftest.py").write_text(_RECORDER)
    (folder / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")


def recipes() -> list[tuple[int, str, str]]:
    """Return the number, the title and the code of each recipe."""
    found = re.findall(r"^## (\d+)\. (.+?)$.*?^```python\n(.*?)^```$", RECIPES.read_text(), re.DOTALL | re.MULTILINE)
    return [(int(number), title, code) for number, title, code in found]


def outcomes(options: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Run all tests, and return the outcome of each, and why it was skipped."""
    with tempfile.TemporaryDirectory() as made:
        folder, results = Path(made), Path(made) / "outcomes"
        write_tests(folder)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--kafka-acls", *options]
        if "--kafka" not in options:
            command.remove("--kafka-acls")
        done = subprocess.run(
            command,
            cwd=folder,
            env={**_environment(), "OUTCOMES": str(results)},
            capture_output=True,
            text=True,
            check=False,
        )
        found: dict[str, tuple[str, str]] = {}
        for line in results.read_text().splitlines() if results.exists() else ():
            name, outcome, reason = json.loads(line)
            if found.get(name, ("",))[0] != "failed":
                found[name] = (outcome, reason.removeprefix("Skipped: "))
        print(done.stdout[-2_000:] if done.returncode else done.stdout.splitlines()[-1], flush=True)
        return found


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "FAKEBROKER_KAFKA"))}


def what(name: str) -> str:
    """Return what a test is about: the number and title of its recipe, or the name of a test of the service."""
    file, _, test = name.partition("::")
    if (found := re.fullmatch(r"test_recipe_(\d+)\.py", file)) is not None:
        title = next(title for number, title, _ in recipes() if number == int(found[1]))
        return f"recipe {int(found[1])}: {title}"
    return "service: " + re.sub(r"\[.*", "", test).removeprefix("test_").replace("_", " ")


def shown(outcome: str) -> str:
    return {"passed": "passes", "skipped": "needs the fake", "failed": "**fails**"}[outcome]


def rows(runs: Mapping[str, Mapping[str, tuple[str, str]]]) -> list[tuple[str, ...]]:
    """Return a row for each recipe and each test of the service: its outcomes, and what it needs a fake cluster for."""
    names: dict[str, list[str]] = {}
    for run in runs.values():
        for name in run:
            names.setdefault(what(name), [])
            if name not in names[what(name)]:
                names[what(name)].append(name)
    found = []
    for subject, tests in sorted(names.items(), key=_order):
        cells = []
        reasons: dict[str, None] = {}
        for run in runs.values():
            each = [run[name] for name in tests if name in run]
            worst = [outcome for outcome in ("failed", "skipped", "passed") if outcome in {one for one, _ in each}]
            cells.append(shown(worst[0]) if worst else "-")
            reasons |= dict.fromkeys(_reason(reason) for outcome, reason in each if outcome == "skipped")
        found.append((subject, *cells, "; ".join(reasons)))
    return found


def _order(item: tuple[str, list[str]]) -> tuple[int, str]:
    number = re.match(r"recipe (\d+)", item[0])
    return (int(number[1]) if number else 1_000, item[0])


def _reason(reason: str) -> str:
    short = reason.removeprefix("needs fakebroker: ")
    return f"`{short}`" if short != reason else re.sub(r"; Kafka at \S+ has .*", "", reason)


def totals(runs: Mapping[str, Mapping[str, tuple[str, str]]]) -> str:
    """Return how many tests pass, need the fake and fail, by run."""
    cells = [
        (
            name,
            *(str(sum(outcome == each for outcome, _ in run.values())) for each in ("passed", "skipped", "failed")),
        )
        for name, run in runs.items()
    ]
    return table(("where", "pass", "need the fake", "fail"), cells)


def document(runs: Mapping[str, Mapping[str, tuple[str, str]]]) -> str:
    """Return both tables."""
    return f"{totals(runs)}\n\n{table(('test', *runs, 'missing on Kafka'), rows(runs))}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    if not parser.parse_args().check:
        runs = {}
        for name, options in RUNS.items():
            print(name, end=": ", flush=True)
            runs[name] = outcomes(options)
        PAGE.write_text(fill(PAGE.read_text(), {"both": document(runs)}))
        return
    known = dict(re.findall(r"^\| ((?:recipe|service)[^|]*?) +\| [^|]* \| +(.*?) +\|", PAGE.read_text(), re.MULTILINE))
    now = {row[0]: row[1] for row in rows({CHECKED: outcomes(RUNS[CHECKED])})}
    differences = [
        f"{name}: {now.get(name)}, expected {known.get(name)}"
        for name in {*known, *now}
        if now.get(name) != known.get(name)
    ]
    print("\n".join(sorted(differences)) or f"{len(now)} as in {PAGE.name}")
    sys.exit(bool(differences))


if __name__ == "__main__":
    main()
