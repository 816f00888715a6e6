"""Plays a transcript on a target, a cluster, and yields the results of its steps.

A target is a simulated cluster, a `FakeCluster` or any Kafka over TCP (`kafka_target.py`).
"""

import re
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Protocol, TypeVar

from fakebroker.cluster.topics import NO_LEADER
from fakebroker.conform.members import Members, TranscriptMember
from fakebroker.conform.producers import (
    ADMIN_CLIENT_ID,
    AT_ANY_BROKER,
    AT_THE_LEADER,
    PRODUCER_VERBS,
    first_partition,
    steps_to,
)
from fakebroker.conform.texts import answer_text, joined_ranges
from fakebroker.conform.transcript import (
    Results,
    Step,
    Transcript,
    TranscriptError,
    duration_ms,
    expand_step,
    result_line,
)
from fakebroker.errors import ConditionNotMet, ConfigError
from fakebroker.protocol.releases import NEWEST, Release
from fakebroker.protocol.schema import Message
from fakebroker.topic_partition import TopicPartition

T = TypeVar("T")

PARKED = "parked"
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


class SentRequest(Protocol):
    """A request that was sent, and its response."""

    @property
    def is_answered(self) -> bool: ...

    @property
    def is_connection_closed(self) -> bool:
        """Whether the broker has closed the connection instead."""
        ...

    def response(self) -> Message:
        """Return the response of a request that is answered."""
        ...


class Broker(Protocol):
    """A broker of a target."""

    @property
    def node_id(self) -> int: ...

    @property
    def up(self) -> bool: ...


class Target(Protocol):
    """A cluster that a transcript is played on. Names and node ids are used as they are in the transcript."""

    def brokers(self) -> Sequence[Broker]: ...

    async def coordinator_of(self, group_id: str) -> int:
        """Return the node id of a group's coordinator, or NO_LEADER."""
        ...

    async def transaction_coordinator_of(self, transactional_id: str) -> int:
        """Return the node id of the coordinator of a transactional id, or NO_LEADER."""
        ...

    async def leader_of(self, place: TopicPartition) -> int:
        """Return the node id of a partition's leader; NO_LEADER if there is no leader or no such partition."""
        ...

    async def topic_ids(self) -> Mapping[str, bytes]:
        """Return the ids of all topics by name."""
        ...

    async def send(self, client_id: str, node_id: int, request: Message, version: int) -> SentRequest: ...

    async def settle(self, requests: Collection[SentRequest], answers: int) -> None:
        """Wait until requests are answered that will be answered now. Fake clusters answer at once.

        Args:
            requests: The requests without an answer.
            answers: How many of them are expected to be answered.
        """
        ...

    async def repeats(self, step: Step, outcome: str, expected: str, attempt: int) -> bool:
        """Return whether a step with another result than the expected one is run again; may wait before."""
        ...

    async def advance(self, by_ms: int) -> None:
        """Let time pass."""
        ...

    async def perform(self, event: Mapping[str, Any]) -> None:
        """Run a command of the cluster."""
        ...

    async def generation_of(self, group_id: str) -> int: ...

    async def group_text(self, members: Members, group_id: str, expected: str) -> str:
        """Return the text of a group. What cannot be seen there is taken from the expected text."""
        ...

    async def rewrite_group_text(self, members: Members, group_id: str) -> str:
        """Return the text of a group of the proposal `rewrite`."""
        ...


def finish(played: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, as on a target that answers at once."""
    try:
        played.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("waited without an event loop")


async def results_of(transcript: Transcript, target: Target, release: Release = NEWEST) -> list[Results]:
    """Play a transcript, and return the results of all steps.

    Raises:
        TranscriptError: A step cannot be run.
    """
    return [results async for _, results in play(transcript, target, release)]


async def play(
    transcript: Transcript, target: Target, release: Release = NEWEST
) -> AsyncGenerator[tuple[Step, Results]]:
    """Play a transcript, and yield each step with its results.

    Args:
        transcript: The transcript.
        target: The cluster.
        release: The release whose results are expected. Fake clusters do not look at what is expected.

    Raises:
        TranscriptError: A step cannot be run.
    """
    player = Player(target)
    steps = transcript.steps
    for step in steps:
        results = await player.perform(step, step.expected(release))
        yield step, (*results, *player.unanswered_requests()) if step is steps[-1] else results


@dataclass(frozen=True, slots=True)
class _PendingRequest:
    """A request without an answer."""

    member: TranscriptMember
    verb: str
    message: Message
    version: int
    request: SentRequest


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


class Player:
    """Runs the steps of one transcript."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._members = Members()
        self._parked: list[_PendingRequest] = []
        self._now_ms = 0

    async def perform(self, step: Step, expected: Results) -> Results:
        """Run a step.

        Args:
            step: The step.
            expected: Its expected results.

        Returns:
            Its result, and a line for each earlier request that is answered now, in their order.
        """
        if step.verb in ("come", "work"):
            return (await self._run_clients(step),)
        if step.verb == "at":
            await self._wait_until(duration_ms(step.words[0][1:]), step)
        steps = expand_step(step)
        own, answers = _each_outcome(expected[0], len(steps)), sum(map(_answers_in, expected[1:]))
        done: list[tuple[str, str]] = []
        answered: list[_Answer] = []
        for index, each in enumerate(steps):
            outcome, later = await self._do(each, own, answers - len(answered) if index == len(steps) - 1 else 0)
            done.append((each.actor or "", outcome))
            answered += later
        return (done[0][1] if len(done) == 1 else _counted(done), *_lines_of(answered))

    async def _do(self, step: Step, expected: str, answers: int) -> tuple[str, list["_Answer"]]:
        """Run the step of one member or of the cluster. Return its result, and the answers to earlier requests.

        Args:
            step: The step.
            expected: Its expected result, to decide whether it is repeated; "" if it is not known.
            answers: How many earlier requests are expected to be answered.
        """
        sent = await self._send(step) if step.actor else None
        later: list[_Answer] = []
        for attempt in count(1):
            outcome = PARKED if sent else await self._change(step, expected)
            waits = [each.request for each in self._parked] + ([sent.request] if sent else [])
            wanted = answers - len(later) + (1 if sent and expected != PARKED and expected else 0)
            if waits:
                await self._target.settle(waits, wanted)
            answered = self._receive(sent)
            # All answers are received before the first is described, because a description has names of other members.
            for each, response in answered:
                if response is not None:
                    self._members.receive(each.member, each.message, response)
            for each, response in answered:
                if each is sent:
                    outcome = self._outcome(each, response)
                else:
                    did = _PAST.get(each.verb, each.verb)
                    later.append(_Answer(each.member.name, did, self._outcome(each, response)))
            is_done = outcome in (expected, PARKED)
            if is_done or not await self._target.repeats(step, outcome, expected, attempt):
                break
            sent = await self._send_again(sent, step) if sent else None
        return outcome, later

    # Members that follow the protocol without steps

    async def _run_clients(self, step: Step) -> str:
        """Run the members of a group until they are idle; for `come`, also after the join of each member."""
        group_id = step.options.get("group", "g")
        before = await self._target.generation_of(group_id)
        for each in expand_step(step) if step.actor else ():
            await self._do(replace(each, verb="join"), "", 0)
            await self._run_until_idle(group_id, step)
        await self._run_until_idle(group_id, step)
        after = await self._target.generation_of(group_id)
        return f"generation {before}" + (f" to {after}" if after != before else "")

    async def _run_until_idle(self, group_id: str, step: Step) -> None:
        """Let each member send heartbeats, and join and sync as the answers require, until all only send heartbeats."""
        is_busy = True
        while is_busy:
            is_busy = False
            parked = {each.member.name for each in self._parked}
            for member in self._members.all():
                verb = member.next_verb
                if verb and member.group_id == group_id and member.name not in parked:
                    next_step = replace(step, actor=member.name, verb=verb, words=(), options={"group": group_id})
                    await self._do(next_step, "", 0)
                    is_busy |= (verb, member.next_verb) != ("beat", "beat")

    # Requests

    def _receive(self, sent: _PendingRequest | None) -> list[tuple[_PendingRequest, Message | None]]:
        """Return the requests that are answered now, with None for a closed connection; the others stay pending."""
        answered: list[tuple[_PendingRequest, Message | None]] = []
        pending, self._parked = self._parked, []
        for each in [*pending, sent] if sent else pending:
            if each.request.is_connection_closed:
                answered.append((each, None))
            elif each.request.is_answered:
                answered.append((each, each.request.response()))
            else:
                self._parked.append(each)
        return answered

    def _outcome(self, parked: _PendingRequest, response: Message | None) -> str:
        return "connection closed" if response is None else answer_text(self._members, parked.member, response)

    def unanswered_requests(self) -> list[str]:
        """Return a line for each request that was never answered."""
        return [f"  {each.member.name} still waits for its {each.verb}" for each in self._parked]

    async def _send(self, step: Step) -> _PendingRequest:
        """Send the request of a step; with `in=`, the transaction of the member gets to this state before."""
        self._members.topic_ids.update(await self._target.topic_ids())
        member, request, version = self._members.request(step)
        if "in" in step.options:
            for each in steps_to(step):
                await self._ask(each)
            request = self._members.request(replace(step, options=_without_state(step)))[1]
        return await self._send_message(step, member, request, version)

    async def _send_message(
        self, step: Step, member: TranscriptMember, request: Message, version: int
    ) -> _PendingRequest:
        node_id = step.options["broker"] if "broker" in step.options else await self._node_for(step, member)
        if not self._broker(node_id, step).up:
            raise TranscriptError(f"{step.place}: broker {node_id} is down: expected one that is up")
        client_id = ADMIN_CLIENT_ID if step.verb in ("store", "store-member") else member.name
        sent = await self._target.send(client_id, node_id, request, version)
        return _PendingRequest(member, step.verb, request, version, sent)

    async def _send_again(self, before: _PendingRequest, step: Step) -> _PendingRequest:
        """Send the same message again, to the broker that clients send it to now."""
        return await self._send_message(step, before.member, before.message, before.version)

    async def _ask(self, step: Step) -> None:
        """Send a request that must be answered at once, before the request of a step with `in=`."""
        outcome, _ = await self._do(replace(step, verb=step.verb), "done", 0)
        if outcome == PARKED:
            raise TranscriptError(f"{step.place}: {step.verb} is not answered: expected an answer at once")

    async def _node_for(self, step: Step, member: TranscriptMember) -> int:
        """Return the broker that clients send the request of a step to."""
        target, key = self._target, member.group_id
        if step.verb in AT_ANY_BROKER:
            return next(each.node_id for each in target.brokers() if each.up)
        if step.verb in AT_THE_LEADER:
            place = first_partition(step)
            node_id, fault = await target.leader_of(place), f"{place[0]}-{place[1]} has no leader"
        elif step.verb in PRODUCER_VERBS:
            key = member.producer.id_of(step) or ""
            node_id, fault = await target.transaction_coordinator_of(key), f"{key!r} has no coordinator"
        else:
            node_id, fault = await target.coordinator_of(key), f"{key!r} has no coordinator"
        if node_id == NO_LEADER:
            raise TranscriptError(f"{step.place}: {fault}: expected broker=")
        return node_id

    def _broker(self, node_id: int, step: Step) -> Broker:
        brokers = {broker.node_id: broker for broker in self._target.brokers()}
        if node_id not in brokers:
            raise TranscriptError(f"{step.place}: no broker {node_id}: expected one of {', '.join(map(str, brokers))}")
        return brokers[node_id]

    # Steps of the cluster

    async def _change(self, step: Step, expected: str) -> str:
        options, failover = step.options, _failover(step)
        for name in ("to", "broker"):
            if options.get(name) is not None:
                self._broker(options[name], step)
        match step.verb:
            case "group":
                return await self._target.group_text(self._members, step.words[0], expected)
            case "state":
                return await self._target.rewrite_group_text(self._members, step.words[0])
            case "move":
                group_id = options.get("group", "g")
                await self._perform(
                    "group.move_coordinator", step, {"group_id": group_id, "to": options["to"], **failover}
                )
            case "loaded":
                await self._perform("brokers.finish_loading", step, {})
            case "unzombie":
                await self._perform("brokers.stop_zombies", step, {})
            case "stop":
                elect = "no_election" not in options
                await self._perform("broker.stop", step, {"node_id": options["broker"], "elect": elect, **failover})
            case "start":
                await self._perform("broker.start", step, {"node_id": options["broker"], **failover})
            case "delete":
                await self._perform("topic.delete", step, {"topic": options["topic"]})
            case "do":
                await self._perform(step.words[0], step, step.options)
        return ""

    async def _perform(self, command: str, step: Step, arguments: Mapping[str, Any]) -> None:
        """Run a command of the cluster. A member is given by its name in the transcript."""
        if "member" in arguments:
            arguments = {**arguments, "member": self._members.id_of(arguments["member"], step.place)}
        try:
            await self._target.perform({"do": command, **arguments})
        except (ConfigError, ConditionNotMet) as error:
            raise TranscriptError(f"{step.place}: {error}") from None

    async def _wait_until(self, time_ms: int, step: Step) -> None:
        if time_ms < self._now_ms:
            raise TranscriptError(f"{step.place}: {step.command!r}: expected a time of {self._now_ms} ms or later")
        await self._target.advance(time_ms - self._now_ms)
        self._now_ms = time_ms


def _each_outcome(expected: str, members: int) -> str:
    """Return the expected result of each member of a range; "" if they differ."""
    if members == 1:
        return expected
    matched = re.fullmatch(r"\d+ x ([^;]*)", expected)
    return matched[1] if matched else ""


def _answers_in(line: str) -> int:
    """Return how many earlier requests a line of results is about."""
    if " -> " not in line:
        return 0  # "A still waits for its join"
    matched = re.match(r"(\d+) x ", line.partition(" -> ")[2])
    return int(matched[1]) if matched else 1


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
            lines += [result_line(f"  {name} {answer.did}", answer.outcome) for name in names]
        else:
            lines.append(result_line(f"  {joined_ranges(names)} {answer.did}", f"{len(names)} x {answer.outcome}"))
    return lines
