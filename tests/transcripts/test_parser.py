"""The parser of transcripts: steps, settings and errors."""

import pytest

from fakebroker.conform.transcript import Step, TranscriptError, duration_ms, expand_range, expand_step, parse
from fakebroker.protocol.releases import NEWEST, Release
from tests.support.subtests import subtest_for_each

HEAD = "# Source: KIP-394\n"


def step(line: str) -> Step:
    found = parse(HEAD + line, "t.txt").lines[1]
    assert isinstance(found, Step)
    return found


def test_step_of_a_member() -> None:
    got = step("A: commit v5 gen=3 as=unknown news-0=5 news-1=-1 -> news-0 NONE")
    assert got == Step(
        "t.txt:2",
        "A: commit v5 gen=3 as=unknown news-0=5 news-1=-1",
        "A",
        "commit",
        ("news-0=5", "news-1=-1"),
        {"gen": 3, "as": "unknown"},
        5,
    )


def test_steps_of_an_administrator() -> None:
    assert step('A: describe v3 operations g ""').words == ("g", '""')
    assert step("A: describe operations").options == {"operations": True}
    assert step("A: list states=Stable,Empty types=classic").options == {
        "states": ["Stable", "Empty"],
        "types": ["classic"],
    }
    assert step("A: delete g h").words == ("g", "h")
    assert step("A: uncommit group=h news-0").words == ("news-0",)


def test_step_of_the_cluster() -> None:
    assert step("move to=none load=hold stale=2s lose_all").options == {
        "to": None,
        "load": None,
        "stale": 2000,
        "lose_all": True,
    }


def test_step_of_a_range_is_expanded() -> None:
    both = step("M[9-10]: join static=m* session=3s")
    assert [(each.actor, each.options["static"], each.options["session"]) for each in expand_step(both)] == [
        ("M9", "m9", 3000),
        ("M10", "m10", 3000),
    ]
    assert expand_step(step("M9: join static=m")) == [step("M9: join static=m")]
    assert [each.actor for each in expand_step(step("M[9-9]: beat"))] == ["M9"]


def test_members_of_a_batch() -> None:
    assert step("X: batch A B@b C[1-3]@c* @d @e[1-3]").words == ("A", "B@b", "C[1-3]@c*", "@d", "@e[1-3]")
    assert expand_range("C[1-2]@c*") == ["C1@c1", "C2@c2"]
    assert expand_range("@e") == ["@e"]


def test_proposals_and_target_of_the_cluster_line() -> None:
    transcript = parse(HEAD + "cluster: proposals=a,b target=core\n", "t.txt")
    assert (transcript.proposals, transcript.is_core_only, transcript.config) == (("a", "b"), True, {})
    with pytest.raises(TranscriptError, match=r"t\.txt: target=tcp: expected 'core'"):
        parse(HEAD + "cluster: target=tcp\n", "t.txt")


def test_expected_results() -> None:
    transcript = parse(HEAD + "A: join -> parked\n  B joined -> whatever\n  A still waits for its join\n", "t.txt")
    assert transcript == parse(HEAD + "A: join\n", "t.txt")  # Results are not part of the steps.
    assert transcript.expected(NEWEST) == [("parked", "  B joined -> whatever", "  A still waits for its join")]


RANGES = f"""\
{HEAD}{"A: beat":<40} -> NONE
  B joined                               -> parked
{"  [4.0-4.1]":<40} -> 16 NOT_COORDINATOR
  [4.0-4.1]  C joined                               -> parked
at +3s
{"  [4.1]"}
  [4.1]  B joined                               -> NONE
"""


def test_results_of_some_releases() -> None:
    transcript = parse(RANGES, "t.txt")
    old = ("16 NOT_COORDINATOR", "  C joined                               -> parked")
    newest = ("NONE", "  B joined                               -> parked")
    assert transcript.expected(Release(4, 0)) == [old, ("",)]
    assert transcript.expected(Release(4, 1)) == [old, ("", "  B joined                               -> NONE")]
    assert transcript.expected(Release(4, 2)) == [newest, ("",)]
    assert transcript.expected(Release(5, 0)) == [newest, ("",)]  # newer than all that are known
    assert transcript.text({each: transcript.expected(each) for each in transcript.releases}) == RANGES


def test_epochs_that_are_one_lower_before_4_3() -> None:
    text = (
        HEAD
        + """cluster: first_epoch=2
A: consume                               -> epoch 2, assignment news-0
A: consume epoch=-1                      -> epoch -1
group g                                  -> Empty, epoch 3, assignment epoch 2
  [4.1]                                  -> Empty
"""
    )
    transcript = parse(text, "t.txt")
    results = {each: [result for (result,) in transcript.expected(each)] for each in transcript.releases}
    lower = ["epoch 1, assignment news-0", "epoch -1", "Empty, epoch 2, assignment epoch 1"]
    assert results[Release(4, 2)] == results[Release(4, 0)] == lower
    assert results[Release(4, 1)] == [*lower[:2], "Empty"]
    newest = ["epoch 2, assignment news-0", "epoch -1", "Empty, epoch 3, assignment epoch 2"]
    assert results[Release(4, 3)] == results[NEWEST] == newest
    assert transcript.text({each: transcript.expected(each) for each in transcript.releases}) == text
    with pytest.raises(TranscriptError, match="first_epoch=1: expected 2"):
        parse(text.replace("first_epoch=2", "first_epoch=1"), "t.txt")


def test_releases_of_a_transcript() -> None:
    def releases(settings: str) -> list[str]:
        return list(map(str, parse(HEAD + f"cluster: {settings}\n", "t.txt").releases))

    assert releases("brokers=1") == ["4.0", "4.1", "4.2", "4.3", "4.4"]
    assert releases("as_version=3.9") == ["3.9"]
    assert releases("proposals=batch-join") == ["4.4"]


@subtest_for_each(
    ("lines", "error"),
    [
        ("  A joined -> NONE", "t.txt:2: '  A joined -> NONE': expected a step before the answers"),
        ("A: beat\n  [9.9]                 -> NONE", "t.txt:3: as_version='9.9': expected one of"),
    ],
)
def test_errors_of_results(lines: str, error: str) -> None:
    with pytest.raises(TranscriptError) as raised:
        parse(HEAD + lines, "t.txt")
    assert str(raised.value).startswith(error)


def test_brokers_topics_and_settings_of_the_cluster_line() -> None:
    transcript = parse(HEAD + "cluster: brokers=2 topics=a:1,b:3 group.max.size=5\n", "t.txt")
    assert (transcript.brokers, transcript.topics) == (2, {"a": 1, "b": 3})
    assert transcript.config == {"group.max.size": "5"}


@subtest_for_each(
    ("text", "duration"), [("5ms", 5), ("3s", 3000), ("2m", 120_000), ("1h", 3_600_000), ("7d", 604_800_000)]
)
def test_durations(text: str, duration: int) -> None:
    assert duration_ms(text) == duration


@subtest_for_each(
    ("line", "error"),
    [
        (
            "A: sing",
            "t.txt:2: 'A: sing': expected a step of a member: join, sync, beat, leave, commit, fetch, find",
        ),
        ("a: join", "t.txt:2: 'a: join': expected a step of the cluster: at, group, move"),
        ("A: beat gen=x", "t.txt:2: gen=x: expected a whole number"),
        ("A: join session=10", "t.txt:2: session=10: expected a time, such as 500ms, 3s, 10m or 7d"),
        ("A: beat rebalance=1s", "t.txt:2: 'rebalance=1s' after 'beat': expected no further word; or one of as=, "),
        ("A: commit news=5", "t.txt:2: 'news=5' after 'commit': expected a partition's offset, news-0=5; or one of"),
        (
            "A: delete G",
            "t.txt:2: 'G' after 'delete': expected a group's name; or one of group=, broker=, a version, v3",
        ),
        (
            "A: uncommit news-0=5",
            "t.txt:2: 'news-0=5' after 'uncommit': expected a partition, news-0; or one of group=",
        ),
        ("A: end commit epoch=x", "t.txt:2: epoch=x: expected a whole number"),
        ("A: end maybe", "t.txt:2: 'maybe' after 'end': expected commit or abort; or one of id=, pid=, epoch="),
        ("A: store t", "t.txt:2: 'A: store t': expected state="),
        ("at 3s", "t.txt:2: '3s' after 'at': expected a time since the start, +3s"),
        ("at", "t.txt:2: 'at': expected a time since the start, +3s"),
        ("group", "t.txt:2: 'group': expected a group's name"),
        ("move load=1s", "t.txt:2: 'move load=1s': expected to="),
        ("move to=two", "t.txt:2: to=two: expected a whole number, or 'none'"),
        ("stop broker=1 v3", "t.txt:2: 'v3' after 'stop': expected no further word; or one of broker=, "),
        ("cluster: brokers", "t.txt:2: 'brokers': expected a setting, name=value"),
        ("cluster: brokers=two", "t.txt: brokers=two: expected a whole number"),
        ("cluster: topics=news", "t.txt: topics=news: expected names and partition counts, news:2,sport:1"),
    ],
)
def test_errors_have_the_place_and_the_expectation(line: str, error: str) -> None:
    with pytest.raises(TranscriptError) as raised:
        parse(HEAD + line, "t.txt")
    assert str(raised.value).startswith(error)


def test_source_is_required() -> None:
    with pytest.raises(TranscriptError, match=r"t.txt:1: expected a line '# Source: "):
        parse("# Members join.\nA: join\n", "t.txt")
