"""A disk that fills up ends a replay while there is room for what was recorded."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fakebroker.replay import room
from fakebroker.replay.room import watched_room
from fakebroker.replay.run import COULD_NOT_RUN

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
    sentence = "1 MiB left on its disk, expected at least 128 MiB; it has what was recorded until then"
    assert (done.returncode, done.stderr) == (COULD_NOT_RUN, f"fakebroker: {tmp_path / 'out'}: {sentence}\n")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert not summary["complete"]
    assert summary["total"]["requests"] > 20
    assert summary["span_s"] < 100


def test_room_enough_is_no_news(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(room, "LEAST_BYTES", 0)
    with watched_room(tmp_path, told.append):
        pass
    assert told == []
