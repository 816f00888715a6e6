"""Plays transcripts on a Kafka cluster at the same time, and compares the results with the expected results (trio).

The run creates only its own topics, groups and transactional ids. Their names share one prefix. It removes them at the
end, except for transactional ids, which cannot be removed and expire.
"""

import re
import secrets
import tomllib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import trio

from fakebroker.client.errors import BrokerUnreachable
from fakebroker.client.security import PLAINTEXT, ClientSecurity
from fakebroker.cluster.topics import OFFSETS_TOPIC
from fakebroker.conform.kafka_target import BrokerControl, KafkaTarget, Reserved
from fakebroker.conform.player import play
from fakebroker.conform.raw_cluster import RawCluster
from fakebroker.conform.removal import remove
from fakebroker.conform.requirements import COORDINATION_APIS, Facts, duration_of, needs, session_factor, slowed
from fakebroker.conform.transcript import (
    COMPARED,
    ReleaseRange,
    Results,
    Step,
    Transcript,
    TranscriptError,
    folder,
    parse,
    result_line,
    transcript_files,
)
from fakebroker.errors import ConfigError, FakebrokerError
from fakebroker.protocol.releases import RELEASES, Release, release

Verdict = Literal["same", "explained", "differs", "not playable"]
VERDICTS: tuple[Verdict, ...] = ("same", "explained", "differs", "not playable")

EXPLANATIONS = "explanations.toml"
"""The file with explanations, in the folder of the transcripts."""

_AT_ONCE = 8
"""How many transcripts without waiting times are played at once."""
_MOVES_AT_ONCE = 4
_TRANSACTIONS_AT_ONCE = 1
_AGAIN_AT_ONCE = 3
"""Clients that use transactions of version 1 and 2 at the same moment delay each other's verification."""
_STAGGER_S = 0.1
_AFTER_CREATION_S = 1.0
"""After this time coordinators of groups know of new topics, too."""
_SHOWN_REQUESTS = 8
_REMOVED_WITHIN_S = 60
_IN_FLIGHT_S = 0.3
"""How long requests may be on their way when a run is interrupted. They might make groups after the removal."""
_TRANSACTIONAL = {"write", "init", "add", "end", "txn-commit", "add-offsets", "mark"}


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why Kafka's result of a step differs from ours.

    Attributes:
        transcript: The name of the transcript.
        step: The step, without its result.
        kafka: Lines that Kafka may return. A result of Kafka has one of these lines in place of our line.
        reason: `chance: ...`, the number of a defect of Kafka, or a link to the document with our choice.
        releases: The releases of Kafka.
        ends: Whether the rest of the transcript depends on this line, so that it is not compared.
    """

    transcript: str
    step: str
    kafka: tuple[str, ...]
    reason: str
    releases: ReleaseRange
    ends: bool = False

    @classmethod
    def of(cls, table: dict[str, Any], place: str) -> "Explanation":
        """Convert a table of the file.

        Raises:
            ConfigError: A key is missing or has another type.
        """
        expected = {"transcript": str, "step": str, "kafka": list, "reason": str, "releases": str}
        if table.keys() - {"ends"} != expected.keys():
            raise ConfigError.of(place, sorted(table), f"the keys {', '.join(expected)}, and perhaps ends")
        for key, kind in expected.items():
            if not isinstance(table[key], kind):
                raise ConfigError.of(f"{place}: {key}", table[key], f"a {kind.__name__}")
        if not re.match(r"chance: .|KAFKA-\d+: .|scenarios/.", table["reason"]):
            raise ConfigError.of(f"{place}: reason", table["reason"], "'chance: ...', 'KAFKA-...: ...' or a document")
        first, _, last = table["releases"].partition("-")
        numbers = [Release(*map(int, each.split("."))) for each in (first, last or first)]
        lines = tuple(map(str, table["kafka"]))
        where = ReleaseRange(*numbers)
        return cls(table["transcript"], table["step"], lines, table["reason"], where, table.get("ends", False))


def explanations(where: Path | None = None) -> list[Explanation]:
    """Read the file with explanations."""
    path = (where or folder()) / EXPLANATIONS
    tables = tomllib.loads(path.read_text())["explanation"]
    return [Explanation.of(table, f"{path.name}, {number}.") for number, table in enumerate(tables, 1)]


@dataclass(frozen=True, slots=True)
class Difference:
    """A line that differs.

    Attributes:
        place: The file, and the line of the step.
        expected: The expected line; "" if there should be none.
        actual: The actual line; "" if there is none.
        requests: The last requests of the transcript, and their responses.
    """

    place: str
    expected: str
    actual: str
    requests: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Played:
    """The result of one transcript.

    Attributes:
        name: The name of the transcript.
        verdict: Whether Kafka returns the same.
        reasons: If the verdict is "not playable", the requirements that the cluster does not meet. Otherwise the
            explanations of differences.
        difference: The first line that differs and is not explained; None without such a line.
        seconds: How long the transcript took.
        attempts: How often the transcript was played. A transcript that differs is played again, because steps may be
            late on a busy machine.
    """

    name: str
    verdict: Verdict
    reasons: tuple[str, ...] = ()
    difference: Difference | None = None
    seconds: float = 0.0
    attempts: int = 1

    @property
    def subject(self) -> str:
        return subject_of(self.name)


_SUBJECTS = (
    ("peer-", "differences between peers"),
    ("consumer-group", "consumer groups (KIP-848)"),
    ("migration", "consumer groups (KIP-848)"),
    ("transaction", "transactions"),
    ("failover", "failovers"),
    ("expiration-checks", "offsets"),
    ("broker-stops", "failovers"),
    ("resignation", "failovers"),
    ("matrix", "every request in every state"),
    ("static", "static members"),
    ("initial-delay", "rebalances"),
    ("batch-join", "proposals"),
    ("rewrite", "proposals"),
    ("control", "control of a fake cluster"),
    ("fault", "control of a fake cluster"),
    ("log-refuses", "control of a fake cluster"),
    ("seeded", "control of a fake cluster"),
    ("before-", "releases before 4.0"),
    ("admin", "administration"),
    ("describe", "administration"),
    ("delete", "administration"),
    ("list", "administration"),
    ("find-coordinator", "administration"),
    ("wrong-broker", "administration"),
    ("permissions", "administration"),
    ("commit", "offsets"),
    ("offset", "offsets"),
    ("fetch", "offsets"),
    ("topic-deletion", "offsets"),
    ("group-without-offsets", "offsets"),
    ("session", "sessions"),
    ("", "rebalances"),
)
"""The subject of a transcript by the start of its name."""


def subject_of(name: str) -> str:
    """Return the subject of a transcript, a row of the table."""
    return next(subject for start, subject in _SUBJECTS if name.startswith(start))


@dataclass(frozen=True, slots=True)
class Conformance:
    """The results of a cluster.

    Attributes:
        release: The release whose results were expected.
        played: The results by transcript, ordered by name.
        left: What could not be removed.
    """

    release: Release
    played: tuple[Played, ...]
    left: tuple[str, ...] = ()

    def count(self) -> Counter[Verdict]:
        """Return how many transcripts have each verdict."""
        return Counter(each.verdict for each in self.played)


def selected(only: Sequence[str] = (), where: Path | None = None) -> list[Transcript]:
    """Return transcripts whose names match a pattern such as `failover-*`; all without patterns.

    Raises:
        ConfigError: No transcript matches a pattern.
    """
    transcripts = [parse(path.read_text(), path.name) for path in transcript_files(where)]
    for pattern in only:
        if not any(fnmatchcase(each.name, pattern) for each in transcripts):
            raise ConfigError.of("--only", pattern, "a pattern of transcripts' names; --list shows them")
    return [each for each in transcripts if not only or any(fnmatchcase(each.name, pattern) for pattern in only)]


def known_release(text: str) -> Release:
    """Parse a release; one that is newer than the newest that is emulated is compared with the newest.

    Raises:
        ConfigError: It is not a release of Kafka.
    """
    matched = re.fullmatch(r"(\d+)\.(\d+)(\.\d+)*", text)
    if matched is not None and Release(int(matched[1]), int(matched[2])) > COMPARED[-1]:
        return Release(int(matched[1]), int(matched[2]))
    try:
        return release(text)
    except ConfigError:
        raise ConfigError.of("--release", text, f"a release of Kafka, such as {COMPARED[-1]}") from None


def release_of(cluster: RawCluster) -> Release:
    """Return the newest release that has no newer versions of the APIs of coordination than the cluster."""

    def has(candidate: Release) -> bool:
        for name, versions in RELEASES[candidate].items():
            if name in COORDINATION_APIS:
                theirs = cluster.versions.get(COORDINATION_APIS[name])
                if theirs is None or theirs.last < versions.last:
                    return False
        return True

    return next((each for each in reversed(list(RELEASES)) if has(each)), COMPARED[0])


async def conform(
    bootstrap_servers: str,
    *,
    release: Release | None = None,
    transcripts: Iterable[Transcript] = (),
    security: ClientSecurity = PLAINTEXT,
    changes_cluster: bool = False,
    control: BrokerControl | None = None,
    longest_s: float = 75,
    progress: Callable[[Played], None] = lambda played: None,
    on_interrupt: Callable[[Sequence[str]], None] = lambda left: None,
) -> Conformance:
    """Play transcripts against a cluster.

    Args:
        bootstrap_servers: "HOST:PORT", several separated by commas.
        release: The release whose results are expected; None to conclude it from the versions of APIs.
        transcripts: The transcripts.
        security: How connections are encrypted and authenticated.
        changes_cluster: Whether partitions of internal topics may be moved.
        control: Stops and starts brokers; None if that is not possible.
        longest_s: How long the times of a transcript may be.
        progress: Called with each result.
        on_interrupt: Called with what could not be removed, if the run is cancelled.

    Raises:
        BrokerUnreachable: No bootstrap server can be reached, or the coordinators do not answer.
    """
    failure: FakebrokerError | None = None
    left: list[str] = []
    async with trio.open_nursery() as nursery:
        cluster = RawCluster(bootstrap_servers, nursery, security)
        try:
            await cluster.open()
            run = _Run(cluster, release or release_of(cluster), changes_cluster, control, longest_s, progress)
            try:
                await run.play_all(list(transcripts))
                left = await run.remove_all()
            except BaseException:
                with trio.CancelScope(shield=True):
                    await trio.sleep(_IN_FLIGHT_S)
                    # Ctrl-C may have hit the task of a connection, and so have canceled all of them.
                    async with trio.open_nursery() as connections:
                        cluster.reconnect(connections)
                        on_interrupt(await run.remove_all())
                        connections.cancel_scope.cancel()
                raise
        except FakebrokerError as error:  # raised below, because the nursery would raise a group
            failure = error
        except trio.TooSlowError:
            failure = BrokerUnreachable(f"the cluster at {bootstrap_servers}", "its coordinators do not answer")
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return Conformance(run.release, tuple(sorted(run.played.values(), key=lambda each: each.name)), tuple(left))


Turn = trio.CapacityLimiter | trio.Lock
"""What a transcript holds while it is played."""


class _Run:
    def __init__(
        self,
        cluster: RawCluster,
        release: Release,
        changes_cluster: bool,
        control: BrokerControl | None,
        longest_s: float,
        progress: Callable[[Played], None],
    ) -> None:
        self._cluster, self.release, self._control, self._progress = cluster, release, control, progress
        self._facts = Facts(
            release,
            len(cluster.nodes),
            cluster.settings,
            cluster.versions,
            cluster.features,
            changes_cluster,
            control is not None,
            longest_s,
        )
        self._prefix = f"conform{secrets.token_hex(3)}"
        self._reserved = Reserved(())
        self._numbers: dict[str, int] = {}
        self._explanations = explanations()
        self.played: dict[str, Played] = {}
        self.targets: list[KafkaTarget] = []
        self._prepared: dict[str, KafkaTarget] = {}

    async def play_all(self, transcripts: Sequence[Transcript]) -> None:
        playable: list[Transcript] = []
        min_session_ms = int(self._cluster.settings.get("group.min.session.timeout.ms") or 0)
        for transcript in transcripts:
            each = slowed(transcript, session_factor(transcript, min_session_ms) or 1)
            missing = needs(each, self._facts)
            if missing:
                self._add(Played(each.name, "not playable", tuple(missing)))
            else:
                playable.append(each)
        if not playable:
            return
        await self._cluster.warm_up()
        self._numbers = {each.name: number for number, each in enumerate(playable)}
        partitions = len(await self._cluster.internal(OFFSETS_TOPIC))
        # Partition 0 has the group "".
        reserved = range(1, max(2, min(_MOVES_AT_ONCE + 1, partitions // 2)))
        self._reserved = Reserved(reserved, (each.name for each in playable if _moves(each)))
        alone = [each for each in playable if _stops(each)]
        together = [each for each in playable if each not in alone]
        await self._prepare(together)
        await self._cluster.forget_records()
        await trio.sleep(_AFTER_CREATION_S)
        short = trio.CapacityLimiter(_AT_ONCE)
        transactional = trio.CapacityLimiter(_TRANSACTIONS_AT_ONCE)
        empty_group = trio.CapacityLimiter(1)
        async with trio.open_nursery() as nursery:
            for each in sorted(together, key=lambda each: -duration_of(each)):
                limiters: list[Turn] = [] if duration_of(each) else [short]
                if _moves(each):
                    limiters = [self._reserved.turn(each.name)]
                if not duration_of(each) and any(step.verb in _TRANSACTIONAL for step in each.steps):
                    limiters.append(transactional)
                if each.uses_empty_group:
                    limiters.append(empty_group)
                nursery.start_soon(self._play_limited, each, limiters)
                await trio.sleep(_STAGGER_S if duration_of(each) else 0)
        # Steps take time, on a busy machine much. What differs is played again with few others, and with other times.
        self._prepared.clear()
        again = trio.CapacityLimiter(_AGAIN_AT_ONCE)
        for punctual in (True, False):
            async with trio.open_nursery() as nursery:
                for each in self._differing(together):
                    if duration_of(each) or not punctual:
                        own: list[Turn] = [self._reserved.turn(each.name)] if _moves(each) else []
                        nursery.start_soon(self._play_limited, each, [*own, again], punctual)
        for each in alone:
            await self._play(each)
        for each in self._differing(alone):
            await self._play(each)

    async def remove_all(self) -> list[str]:
        """Remove everything that the run has created. Return a sentence for each thing that could not be removed."""
        with trio.move_on_after(_REMOVED_WITHIN_S):
            return await remove(self._cluster, [each.names for each in self.targets])
        return [f"what was not removed within {_REMOVED_WITHIN_S} s; its names begin with {self._prefix}"]

    def _differing(self, transcripts: Iterable[Transcript]) -> list[Transcript]:
        return [each for each in transcripts if self.played[each.name].verdict == "differs"]

    async def _prepare(self, transcripts: Sequence[Transcript]) -> None:
        """Create the topics of transcripts all at once, because that takes time."""
        replicas: dict[str, list[list[int]]] = {}
        for each in transcripts:
            target = self._prepared[each.name] = await self._new_target(each)
            replicas |= dict(target.replicas_of(name, partitions) for name, partitions in each.topics.items())
        await self._cluster.create_topics(replicas)

    async def _new_target(self, transcript: Transcript, *, punctual: bool = False) -> KafkaTarget:
        base = f"{self._prefix}.{len(self.targets)}"
        control = self._control if _stops(transcript) else None
        nodes = await self._nodes(transcript)
        target = KafkaTarget(self._cluster, transcript, base, nodes, self._reserved, control, punctual=punctual)
        self.targets.append(target)
        return target

    async def _play_limited(self, transcript: Transcript, limiters: Sequence[Turn], punctual: bool = False) -> None:
        if not limiters:
            await self._play(transcript, punctual=punctual)
            return
        async with limiters[0]:
            await self._play_limited(transcript, limiters[1:], punctual)

    async def _nodes(self, transcript: Transcript) -> list[int]:
        """Return the node ids of a transcript's brokers; other brokers follow."""
        nodes = list(self._cluster.nodes)
        first = self._numbers[transcript.name] % len(nodes)
        own = self._reserved.of(transcript.name)
        partitions = await self._cluster.internal(OFFSETS_TOPIC)
        if own is not None:
            first = nodes.index(partitions[own][0])
        elif transcript.uses_empty_group and partitions:
            first = nodes.index(partitions[0][0])
        return nodes[first:] + nodes[:first]

    async def _play(self, transcript: Transcript, *, punctual: bool = False) -> None:
        target = self._prepared.get(transcript.name)
        control = self._control if _stops(transcript) else None
        start = trio.current_time()
        try:
            if target is None:
                target = await self._new_target(transcript, punctual=punctual)
                await self._cluster.create_topics(
                    dict(target.replicas_of(name, partitions) for name, partitions in transcript.topics.items())
                )
                await trio.sleep(_AFTER_CREATION_S)
            if _times_out_transactions(transcript):
                topic, replicas = target.replicas_of("aborts", 1)
                await self._cluster.create_topics({topic: replicas})
                await self._cluster.wait_for_aborts(target.names.nodes[1], topic)
            try:
                played = await self._compare(transcript, target)
            finally:
                own = self._reserved.of(transcript.name)
                if own is not None:
                    await self._cluster.restore_partition(OFFSETS_TOPIC, own)
                if control is not None:
                    await target.start_brokers()
        except (TranscriptError, FakebrokerError, trio.TooSlowError) as error:
            why = str(error) or type(error).__name__
            requests = () if target is None else tuple(target.log[-_SHOWN_REQUESTS:])
            played = Played(transcript.name, "differs", (), Difference(f"{transcript.name}.txt", "", why, requests))
        seconds = trio.current_time() - start
        self._add(replace(played, seconds=seconds))

    async def _compare(self, transcript: Transcript, target: KafkaTarget) -> Played:
        await target.begin()
        async with aclosing(play(transcript, target, self.release)) as steps:
            return await self._compare_steps(transcript, target, steps)

    async def _compare_steps(
        self, transcript: Transcript, target: KafkaTarget, steps: AsyncIterator[tuple[Step, Results]]
    ) -> Played:
        explained: dict[str, None] = {}
        async for step, actual in steps:
            expected = step.expected(self.release)
            if actual == expected:
                continue
            lines = _differing(step, expected, actual)
            found = self._explain(transcript, step, lines)
            if not found:
                shown = next((wanted, got) for wanted, got in lines)
                difference = Difference(step.place, *shown, tuple(target.log[-_SHOWN_REQUESTS:]))
                return Played(transcript.name, "differs", tuple(explained), difference)
            explained |= dict.fromkeys(each.reason for each in found)
            if any(each.ends for each in found):
                break
        return Played(transcript.name, "explained" if explained else "same", tuple(explained))

    def _explain(self, transcript: Transcript, step: Step, lines: Sequence[tuple[str, str]]) -> list[Explanation]:
        """Return why lines differ; nothing if a line is not explained."""
        found = []
        for _, actual in lines:
            for each in self._explanations:
                is_here = (each.transcript, each.step) == (transcript.name, step.command)
                is_release = each.releases.first <= self.release <= each.releases.last
                if is_here and is_release and " ".join(actual.split()) in each.kafka:
                    found.append(each)
                    break
            else:
                return []
        return found

    def _add(self, played: Played) -> None:
        before = self.played.get(played.name)
        if before is None:
            self.played[played.name] = played
            self._progress(played)
        else:
            self.played[played.name] = replace(played, attempts=before.attempts + 1)


def _differing(step: Step, expected: Results, actual: Results) -> list[tuple[str, str]]:
    """Return the lines that differ, as in a file: (expected, actual), with "" for a line that is missing."""

    def lines(results: Results) -> list[str]:
        return [result_line(step.command, results[0]), *results[1:]]

    wanted, got = lines(expected), lines(actual)
    pairs = [(w, g) for w, g in zip(wanted, got, strict=False) if w != g]
    pairs += [(line, "") for line in wanted[len(got) :]] + [("", line) for line in got[len(wanted) :]]
    return pairs


def _times_out_transactions(transcript: Transcript) -> bool:
    """Return whether the coordinator aborts transactions of a transcript, which it does at intervals."""
    return duration_of(transcript) > 0 and any(
        step.verb == "init" and step.options.get("timeout", 60_000) < 1000 * duration_of(transcript)
        for step in transcript.steps
    )


def _moves(transcript: Transcript) -> bool:
    return any(step.verb == "move" for step in transcript.steps)


def _stops(transcript: Transcript) -> bool:
    return any(
        step.verb in ("stop", "start") or (step.verb == "do" and step.words[0] == "broker.stop")
        for step in transcript.steps
    )
