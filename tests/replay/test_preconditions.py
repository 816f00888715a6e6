"""What workloads need to exercise promises, and the errors and warnings before a replay starts."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from fakebroker import FakeCluster
from fakebroker.errors import FakebrokerError
from fakebroker.replay.commands import replay
from fakebroker.replay.options import BAD_INPUT, COULD_NOT_RUN, ReplayOptions
from fakebroker.replay.target_cluster import broker_settings
from fakebroker.replay.verify.preconditions import check_required, setting_warnings, unmet_preconditions
from fakebroker.replay.workload.workload import load_workload
from tests.support.replay.workload_files import WITHOUT_GROUPS

GROUPS = "[[groups]]\nmembers = 3\nsession_timeout_ms = 10_000\nrebalance_timeout_ms = 20_000\n"
CONSUMERS = "[[groups]]\nmembers = 3\nprotocol = 'consumer'\n"
TRANSACTIONAL = f'{GROUPS}transactional = true\ntransaction = {{ to = "payments", records = 3'
EVENT = '[[event]]\nat_s = 5\ndo = "broker.stop"\nnode_id = 1\n'
CONDITION = '[[event]]\nat_s = 5\ndo = "expect"\ncondition = { is = "group.stable", group_id = "group-0" }\n'
SILENT, REST = "silent-out", {"stale-refused", "fenced-refused", "unknown-refused", "one-coordinator"}
ON_GENERATIONS = {"covered", "one-leader", "generations-rise"}
LEFT_BEHIND = {"stale-refused", "unknown-refused"}

UNMET: dict[str, set[str]] = {
    GROUPS: {SILENT, *REST},
    f"{GROUPS}[promises]\ncheck = ['silent-out', 'covered']": {SILENT},
    f"{GROUPS}{EVENT}": {SILENT, "fenced-refused"},
    f"{GROUPS}{CONDITION}": {SILENT, *REST},
    f"{GROUPS}static = 1\n": {SILENT, *REST} - {"fenced-refused"},
    f"{GROUPS}commit_interval_ms = 0\n": {"commits-kept", SILENT, *REST},
    GROUPS.replace("members = 3", "members = 1"): {
        *("one-owner", "one-leader", "generations-rise", "commits-kept", SILENT, *REST)
    },
    GROUPS.replace("members = 3", "grow = { instances = 1, at_s = 9 }"): {SILENT, *REST},
    f"{GROUPS}crash = {{ share = 1, at_s = 5 }}": REST,
    f"{GROUPS}crash = {{ share = 1, at_s = 86 }}": {SILENT, *REST},
    f"{GROUPS}leave = {{ share = 1, at_s = 5 }}": {SILENT, *REST},
    f"{GROUPS}static = 1\nleave = {{ share = 1, at_s = 5 }}": REST - {"fenced-refused"},
    f"{GROUPS}static = 1\nleave = {{ share = 1, at_s = 5, return_after_s = 3 }}": {
        *(SILENT, *REST - {"fenced-refused"})
    },
    f"{GROUPS}pause = {{ share = 1, at_s = 5, for_s = 9 }}": {SILENT, *REST},
    f"{GROUPS}pause = {{ share = 1, at_s = 5, for_s = 11 }}": {SILENT, *REST} - LEFT_BEHIND,
    f"{GROUPS}pause = {{ share = 1, at_s = 5, for_s = [11, 16] }}": REST - LEFT_BEHIND,
    f"{GROUPS}zombie = {{ share = 1, at_s = 5, for_s = 9 }}": {SILENT, "fenced-refused", "one-coordinator"},
    f"{GROUPS.replace('10_000', '100_000')}": {SILENT, "beating-stays", *REST},
    f"{GROUPS}[cluster]\nconfig = {{ 'group.initial.rebalance.delay.ms' = 100_000 }}": {
        *("one-owner", "covered", "one-leader", "generations-rise", "commits-kept", SILENT, "beating-stays"),
        *REST - {"one-coordinator"},
    },
    CONSUMERS: {*ON_GENERATIONS, SILENT, *REST} - {"stale-refused"},
    CONSUMERS.replace("members = 3", "members = 1"): {
        *("one-owner", "commits-kept", "revoked-committed", *ON_GENERATIONS, SILENT, *REST)
    },
    f"{CONSUMERS}static = 1\nzombie = {{ share = 1, at_s = 5, for_s = 9 }}\n": {
        *(*ON_GENERATIONS, SILENT, "one-coordinator")
    },
    **{
        f"{TRANSACTIONAL}{keys} }}\n": {"commits-kept", SILENT, *REST, *lacking}
        for keys, lacking in {
            "": {"old-epochs-refused", "overdue-aborted"},
            ", crash = 0.1": {"overdue-aborted"},
            ", crash = 0.1, timeout_ms = 9_000, return_after_s = [0, 24]": {"overdue-aborted"},
            ", crash = 0.1, timeout_ms = 9_000, return_after_s = [0, 25]": set[str](),
            ", crash = 0.1, timeout_ms = 90_000, return_after_s = 110": {"overdue-aborted"},
        }.items()
    },
}
"""Promises that a run of 100 s cannot exercise, by its tables."""


def workload_file(directory: Path, tables: str) -> Path:
    topics = WITHOUT_GROUPS.replace("}", ", payments = 1 }")
    (file := directory / "small.toml").write_text(topics + tables)
    return file


def test_promises_that_a_workload_cannot_exercise(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for tables, expected in UNMET.items():
        with subtests.test(tables=tables):
            assert set(unmet_preconditions(load_workload(workload_file(tmp_path, tables)))) == expected
    workload = load_workload(workload_file(tmp_path, GROUPS))
    assert "one-coordinator" not in unmet_preconditions(workload, is_embedded=False)


def test_the_workloads_in_the_repository_require_promises_that_they_can_exercise(subtests: pytest.Subtests) -> None:
    for file in sorted(Path("scenarios/workloads").glob("*.toml")):
        with subtests.test(workload=file.stem):
            workload = load_workload(file)
            check_required(workload)
            assert workload.promises.require, "expected the promises that the workload is about"


def test_a_required_promise_that_cannot_be_exercised_is_an_error_before_the_start(
    subtests: pytest.Subtests, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for duration_s, tables, require, errors in (
        (
            5,
            GROUPS,
            ["beating-stays"],
            ["[0]='beating-stays': expected duration_s > 10, when the first member has run"],
        ),
        (100, GROUPS, ["atomic"], ["[0]='atomic': expected members that use transactions (transactional)"]),
        (100, GROUPS, ["covered", SILENT], [f"[1]='{SILENT}': expected members that stop sending requests without a"]),
        (
            30,
            f"{GROUPS}crash = {{ share = 1, at_s = 20 }}\n",
            [SILENT, "fenced-refused"],
            [
                f"[0]='{SILENT}': expected duration_s > 35, when the first silent member must be removed",
                "[1]='fenced-refused': expected static members (static > 0)",
            ],
        ),
    ):
        with subtests.test(duration_s=duration_s, require=require):
            file = workload_file(tmp_path, f"{tables}[promises]\nrequire = {require}\n")
            file.write_text(file.read_text().replace("duration_s = 100", f"duration_s = {duration_s}"))
            options = ReplayOptions(file=file, out=tmp_path / "out", transport="memory")
            assert replay(options) == BAD_INPUT
            message = capsys.readouterr().err
            assert message.startswith(f"fakebroker: {file}: ")
            assert [error for error in errors if f"promises.require{error}" not in message] == []
            assert not (tmp_path / "out").exists()


def test_promises_that_cannot_be_exercised_are_named_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def no_session(*_: object) -> Iterator[None]:
        raise FakebrokerError("Spark did not start")
        yield

    monkeypatch.setattr("fakebroker.replay.runner.spark_session", no_session)
    file = workload_file(tmp_path, GROUPS.replace("20_000", "300_000"))
    assert replay(ReplayOptions(file=file, out=tmp_path / "out", transport="memory")) == COULD_NOT_RUN
    warnings = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Warning: ")]
    assert warnings[0] == (
        "Warning: This run cannot exercise the promise silent-out: expected members that stop sending requests without "
        "a LeaveGroup (crash, pause)"
    )
    assert [line.partition(": expected")[0].rpartition(" ")[2] for line in warnings[:-1]] == [
        *("silent-out", "stale-refused", "fenced-refused", "unknown-refused", "one-coordinator")
    ]
    assert warnings[-1].startswith(
        "Warning: This run exercises the promise answered in part: duration_s (100) is less "
    )


# Settings of a cluster


EXPECTING = f"""duration_s = 20
{GROUPS}
[[expect]]
metric = "unassigned_member_s"
per = "member"
comparison = ">="
value = 3

[[expect]]
metric = "lost"
comparison = "=="
value = 0
"""
DELAY = "group.initial.rebalance.delay.ms"


@pytest.mark.parametrize(
    ("source", "settings", "lines"),
    [
        (EXPECTING, {DELAY: "3000"}, []),
        (EXPECTING, {}, []),
        (
            EXPECTING,
            {DELAY: "0"},
            [
                f"The cluster has {DELAY}=0; the workload was written for 3000. These expectations depend on it: "
                "unassigned_member_s per member >= 3"
            ],
        ),
        (f"duration_s = 20\n{GROUPS}", {DELAY: "0"}, []),
        (
            f"duration_s = 20\n{GROUPS}",
            {DELAY: "30000"},
            [
                f"The cluster has {DELAY}=30000; the workload was written for 3000. Its duration_s (20) ends before "
                "the first group is assigned"
            ],
        ),
        (f"{EXPECTING}[cluster]\nconfig = {{ '{DELAY}' = 0 }}\n", {DELAY: "0"}, []),
    ],
)
def test_settings_that_the_cluster_has_otherwise(
    tmp_path: Path, source: str, settings: dict[str, str], lines: list[str]
) -> None:
    file = tmp_path / "workload.toml"
    file.write_text(source + "\n[topics]\norders = 3\n" if "[topics]" not in source else source)
    assert setting_warnings(load_workload(file), settings) == lines


def test_the_settings_of_a_cluster_are_read() -> None:
    with FakeCluster(brokers=2, config={DELAY: 1234}) as cluster:
        assert trio.run(broker_settings, cluster.bootstrap_servers)[DELAY] == "1234"
    assert trio.run(broker_settings, "127.0.0.1:1") == {}
