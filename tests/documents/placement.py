"""The tables of `scenarios/lab/placement.md`, from the study that was recorded last."""

from functools import cache
from pathlib import Path

import msgspec

from fakebroker.lab.placement.command import PlacementRecord
from fakebroker.lab.placement.report import balance_tables, lookups_tables, moves_table
from fakebroker.lab.report.sections import ReportTable
from tests.documents.markdown import table

RECORDED = Path(__file__).parents[2] / "scenarios" / "lab" / "placement.json"


@cache
def recorded() -> PlacementRecord:
    """Return the study."""
    return msgspec.json.decode(RECORDED.read_bytes(), type=PlacementRecord)


def cost() -> str:
    """Return the size of the study, and what it cost."""
    record = recorded()
    plan = record.result.plan
    return (
        f"Recorded with {plan.groups[-1]:,} groups and {len(plan.seeds)} seeds: {record.cpu_s:,.0f} s of CPU time\n"
        f"for all of it, Spark's start included."
    )


def balance() -> str:
    return "\n\n".join(_markdown(each) for each in balance_tables(recorded().result))


def moves() -> str:
    return _markdown(moves_table(recorded().result))


def lookups() -> str:
    return "\n\n".join(_markdown(each) for each in lookups_tables(recorded().result))


def _markdown(shown: ReportTable) -> str:
    return table(tuple(shown.columns), [tuple(row) for row in shown.rows])
