"""Compares releases of Apache Kafka with the transcripts, and writes `scenarios/conformance.md`: `make conformance`.

python -m tests.kafka.conformance                 all releases, all settings
python -m tests.kafka.conformance --check 4.4     one release, transcripts that take up to half a minute
"""

import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import trio

from fakebroker.conform.conformance import VERDICTS, Conformance, Played, conform, known_release, selected
from fakebroker.conform.report import summary, text
from fakebroker.conform.requirements import AUTHORIZER, WITHOUT_WAITS, Facts, needs, settings_groups
from fakebroker.conform.transcript import Transcript
from fakebroker.kafka.jars import RELEASES
from fakebroker.kafka.process import ApacheKafka, KafkaBroker
from fakebroker.protocol.releases import Release

REPORT = Path(__file__).parents[2] / "scenarios" / "conformance.md"

_SETTINGS: dict[str, object] = {
    **WITHOUT_WAITS,
    # Fewer partitions than Kafka's 50, because each has to be created and loaded.
    "offsets.topic.num.partitions": 12,
    "transaction.state.log.num.partitions": 6,
    # Tests stop brokers, and decide themselves which one leads.
    "auto.leader.rebalance.enable": "false",
    # The controller notices sooner that a broker was killed.
    "broker.session.timeout.ms": 3_000,
    "broker.heartbeat.interval.ms": 500,
}
_BROKERS = 3
_LONGEST_S = 130
_CHECK_S = 13
"""How long the times of transcripts are that `.ci/run` plays."""


class Control:
    """Stops and starts the brokers of a cluster."""

    def __init__(self, kafka: ApacheKafka) -> None:
        self._kafka = kafka

    def _broker(self, node_id: int) -> KafkaBroker:
        return self._kafka.brokers[node_id]

    async def stop(self, node_id: int) -> None:
        await trio.to_thread.run_sync(self._broker(node_id).kill)

    async def start(self, node_id: int) -> None:
        self._broker(node_id).start()
        await trio.to_thread.run_sync(self._kafka.wait_until_ready, [node_id])


def compare(
    release: str, transcripts: Sequence[Transcript], settings: dict[str, object], *, stops: bool, longest_s: float
) -> Conformance:
    """Start a cluster of a release, play transcripts on it, and end it."""
    # Three controllers without principals of their own cannot vote while an authorizer starts.
    brokers = 1 if AUTHORIZER in settings else _BROKERS
    with ApacheKafka(release, brokers, {**_SETTINGS, **settings}) as kafka:

        async def run() -> Conformance:
            return await conform(
                kafka.bootstrap_servers,
                release=known_release(release),
                transcripts=transcripts,
                changes_cluster=True,
                control=Control(kafka) if stops else None,
                longest_s=longest_s,
                progress=_show,
            )

        return trio.run(run)


def _show(played: Played) -> None:
    if played.verdict == "differs":
        print(f"  {played.name}: differs, is played again", flush=True)


def compare_all(release: str) -> Conformance:
    """Compare a release with all transcripts, on as many clusters as their settings need."""
    transcripts = selected()
    number = known_release(release)
    anywhere = Facts(number, _BROKERS, changes_cluster=True, stops_brokers=True, longest_s=_LONGEST_S)
    playable = [each for each in transcripts if not needs(each, anywhere)]
    played: dict[str, Played] = {}
    left: list[str] = []
    for index, group in enumerate(settings_groups(playable), 1):
        start = time.monotonic()
        # All of them say what they need; those of this group are playable.
        chosen = transcripts if index == 1 else group.transcripts
        found = compare(release, chosen, dict(group.settings), stops=True, longest_s=_LONGEST_S)
        played |= {each.name: each for each in found.played}
        left += found.left
        print(f"Kafka {release}, settings {index}: {summary(found)} ({time.monotonic() - start:.0f} s)", flush=True)
    return Conformance(number, tuple(sorted(played.values(), key=lambda each: each.name)), tuple(left))


def report(results: Iterable[Conformance]) -> str:
    """Return the document."""
    found = list(results)
    versions = ", ".join(RELEASES[str(each.release)] for each in found)
    subjects = sorted({played.subject for each in found for played in each.played})
    lines = [
        "# Conformance",
        "",
        f"`make conformance` plays the [transcripts](transcripts/README.md) on Apache Kafka {versions}.",
        "It uses three brokers, and compares each line with the line that a fake cluster returns.",
        "",
        "- *same*: every line is equal.",
        "- *explained*: a line differs for a known reason: chance, a defect of Kafka, or our choice.",
        "- *differs*: a line differs.",
        "- *not playable*: the transcript needs something that only a fake cluster can do, or takes too long.",
        "",
        "[`fakebroker conform`](reference/command_line.md#fakebroker-conform) compares any Kafka-compatible cluster.",
        "",
    ]
    head = "| subject | " + " | ".join(f"{each.release}" for each in found) + " |"
    lines += ["Each cell: same / explained / differs / not playable.", "", head, "|---" * (len(found) + 1) + "|"]
    for subject in subjects:
        lines.append(f"| {subject} | " + " | ".join(_cell(each, subject) for each in found) + " |")
    lines.append("| **all** | " + " | ".join(_cell(each, None) for each in found) + " |")
    lines += ["", "## What differs", ""]
    for each in found:
        differing = [played for played in each.played if played.difference is not None]
        lines += [f"### Kafka {RELEASES[str(each.release)]}", ""]
        if not differing:
            lines += ["Nothing.", ""]
            continue
        lines += ["| transcript | we return | Kafka returns |", "|---|---|---|"]
        for played in differing:
            assert played.difference is not None
            place = played.difference.place.replace(".txt", "")
            lines.append(f"| {place} | {_code(played.difference.expected)} | {_code(played.difference.actual)} |")
        lines.append("")
    lines += ["## What is explained", "", "| transcript | releases | reason |", "|---|---|---|"]
    explained: dict[tuple[str, str], list[str]] = {}
    for each in found:
        for played in each.played:
            if played.verdict == "explained":
                explained.setdefault((played.name, "; ".join(played.reasons)), []).append(str(each.release))
    lines += [f"| {name} | {', '.join(releases)} | {why} |" for (name, why), releases in sorted(explained.items())]
    lines += ["", "## What is not playable", "", "| need | transcripts |", "|---|---|"]
    needed = Counter(
        played.reasons[0] for played in found[-1].played if played.verdict == "not playable" and played.reasons
    )
    lines += [f"| {need} | {number} |" for need, number in needed.most_common()]
    return "\n".join(lines) + "\n"


def _cell(results: Conformance, subject: str | None) -> str:
    count = Counter(each.verdict for each in results.played if subject in (None, each.subject))
    return " / ".join(str(count[verdict]) for verdict in VERDICTS)


def _code(line: str) -> str:
    shown = " ".join(line.split()).replace("|", "\\|")
    return f"`{shown}`" if shown else "nothing"


def check(release: str) -> int:
    """Compare one release with what is playable in about a minute. Return the exit status."""
    start = time.monotonic()
    playable = settings_groups(each for each in selected() if not needs(each, _check_facts(known_release(release))))
    found = compare(release, selected(), dict(playable[0].settings), stops=False, longest_s=_CHECK_S)
    print(text(found), end="")
    print(f"{time.monotonic() - start:.0f} s")
    return 0 if found.count()["same"] and not found.count()["differs"] else 1


def _check_facts(release: Release) -> Facts:
    return Facts(release, _BROKERS, changes_cluster=True, longest_s=_CHECK_S)


def main(arguments: Sequence[str]) -> int:
    """Compare releases, and write the document; with `--check RELEASE`, compare one and print the result."""
    if arguments[:1] == ["--check"]:
        return check(arguments[1])
    releases = list(arguments) or list(RELEASES)
    results = [compare_all(each) for each in releases]
    REPORT.write_text(report(results))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
