"""Tasks of Spark divide the rows of a run by group, and find the same as one process."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from fakebroker.replay.promises.availability import UNDISTURBED, conditions_of
from fakebroker.replay.promises.catalog import PROMISES
from fakebroker.replay.promises.observer import Run
from fakebroker.replay.report import one_pass
from fakebroker.replay.report.number_rows import numbers_from
from fakebroker.replay.report.one_pass import Known, Plan, in_spark, in_this_process
from fakebroker.replay.report.partial_numbers import Facts, merged
from fakebroker.replay.run_directory import EVENTS, MEMBERS
from fakebroker.replay.script.script import DDL
from tests.replay.test_promises import CASES
from tests.support.replay.recorded_events import PARTITIONS, event_of, script_of, table

pytestmark = pytest.mark.spark


def plan_of(known: Known, first_act_ms: float | None) -> Plan:
    run = Run(end_us=known.sent_us, partitions=PARTITIONS, answering=frozenset(known.answering))
    facts = Facts.of(known.bounds, first_act_ms or 0.0, 3, PARTITIONS)
    return Plan(tuple(PROMISES), run, facts, conditions_of(known.sums, first_act_ms))


def test_tasks_find_the_same_as_one_process(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = [(f"c{number}", case) for number, case in enumerate(CASES.values())]
    rows = table([event_of(name, each) for name, case in named for each in case.events])
    in_order, size = rows.sort_by("sent_us"), len(rows) // 3
    (tmp_path / EVENTS).mkdir()
    for number in range(4):
        part = in_order[number * size : (number + 1) * size]
        pq.write_table(pa.Table.from_batches(part.to_batches(), rows.schema), tmp_path / EVENTS / f"{number}.parquet")
    members = [
        # The first action of a run need not be due at its beginning.
        script_of(name, each)._replace(acts=tuple(act._replace(at_ms=act.at_ms + 1_500) for act in each.acts))
        for name, case in named
        for each in case.members
    ]
    spark.createDataFrame(members, DDL).repartition(2).write.parquet(str(tmp_path / MEMBERS))
    scripts = pq.read_table(tmp_path / MEMBERS)
    known, plan, found = in_this_process(rows, scripts, UNDISTURBED, plan_of)
    monkeypatch.setattr(one_pass, "_ROWS_PER_PART", len(rows) // 5)
    monkeypatch.setattr(one_pass, "_BATCH_ROWS", size // 2)
    divided = in_spark(spark, tmp_path, len(rows), UNDISTURBED, plan_of)
    for each in (known, divided[0]):
        each.sums.unanswered.sort(key=repr)
    assert divided[0] == known
    assert divided[1] == plan
    assert divided[2].cases == found.cases
    assert sorted(map(repr, divided[2].violations)) == sorted(map(repr, found.violations))
    assert numbers_from(merged(divided[2].counts), plan.facts) == numbers_from(merged(found.counts), plan.facts)
    for name in ("members", "planned", "done", "lost", "excused"):
        assert getattr(divided[2].findings, name) == getattr(found.findings, name)
    assert [each.name for each in tmp_path.iterdir() if each.name not in (EVENTS, MEMBERS)] == []
