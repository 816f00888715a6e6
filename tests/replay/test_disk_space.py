"""A replay ends before the disk fills, and keeps what was recorded."""

import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fakebroker.errors import FakebrokerError
from fakebroker.replay import disk_space
from fakebroker.replay.disk_space import check_disk_space, watch_disk_space
from fakebroker.replay.options import COULD_NOT_RUN

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

# The disk is full some looks after the members have begun to be recorded.
ON_A_DISK_THAT_FILLS_UP = """\
import shutil, sys
from pathlib import Path
from fakebroker.__main__ import main

truly, looks = shutil.disk_usage, 0

def disk_usage(directory):
    global looks
    looks += any(Path(directory).glob("events.parquet/**/*.parquet"))
    return truly(directory)._replace(free=2**20) if looks > 20 else truly(directory)

shutil.disk_usage = disk_usage
sys.exit(main())
"""


@pytest.mark.slow
def test_what_was_recorded_until_the_disk_was_nearly_full_is_kept(tmp_path: Path) -> None:
    (file := tmp_path / "long.toml").write_text(WORKLOAD)
    command = [sys.executable, "-c", ON_A_DISK_THAT_FILLS_UP, "replay", str(file), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == COULD_NOT_RUN
    assert re.fullmatch(
        f"fakebroker: {tmp_path / 'out'}: 1 MiB left on its disk, expected at least [0-9,]+ MiB; "
        "it has what was recorded until then\n",
        done.stderr,
    )
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
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
    with pytest.raises(FakebrokerError, match="MiB left on its disk, expected at least 1,125,899,906,842,640 MiB"):
        check_disk_space(tmp_path)


def test_who_cannot_look_at_the_room_is_not_told(tmp_path: Path) -> None:
    check_disk_space(tmp_path / "missing")
