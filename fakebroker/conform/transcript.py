"""Transcripts: their files, and the parser. Does not depend on members or clusters.

`scenarios/transcripts/README.md` describes the format. A new step of a member needs an entry in `MEMBER_VERBS`, and in
members.py, producers.py or consumers.py its request and its version. A new step of the cluster needs an entry in
`CLUSTER_VERBS` and a case in `Player._change` (player.py). Both need a line in that README.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from fakebroker.errors import ConfigError
from fakebroker.protocol.releases import NEWEST, RELEASES, Release, release

COMPARED = tuple(each for each in RELEASES if each >= (4, 0))
"""The releases whose results a transcript states, oldest first. A transcript with `as_version` has results for one."""

_COLUMN = 40
_KAFKA_20268 = Release(4, 3)
_EPOCH = re.compile(r"\b(epoch|at|generation) ([1-9]\d*)")


class TranscriptError(Exception):
    """A transcript cannot be parsed or run; the message has file, line, value and expectation."""


Results = tuple[str, ...]
"""What a step prints: its own result, "" for none, then the indented lines, the answers to earlier requests."""


def _one_lower(results: Results) -> Results:
    """Return results of a consumer group with the epochs of releases before 4.3, which begin with 1 instead of 2."""
    return tuple(_EPOCH.sub(lambda found: f"{found[1]} {max(1, int(found[2]) - 1)}", line) for line in results)


class ReleaseRange(NamedTuple):
    """Releases from one to another, both included: `[4.0-4.1]` in a file."""

    first: Release
    last: Release

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


@dataclass(frozen=True, slots=True)
class Step:
    """One line with a request or a change of the cluster.

    Attributes:
        place: File and line, for errors.
        command: The line without the expected result.
        actor: The member that sends the request, or a range of members, `M[1-9]`; None for a step of the cluster.
        verb: The kind of step, a key of `MEMBER_VERBS` or `CLUSTER_VERBS`.
        words: Arguments without a name: partitions, assignments, members.
        options: The values of `name=value`, parsed; times in milliseconds. Flags are True.
        version: The version of the request; None for the version in `REQUESTS`.
        results: The expected results, by range of releases; None stands for all other releases.
        has_lower_epochs: Whether epochs are one lower before 4.3 (`first_epoch=2`).
    """

    place: str
    command: str
    actor: str | None
    verb: str
    words: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    version: int | None = None
    results: Mapping[ReleaseRange | None, Results] = field(default_factory=dict, compare=False)
    has_lower_epochs: bool = False

    @property
    def request(self) -> tuple[str, int]:
        """The API of the request, and its version."""
        api, newest = REQUESTS[self.verb]
        return api, newest if self.version is None else self.version

    def expected(self, release: Release = NEWEST) -> Results:
        """Return the expected results on a release. Releases newer than `NEWEST` have its results."""
        for each, results in self.results.items():
            if each is not None and each.first <= release <= each.last:
                return results
        return self.of_newest(self.results[None], release)

    def of_newest(self, newest: Results, release: Release) -> Results:
        """Return the results of a release for which the step has no results, derived from the newest results."""
        return _one_lower(newest) if self.has_lower_epochs and release < _KAFKA_20268 else newest


@dataclass(frozen=True, slots=True)
class Transcript:
    """A transcript.

    Attributes:
        name: The name of its file without the ending.
        lines: Steps; and the lines that are copied (head, comments, empty lines), as text.
        brokers: The number of brokers.
        topics: Partition counts of topics.
        config: Broker settings, by Kafka's names.
        as_version: The release of Kafka that the brokers emulate; None for the newest.
        proposals: Experimental protocol extensions of the brokers.
        is_core_only: Whether the transcript is not run over TCP, because that takes too long (`target=core`).
    """

    name: str
    lines: tuple[Step | str, ...]
    brokers: int
    topics: dict[str, int]
    config: dict[str, object]
    as_version: str | None
    proposals: tuple[str, ...] = ()
    is_core_only: bool = False

    @property
    def steps(self) -> list[Step]:
        return [line for line in self.lines if isinstance(line, Step)]

    @property
    def releases(self) -> tuple[Release, ...]:
        """The releases that the results are for, oldest first: those that have the versions of all requests."""
        if self.as_version is not None:
            return (release(self.as_version),)
        if self.proposals:  # Only the newest release has them.
            return (NEWEST,)
        requests = {step.request for step in self.steps if step.verb in REQUESTS}
        # Versions of the 2010s are tested as well, although 4.0 has removed them; a broker of the tests still answers.
        return tuple(
            each
            for each in COMPARED
            if all(version <= RELEASES[each][api].last for api, version in requests if api in RELEASES[each])
        )

    @property
    def uses_empty_group(self) -> bool:
        """Whether it stores something in the group "", which cannot have another name."""
        return any(step.options.get("group") == '""' and step.verb in ("commit", "join") for step in self.steps)

    def expected(self, release: Release) -> list[Results]:
        """Return the expected results of all steps on a release."""
        return [step.expected(release) for step in self.steps]

    def text(self, results: Mapping[Release, Sequence[Results]]) -> str:
        """Return the file of the transcript with results.

        Args:
            results: The results of all steps, by release, oldest first.
        """
        *_, newest = results.values()
        lines: list[str] = []
        index = 0
        for line in self.lines:
            if isinstance(line, str):
                lines.append(line)
                continue
            lines += _block(line.command, newest[index])
            differing: list[tuple[ReleaseRange, Results]] = []
            for each, found in results.items():
                if found[index] == line.of_newest(newest[index], each):
                    continue
                if differing and differing[-1][1] == found[index] and _adjoins(differing[-1][0].last, each, results):
                    differing[-1] = ReleaseRange(differing[-1][0].first, each), found[index]
                else:
                    differing.append((ReleaseRange(each, each), found[index]))
            for where, (outcome, *answers) in differing:
                lines.append(result_line(f"  [{where}]", outcome))
                lines += [f"  [{where}]{answer}" for answer in answers]
            index += 1
        return "\n".join(lines) + "\n"


def _adjoins(before: Release, after: Release, releases: Mapping[Release, object]) -> bool:
    known = list(releases)
    return known.index(after) == known.index(before) + 1


def _block(command: str, results: Results) -> list[str]:
    outcome, *answers = results
    return [result_line(command, outcome), *answers]


def result_line(command: str, outcome: str) -> str:
    """Return the line of a step or an answer. A result that is not empty is appended after an arrow."""
    return f"{command:<{_COLUMN}} -> {outcome}" if outcome else command


@dataclass(frozen=True, slots=True)
class _Grammar:
    """The arguments of a verb.

    Attributes:
        options: Names of the arguments `name=value`.
        flags: Names of the arguments without a value.
        word: Pattern of the arguments without a name; "" if there are none.
        word_form: Description of these arguments, for errors.
        needs: Options that are required.
    """

    options: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    word: str = ""
    word_form: str = "no further word"
    needs: tuple[str, ...] = ()


_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PARTITION = r"[a-z][\w.]*-\d+"
_GROUP = r"[a-z]\w*"
_NAME = r"[A-Z][A-Za-z0-9]*"
_RANGE = r"\[\d+-\d+\]"
_IDENTITY = ("as", "static", "group", "broker")
_FAILOVER_OPTIONS = ("load", "lose_tail", "stale")
_FAILOVER_FLAGS = ("load_fails", "lose_all", "zombie")

_PRODUCER = ("id", "pid", "epoch", "broker", "in")
_TRANSACTIONAL_ID = r'[a-z][\w-]*|""'

_JOIN = ("type", "protocols", "topics", "meta", "owns", "session", "rebalance")

MEMBER_VERBS = {
    "join": _Grammar((*_IDENTITY, *_JOIN)),
    "sync": _Grammar(
        (*_IDENTITY, "gen", "type", "protocol"), (), rf"({_NAME}(#\d+)?|unknown)=[\w,-]+", "a member's assignment, A=a1"
    ),
    "beat": _Grammar((*_IDENTITY, "gen")),
    "leave": _Grammar(
        _IDENTITY, (), rf"({_NAME}(#\d+)?|unknown)?(@\w+)?", "a member: A, A@instance, @instance, unknown"
    ),
    "commit": _Grammar(
        (*_IDENTITY, "gen", "metadata", "epoch", "retention"),
        (),
        rf"{_PARTITION}=-?\d+",
        "a partition's offset, news-0=5",
    ),
    "fetch": _Grammar(("group", "broker", "as", "gen"), ("stable", "member"), _PARTITION, "a partition, news-0"),
    "find": _Grammar(("group", "broker")),
    "describe": _Grammar(("group", "broker"), ("operations",), rf'{_GROUP}|""', "a group's name"),
    "list": _Grammar(("group", "broker", "states", "types")),
    "delete": _Grammar(("group", "broker"), (), rf'{_GROUP}|""', "a group's name"),
    "uncommit": _Grammar(("group", "broker"), (), _PARTITION, "a partition, news-0"),
    "come": _Grammar((*_IDENTITY, *_JOIN)),
    "register": _Grammar(("as", "group", "broker", "topics", "strategy", "session")),
    "batch": _Grammar(
        ("group", "broker", *_JOIN),
        (),
        rf"{_NAME}({_RANGE})?(@[\w*]+)?|@\w+({_RANGE})?",
        "a member that joins, A or A@instance, or one that is expected, @instance",
    ),
}
MEMBER_VERBS |= {
    "init": _Grammar((*_PRODUCER, "timeout"), ("resume",)),
    "add": _Grammar(_PRODUCER, ("verify",), rf"(_\w+-\d+|{_PARTITION})", "a partition, news-0"),
    "add-offsets": _Grammar((*_PRODUCER, "group")),
    "txn-commit": _Grammar(
        (*_IDENTITY, *_PRODUCER, "gen", "metadata"), (), rf"{_PARTITION}=-?\d+", "a partition's offset, news-0=5"
    ),
    "write": _Grammar(
        (*_PRODUCER, "seq", "acks"), ("plain", "control"), rf"{_PARTITION}=[\w,]+", "a partition's values, news-0=a,b"
    ),
    "end": _Grammar(_PRODUCER, (), "commit|abort", "commit or abort"),
    "locate": _Grammar(_PRODUCER),
    "read": _Grammar(("from", "min", "broker"), ("committed", "wait"), _PARTITION, "a partition, news-0"),
    "offset": _Grammar(("at", "broker"), ("committed",), _PARTITION, "a partition, news-0"),
    "producers": _Grammar(("broker",), (), _PARTITION, "a partition, news-0"),
    "transactions": _Grammar(("states", "pids", "duration", "pattern", "broker")),
    "transaction": _Grammar(("broker",), (), _TRANSACTIONAL_ID, "a transactional id"),
    "mark": _Grammar((*_PRODUCER, "coordinator", "tv"), ("commit",), _PARTITION, "a partition, news-0"),
    "trim": _Grammar(("broker",), (), rf"{_PARTITION}=-?\d+", "a partition's offset, news-0=5"),
    "features": _Grammar(("broker",)),
    "store": _Grammar(
        ("pid", "epoch", "state"), (), _TRANSACTIONAL_ID, "a transactional id, and partitions", needs=("state",)
    ),
}
MEMBER_VERBS |= {
    "consume": _Grammar((*_IDENTITY, "epoch", "topics", "regex", "owns", "timeout", "assignor", "rack"), ("full",)),
    "consumers": _Grammar(("group", "broker"), ("operations",), rf'{_GROUP}|""', "a group's name"),
    "store-member": _Grammar((*_IDENTITY, "epoch", "state"), (), _PARTITION, "a partition, news-0", needs=("state",)),
}
REQUESTS: Mapping[str, tuple[str, int]] = {
    "join": ("JoinGroup", 9),
    "batch": ("JoinGroup", 10),
    "register": ("RewriteJoinGroup", 0),
    "sync": ("SyncGroup", 5),
    "beat": ("Heartbeat", 4),
    "leave": ("LeaveGroup", 5),
    "commit": ("OffsetCommit", 9),  # the newest with topic names
    "fetch": ("OffsetFetch", 9),  # the newest with topic names
    "find": ("FindCoordinator", 6),
    "describe": ("DescribeGroups", 6),
    "list": ("ListGroups", 5),
    "delete": ("DeleteGroups", 2),
    "uncommit": ("OffsetDelete", 0),
    "txn-commit": ("TxnOffsetCommit", 5),
    "init": ("InitProducerId", 5),
    "add": ("AddPartitionsToTxn", 3),  # the newest of clients
    "add-offsets": ("AddOffsetsToTxn", 4),
    "write": ("Produce", 12),  # the newest with topic names
    "store": ("Produce", 12),
    "store-member": ("Produce", 12),
    "end": ("EndTxn", 5),
    "locate": ("FindCoordinator", 6),
    "read": ("Fetch", 12),
    "offset": ("ListOffsets", 10),
    "producers": ("DescribeProducers", 0),
    "transactions": ("ListTransactions", 2),
    "transaction": ("DescribeTransactions", 0),
    "mark": ("WriteTxnMarkers", 2),
    "trim": ("DeleteRecords", 2),
    "features": ("ApiVersions", 4),
    "consume": ("ConsumerGroupHeartbeat", 1),
    "consumers": ("ConsumerGroupDescribe", 1),
}
"""The API of each step of a member, and the version of a request without `v...`; `come` sends those of a client."""

CLUSTER_VERBS = {
    "at": _Grammar((), (), r"\+\d+(ms|s|m|h|d)", "a time since the start, +3s"),
    "group": _Grammar((), (), _GROUP, "a group's name"),
    "move": _Grammar(("to", "group", *_FAILOVER_OPTIONS), _FAILOVER_FLAGS, needs=("to",)),
    "work": _Grammar(("group",)),
    "loaded": _Grammar(),
    "unzombie": _Grammar(),
    "stop": _Grammar(("broker", *_FAILOVER_OPTIONS), (*_FAILOVER_FLAGS, "no_election"), needs=("broker",)),
    "start": _Grammar(("broker", *_FAILOVER_OPTIONS), _FAILOVER_FLAGS, needs=("broker",)),
    "delete": _Grammar(("topic",), needs=("topic",)),
    "state": _Grammar((), (), _GROUP, "a group's name"),
    "do": _Grammar((), (), r"[a-z_.]+", "an event with its arguments, group.hold group_id=g"),
}


def _integer(text: str) -> int:
    if not re.fullmatch(r"-?\d+", text):
        raise ValueError("a whole number")
    return int(text)


def duration_ms(text: str) -> int:
    """Parse a time such as 500ms, 3s, 10m or 7d; return milliseconds."""
    match = re.fullmatch(r"(\d+)(ms|s|m|h|d)", text)
    if match is None:
        raise ValueError("a time, such as 500ms, 3s, 10m or 7d")
    return int(match[1]) * _UNITS_MS[match[2]]


def _or_keyword(word: str, read: Callable[[str], int]) -> Callable[[str], int | None]:
    def read_or(text: str) -> int | None:
        try:
            return None if text == word else read(text)
        except ValueError as error:
            raise ValueError(f"{error}, or {word!r}") from None

    return read_or


def _list(text: str) -> list[str]:
    return text.split(",")


def _epoch(text: str) -> int | str:
    return text if re.fullmatch(r"e([+-]\d+)?", text) else _integer(text)


def relative(epoch: int | str, current: int) -> int:
    """Return an epoch of a step, which may be relative to the current one, such as `e-1`."""
    return epoch if isinstance(epoch, int) else current + int(epoch.removeprefix("e") or 0)


def _timeout(text: str) -> int:
    """Parse a time, or a number of milliseconds, which may be invalid."""
    return int(text) if re.fullmatch(r"-?\d+", text) else duration_ms(text)


_PARSERS: dict[str, Callable[[str], Any]] = {
    "acks": _integer,
    "broker": _integer,
    "coordinator": _integer,
    "duration": duration_ms,
    "epoch": _epoch,
    "from": _integer,
    "gen": _epoch,
    "load": _or_keyword("hold", duration_ms),
    "lose_tail": _integer,
    "min": _integer,
    "pid": _integer,
    "pids": lambda text: list(map(_integer, _list(text))),
    "protocols": _list,
    "rebalance": duration_ms,
    "retention": duration_ms,
    "seq": _integer,
    "session": duration_ms,
    "stale": duration_ms,
    "states": _list,
    "timeout": _timeout,
    "to": _or_keyword("none", _integer),
    "topics": _list,
    "tv": _integer,
    "types": _list,
}


def folder() -> Path:
    """Return the folder of the transcripts: in the installed package, or in a checkout."""
    installed = Path(__file__).parent / "transcripts"
    return installed if installed.exists() else Path(__file__).parents[2] / "scenarios" / "transcripts"


def transcript_files(where: Path | None = None) -> list[Path]:
    """Return the files of all transcripts, ordered by name."""
    return sorted((where or folder()).glob("*.txt"))


def parse(text: str, name: str) -> Transcript:
    """Parse a transcript.

    Args:
        text: The contents of the file.
        name: The name of the file, for errors.

    Raises:
        TranscriptError: A line cannot be parsed, or the head has no source.
    """
    lines: list[Step | str] = []
    settings: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        place = f"{name}:{number}"
        if line.startswith("cluster:"):
            settings = dict(_setting(word, place) for word in line.split()[1:])
        if not line or line.startswith(("#", "cluster:")):
            lines.append(line)
        elif line[0].isspace():
            _add_result(lines, line, place)
        else:
            lines.append(_step(line, place))
    head = [line for line in lines if isinstance(line, str) and line.startswith("#")]
    if not any(line.startswith("# Source:") for line in head):
        raise TranscriptError(f"{name}:1: expected a line '# Source: ...' in the head")
    brokers, topics = settings.pop("brokers", "1"), settings.pop("topics", "news:1")
    as_version, proposals = settings.pop("as_version", None), settings.pop("proposals", "")
    first_epoch = settings.pop("first_epoch", "")
    if first_epoch not in ("", "2"):
        raise TranscriptError(f"{name}: first_epoch={first_epoch}: expected 2")
    if first_epoch:
        lines = [replace(each, has_lower_epochs=True) if isinstance(each, Step) else each for each in lines]
    target = settings.pop("target", "")
    if target not in ("", "core"):
        raise TranscriptError(f"{name}: target={target}: expected 'core'")
    return Transcript(
        name.removesuffix(".txt"),
        tuple(lines),
        _brokers(brokers, name),
        _topics(topics, name),
        dict(settings),
        as_version,
        tuple(_list(proposals)) if proposals else (),
        target == "core",
    )


_RANGE_OF_RELEASES = re.compile(r"  \[([\d.]+)(?:-([\d.]+))?\](.*)")


def _add_result(lines: list[Step | str], line: str, place: str) -> None:
    """Add an indented line to the results of the step before it."""
    index = max((index for index, each in enumerate(lines) if isinstance(each, Step)), default=-1)
    if index < 0:
        raise TranscriptError(f"{place}: {line!r}: expected a step before the answers")
    step = lines[index]
    assert isinstance(step, Step)
    matched = _RANGE_OF_RELEASES.fullmatch(line)
    where, answer = None, line
    if matched is not None:
        try:
            where = ReleaseRange(release(matched[1]), release(matched[2] or matched[1]))
        except ConfigError as error:
            raise TranscriptError(f"{place}: {error}") from None
        answer = matched[3]
    before = step.results.get(where)
    if before is None:  # the first line of a range: the result of the step
        outcome = answer.strip()
        results: Results = (outcome.removeprefix("-> "),)
    else:
        results = (*before, answer)
    lines[index] = replace(step, results={**step.results, where: results})


def _setting(word: str, place: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not (key and equals and value):
        raise TranscriptError(f"{place}: {word!r}: expected a setting, name=value")
    return key, value


def _brokers(text: str, name: str) -> int:
    try:
        return _integer(text)
    except ValueError as error:
        raise TranscriptError(f"{name}: brokers={text}: expected {error}") from None


def _topics(text: str, name: str) -> dict[str, int]:
    if not re.fullmatch(r"[\w.]+:\d+(,[\w.]+:\d+)*", text):
        raise TranscriptError(f"{name}: topics={text}: expected names and partition counts, news:2,sport:1")
    return {topic: int(partitions) for topic, partitions in (each.split(":") for each in text.split(","))}


def _step(line: str, place: str) -> Step:
    command, _, outcome = line.partition(" -> ")
    command = command.rstrip()
    match = re.fullmatch(rf"(?:({_NAME}(?:{_RANGE})?): +)?(\S+)(.*)", command)
    verbs = MEMBER_VERBS if match and match[1] else CLUSTER_VERBS
    if match is None or match[2] not in verbs:
        whose = "of a member" if verbs is MEMBER_VERBS else "of the cluster"
        raise TranscriptError(f"{place}: {command!r}: expected a step {whose}: {', '.join(verbs)}")
    actor, verb, rest = match.groups()
    step = Step(place, command, actor, verb, results={None: (outcome.strip(),)})
    return _parse_arguments(step, verbs[verb], rest.split())


def _parse_arguments(step: Step, grammar: _Grammar, tokens: list[str]) -> Step:
    words: list[str] = []
    options: dict[str, Any] = {}
    version = None
    for token in tokens:
        key, equals, value = token.partition("=")
        if equals and step.verb == "do":
            options[key] = _event_argument(value)
        elif equals and key in grammar.options:
            options[key] = _option(step, key, value)
        elif token in grammar.flags:
            options[token] = True
        elif step.actor and re.fullmatch(r"v\d+", token):
            version = int(token[1:])
        elif grammar.word and re.fullmatch(grammar.word, token):
            words.append(token)
        else:
            raise TranscriptError(f"{step.place}: {token!r} after {step.verb!r}: expected {_expected(step, grammar)}")
    for key in grammar.needs:
        if key not in options:
            raise TranscriptError(f"{step.place}: {step.command!r}: expected {key}=")
    if step.verb in ("at", "group", "state", "do", "end") and len(words) != 1:
        raise TranscriptError(f"{step.place}: {step.command!r}: expected {grammar.word_form}")
    return replace(step, words=tuple(words), options=options, version=version)


def expand_range(text: str) -> list[str]:
    """Expand a range, with `*` for the number: `M[1-2]@m*` is `M1@m1` and `M2@m2`."""
    match = re.fullmatch(r"(.*)\[(\d+)-(\d+)\](.*)", text)
    if match is None:
        return [text]
    return [f"{match[1]}{n}{match[4].replace('*', str(n))}" for n in range(int(match[2]), int(match[3]) + 1)]


def expand_step(step: Step) -> list[Step]:
    """Expand the step of a range of members into one step for each member. In options, `*` becomes its number."""
    if step.actor is None:
        return [step]
    names = expand_range(step.actor)
    if names == [step.actor]:
        return [step]
    steps = []
    for name in names:
        number = name.removeprefix(step.actor.partition("[")[0])
        options = {key: _with_number(value, number) for key, value in step.options.items()}
        steps.append(replace(step, actor=name, options=options))
    return steps


def _with_number(value: Any, number: str) -> Any:
    return value.replace("*", number) if isinstance(value, str) else value


def _event_argument(value: str) -> Any:
    """Parse a number, true, false or null; anything else is text."""
    try:
        return json.loads(value)
    except ValueError:
        return value


def _option(step: Step, key: str, value: str) -> Any:
    try:
        return _PARSERS.get(key, str)(value)
    except ValueError as error:
        raise TranscriptError(f"{step.place}: {key}={value}: expected {error}") from None


def _expected(step: Step, grammar: _Grammar) -> str:
    known = [f"{key}=" for key in grammar.options] + list(grammar.flags) + (["a version, v3"] if step.actor else [])
    return "; or ".join([grammar.word_form, *([f"one of {', '.join(known)}"] if known else [])])
