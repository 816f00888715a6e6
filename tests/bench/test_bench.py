"""What `make bench` prints and decides, from given results."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from tests.bench import big_groups, consumer_groups, footprint, simulated
from tests.bench.bench import check, recorded_file, recorded_runs
from tests.bench.figures import Figure, shown
from tests.bench.parts import PARTS, measure
from tests.bench.workloads import WORKLOADS

MACHINE = {"cpu": "a", "cores": 2}
RECORDED = {"ratios": {"keys / heartbeats": 10.0}, "machine": MACHINE, "date": "2026-11-23", "others": 0.5}
LOW = {"ratios": {"keys / heartbeats": 8.0}, "machine": MACHINE, "others": 0.0}


def checked(
    run: dict[str, object], before: dict[str, object], recorded: dict[str, object] = RECORDED
) -> tuple[bool, str]:
    out = io.StringIO()
    return check(run, before, recorded, Console(file=out, width=200)), out.getvalue()


def test_a_low_ratio_is_a_warning_at_first() -> None:
    has_failed, told = checked(LOW, {})
    assert not has_failed
    assert told.startswith("WARNING keys / heartbeats: 8, 20% under the recorded 10")


def test_a_second_low_ratio_fails() -> None:
    has_failed, told = checked(LOW, LOW)
    assert has_failed
    assert told.startswith("FAILED keys / heartbeats: 8, 20% under the recorded 10; 8 in the run before")


def test_another_machine_is_mentioned() -> None:
    _, told = checked({**LOW, "machine": {"cpu": "b", "cores": 8}}, {})
    assert "recorded on 2026-11-23 on another machine: {'cpu': 'a', 'cores': 2}" in told


def test_results_of_a_processor_without_recorded_ones_are_not_compared() -> None:
    assert checked(LOW, LOW, {}) == (
        False,
        "NOT COMPARED No results are recorded for this processor, a, and ratios depend on it: "
        "record them with --record.\n",
    )


def test_each_processor_has_a_file_of_recorded_results() -> None:
    assert recorded_file("Intel(R) Xeon(R) Processor").name == "intel-r-xeon-r-processor.json"
    assert all(run["machine"]["cpu"] for run in recorded_runs())
    assert [recorded_file(run["machine"]["cpu"]).exists() for run in recorded_runs()] == [True] * len(recorded_runs())


def test_the_load_of_the_machine_is_mentioned() -> None:
    assert "Other processes used 0% of the CPU time now, 50% when recorded." in checked(LOW, {})[1]


def test_other_ratios_say_nothing() -> None:
    assert checked({**LOW, "ratios": {"keys / heartbeats": 9.0}}, LOW) == (False, "")


def test_aims_are_minimums_or_limits() -> None:
    assert Figure(what="", measured=1, unit="", aim=2).verdict == "MISSED"
    assert Figure(what="", measured=1, unit="", aim=2, is_limit=True).verdict == "reached"
    assert Figure(what="", measured=1, unit="", aim=2, is_limit=True).shown_aim == "at most 2.00"
    assert Figure(what="", measured=1, unit="").verdict == ""


def test_numbers_have_three_digits() -> None:
    assert [shown(number) for number in (0.01234, 0.5, 1.234, 12.34, 1234567.8)] == [
        "0.012", "0.50", "1.23", "12.3", "1,234,568",
    ]  # fmt: skip


def test_figures_of_the_other_measurements() -> None:
    rows = [{"members": size, "us_per_member": 50.0, "join_us_per_member": 30.0} for size in big_groups.SIZES]
    times = {"import_ms": 100.0, "package_ms": 1.0, "trio_ms": 60.0, "start_ms": 4.0}
    memory = times | {"group_bytes": 1_700.0, "made_group_bytes": 1_200.0, "connection_bytes": 7_000.0}
    consumers = {"join_ms": 50.0, "settle_us": 30.0, "heartbeat_us": 4.0, "classic_us": 2.0}
    consumers |= {"member_bytes": 2_000.0, "load_us": 40.0}
    found = [
        *big_groups.figures(rows, 10.0),
        *consumer_groups.figures(consumers),
        *footprint.figures(memory),
        *simulated.figures({"requests": 800_000, "cpu_s": 2.0}, 10.0),
    ]
    assert [(one.measured, one.unit, one.verdict) for one in found] == [
        (50.0, "us", "reached"),
        (1.0, "times", ""),
        (0.2, "times", ""),
        (50.0, "ms", "MISSED"),
        (30.0, "us", ""),
        (2.0, "times", "reached"),
        (200.0, "MB", ""),
        (4.0, "s", ""),
        (100.0, "ms", "reached"),
        (1.0, "ms", ""),
        (60.0, "ms", ""),
        (4.0, "ms", "reached"),
        (1.7, "GB", "MISSED"),
        (1.2, "GB", "reached"),
        (70.0, "MB", "reached"),
        (400_000, "requests/s", "reached"),
        (4.0, "times", ""),
    ]


@pytest.mark.slow
def test_the_plot_of_big_groups_is_small_and_always_the_same(tmp_path: Path) -> None:
    rows = [{"members": size, "us_per_member": 50.0, "join_us_per_member": 30.0} for size in big_groups.SIZES]
    for name in ("one.svg", "two.svg"):
        big_groups.plot(rows, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert (tmp_path / "one.svg").stat().st_size < 50_000


def test_consumer_groups_are_measured() -> None:
    measured = consumer_groups.large_group(20, batch=20) | consumer_groups.loaded_groups(1_000)
    assert all(value > 0 for name, value in measured.items() if name != "member_bytes"), measured


@pytest.mark.slow
def test_parts_of_all_requests_are_measured(subtests: pytest.Subtests) -> None:
    for name in ("heartbeats", "rebalances", "commits", "fetch"):
        with subtests.test(name):
            parts = measure(next(workload for workload in WORKLOADS if workload.name == name))
            assert set(parts) == set(PARTS)
            assert all(time_us > 0 for time_us in parts.values())
