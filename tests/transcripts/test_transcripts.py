"""Every transcript runs on the pure core and over TCP, with exactly the results that its file states."""

from difflib import unified_diff
from pathlib import Path

import pytest

from fakebroker.conform.transcript import TranscriptError, parse, transcript_files
from tests.support.subtests import subtest_for_each
from tests.support.transcripts.files import example, readme, run_transcript
from tests.support.transcripts.targets import CoreTarget, TcpTarget
from tests.transcripts.rewrite import rewrite

EXAMPLE = """\
# Source: KIP-394
A: join                                  -> 79 MEMBER_ID_REQUIRED, id A
A: join                                  -> generation 1, range, leader A, members A
A: sync A=a1                             -> assignment a1
B: join v3                               -> parked
group g                                  -> PreparingRebalance, generation 1, consumer/range, leader A, members A (B)
A: beat                                  -> 27 REBALANCE_IN_PROGRESS
at +60s
  B joined                               -> generation 2, range, leader B, members B
C: join v3                               -> parked
  C still waits for its join
"""

TAKE_A_SECOND = ["batch-join-scale-out"]
"""Transcripts that are slow on the core already, and do not run over TCP."""

TargetClass = type[CoreTarget] | type[TcpTarget]

on_each_target = subtest_for_each("target", [CoreTarget, TcpTarget], ids=["core", "TCP"])


def check(text: str, name: str, target: TargetClass) -> None:
    """Run a transcript, and show a diff if the results differ from its text."""
    got = run_transcript(text, name, target)
    diff = "\n".join(unified_diff(text.splitlines(), got.splitlines(), f"{name}, expected", "actual", lineterm=""))
    assert text == got, f"{name}\n{diff}"


def targets_of(path: Path) -> list[TargetClass]:
    return [CoreTarget] if parse(path.read_text(), path.name).is_core_only else [CoreTarget, TcpTarget]


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in TAKE_A_SECOND else [])
        for path in transcript_files()
    ],
)
def test_transcript(path: Path, subtests: pytest.Subtests) -> None:
    for target in targets_of(path):
        with subtests.test(target=target.__name__):
            check(path.read_text(), path.name, target)


def test_only_long_transcripts_do_not_run_over_tcp() -> None:
    assert [path.stem for path in transcript_files() if targets_of(path) == [CoreTarget]] == TAKE_A_SECOND


@on_each_target
def test_example_in_the_readme(target: TargetClass) -> None:
    check(example(readme().read_text()), readme().name, target)


def test_transcripts_are_found() -> None:
    assert len(transcript_files()) >= 60


@on_each_target
def test_correct_results_pass(target: TargetClass) -> None:
    check(EXAMPLE, "example.txt", target)


def test_rewrite_regenerates_results(tmp_path: Path) -> None:
    steps = "# Source: KIP-394\nA: join -> parked\n  B joined -> NONE\n"
    rewritten = f"# Source: KIP-394\n{'A: join':<40} -> 79 MEMBER_ID_REQUIRED, id A\n"
    (tmp_path / "one.txt").write_text(steps)
    readme(tmp_path).write_text(f"before\n```text\n{steps}```\nafter\n")
    rewrite(tmp_path)
    assert (tmp_path / "one.txt").read_text() == rewritten
    assert readme(tmp_path).read_text() == f"before\n```text\n{rewritten}```\nafter\n"


@on_each_target
@subtest_for_each(
    ("right", "wrong"),
    [
        (
            "A: sync A=a1                             -> assignment a1",
            "A: sync A=a1                             -> NONE",
        ),
        ("A: beat                                  -> 27 REBALANCE_IN_PROGRESS", "A: beat"),
        ("\n  B joined                               -> generation 2, range, leader B, members B", ""),
        ("\n  C still waits for its join", ""),
    ],
)
def test_wrong_results_fail_with_a_diff(target: TargetClass, right: str, wrong: str) -> None:
    with pytest.raises(AssertionError) as raised:
        check(EXAMPLE.replace(right, wrong), "example.txt", target)
    shown, came = str(raised.value), right.removeprefix("\n")
    assert f"+{came}" in shown
    assert not wrong or f"-{wrong}" in shown


@subtest_for_each(
    ("lines", "error"),
    [
        ("at +2s\nat +1s", "t.txt:3: 'at +1s': expected a time of 2000 ms or later"),
        ("A: beat as=B", "t.txt:2: member id 'B': expected one of unknown, none"),
        ("A: join\nA: leave B", "t.txt:3: member id 'B': expected one of A, unknown, none"),
        ("move to=none\nA: beat", "t.txt:3: 'g' has no coordinator: expected broker="),
        ("A: write gone-0=a", "t.txt:2: gone-0 has no leader: expected broker="),
        ("A: beat broker=7", "t.txt:2: no broker 7: expected one of 1"),
        ("stop broker=1\nA: find broker=1", "t.txt:3: broker 1 is down: expected one that is up"),
        ("cluster: group.max.size=0", "t.txt: group.max.size=0: expected an integer from 1 to 2147483647"),
        ("delete topic=gone", "t.txt:2: topic='gone': expected a topic that is not internal, one of news"),
        ("move to=7", "t.txt:2: no broker 7: expected one of 1"),
        ("do expect", "t.txt:2: condition is missing: expected a value"),
        ("do expect condition=stable", "t.txt:2: condition='stable': expected a condition such as {'is': "),
    ],
)
@on_each_target
def test_errors_of_steps_that_cannot_be_run(target: TargetClass, lines: str, error: str) -> None:
    with pytest.raises(TranscriptError) as raised:
        run_transcript(f"# Source: none\n{lines}\n", "t.txt", target)
    assert str(raised.value).startswith(error)
    assert error.endswith(" ") or str(raised.value) == error, "a long list of choices follows"


CONDITIONS = """\
# Source: KIP-848
cluster: first_epoch=2
do expect condition={"is":"group.state","group_id":"g","state":"Dead"}
A: consume topics=news                   -> epoch 2, assignment news-0
B: join v3 group=h                       -> generation 1, range, leader B, members B
do expect condition={"is":"group.state","group_id":"h","state":"CompletingRebalance","members":1}
B: sync B=b1                             -> assignment b1
do expect condition={"is":"group.stable","group_id":"h","above":0}
do expect condition={"is":"group.member","group_id":"g","member":"A","state":"STABLE"}
do expect condition={"all":[{"is":"group.stable","group_id":"g"},{"not":{"is":"group.stable","group_id":"i"}}]}
do expect condition={"any":[{"is":"requested","api":"SyncGroup","client_id":"B"},{"is":"broker.up","node_id":5}]}
"""


@on_each_target
def test_conditions_that_hold(target: TargetClass) -> None:
    check(CONDITIONS, "t.txt", target)


@on_each_target
def test_a_condition_that_does_not_hold_is_an_error_with_the_state(target: TargetClass) -> None:
    expected = CONDITIONS.replace('"group_id":"h","above":0', '"group_id":"h","above":1')
    with pytest.raises(TranscriptError) as raised:
        run_transcript(expected, "t.txt", target)
    first, second, *_ = str(raised.value).split("\n")
    assert first == "t.txt:8: group('h').stable(above=1): it does not hold"
    assert second.startswith("h has been in Stable for 0.0 s. ")
    assert "Generation 1 with protocol 'range' has 1 member." in second
