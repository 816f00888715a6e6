"""Runs a transcript on a target, and returns the transcript with the actual results of its steps."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fakebroker.cluster.inspect.views import BrokerView
from fakebroker.cluster.topics import NO_LEADER
from fakebroker.errors import ConfigError
from fakebroker.protocol.schema import Message
from tests.support.transcripts.members import Members, TranscriptMember
from tests.support.transcripts.parser import Step, Transcript, TranscriptError, duration_ms, expand_step
from tests.support.transcripts.producers import (
    ADMIN_CLIENT_ID,
    AT_ANY_BROKER,
    AT_THE_LEADER,
    NEWEST_OF_PRODUCERS,
    first_partition,
    steps_to,
)
from tests.support.transcripts.response_text import answer_text, group_text, joined_ranges, rewrite_group_text
from tests.support.transcripts.targets import SentTranscriptRequest, Target

_COLUMN = 40
_PAST = {
    "batch": "batch joined",
    "beat": "has beaten",
    "commit": "committed",
    "consume": "consumed",
    "join": "joined",
    "register": "registered",
    "sync": "synced",
    "write": "wrote",
}


@dataclass(frozen=True, slots=True)
class _PendingRequest:
    """A request without an answer."""

    member: TranscriptMember
    verb: str
    message: Message
    request: SentTranscriptRequest


@dataclass(frozen=True, slots=True)
class _Answer:
    """The answer to an earlier request.

    Attributes:
        name: The name of the member.
        did: Past tense of the request, such as "joined".
        outcome: The answer as text.
    """

    name: str
    did: str
    outcome: str


def play(transcript: Transcript, target: Target) -> str:
    """Run a transcript.

    Returns:
        The transcript with the actual results of its steps.

    Raises:
        TranscriptError: A step cannot be run.
    """
    player = _Player(target)
    lines: list[str] = []
    for line in transcript.lines:
        if isinstance(line, str):
            lines.append(line)
        else:
            lines += player.perform(line)
    return "\n".join([*lines, *player.unanswered_requests()]) + "\n"


class _Player:
    def __init__(self, target: Target) -> None:
        self._target = target
        self._members = Members()
        self._parked: list[_PendingRequest] = []
        self._now_ms = 0

    def perform(self, step: Step) -> list[str]:
        """Run a step. Return its line, and a line for each earlier request that is answered now, in their order."""
        if step.verb in ("come", "work"):
            return [_line(step.command, self._run_clients(step))]
        done = [(each.actor, *self._do(each)) for each in expand_step(step)]
        outcome = done[0][1] if len(done) == 1 else _counted((actor or "", outcome) for actor, outcome, _ in done)
        return [_line(step.command, outcome), *_lines_of([answer for _, _, answers in done for answer in answers])]

    def _do(self, step: Step) -> tuple[str, list["_Answer"]]:
        """Run the step of one member or of the cluster. Return its result, and the answers to earlier requests."""
        sent = self._send(step) if step.actor else None
        outcome = "parked" if sent else self._change(step)
        answered = self._receive(step, sent)
        # All answers are received before the first is described, because a description has names of other members.
        for each, response in answered:
            if response is not None:
                self._members.receive(each.member, each.message, response)
        answers = []
        for each, response in answered:
            if each is sent:
                outcome = self._outcome(each, response)
            else:
                answers.append(
                    _Answer(each.member.name, _PAST.get(each.verb, each.verb), self._outcome(each, response))
                )
        return outcome, answers

    # Members that follow the protocol without steps

    def _run_clients(self, step: Step) -> str:
        """Run the members of a group until they are idle; for `come`, also after the join of each member."""
        group_id = step.options.get("group", "g")
        before = self._target.group(group_id).generation_id
        for each in expand_step(step) if step.actor else ():
            self._do(replace(each, verb="join"))
            self._run_until_idle(group_id, step)
        self._run_until_idle(group_id, step)
        after = self._target.group(group_id).generation_id
        return f"generation {before}" + (f" to {after}" if after != before else "")

    def _run_until_idle(self, group_id: str, step: Step) -> None:
        """Let each member send heartbeats, and join and sync as the answers require, until all only send heartbeats."""
        is_busy = True
        while is_busy:
            is_busy = False
            parked = {each.member.name for each in self._parked}
            for member in self._members.all():
                verb = member.next_verb
                if verb and member.group_id == group_id and member.name not in parked:
                    self._do(Step(step.place, step.command, member.name, verb, options={"group": group_id}))
                    is_busy |= (verb, member.next_verb) != ("beat", "beat")

    def _receive(self, step: Step, sent: _PendingRequest | None) -> list[tuple[_PendingRequest, Message | None]]:
        """Return the requests that are answered now, with None for a closed connection; the others stay pending."""
        answered: list[tuple[_PendingRequest, Message | None]] = []
        pending, self._parked = self._parked, []
        for each in [*pending, sent] if sent else pending:
            if step.verb == "stop" and each.request.is_connection_closed():
                answered.append((each, None))
            elif each.request.is_answered:
                answered.append((each, each.request.receive()))
            else:
                self._parked.append(each)
        return answered

    def _outcome(self, parked: _PendingRequest, response: Message | None) -> str:
        return "connection closed" if response is None else answer_text(self._members, parked.member, response)

    def unanswered_requests(self) -> list[str]:
        """Return a line for each request that was never answered."""
        return [f"  {each.member.name} still waits for its {each.verb}" for each in self._parked]

    def _send(self, step: Step) -> _PendingRequest:
        """Send the request of a step; with `in=`, the transaction of the member gets to this state before."""
        self._members.topic_ids.update(self._target.topic_ids())
        member, request, version = self._members.request(step)
        if "in" in step.options:
            for each in steps_to(step):
                self._ask(each)
            request = self._members.request(replace(step, options=_without_state(step)))[1]
        node_id = step.options["broker"] if "broker" in step.options else self._node_for(step, member)
        if not self._broker(node_id, step).up:
            raise TranscriptError(f"{step.place}: broker {node_id} is down: expected one that is up")
        client_id = ADMIN_CLIENT_ID if step.verb in ("store", "store-member") else member.name
        sent = self._target.send(client_id, node_id, request, version)
        return _PendingRequest(member, step.verb, request, sent)

    def _ask(self, step: Step) -> None:
        """Send a request that must be answered at once."""
        sent = self._send(step)
        if not sent.request.is_answered:
            raise TranscriptError(f"{step.place}: {step.verb} is not answered: expected an answer at once")
        self._members.receive(sent.member, sent.message, sent.request.receive())

    def _node_for(self, step: Step, member: TranscriptMember) -> int:
        """Return the broker that clients send the request of a step to."""
        target, key = self._target, member.group_id
        if step.verb in AT_ANY_BROKER:
            return next(each.node_id for each in target.brokers() if each.up)
        if step.verb in AT_THE_LEADER:
            place = first_partition(step)
            node_id, fault = target.leader_of(place), f"{place[0]}-{place[1]} has no leader"
        elif step.verb in NEWEST_OF_PRODUCERS:
            key = member.producer.id_of(step) or ""
            node_id, fault = target.transaction_coordinator_of(key), f"{key!r} has no coordinator"
        else:
            node_id, fault = target.coordinator_of(key), f"{key!r} has no coordinator"
        if node_id == NO_LEADER:
            raise TranscriptError(f"{step.place}: {fault}: expected broker=")
        return node_id

    def _broker(self, node_id: int, step: Step) -> BrokerView:
        brokers = {broker.node_id: broker for broker in self._target.brokers()}
        if node_id not in brokers:
            raise TranscriptError(f"{step.place}: no broker {node_id}: expected one of {', '.join(map(str, brokers))}")
        return brokers[node_id]

    def _change(self, step: Step) -> str:
        options, failover = step.options, _failover(step)
        for name in ("to", "broker"):
            if options.get(name) is not None:
                self._broker(options[name], step)
        match step.verb:
            case "at":
                self._wait_until(duration_ms(step.words[0][1:]), step)
            case "group":
                return group_text(self._members, self._target.group(step.words[0]))
            case "state":
                return rewrite_group_text(self._members, *self._target.rewrite_group(step.words[0]))
            case "move":
                self._perform(
                    "move_coordinator", step, {"group_id": options.get("group", "g"), "to": options["to"], **failover}
                )
            case "loaded":
                self._perform("finish_loading", step, {})
            case "unzombie":
                self._perform("stop_zombies", step, {})
            case "stop":
                elect = "no_election" not in options
                self._perform("stop_broker", step, {"node_id": options["broker"], "elect": elect, **failover})
            case "start":
                self._perform("start_broker", step, {"node_id": options["broker"], **failover})
            case "delete":
                self._perform("delete_topic", step, {"name": options["topic"]})
            case "do":
                self._perform(step.words[0], step, step.options)
        return ""

    def _perform(self, command: str, step: Step, arguments: Mapping[str, Any]) -> None:
        """Run a command of the cluster. A member is given by its name in the transcript."""
        if "member" in arguments:
            arguments = {**arguments, "member": self._members.id_of(arguments["member"], step.place)}
        try:
            self._target.perform({"do": command, **arguments})
        except ConfigError as error:
            raise TranscriptError(f"{step.place}: {error}") from None

    def _wait_until(self, time_ms: int, step: Step) -> None:
        if time_ms < self._now_ms:
            raise TranscriptError(f"{step.place}: {step.command!r}: expected a time of {self._now_ms} ms or later")
        self._target.advance(time_ms - self._now_ms)
        self._now_ms = time_ms


def _without_state(step: Step) -> dict[str, Any]:
    return {name: value for name, value in step.options.items() if name != "in"}


_FAILOVER = {"load": "load_ms", "stale": "stale_ms", "lose_tail": "lose_tail"}
"""Failover options of commands, by their names in transcripts; flags have the same names in both."""


def _failover(step: Step) -> dict[str, Any]:
    named = {_FAILOVER[name]: value for name, value in step.options.items() if name in _FAILOVER}
    return named | dict.fromkeys({"load_fails", "lose_all", "zombie"} & step.options.keys(), True)


def _counted(outcomes: Iterable[tuple[str, str]]) -> str:
    """Describe the results of a range of members: equal results once, with their number."""
    counts = Counter(_without_own_id(*each) for each in outcomes)
    return "; ".join(f"{count} x {outcome}" for outcome, count in counts.items())


def _without_own_id(name: str, outcome: str) -> str:
    return outcome.removesuffix(f", id {name}") if name[-1:].isdigit() else outcome


def _lines_of(answers: list[_Answer]) -> list[str]:
    """Return a line for each answer; equal answers to members with consecutive numbers share a line."""
    alike: list[tuple[list[str], _Answer]] = []
    for answer in answers:
        same = alike and (alike[-1][1].did, alike[-1][1].outcome) == (answer.did, answer.outcome)
        if same and len(joined_ranges([*alike[-1][0], answer.name]).split()) <= 2 and answer.name[-1].isdigit():
            alike[-1][0].append(answer.name)
        else:
            alike.append(([answer.name], answer))
    lines = []
    for names, answer in alike:
        if len(names) < 3:
            lines += [_line(f"  {name} {answer.did}", answer.outcome) for name in names]
        else:
            lines.append(_line(f"  {joined_ranges(names)} {answer.did}", f"{len(names)} x {answer.outcome}"))
    return lines


def _line(command: str, outcome: str) -> str:
    return f"{command:<{_COLUMN}} -> {outcome}" if outcome else command
