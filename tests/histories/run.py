"""Plays random histories for some time, and prints the differences by kind, each with a shrunk history.

python -m tests.histories.run --release 4.4 --seconds 30 --seed 1
python -m tests.histories.run --fake --seconds 10
python -m tests.histories.run --play FILE
python -m tests.histories.run --keep FILE

Kept histories, `kept/*.txt`, are played first: they were shrunk from differences that are mended.
Known differences are in `known.txt`: a pattern of the kind, and the reason. After a known difference, the rest of the
history is not played. Exit status: 1 if a difference is not known or a kept history differs, else 0.
"""

import argparse
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed as seeded, settings

from fakebroker.cluster.call import error_codes
from fakebroker.kafka.jars import RELEASES
from fakebroker.kafka.process import ApacheKafka
from fakebroker.protocol.releases import RELEASES as VERSIONS, Release, release as parse_release
from tests.histories.drawing import ALONE, PROFILES, histories
from tests.histories.hash_order import have_no_order
from tests.histories.history import SHARED_TOPICS, History, from_text, is_alone, to_text
from tests.histories.play import Outcome, play, play_on_fake, record
from tests.histories.sides import BROKERS, STOPPED_BROKER, KafkaSide, created, created_internal, settings_of

KNOWN = Path(__file__).parent / "known.txt"
_ATTEMPTS = 3
"""A difference counts if the history differs in the same way each time."""

Player = Callable[[History], Outcome]


def known_kinds() -> dict[str, str]:
    """Return the patterns of known differences, with their reasons."""
    lines = KNOWN.read_text().splitlines() if KNOWN.exists() else []
    pairs = (line.split("  # ", 1) for line in lines if line and not line.startswith("#"))
    return {pattern.strip(): reason for pattern, reason in pairs}


def shrunk(history: History, kind: str, play_once: Player, until: float) -> History:
    """Return a shorter history with a difference of the same kind: without the steps that do not matter."""

    def differs(candidate: History) -> bool:
        if time.monotonic() > until:
            return False
        found = play_once(candidate).difference
        return found is not None and found.kind == kind

    size = max(1, len(history) // 2)
    while size:
        at = 0
        while at < len(history):
            candidate = history[:at] + history[at + size :]
            if candidate and differs(candidate):
                history = candidate
            else:
                at += size
        size = size // 2 if size > 1 else 0
    return history


@dataclass
class Found:
    """A kind of difference.

    Attributes:
        history: The shortest history, shrunk.
        shown: The difference as text.
        count: How many histories ended with it.
        known: The reason, if it is known.
    """

    history: History
    shown: str
    count: int = 1
    known: str | None = None


@dataclass
class Results:
    """What a run has found, by kind.

    Attributes:
        histories, answers: How many were played and compared.
        passing: Differences that did not happen again with the same history, by kind.
    """

    found: dict[str, Found] = field(default_factory=dict)
    histories: Counter[str] = field(default_factory=Counter)
    answers: int = 0
    passing: Counter[str] = field(default_factory=Counter)
    requests: Counter[str] = field(default_factory=Counter)

    @property
    def unknown(self) -> list[str]:
        return [kind for kind, each in self.found.items() if each.known is None]


class Turns:
    """Lets many histories be played at the same time, or one alone."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._playing = 0
        self._waiting_alone = 0

    @contextmanager
    def turn(self, *, alone: bool) -> Iterator[None]:
        with self._changed:
            if alone:
                self._waiting_alone += 1
                self._changed.wait_for(lambda: self._playing == 0)
                self._waiting_alone -= 1
                self._playing = -1
            else:
                self._changed.wait_for(lambda: self._playing >= 0 and not self._waiting_alone)
                self._playing += 1
        try:
            yield
        finally:
            with self._changed:
                self._playing = 0 if alone else self._playing - 1
                self._changed.notify_all()


class Runner:
    """Plays histories in threads, until the time is over.

    Args:
        play_once: Plays a history.
        release: Whose versions are drawn.
        until: When to end, by the monotonic clock.
        shrink_s: How long one difference is shrunk, at most.
    """

    def __init__(self, play_once: Player, release: Release, until: float, shrink_s: float) -> None:
        self.results = Results()
        self._play, self._release, self._until, self._shrink_s = play_once, release, until, shrink_s
        self._known = known_kinds()
        self._lock = threading.Lock()
        self.failure: BaseException | None = None

    def run(self, seed: int, threads: int, profiles: Sequence[str]) -> None:
        """Run all threads. Each draws its own histories."""
        running = []
        for number in range(threads):
            # Each thread begins with another profile. One thread has the histories that are played alone.
            turned = [*profiles[number % len(profiles) :], *profiles[: number % len(profiles)]]
            mine = [each for each in turned if number == 0 or each not in ALONE]
            running.append(threading.Thread(target=self._search, args=(seed * 1_000 + number, mine)))
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()

    def _search(self, seed: int, profiles: Sequence[str]) -> None:
        try:
            for round_number in self._rounds():
                for profile in profiles:
                    self._draw(seed + 7919 * round_number, profile)
        except BaseException as error:
            # The whole run ends: what was not compared is not the same.
            self._until, self.failure = 0, error

    def _rounds(self) -> Iterator[int]:
        number = 0
        while time.monotonic() < self._until:
            yield number
            number += 1

    def _draw(self, seed: int, profile: str) -> None:
        """Draw and play some histories of a profile."""

        @seeded(seed)
        @settings(
            max_examples=2 if profile in ALONE else 10,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(histories(self._release, profile))
        def one(history: History) -> None:
            if time.monotonic() < self._until:
                self._examine(profile, history)

        one()

    def _examine(self, profile: str, history: History) -> None:
        outcome = self._play(history)
        with self._lock:
            self.results.histories[profile] += 1
            self.results.answers += outcome.compared
            self.results.requests.update(step.api for step in history if step.client)
        difference = outcome.difference
        if difference is None:
            return
        with self._lock:
            if (seen := self.results.found.get(difference.kind)) is not None:
                seen.count += 1
                return
        reason = next((why for pattern, why in self._known.items() if re.search(pattern, difference.kind)), None)
        if reason is None:
            for _ in range(_ATTEMPTS - 1):
                again = self._play(history).difference
                if again is None or again.kind != difference.kind:
                    with self._lock:
                        self.results.passing[difference.kind] += 1
                    return
        shown = str(difference)
        with self._lock:
            if difference.kind in self.results.found:
                self.results.found[difference.kind].count += 1
                return
            self.results.found[difference.kind] = Found(history[: outcome.at + 1], shown, known=reason)
        if reason is None:
            print(f"differs: {difference.kind}", flush=True)
            shorter = shrunk(history[: outcome.at + 1], difference.kind, self._play, time.monotonic() + self._shrink_s)
            with self._lock:
                self.results.found[difference.kind].history = shorter


def report(results: Results, release: str, seconds: float, seed: int) -> str:
    """Return what was found, as Markdown."""
    duration = f"{seconds / 60:.0f} minutes" if seconds >= 60 else f"{seconds:.0f} s"
    played, requests = sum(results.histories.values()), sum(results.requests.values())
    lines = [
        "# Random histories",
        "",
        "`make histories` sends random requests to Apache Kafka and to a fake cluster.",
        "Each answer is compared, field by field.",
        "A history ends at its first difference.",
        "",
        f"Apache Kafka {RELEASES.get(release, release)}, {duration}, seed {seed}: {played} histories, "
        f"{requests} requests of {len(results.requests)} APIs, {results.answers} answers compared.",
        "",
        "| histories | number |",
        "|---|---|",
        *(f"| {name} | {count} |" for name, count in sorted(results.histories.items())),
        "",
        "## Differences",
        "",
    ]
    if not results.found:
        lines += ["None.", ""]
    for each in sorted(results.found.values(), key=lambda found: (found.known is not None, -found.count)):
        times = f"{each.count} {'history' if each.count == 1 else 'histories'}"
        lines += [f"- {times}: `{each.shown}`" + (f". Known: {each.known}" if each.known is not None else ""), ""]
        if each.known is None:
            lines += ["```text", to_text(each.history), "```", ""]
    if results.passing:
        passing = [f"- {count} x `{kind}`" for kind, count in results.passing.items()]
        lines += ["Not again with the same history, so by chance or because of the time:", "", *passing, ""]
    missing = sorted(
        {name for names in PROFILES.values() for name in names if name[0].isupper()} - set(results.requests)
    )
    if missing:
        lines += [f"No requests of {', '.join(missing)}.", ""]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.histories.run")
    parser.add_argument("--release", default="4.4")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, help="another one each time by default")
    parser.add_argument("--threads", type=int, default=12)
    parser.add_argument("--shrink-seconds", type=float, default=60)
    where, what = parser.add_mutually_exclusive_group(), parser.add_mutually_exclusive_group()
    where.add_argument("--fake", action="store_true")
    where.add_argument("--bootstrap")
    what.add_argument("--play", type=Path)
    what.add_argument("--keep", type=Path)
    what.add_argument("--report", type=Path)
    parser.add_argument("--profiles", default=",".join(PROFILES))
    options = parser.parse_args(arguments)
    if options.fake and options.keep is not None:
        parser.error("--keep adds Kafka's answers: expected no --fake")
    for name in options.profiles.split(","):
        if name not in PROFILES:
            parser.error(f"--profiles {name!r}: expected some of {', '.join(PROFILES)}")
    release = parse_release(options.release)
    seed = int(time.time()) if options.seed is None else options.seed
    with ExitStack() as stack:
        if options.fake:
            play_once: Player = partial(play_on_fake, release=release)
        else:
            if options.bootstrap:
                host, _, port = options.bootstrap.partition(":")
                address = host, int(port)
            else:
                address = start_kafka(stack, options.release)
            turns = Turns()

            def play_once(history: History) -> Outcome:
                with turns.turn(alone=is_alone(history)):
                    return play(history, release, address)

            if options.keep is not None:
                return keep(options.keep, release, address)
        if options.play is not None:
            outcome = play_once(from_text(options.play.read_text()))
            print(said(outcome))
            return int(outcome.difference is not None)
        with ThreadPoolExecutor(options.threads) as pool:
            known = [each for each in kept() if is_known_to(release, from_text(each.read_text()))]
            outcomes = list(pool.map(partial(repeated, play_once), [from_text(each.read_text()) for each in known]))
        differing = [each for each, outcome in zip(known, outcomes, strict=True) if show(each, outcome)]
        runner = Runner(play_once, release, time.monotonic() + options.seconds, options.shrink_seconds)
        runner.run(seed, options.threads, options.profiles.split(","))
    text = report(runner.results, options.release, options.seconds, seed)
    if options.report is not None:
        options.report.write_text(text)
    print(text, end="")
    if runner.failure is not None:
        raise runner.failure
    return int(bool(runner.results.unknown or differing))


def repeated(play_once: Player, history: History) -> Outcome:
    """Play a history until it has no difference, `_ATTEMPTS` times at most. Return the last outcome."""
    outcome = play_once(history)
    for _ in range(_ATTEMPTS - 1):
        if outcome.difference is None:
            break
        outcome = play_once(history)
    return outcome


def said(outcome: Outcome) -> str:
    """Return an outcome as a line of text."""
    return f"step {outcome.at}: {outcome.difference}" if outcome.difference else f"same: {outcome.compared} answers"


def keep(path: Path, release: Release, address: tuple[str, int]) -> int:
    """Play the history of a file. If nothing differs, add Kafka's answers to the file. Return the exit status."""
    steps = "".join(f"{line}\n" for line in path.read_text().splitlines() if not line.startswith("="))
    outcome, recording = record(from_text(steps), release, address)
    print(said(outcome))
    if outcome.difference is None:
        path.write_text(steps + recording.text)
    return int(outcome.difference is not None)


def is_known_to(release: Release, history: History) -> bool:
    """Return whether a release has the versions of all requests of a history."""
    versions = VERSIONS[release]
    return all(step.version in versions.get(step.api, ()) for step in history if step.client)


def kept() -> list[Path]:
    """Return the files of the histories that are kept."""
    return sorted((Path(__file__).parent / "kept").glob("*.txt"))


def show(path: Path, outcome: Outcome) -> bool:
    """Print the difference of a kept history, if there is one, and return whether there is."""
    if outcome.difference is None:
        return False
    print(f"{path.name}: {said(outcome)}", flush=True)
    return True


def start_kafka(stack: ExitStack, release: str) -> tuple[str, int]:
    """Start a broker of Kafka with the topics that all histories share, and return its address."""
    config: dict[str, object] = {
        **settings_of(release),
        "auto.create.topics.enable": "true",
        "offsets.topic.replication.factor": BROKERS,
        # Topics show Kafka's defaults.
        "log.segment.bytes": None,
        "log.index.size.max.bytes": None,
    }
    kafka = stack.enter_context(ApacheKafka(release, BROKERS, config, controllers=1))
    broker = kafka.brokers[1]
    address = broker.host, broker.port
    prepare(address)
    kafka.brokers[STOPPED_BROKER].stop()
    return address


def prepare(address: tuple[str, int]) -> None:
    """Create the shared topics, and the internal ones."""
    side = KafkaSide("prepare.", address)
    topics = created(SHARED_TOPICS, [1]) + created_internal()
    side.ask("CreateTopics", 7, {"topics": topics, "timeout_ms": 5_000})
    while have_no_order(side.learned_ids(SHARED_TOPICS)):
        side.ask("DeleteTopics", 5, {"topic_names": list(SHARED_TOPICS), "timeout_ms": 5_000})
        side.ask("CreateTopics", 7, {"topics": created(SHARED_TOPICS, [1]), "timeout_ms": 5_000})
    deadline = time.monotonic() + 30
    for key_type, api, version, fields in (
        (0, "OffsetFetch", 9, {"groups": [{"group_id": "x", "topics": None}]}),
        (1, "InitProducerId", 5, {"transactional_id": "x", "transaction_timeout_ms": 60_000}),
    ):
        side.ask("FindCoordinator", 4, {"coordinator_keys": ["x"], "key_type": key_type})
        while any(error_codes(side.ask(api, version, fields))):
            assert time.monotonic() < deadline, f"Kafka answers {api} with errors"
            time.sleep(0.05)
    side.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
