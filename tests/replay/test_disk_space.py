"""A replay ends before the disk fills, and keeps what was recorded."""

import json
import re
import shutil
import threading
from itertools import count
from pathlib import Path

import pytest

from fakebroker.errors import FakebrokerError
from fakebroker.replay import disk_space
from fakebroker.replay.commands import replay
from fakebroker.replay.disk_space import check_disk_space, watch_disk_space
from fakebroker.replay.options import COULD_NOT_RUN, ReplayOptions

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

LOOKS = 12
"""So often members' events are on the disk before it is full."""


@pytest.mark.slow
@pytest.mark.usefixtures("replays_on_spark")
def test_what_was_recorded_until_the_disk_was_nearly_full_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (file := tmp_path / "long.toml").write_text(WORKLOAD)
    out, looks, disk_usage = tmp_path / "out", count(), shutil.disk_usage

    def filling_up(directory: Path) -> "shutil._ntuple_diskusage":
        found = disk_usage(directory)
        is_recording = any(directory.glob("events.parquet/**/*.parquet"))
        return found._replace(free=2**20) if is_recording and next(looks) >= LOOKS else found

    monkeypatch.setattr(shutil, "disk_usage", filling_up)
    assert replay(ReplayOptions(file=file, out=out)) == COULD_NOT_RUN
    assert re.fullmatch(
        f"fakebroker: {out}: 1 MiB of free disk space: expected at least [0-9,]+ MiB; "
        "the report covers the time until then\n",
        capsys.readouterr().err,
    )
    summary = json.loads((out / "summary.json").read_text())
    assert not summary["complete"]
    assert summary["total"]["requests"] > 20
    assert summary["span_s"] < 100


def test_too_little_room_is_told_once_and_enough_is_no_news(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told, has_come = list[str](), threading.Event()

    def tell(why: str) -> None:
        told.append(why)
        has_come.set()

    monkeypatch.setattr(disk_space, "_LEAST_BYTES", -2 * disk_space.BLOCK_BYTES)
    check_disk_space(tmp_path)
    with watch_disk_space(tmp_path, 2, tell):
        pass
    assert told == []
    monkeypatch.setattr(disk_space, "_LEAST_BYTES", 2**70)
    with watch_disk_space(tmp_path, 2, tell):
        assert has_come.wait(60)
    assert len(told) == 1
    with pytest.raises(FakebrokerError, match="MiB of free disk space: expected at least 1,125,899,906,842,640 MiB"):
        check_disk_space(tmp_path)


def test_who_cannot_look_at_the_room_is_not_told(tmp_path: Path) -> None:
    check_disk_space(tmp_path / "missing")
