"""Every transcript, on the pure core in virtual time and over TCP: what comes of it is the file, letter by letter."""

from difflib import unified_diff
from pathlib import Path

import pytest

from tests.transcripts.files import example, readme, replay, transcript_files
from tests.transcripts.grounds import Core, Tcp
from tests.transcripts.language import TranscriptError, parse
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

grounds = pytest.mark.parametrize("ground", [Core, Tcp])
GroundKind = type[Core] | type[Tcp]


def check(text: str, name: str, ground: GroundKind) -> None:
    """Play a transcript; what differs from its text is shown as a diff."""
    got = replay(text, name, ground)
    diff = "\n".join(unified_diff(text.splitlines(), got.splitlines(), f"{name} as it is", "as it went", lineterm=""))
    assert text == got, f"{name}\n{diff}"


def grounds_of(path: Path) -> list[GroundKind]:
    return [Core] if parse(path.read_text(), path.name).is_for_core else [Core, Tcp]


@pytest.mark.parametrize(
    ("path", "ground"),
    [
        pytest.param(path, ground, id=f"{path.stem}-{ground.__name__}")
        for path in transcript_files()
        for ground in grounds_of(path)
    ],
)
def test_transcript(path: Path, ground: GroundKind) -> None:
    check(path.read_text(), path.name, ground)


def test_only_what_is_long_is_left_to_the_core() -> None:
    assert [path.stem for path in transcript_files() if grounds_of(path) == [Core]] == ["batch-join-scale-out"]


@grounds
def test_the_example_in_the_page_about_the_language(ground: GroundKind) -> None:
    check(example(readme().read_text()), readme().name, ground)


def test_there_are_transcripts() -> None:
    assert len(transcript_files()) >= 60


@grounds
def test_what_is_right_passes(ground: GroundKind) -> None:
    check(EXAMPLE, "example.txt", ground)


def test_rewriting_makes_expectations_anew(tmp_path: Path) -> None:
    steps = "# Source: KIP-394\nA: join -> parked\n  B joined -> NONE\n"
    became = f"# Source: KIP-394\n{'A: join':<40} -> 79 MEMBER_ID_REQUIRED, id A\n"
    (tmp_path / "one.txt").write_text(steps)
    readme(tmp_path).write_text(f"before\n```text\n{steps}```\nafter\n")
    rewrite(tmp_path)
    assert (tmp_path / "one.txt").read_text() == became
    assert readme(tmp_path).read_text() == f"before\n```text\n{became}```\nafter\n"


@grounds
@pytest.mark.parametrize(
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
def test_what_is_wrong_fails_with_a_diff(ground: GroundKind, right: str, wrong: str) -> None:
    with pytest.raises(AssertionError) as raised:
        check(EXAMPLE.replace(right, wrong), "example.txt", ground)
    shown, came = str(raised.value), right.removeprefix("\n")
    assert f"+{came}" in shown
    assert not wrong or f"-{wrong}" in shown


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        ("at +2s\nat +1s", "t.txt:3: 'at +1s': expected a time of 2000 ms or later"),
        ("A: beat as=B", "t.txt:2: no member id is called 'B': expected one of unknown, none"),
        ("A: join\nA: leave B", "t.txt:3: no member id is called 'B': expected one of A, unknown, none"),
        ("move to=none\nA: beat", "t.txt:3: 'g' has no coordinator: expected broker="),
        ("A: beat broker=7", "t.txt:2: no broker 7: expected one of 1"),
        ("stop broker=1\nA: find broker=1", "t.txt:3: broker 1 is down: expected one that is up"),
        ("cluster: group.max.size=0", "t.txt: group.max.size=0: expected an integer from 1 to 2147483647"),
        ("delete topic=gone", "t.txt:2: name='gone': expected a topic that is not internal, one of news"),
        ("move to=7", "t.txt:2: no broker 7: expected one of 1"),
    ],
)
@grounds
def test_what_cannot_be_done_is_said(ground: GroundKind, lines: str, error: str) -> None:
    with pytest.raises(TranscriptError) as raised:
        replay(f"# Source: none\n{lines}\n", "t.txt", ground)
    assert str(raised.value) == error
