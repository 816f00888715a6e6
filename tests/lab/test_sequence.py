"""Sequence diagrams: the steps of a small run of the classic protocol, and their picture."""

import re
from xml.etree import ElementTree

import pytest

from fakebroker.lab.designs import DESIGNS, design_named
from fakebroker.lab.report.sequence import Arrow, Diagram, Fold, Note, diagrams_of
from fakebroker.lab.report.sequence_svg import svg_of


@pytest.fixture(scope="module")
def classic() -> list[Diagram]:
    return diagrams_of(design_named("classic"))


def texts(diagram: Diagram, kind: type[Arrow | Note | Fold]) -> list[str]:
    return [step.text for step in diagram.steps if isinstance(step, kind)]


def test_a_join_a_failure_and_a_failover(classic: list[Diagram]) -> None:
    titles = [diagram.title for diagram in classic]
    coordinator = classic[0].coordinator
    assert titles == [
        "Join: member 3 starts",
        "Failure: member 2 crashes",
        f"Failover: broker {coordinator}, the coordinator, stops",
    ]


def test_steps_of_a_join(classic: list[Diagram]) -> None:
    join = classic[0]
    assert join.steps[0] == Note(0.0, 2, None, "starts", is_event=True)
    assert texts(join, Arrow)[:5] == [
        "FindCoordinator",
        "FindCoordinator",
        "JoinGroup",
        "JoinGroup (generation -1, MEMBER_ID_REQUIRED)",
        "JoinGroup",
    ]
    assert texts(join, Arrow).count("Heartbeat (REBALANCE_IN_PROGRESS)") == 2
    assert texts(join, Note)[-3:] == ["owns 2", "owns 0, 1", "owns 3"]
    times_ms = [step.at_ms for step in join.steps]
    assert times_ms == sorted(times_ms)


def test_beats_before_a_failure_is_noticed_are_one_step(classic: list[Diagram]) -> None:
    failure = classic[1]
    assert texts(failure, Note)[:2] == ["crashes", "is removed from the group"]
    first = failure.steps[1]
    assert isinstance(first, Fold)
    assert re.fullmatch(r"\d+ x Heartbeat, \d+ x OffsetCommit", first.text)


def test_errors_within_a_response_are_named(classic: list[Diagram]) -> None:
    """A commit while the new coordinator loads; its error is that of each partition."""
    assert "OffsetCommit (COORDINATOR_LOAD_IN_PROGRESS)" in texts(classic[2], Arrow)


@pytest.mark.parametrize("name", DESIGNS)
def test_each_design_has_a_picture_of_each_diagram(name: str) -> None:
    for diagram in diagrams_of(design_named(name)):
        assert "not complete again" not in diagram.title
        assert any(isinstance(step, Arrow) for step in diagram.steps)
        picture = ElementTree.fromstring(svg_of(diagram))
        shown = [element.text for element in picture.iter("text")]
        for participant in ("member 1", "member 3", "broker 1", "broker 2"):
            assert participant in shown
        for step in diagram.steps:
            assert step.text in shown
