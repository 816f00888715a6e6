"""Plays a transcript on a ground, and writes down what comes of each step: the text that the file should be."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fakebroker.cluster.inspect.views import BrokerView
from fakebroker.cluster.topics import NO_LEADER
from fakebroker.errors import ConfigError
from fakebroker.protocol.schema import Message
from tests.transcripts.cast import Cast, Member
from tests.transcripts.grounds import Exchange, Ground
from tests.transcripts.language import Step, Transcript, TranscriptError, duration_ms, each_of
from tests.transcripts.wording import answer_text, group_text, in_ranges

_COLUMN = 40
_PAST = {"batch": "batch joined", "beat": "has beaten", "commit": "committed", "join": "joined", "sync": "synced"}


@dataclass(frozen=True, slots=True)
class _Parked:
    """A request that is owed its answer."""

    member: Member
    verb: str
    exchange: Exchange


@dataclass(frozen=True, slots=True)
class _Told:
    """An answer that a step set free."""

    name: str
    did: str
    outcome: str


def play(transcript: Transcript, ground: Ground) -> str:
    """Play a transcript.

    Returns:
        The transcript with what really came of each step.

    Raises:
        TranscriptError: A step cannot be done.
    """
    player = _Player(ground)
    lines: list[str] = []
    for line in transcript.lines:
        if isinstance(line, str):
            lines.append(line)
        else:
            lines += player.perform(line)
    return "\n".join([*lines, *player.left_over()]) + "\n"


class _Player:
    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._cast = Cast()
        self._parked: list[_Parked] = []
        self._now_ms = 0

    def perform(self, step: Step) -> list[str]:
        """Do a step: its line, and a line for each answer that it set free, in the order they were asked for."""
        if step.verb in ("come", "work"):
            return [_line(step.command, self._work(step))]
        done = [(each.actor, *self._do(each)) for each in each_of(step)]
        outcome = done[0][1] if len(done) == 1 else _counted((actor or "", outcome) for actor, outcome, _ in done)
        return [_line(step.command, outcome), *_lines_of([told for _, _, freed in done for told in freed])]

    def _do(self, step: Step) -> tuple[str, list["_Told"]]:
        """Do a step of one: what came of it, and the answers that it set free."""
        asked = self._ask(step) if step.actor else None
        outcome = "parked" if asked else self._change(step)
        came = self._receive(step, asked)
        # All are heard before one is told, for they name each other.
        for each, response in came:
            if response is not None:
                self._cast.hear(each.member, response)
        freed = []
        for each, response in came:
            if each is asked:
                outcome = self._told(each, response)
            else:
                freed.append(_Told(each.member.name, _PAST.get(each.verb, each.verb), self._told(each, response)))
        return outcome, freed

    # Members that do by themselves what clients do

    def _work(self, step: Step) -> str:
        """Let all members of a group work; or let members come, each when all that were there before are done."""
        group_id = step.options.get("group", "g")
        before = self._ground.group(group_id).generation_id
        for each in each_of(step) if step.actor else ():
            self._do(replace(each, verb="join"))
            self._work_until_done(group_id, step)
        self._work_until_done(group_id, step)
        after = self._ground.group(group_id).generation_id
        return f"generation {before}" + (f" to {after}" if after != before else "")

    def _work_until_done(self, group_id: str, step: Step) -> None:
        """Each member sends a heartbeat, and joins and syncs as it is told, until there is nothing to do any more."""
        is_busy = True
        while is_busy:
            is_busy = False
            parked = {each.member.name for each in self._parked}
            for member in self._cast.members():
                verb = member.next_verb
                if verb and member.group_id == group_id and member.name not in parked:
                    self._do(Step(step.place, step.command, member.name, verb, options={"group": group_id}))
                    is_busy |= (verb, member.next_verb) != ("beat", "beat")

    def _receive(self, step: Step, asked: _Parked | None) -> list[tuple[_Parked, Message | None]]:
        """What is answered now, None where its connection is gone; the rest stays parked."""
        came: list[tuple[_Parked, Message | None]] = []
        waiting, self._parked = self._parked, []
        for each in [*waiting, asked] if asked else waiting:
            if step.verb == "stop" and each.exchange.is_cut():
                came.append((each, None))
            elif each.exchange.is_answered:
                came.append((each, each.exchange.receive()))
            else:
                self._parked.append(each)
        return came

    def _told(self, parked: _Parked, response: Message | None) -> str:
        return "connection closed" if response is None else answer_text(self._cast, parked.member, response)

    def left_over(self) -> list[str]:
        """A line for each request that was never answered."""
        return [f"  {each.member.name} still waits for its {each.verb}" for each in self._parked]

    def _ask(self, step: Step) -> _Parked:
        member, request, version = self._cast.request(step)
        node_id = step.options.get("broker", self._ground.coordinator_of(member.group_id))
        if node_id == NO_LEADER:
            raise TranscriptError(f"{step.place}: {member.group_id!r} has no coordinator: expected broker=")
        if not self._broker(node_id, step).up:
            raise TranscriptError(f"{step.place}: broker {node_id} is down: expected one that is up")
        return _Parked(member, step.verb, self._ground.send(member.name, node_id, request, version))

    def _broker(self, node_id: int, step: Step) -> BrokerView:
        brokers = {broker.node_id: broker for broker in self._ground.brokers()}
        if node_id not in brokers:
            raise TranscriptError(f"{step.place}: no broker {node_id}: expected one of {', '.join(map(str, brokers))}")
        return brokers[node_id]

    def _change(self, step: Step) -> str:
        options, how = step.options, _failover(step)
        for name in ("to", "broker"):
            if options.get(name) is not None:
                self._broker(options[name], step)
        match step.verb:
            case "at":
                self._wait_until(duration_ms(step.words[0][1:]), step)
            case "group":
                return group_text(self._cast, self._ground.group(step.words[0]))
            case "move":
                self._perform(
                    "move_coordinator", step, {"group_id": options.get("group", "g"), "to": options["to"], **how}
                )
            case "loaded":
                self._perform("finish_loading", step, {})
            case "unzombie":
                self._perform("stop_zombies", step, {})
            case "stop":
                elect = "no_election" not in options
                self._perform("stop_broker", step, {"node_id": options["broker"], "elect": elect, **how})
            case "start":
                self._perform("start_broker", step, {"node_id": options["broker"], **how})
            case "delete":
                self._perform("delete_topic", step, {"name": options["topic"]})
            case "do":
                self._perform(step.words[0], step, step.options)
        return ""

    def _perform(self, command: str, step: Step, arguments: Mapping[str, Any]) -> None:
        """Run a command. A member is named by its name in the transcript."""
        if "member" in arguments:
            arguments = {**arguments, "member": self._cast.id_of(arguments["member"], step.place)}
        try:
            self._ground.perform({"do": command, **arguments})
        except ConfigError as error:
            raise TranscriptError(f"{step.place}: {error}") from None

    def _wait_until(self, time_ms: int, step: Step) -> None:
        if time_ms < self._now_ms:
            raise TranscriptError(f"{step.place}: {step.command!r}: expected a time of {self._now_ms} ms or later")
        self._ground.advance(time_ms - self._now_ms)
        self._now_ms = time_ms


_FAILOVER = {"load": "load_ms", "stale": "stale_ms", "lose_tail": "lose_tail"}
"""Options of a failover in transcripts, and in commands; flags have the same names."""


def _failover(step: Step) -> dict[str, Any]:
    named = {_FAILOVER[name]: value for name, value in step.options.items() if name in _FAILOVER}
    return named | dict.fromkeys({"load_fails", "lose_all", "zombie"} & step.options.keys(), True)


def _counted(outcomes: Iterable[tuple[str, str]]) -> str:
    """What came of each member of a range; what is the same of several only once, with their number."""
    counts = Counter(_of_one(*each) for each in outcomes)
    return "; ".join(f"{count} x {outcome}" for outcome, count in counts.items())


def _of_one(name: str, outcome: str) -> str:
    return outcome.removesuffix(f", id {name}") if name[-1:].isdigit() else outcome


def _lines_of(freed: list[_Told]) -> list[str]:
    """A line for each answer, or for several that are the same and whose members are numbered in a row."""
    alike: list[tuple[list[str], _Told]] = []
    for told in freed:
        same = alike and (alike[-1][1].did, alike[-1][1].outcome) == (told.did, told.outcome)
        if same and len(in_ranges([*alike[-1][0], told.name]).split()) <= 2 and told.name[-1].isdigit():
            alike[-1][0].append(told.name)
        else:
            alike.append(([told.name], told))
    lines = []
    for names, told in alike:
        if len(names) < 3:
            lines += [_line(f"  {name} {told.did}", told.outcome) for name in names]
        else:
            lines.append(_line(f"  {in_ranges(names)} {told.did}", f"{len(names)} x {told.outcome}"))
    return lines


def _line(command: str, outcome: str) -> str:
    return f"{command:<{_COLUMN}} -> {outcome}" if outcome else command
