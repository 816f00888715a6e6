"""What Kafka has answered to a history: kept in the history's file, so that the fake cluster is compared without Kafka.

The lines follow the steps. Numbers are those of steps, from 0; probes after the history count, too.

    = run h51c2aa000001. 4.2                          the name of the run, and the release of Kafka
    = topics 0 news=73d0b9d5... sport=5f5284d4...     the ids of topics, from this step on
    = answer 3 35 0000000a...                         the response to step 3, after 35 ms, without its size; - if closed
"""

from collections.abc import Mapping
from typing import NamedTuple

from fakebroker.protocol.releases import NEWEST, Release, release
from tests.histories.history import Clients, History, Step, from_text
from tests.histories.sides import Sent

_CLOSED = "-"


class Answer(NamedTuple):
    """An answer of Kafka.

    Attributes:
        number: The number of the step.
        at_ms: When it was answered, in milliseconds since the start.
        frame: The response without its size; empty if the connection was closed.
    """

    number: int
    at_ms: float
    frame: bytes


class Recording(NamedTuple):
    """All answers of Kafka to a history.

    Attributes:
        run: The name of the run, which is part of the answers.
        release: The release of Kafka.
        topics: The ids of topics by name; by the number of the step before which they have changed.
        answers: The answers in their order.
    """

    run: str
    release: Release
    topics: Mapping[int, Mapping[str, bytes]]
    answers: tuple[Answer, ...]

    @property
    def text(self) -> str:
        lines = [f"= run {self.run} {self.release}"]
        for number, topics in self.topics.items():
            ids = " ".join(f"{name}={topic_id.hex()}" for name, topic_id in sorted(topics.items()))
            lines.append(f"= topics {number} {ids}")
        lines += [f"= answer {each.number} {each.at_ms:.0f} {each.frame.hex() or _CLOSED}" for each in self.answers]
        return "".join(f"{line}\n" for line in lines)


def parse(text: str) -> tuple[History, Recording]:
    """Return the history of a file, and what Kafka has answered."""
    run, of_release = "", NEWEST
    topics: dict[int, dict[str, bytes]] = {}
    answers: list[Answer] = []
    for words in (line.split() for line in text.splitlines() if line.startswith("= ")):
        match words[1:]:
            case ["run", name, of]:
                run, of_release = name, release(of)
            case ["topics", number, *ids]:
                pairs = (each.split("=") for each in ids)
                topics[int(number)] = {name: bytes.fromhex(topic_id) for name, topic_id in pairs}
            case ["answer", number, at_ms, frame]:
                answers.append(Answer(int(number), float(at_ms), bytes.fromhex(frame.removeprefix(_CLOSED))))
    return from_text(text), Recording(run, of_release, topics, tuple(answers))


class RecordedSide:
    """Kafka, as it has answered before. It is used like `KafkaSide`, but its time passes in `receive` alone."""

    def __init__(self, recording: Recording) -> None:
        self.clients = Clients(recording.run)
        self.now_ms = 0.0
        self._recording = recording
        self._left = list(recording.answers)
        self._sent: dict[int, Sent] = {}
        self._learn(0)

    def _learn(self, number: int) -> None:
        if number in self._recording.topics:
            self.clients.learn(self._recording.topics[number])

    def send(self, step: Step, number: int) -> Sent:
        self._learn(number)
        sent = self._sent[number] = Sent(step, number, self.clients.message(step))
        return sent

    def receive(self, for_s: float) -> None:
        """Let time pass until the next answer, for a time at most."""
        end_ms = self.now_ms + for_s * 1000
        known = [each for each in self._left if each.number in self._sent]
        answer = min(known, key=lambda each: each.at_ms, default=None)
        if answer is None or answer.at_ms > end_ms:
            self.now_ms = end_ms
            return
        self.now_ms = max(self.now_ms, answer.at_ms)
        self._left.remove(answer)
        sent = self._sent[answer.number]
        if answer.frame:
            sent.receive(answer.frame, self.clients, answer.at_ms)
        else:
            sent.is_closed = True

    def give_up(self, sent: Sent) -> None:
        """Do nothing: there is no connection."""

    def wait_for_effects(self, sent: Sent) -> None:
        """Learn the topics that exist after a request."""
        self._learn(sent.number + 1)
