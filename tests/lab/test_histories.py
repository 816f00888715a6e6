"""Random histories: what designs promise holds, and what breaks promises is found, shortened and kept."""

from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from fakebroker.client.member.member_settings import MemberSettings
from fakebroker.errors import ConfigError
from fakebroker.lab.design import Design, Link, MemberPort
from fakebroker.lab.designs import DESIGNS, design_named
from fakebroker.lab.designs.classic import DESIGN, ClassicCoordinator, ClassicMember
from fakebroker.lab.history import command as command_module, history as history_module
from fakebroker.lab.history.command import search_histories
from fakebroker.lab.history.history import History, parse_history
from fakebroker.lab.history.search import breaking_histories, random_history, shortened
from fakebroker.lab.invariants import INVARIANTS, LIVE_STAYS, ONE_OWNER
from fakebroker.lab.script import BrokerEvent, MemberEvent, TopicEvent
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.schema import Message
from fakebroker.replay.options import FAILED
from tests.support.soak import cases, soak

KEPT = sorted((Path(__file__).parents[2] / "scenarios" / "lab" / "histories").glob("*.txt"))

HISTORY = History(
    design="classic",
    events=(
        MemberEvent(0.0, 0, "start"),
        MemberEvent(500.0, 1, "start"),
        MemberEvent(20_000.0, 0, "pause", 2_500.0),
        MemberEvent(21_000.0, 1, "slow", 1_000.0, 250.0),
        BrokerEvent(30_000.0, 1, "stop"),
        TopicEvent(31_000.0, "t", 4),
    ),
    duration_ms=90_000.0,
)


@soak
@pytest.mark.parametrize("name", DESIGNS)
def test_designs_keep_their_promises_in_random_histories(name: str) -> None:
    broken = breaking_histories(name, cases(30, soak=5_000))
    assert {invariant: each.text() for invariant, each in broken.items() if invariant in _guarantees(name)} == {}


def _guarantees(name: str) -> frozenset[str]:
    return design_named(name).guarantees


def test_promises_are_invariants() -> None:
    assert all(_guarantees(name) <= INVARIANTS.keys() for name in DESIGNS)


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_kept_histories_break_what_they_say(path: Path) -> None:
    text = path.read_text()
    history = parse_history(text)
    assert history.breaks in history.violations()
    assert history.text() == text, "run `make rewrite`, and read the difference"


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_kept_histories_break_what_their_design_does_not_promise(path: Path) -> None:
    history = parse_history(path.read_text())
    assert history.breaks not in _guarantees(history.design)


def test_equal_seeds_give_equal_histories_and_conversations() -> None:
    one, other = random_history("classic", 7), random_history("classic", 7)
    assert one == other
    assert one.text() == other.text()
    assert random_history("classic", 8) != one


def test_a_history_can_be_read_again() -> None:
    assert parse_history(HISTORY.text()) == HISTORY


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("breaks two-owners", "breaks='two-owners'"),
        ("     1.000  member 0 explode", "a setting or an event"),
        ("     1.000  member zero start", "a setting or an event"),
        ("until", "a setting or an event"),
    ],
)
def test_faulty_lines_are_rejected(line: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_history(f"{HISTORY.text().partition(chr(10) + chr(10))[0]}\n{line}\n")


def test_a_missing_line_is_named() -> None:
    with pytest.raises(ConfigError, match="a line seed"):
        parse_history("design classic\nbreaks nothing\n")


class _KeepingPort:
    """The port of a member that keeps its partitions when it has to give them up."""

    def __init__(self, port: MemberPort) -> None:
        self._port = port

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    def stopped(self, keep: object = ()) -> None:
        """Report nothing."""


def forgetful_member(settings: MemberSettings, port: MemberPort) -> ClassicMember:
    return ClassicMember(settings, cast(MemberPort, _KeepingPort(port)))


class ImpatientCoordinator(ClassicCoordinator):
    """Answers heartbeats, but does not extend sessions."""

    def received(self, link: Link, message: Message, now_ms: float) -> None:
        if isinstance(message, HeartbeatRequest):
            self._port.reply(link, HeartbeatResponse())
        else:
            super().received(link, message, now_ms)


@pytest.mark.parametrize(
    ("broken", "invariant"),
    [
        (replace(DESIGN, coordinator=ImpatientCoordinator), LIVE_STAYS),
        (replace(DESIGN, member=forgetful_member), ONE_OWNER),
    ],
)
def test_a_broken_design_is_found_and_the_history_is_shortened(
    broken: Design, invariant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_module, "design_named", lambda name: broken)
    found = breaking_histories("classic", range(10))[invariant]
    short = shortened(found)
    assert invariant in short.violations()
    assert len(short.events) <= 4
    for index in range(len(short.events)):
        without = replace(short, events=short.events[:index] + short.events[index + 1 :])
        assert invariant not in without.violations()


def test_a_shortened_history_has_as_few_brokers_and_partitions_as_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "design_named", lambda name: replace(DESIGN, coordinator=ImpatientCoordinator))
    found = breaking_histories("classic", range(10))[LIVE_STAYS]
    assert (found.brokers, found.partitions) != (1, 1)
    short = shortened(found)
    assert (short.brokers, short.partitions) == (1, 1)


def test_the_command_writes_a_short_history_for_each_broken_invariant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert search_histories(["classic", "option-1b"], 5, 1, tmp_path) == 0
    (path,) = tmp_path.iterdir()
    assert path.name == "option-1b-one-owner.txt"
    history = parse_history(path.read_text())
    assert history.breaks in history.violations()
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "classic nothing" in lines
    assert "option-1b one-owner no option-1b-one-owner.txt" in lines


def test_the_command_fails_if_a_promise_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    impatient = replace(DESIGN, coordinator=ImpatientCoordinator)
    for module in (history_module, command_module):
        monkeypatch.setattr(module, "design_named", lambda name: impatient)
    assert search_histories(["classic"], 1, 1, tmp_path) == FAILED


def test_unknown_designs_are_rejected() -> None:
    with pytest.raises(ConfigError, match=r"design='clasic'.*classic"):
        design_named("clasic")
