"""Disk space: a replay ends before the disk is full, and keeps the recorded events."""

import json
import re
import shutil
import threading
from pathlib import Path

import pytest

from fakebroker.errors import FakebrokerError
from fakebroker.replay import disk_space
from fakebroker.replay.commands import replay
from fakebroker.replay.disk_space import check_disk_space, watch_disk_space
from fakebroker.replay.options import COULD_NOT_RUN, ReplayOptions
from fakebroker.replay.spark.progress import Receiver, Tally
from tests.support.soak import soak_only

WORKLOAD = """\
duration_s = 120
topics = { orders = 2 }
[cluster]
config = { "group.initial.rebalance.delay.ms" = 0 }
[[groups]]
name = "g"
count = 10
members = 2
heartbeat_interval_ms = 300
[promises]
check = ["answered"]
"""

REQUESTS_BEFORE_FULL = 20
"""Number of requests after which checks of the disk space find a nearly full disk."""


@soak_only("a replay until the disk is nearly full takes 17 s")
@pytest.mark.slow
@pytest.mark.usefixtures("replays_on_spark")
def test_events_are_kept_when_the_disk_is_nearly_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (file := tmp_path / "long.toml").write_text(WORKLOAD)
    out, is_full, disk_usage, take = tmp_path / "out", threading.Event(), shutil.disk_usage, Receiver.take

    def counting(receiver: Receiver[Tally], datagram: bytes) -> None:
        take(receiver, datagram)
        if receiver.total().requests > REQUESTS_BEFORE_FULL:
            is_full.set()

    def filling_up(directory: Path) -> "shutil._ntuple_diskusage":
        found = disk_usage(directory)
        return found._replace(free=2**20) if is_full.is_set() else found

    monkeypatch.setattr(Receiver, "take", counting)
    monkeypatch.setattr(shutil, "disk_usage", filling_up)
    assert replay(ReplayOptions(file=file, out=out)) == COULD_NOT_RUN
    assert re.fullmatch(
        f"fakebroker: {out}: 1 MiB of free disk space: expected at least [0-9,]+ MiB; "
        "the report covers the time until then\n",
        capsys.readouterr().err,
    )
    summary = json.loads((out / "summary.json").read_text())
    assert not summary["complete"]
    assert summary["total"]["requests"] > REQUESTS_BEFORE_FULL
    assert summary["span_s"] < 100


def test_low_disk_space_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reports, is_reported = list[str](), threading.Event()

    def report(why: str) -> None:
        reports.append(why)
        is_reported.set()

    monkeypatch.setattr(disk_space, "_LEAST_BYTES", -2 * disk_space.BLOCK_BYTES)
    check_disk_space(tmp_path)
    with watch_disk_space(tmp_path, 2, report):
        pass
    assert reports == []
    monkeypatch.setattr(disk_space, "_LEAST_BYTES", 2**70)
    with watch_disk_space(tmp_path, 2, report):
        assert is_reported.wait(60)
    assert len(reports) == 1
    with pytest.raises(FakebrokerError, match="MiB of free disk space: expected at least 1,125,899,906,842,640 MiB"):
        check_disk_space(tmp_path)


def test_an_unknown_amount_of_disk_space_is_accepted(tmp_path: Path) -> None:
    check_disk_space(tmp_path / "missing")
