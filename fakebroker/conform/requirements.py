"""What a transcript needs of a cluster: brokers, settings, time, and what only a fake cluster can do. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from fakebroker.conform.members import REBALANCE_MS, SESSION_MS
from fakebroker.conform.transcript import COMPARED, REQUESTS, Step, Transcript, duration_ms, expand_step
from fakebroker.protocol.registry import API_BY_NAME
from fakebroker.protocol.releases import Release
from fakebroker.protocol.schema import Versions

COORDINATION_APIS = {api: API_BY_NAME[api].key for api, _ in REQUESTS.values() if api in API_BY_NAME}
"""The keys of the APIs that transcripts use, by their names."""

AUTHORIZER = "authorizer.class.name"

WITHOUT_WAITS: Mapping[str, str] = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
}
"""The settings that most transcripts need and that are not Kafka's defaults."""

DEFAULTS: Mapping[str, str] = {
    **WITHOUT_WAITS,
    AUTHORIZER: "",
    "allow.everyone.if.no.acl.found": "false",
    "group.max.size": "2147483647",
    "group.min.session.timeout.ms": "6000",
    "group.max.session.timeout.ms": "1800000",
    "group.consumer.max.size": "2147483647",
    "group.consumer.session.timeout.ms": "45000",
    "group.consumer.heartbeat.interval.ms": "5000",
    "group.consumer.migration.policy": "bidirectional",
    "group.consumer.regex.refresh.interval.ms": "600000",
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "offset.metadata.max.bytes": "4096",
    "offsets.retention.minutes": "10080",
    "offsets.retention.check.interval.ms": "600000",
    "transaction.partition.verification.enable": "true",
    "transaction.max.timeout.ms": "900000",
    "transactional.id.expiration.ms": "604800000",
}
"""The settings that a transcript may notice, with the values that it expects unless its head sets other values.

The values are Kafka's defaults, except for `WITHOUT_WAITS`. A cluster need not have other settings that a head
contains: topics are created with the replicas that they should have, and names are chosen by their coordinator.
"""

_ONLY_FAKE = {
    "load_fails": "a coordinator that fails to load",
    "load": "a coordinator that loads slowly",
    "lose_all": "a coordinator that loses its records",
    "lose_tail": "a coordinator that loses its last records",
    "zombie": "a coordinator that goes on after its successor was elected",
    "stale": "brokers that do not know of an election yet",
}
_FEATURES = {
    "group.version": (1, ("consume", "consumers")),
    "transaction.version": (2, ("init", "write", "end", "txn-commit")),
}
"""The levels of features that transcripts expect, as in a new cluster, and the steps that depend on the levels."""

KAFKAS_MIN_SESSION_MS = 6_000
"""Kafka's default of `group.min.session.timeout.ms`."""

_SHORTEST_GAP_MS = 400
_ACL_COMMANDS = {"acls.allow", "acls.deny", "acls.remove"}
_COMMANDS = {"topic.create", "topic.create_partitions", "broker.stop", *_ACL_COMMANDS}


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a cluster.

    Attributes:
        release: The release whose results are expected.
        brokers: The number of brokers.
        settings: The settings of a broker, by Kafka's names; None for a value that is not shown.
        versions: The versions that it supports, by API key.
        features: The finalized features with their levels; empty if they are not known.
        changes_cluster: Whether partitions of internal topics may be moved.
        stops_brokers: Whether brokers can be stopped and started.
        longest_s: How long the times of a transcript may be.
    """

    release: Release
    brokers: int
    settings: Mapping[str, str | None] = field(default_factory=dict)
    versions: Mapping[int, Versions] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    changes_cluster: bool = False
    stops_brokers: bool = False
    longest_s: float = 75


def needs(transcript: Transcript, facts: Facts) -> list[str]:
    """Return what a transcript needs and a cluster does not have, as sentences; none if it can be played."""
    found: dict[str, None] = {f"needs the proposal {each}": None for each in transcript.proposals}
    if transcript.as_version is not None and facts.release not in transcript.releases:
        found[f"for {transcript.as_version} only"] = None
    for step in transcript.steps:
        found |= dict.fromkeys(_needs_of_step(transcript, step, facts))
    if facts.brokers < transcript.brokers:
        found[f"needs {transcript.brokers} brokers"] = None
    for feature, (level, verbs) in _FEATURES.items():
        is_used = transcript.as_version is None and any(step.verb in verbs for step in transcript.steps)
        if is_used and facts.features and facts.features.get(feature, 0) < level:
            found[f"needs {feature}={level}"] = None
    if transcript.uses_empty_group and not facts.changes_cluster:
        found['needs --change-cluster: it commits offsets of the group ""'] = None
    if _is_too_precise(transcript):
        found["needs a clock that stands still during a step"] = None
    duration_s = duration_of(transcript)
    if duration_s > facts.longest_s:
        found[f"takes {_duration(duration_s)}"] = None
    for name, value in DEFAULTS.items():
        actual = facts.settings.get(name)
        expected = str(transcript.config.get(name, value))
        if actual is not None and not accepts(transcript, name, actual):
            found[f"needs {name}={expected}"] = None
    return list(found)


def needs_anywhere(transcript: Transcript, longest_s: float) -> list[str]:
    """Return what a transcript needs beyond one broker with the settings in `DEFAULTS`."""
    found = needs(transcript, Facts(transcript.releases[-1], brokers=1, longest_s=longest_s))
    return [*found, *(f"needs {name}={value}" for name, value in transcript.config.items() if name in DEFAULTS)]


def playable_somewhere(transcripts: Iterable[Transcript], longest_s: float) -> list[Transcript]:
    """Return the transcripts that can be played on a large cluster of Kafka with the right settings."""
    large = Facts(COMPARED[-1], brokers=1_000, changes_cluster=True, longest_s=longest_s)
    return [each for each in transcripts if not needs(each, large)]


def _needs_of_step(transcript: Transcript, step: Step, facts: Facts) -> Iterable[str]:
    options = step.options
    match step.verb:
        case "move" | "stop" | "start":
            if options.get("load", 0) is None:
                yield "needs a coordinator that stays loading"
            for name, need in _ONLY_FAKE.items():
                if name in options and not (name == "load" and ("load_fails" in options or options["load"] is None)):
                    yield f"needs {need}"
            if step.verb != "move":
                if not facts.stops_brokers:
                    yield "needs brokers that stop"
                if step.verb == "stop" and facts.brokers > transcript.brokers and "no_election" not in options:
                    yield f"needs {transcript.brokers} brokers and no other one"
                if "no_election" in options and options["broker"] == 1:
                    yield "needs partitions without a coordinator"
            elif options["to"] is None:
                yield "needs partitions without a coordinator"
            elif not facts.changes_cluster:
                yield "needs --change-cluster: it moves a partition of __consumer_offsets"
        case "loaded":
            yield "needs a coordinator that stays loading"
        case "unzombie":
            yield f"needs {_ONLY_FAKE['zombie']}"
        case "state" | "register" | "come" | "work" | "batch":
            yield "needs a proposal"
        case "store" | "store-member":
            yield "needs records that a client writes to internal topics"
        case "do" if step.words[0] not in _COMMANDS:
            yield f"needs fakebroker: {step.words[0]}"
        case "do" if step.words[0] in _ACL_COMMANDS and not facts.changes_cluster:
            yield "needs --change-cluster: it adds ACLs"
        case "do" if step.words[0] == "broker.stop":
            if not facts.stops_brokers:
                yield "needs brokers that stop"
            if "load_ms" in options:
                yield f"needs {_ONLY_FAKE['load']}"
            if "lose_tail" in options:
                yield f"needs {_ONLY_FAKE['lose_tail']}"
        case verb if verb in REQUESTS:
            name, version = step.request
            api = API_BY_NAME[name]
            theirs = facts.versions.get(api.key) if facts.versions else api.versions
            if theirs is None:
                yield f"needs {api.name}"
            elif version not in theirs:
                yield f"needs {api.name} {version}"


def _is_too_precise(transcript: Transcript) -> bool:
    """Return whether times of a transcript are closer to each other than steps of real clusters take."""
    times = [0, *(duration_ms(step.words[0][1:]) for step in transcript.steps if step.verb == "at")]
    gaps = [after - before for before, after in pairwise(times) if before % 1000 != 999]
    return any(0 < gap < _SHORTEST_GAP_MS for gap in gaps)


def duration_of(transcript: Transcript) -> float:
    """Return how long the times of a transcript are, in seconds."""
    times = [duration_ms(step.words[0][1:]) for step in transcript.steps if step.verb == "at"]
    return max(times, default=0) / 1000


def _duration(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def accepts(transcript: Transcript, name: str, value: str) -> bool:
    """Return whether a transcript has the same results with this value of a setting of `DEFAULTS`."""
    expected = str(transcript.config.get(name, DEFAULTS[name]))
    if name == "group.coordinator.rebalance.protocols" and name not in transcript.config:
        return _plain(value) >= _plain(expected) or not _notices(transcript, name, value)  # Kafka adds share, streams
    if _plain(value) == _plain(expected):
        return True
    return name not in transcript.config and not _notices(transcript, name, value)


def _plain(value: str) -> set[str]:
    """Return the items of a list, or a single value."""
    return set(value.lower().replace(" ", "").split(","))


def _notices(transcript: Transcript, name: str, value: str) -> bool:
    """Return whether a setting can make a difference in a transcript whose head does not have it."""
    steps = [each for step in transcript.steps for each in expand_step(step)]
    joins = [each for each in steps if each.verb == "join"]
    consumes = [each for each in steps if each.verb == "consume"]
    match name:
        case "authorizer.class.name" | "allow.everyone.if.no.acl.found":
            return False  # The client of the run may do everything.
        case "group.initial.rebalance.delay.ms":
            return bool(joins)
        case "group.consumer.assignment.interval.ms":
            return bool(consumes)
        case "group.max.size":
            return len({each.actor for each in joins}) > int(value)
        case "group.consumer.max.size":
            return bool(consumes) and len({each.actor for each in [*joins, *consumes]}) > int(value)
        case "group.min.session.timeout.ms":
            # Shorter sessions than Kafka's default limit are refused, which a lower limit would change.
            tests_limit = any(each.options.get("session", SESSION_MS) < KAFKAS_MIN_SESSION_MS for each in joins)
            return tests_limit or session_factor(transcript, int(value)) is None
        case "group.max.session.timeout.ms":
            return any(each.options.get("session", SESSION_MS) > min(int(value), 1_800_000) for each in joins)
        case "group.consumer.regex.refresh.interval.ms":
            return any("regex" in each.options for each in consumes)
        case "group.coordinator.rebalance.protocols" | "group.consumer.session.timeout.ms":
            return bool(consumes)
        case "group.consumer.heartbeat.interval.ms":
            return bool(consumes)
        case "group.consumer.migration.policy":
            return bool(consumes) and bool(joins)
        case "offset.metadata.max.bytes":
            return any(len(each.options.get("metadata", "")) > int(value) for each in steps)
        case "offsets.retention.minutes":
            return duration_of(transcript) >= 60 * min(int(value), 10_080)
        case "offsets.retention.check.interval.ms":
            return False  # what expires, and when, is a matter of the retention
        case "transactional.id.expiration.ms":
            return duration_of(transcript) >= int(value) / 1000
        case "transaction.max.timeout.ms":
            return any(
                each.options.get("timeout", 60_000) > min(int(value), 900_000) for each in steps if each.verb == "init"
            )
        case "transaction.partition.verification.enable":
            return any(each.verb == "write" for each in steps)
    raise AssertionError(name)


def session_factor(transcript: Transcript, min_session_ms: int) -> int | None:
    """Return the factor for the times of a transcript on a broker that refuses short sessions.

    Returns:
        The factor; 1 if the times can stay as they are. None if the transcript cannot be slowed: it tests the shortest
        allowed session, or has times that are not multiplied (`group.initial.rebalance.delay.ms`, steps `consume` and
        `init`).
    """
    joins = [step for step in transcript.steps if step.verb == "join"]
    shortest_ms = min((step.options.get("session", SESSION_MS) for step in joins), default=SESSION_MS)
    factor = -(-min_session_ms // shortest_ms)
    if factor <= 1 or min_session_ms <= KAFKAS_MIN_SESSION_MS or not joins:
        return 1
    if shortest_ms < KAFKAS_MIN_SESSION_MS:
        return None  # It tests the limit.
    has_other_times = "group.initial.rebalance.delay.ms" in transcript.config or any(
        step.verb in ("consume", "init") for step in transcript.steps
    )
    return None if has_other_times else factor


def slowed(transcript: Transcript, factor: int) -> Transcript:
    """Return a transcript whose times are multiplied: of `at`, of sessions and of rebalances."""
    if factor == 1:
        return transcript
    lines: list[Step | str] = []
    joined: set[str | None] = set()
    for line in transcript.lines:
        if isinstance(line, Step) and line.verb == "at":
            line = replace(line, words=(f"+{duration_ms(line.words[0][1:]) * factor}ms",))
        elif isinstance(line, Step) and line.verb == "join":
            # A later join repeats the times of the first one.
            defaults = {} if line.actor in joined else {"session": SESSION_MS, "rebalance": REBALANCE_MS}
            joined.add(line.actor)
            times = {**defaults, **line.options}
            times = {name: times[name] * factor for name in ("session", "rebalance") if name in times}
            line = replace(line, options={**line.options, **times})
        lines.append(line)
    return replace(transcript, lines=tuple(lines))


@dataclass(slots=True)
class SettingsGroup:
    """Settings of brokers, and the transcripts that can be played with them."""

    settings: dict[str, str]
    transcripts: list[Transcript]


def settings_groups(transcripts: Iterable[Transcript]) -> list[SettingsGroup]:
    """Return the fewest groups of settings, so that each transcript can be played with one group; the largest first.

    Found greedily: each transcript gets into the first group whose settings it accepts, and that accepts its settings.
    """

    def own(transcript: Transcript) -> dict[str, str]:
        return {name: str(value) for name, value in transcript.config.items() if name in DEFAULTS}

    groups: list[SettingsGroup] = []
    for transcript in sorted(transcripts, key=lambda each: len(own(each))):
        settings = own(transcript)
        # With an authorizer, brokers need principals of their own, which a cluster for the other transcripts may lack.
        for group in groups if AUTHORIZER not in settings else ():
            merged = {**group.settings, **settings}
            values = {**DEFAULTS, **merged}
            members = [*group.transcripts, transcript]
            if all(accepts(each, name, values[name]) for each in members for name in merged) and all(
                accepts(transcript, name, values[name]) for name in WITHOUT_WAITS
            ):
                group.settings.update(settings)
                group.transcripts.append(transcript)
                break
        else:
            groups.append(SettingsGroup(settings, [transcript]))
    return sorted(groups, key=lambda group: -len(group.transcripts))


def properties(groups: Sequence[SettingsGroup]) -> str:
    """Return groups of settings as lines for `server.properties`; all begin with `WITHOUT_WAITS`."""
    parts = []
    for number, group in enumerate(groups, 1):
        settings = {**WITHOUT_WAITS, **group.settings}
        lines = [f"# {number}. {len(group.transcripts)} transcripts", *(f"{k}={v}" for k, v in settings.items())]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"
