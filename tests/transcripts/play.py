"""Plays a transcript on a ground, and writes down what comes of each step: the text that the file should be."""

from dataclasses import dataclass

from fakebroker.cluster.topics import NO_LEADER
from fakebroker.errors import ConfigError
from fakebroker.protocol.schema import Message
from fakebroker.server.fake_cluster import FailoverOptions
from fakebroker.server.views import BrokerView
from tests.transcripts.cast import Cast, Member
from tests.transcripts.grounds import Exchange, Ground
from tests.transcripts.language import Step, Transcript, TranscriptError, duration_ms
from tests.transcripts.wording import answer_text, group_text

_COLUMN = 40
_PAST = {"beat": "has beaten", "commit": "committed", "join": "joined", "sync": "synced"}


@dataclass(frozen=True, slots=True)
class _Parked:
    """A request that is owed its answer."""

    member: Member
    verb: str
    exchange: Exchange


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
        asked = self._ask(step) if step.actor else None
        outcome = "parked" if asked else self._change(step)
        came = self._receive(step, asked)
        # All are heard before one is told, for they name each other.
        for each, response in came:
            if response is not None:
                self._cast.hear(each.member, response)
        lines = []
        for each, response in came:
            if each is asked:
                outcome = self._told(each, response)
            else:
                did = _PAST.get(each.verb, each.verb)
                lines.append(_line(f"  {each.member.name} {did}", self._told(each, response)))
        return [_line(step.command, outcome), *lines]

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
                self._ground.move(options.get("group", "g"), options["to"], how)
            case "loaded":
                self._ground.finish_loading()
            case "unzombie":
                self._ground.stop_zombies()
            case "stop":
                self._ground.stop_broker(options["broker"], "no_election" not in options, how)
            case "start":
                self._ground.start_broker(options["broker"], how)
            case "delete":
                self._ground.delete_topic(options["topic"])
            case "do":
                self._perform(step)
        return ""

    def _perform(self, step: Step) -> None:
        """Do an event; a member goes by its name here."""
        arguments = dict(step.options)
        if "member" in arguments:
            arguments["member"] = self._cast.id_of(arguments["member"], step.place)
        try:
            self._ground.perform({"do": step.words[0], **arguments})
        except ConfigError as error:
            raise TranscriptError(f"{step.place}: {error}") from None

    def _wait_until(self, time_ms: int, step: Step) -> None:
        if time_ms < self._now_ms:
            raise TranscriptError(f"{step.place}: {step.command!r}: expected a time of {self._now_ms} ms or later")
        self._ground.advance(time_ms - self._now_ms)
        self._now_ms = time_ms


def _failover(step: Step) -> FailoverOptions:
    options = step.options
    how = FailoverOptions()
    if "load" in options:
        how["load_ms"] = options["load"]
    if "stale" in options:
        how["stale_ms"] = options["stale"]
    if "lose_tail" in options:
        how["lose_tail"] = options["lose_tail"]
    how["load_fails"] = "load_fails" in options
    how["lose_all"] = "lose_all" in options
    how["zombie"] = "zombie" in options
    return how


def _line(command: str, outcome: str) -> str:
    return f"{command:<{_COLUMN}} -> {outcome}" if outcome else command
