"""The results of checking promises, for the summary and for `violations.parquet`. Does not depend on Spark."""

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fakebroker.replay.promises.catalog import PROMISES
from fakebroker.replay.promises.observer import Found
from fakebroker.replay.promises.rows import event_of
from fakebroker.replay.run_summary import PromiseCheck, Violation

MOST_VIOLATIONS = 5
"""Maximum number of violations listed per promise. The earliest are listed, and all are counted."""

MOST_EVENTS = 20
"""Maximum number of events listed with each violation."""


SCHEMA = pa.schema(
    [
        pa.field("promise", pa.string()),
        pa.field("group", pa.string()),
        pa.field("generation", pa.int32()),
        pa.field("members", pa.list_(pa.string())),
        pa.field("at_us", pa.int64()),
        pa.field("until_us", pa.int64()),
        pa.field("what", pa.string()),
    ]
)


def promise_checks(
    names: Sequence[str], cases: Mapping[str, int], found: Sequence[Found], required: Sequence[str] = ()
) -> list[PromiseCheck]:
    """Return the result for each promise, with its first violations and the events that show them.

    Args:
        names: Names of the promises that were checked, in the order of reports.
        cases: Numbers of cases by name.
        found: All violations.
        required: Names of promises that must have a case.
    """
    broken = Counter(each.promise for each in found)
    listed: dict[str, list[Violation]] = {}
    for each in sorted(found, key=_order):
        of_promise = listed.setdefault(each.promise, [])
        if len(of_promise) < MOST_VIOLATIONS:
            of_promise.append(_violation(each))
    return [
        PromiseCheck(
            name=name,
            promise=PROMISES[name][0].sentence,
            outcome="broken" if broken[name] else "kept" if cases.get(name) else "not exercised",
            cases=cases.get(name, 0),
            case=PROMISES[name][0].cases,
            required=name in required,
            broken=broken[name],
            violations=listed.get(name, []),
        )
        for name in names
    ]


def _violation(found: Found) -> Violation:
    events = sorted((event_of(each) for each in found.events), key=lambda event: event["sent_us"])
    return Violation(
        group=found.group,
        generation=found.generation,
        members=found.members,
        at_us=found.at_us,
        until_us=found.until_us,
        what=found.what,
        events=[dict(each) for each in events[:MOST_EVENTS]],
    )


def _order(each: Found) -> tuple[int, str, int, str]:
    return each.at_us, each.group or "", -1 if each.generation is None else each.generation, each.what


def write_violations(path: Path, found: Sequence[Found]) -> None:
    """Write all violations, sorted by promise and time. An earlier file is replaced."""
    places = {name: place for place, name in enumerate(PROMISES)}
    rows = sorted(found, key=lambda each: (places[each.promise], *_order(each)))
    if path.is_dir():
        shutil.rmtree(path)
    columns = {name: [getattr(row, name) for row in rows] for name in SCHEMA.names}
    pq.write_table(pa.table(columns, SCHEMA), path)
