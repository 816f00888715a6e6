"""The benchmark of the replay runs at a small size. Its results are not checked."""

import json
from pathlib import Path

import pytest

from tests.bench import replay
from tests.bench.replay import Figure, Size
from tests.support.soak import soak_only

TINY = Size(swarm=5, real=5, closed=5, simulated=5, seconds=1, ramp_s=0.1, simulated_s=30)


@soak_only("the benchmark runs in make bench")
@pytest.mark.slow
def test_all_figures_are_measured_printed_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replay.main(TINY, tmp_path / "results" / "replay.json")
    told = json.loads((tmp_path / "results" / "replay.json").read_text())
    assert told["seed"] == replay.SEED
    assert all(figure["measured"] > 0 for figure in told["figures"])
    counts = {way: len(played) for way, played in told["played"].items()}
    alone = dict.fromkeys(("swarm", "confluent-kafka", "aiokafka", "memory"), 1)
    assert counts == {"own connections": 2, "two lanes": 2, **alone}
    for connected in replay.LANES:
        assert all(played["requests"] > 0 for played in told["played"][connected])
    shown = capsys.readouterr().out
    assert all(figure["unit"] in shown and figure["verdict"] in shown for figure in told["figures"])


def test_figures_below_their_target_are_marked() -> None:
    assert Figure(what="", measured=9, unit="times", aim=10).verdict == "MISSED"
    assert Figure(what="", measured=10, unit="times", aim=10).verdict == "reached"
    assert Figure(what="", measured=9, unit="times").verdict == ""
