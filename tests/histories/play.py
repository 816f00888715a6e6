"""Plays a history on the fake cluster and on Kafka, step by step, and compares each answer.

The fake cluster's clock shows the time that has really passed. So timers are due on both at the same time, but for a
tolerance; and what is answered before, and what after a step, has to be the same.
"""

import itertools
import secrets
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, TypeVar

from fakebroker.cluster.call import error_codes
from fakebroker.protocol.frames import response_frame
from fakebroker.protocol.releases import RELEASES, Release
from tests.histories.answers import Difference, Pairs
from tests.histories.history import SHARED_TOPICS, History, Step, is_alone
from tests.histories.recording import Answer, RecordedSide, Recording
from tests.histories.sides import FakeSide, KafkaSide, NeverEndsError, Sent, chosen_ids

T = TypeVar("T")

TOLERANCE_MS = 700
"""How much later than the other a side may let a timer end."""
_ANSWER_MS = 8_000
_GRACE_MS = 40
"""How long Kafka has time to answer a request that ours lets wait."""
_SIZE_BYTES = 4
_CHOOSES_IDS = ("CreateTopics", "JoinGroup", "ConsumerGroupHeartbeat")
_CLOSES = ("DescribeAcls", "CreateAcls", "DeleteAcls")
"""APIs where Kafka closes the connection, too: if a request has an unknown type, operation or permission."""
_RETRIABLE = {3, 14, 15, 16, 51}
"""Kafka may be busy for a moment, where the fake cluster never is: the request is sent again.

The error 3 is that of a topic which Metadata creates: the fake cluster returns it at once, Kafka when it exists.
"""
_MAX_ATTEMPTS = 15

_PROCESS = secrets.token_hex(3)
"""Kafka keeps transactional ids: another process must not have the same names."""

_numbers = itertools.count(1)


class Outcome(NamedTuple):
    """What came of a history.

    Attributes:
        difference: The first difference; None if there is none.
        at: The number of the step where it is, from 0.
        compared: How many answers were compared, or with the fake cluster alone, how many requests were sent.
    """

    difference: Difference | None
    at: int
    compared: int


class _FoundError(Exception):
    def __init__(self, difference: Difference, at: int) -> None:
        super().__init__(str(difference))
        self.difference, self.at = difference, at


def next_run() -> str:
    """Return a new name for a run of a history, of a fixed length."""
    return f"h{_PROCESS}{next(_numbers):06}."


def _checked(at: int, step: Step, call: Callable[[], T]) -> T:
    """Call the fake cluster, for which an exception is a difference."""
    try:
        return call()
    except NeverEndsError:
        kind = f"{step.api or 'wait'}: never ends"
        raise _FoundError(Difference(kind, "never ends", "is answered"), at) from None
    except Exception as error:
        *_, last = traceback.extract_tb(error.__traceback__)
        where = f"{Path(last.filename).name}:{last.name}"
        kind = f"{step.api or 'wait'}: raises {type(error).__name__} in {where}"
        raise _FoundError(Difference(kind, f"{error!r} in {where}:{last.lineno}", "is answered"), at) from None


def _check_open(sent: Sent, step: Step, at: int) -> None:
    """Check that the fake cluster has not closed a connection that Kafka leaves open."""
    if sent.is_closed and not sent.has_no_answer and step.api not in _CLOSES:
        raise _FoundError(Difference(f"{step.api}: connection, we close", "closes", "not compared"), at)


def play_on_fake(history: History, release: Release) -> Outcome:
    """Play a history on the fake cluster alone.

    A difference is an exception, a step that does not end, or a connection that Kafka does not close.
    """
    fake = FakeSide(next_run(), str(release))
    at = 0
    try:
        for at, step in enumerate(with_probes(history, release)):
            fake_ms = fake.now_ms + 1 + step.wait_ms
            _checked(at, step, lambda to=fake_ms: fake.advance_to(to))  # type: ignore[misc]
            if step.client:
                sent = _checked(at, step, lambda one=step, number=at: fake.send(one, number))  # type: ignore[misc]
                _check_open(sent, step, at)
        _checked(at, Step(), lambda: fake.advance_to(fake.now_ms + 3_600_000))
    except _FoundError as found:
        return Outcome(found.difference, found.at, at)
    return Outcome(None, at, at + 1)


def play(history: History, release: Release, address: tuple[str, int]) -> Outcome:
    """Play a history on both sides; see `record`."""
    return record(history, release, address)[0]


def record(history: History, release: Release, address: tuple[str, int]) -> tuple[Outcome, Recording]:
    """Play a history on both sides, and return also what Kafka has answered.

    Args:
        history: The history.
        release: The release of Kafka that the fake cluster emulates.
        address: A broker of Kafka.
    """
    kafka = KafkaSide(next_run(), address)
    try:
        return _play(history, release, kafka)
    finally:
        if is_alone(history):
            kafka.accept_writes()
        kafka.close()


def play_recorded(history: History, recording: Recording) -> Outcome:
    """Play a history on the fake cluster, and compare its answers with those that Kafka has given before."""
    return _play(history, recording.release, RecordedSide(recording))[0]


def _play(history: History, release: Release, kafka: KafkaSide | RecordedSide) -> tuple[Outcome, Recording]:
    run = kafka.clients.run
    fake = FakeSide(run, str(release), kafka.clients.topic_ids)
    playing = _Playing(fake, kafka, Pairs(run))
    at, difference = 0, None
    try:
        for at, step in enumerate(with_probes(history, release)):
            playing.perform(step, at)
    except _FoundError as found:
        difference, at = found.difference, found.at
        if is_alone(history):
            difference = difference._replace(kind=f"log refuses: {difference.kind}")
    recording = Recording(run, release, playing.topics, tuple(playing.answers))
    return Outcome(difference, at, playing.compared), recording


class _Playing:
    """A history while it is played.

    Attributes:
        compared: How many answers were compared.
        topics, answers: As in `Recording`.
    """

    def __init__(self, fake: FakeSide, kafka: KafkaSide | RecordedSide, pairs: Pairs) -> None:
        self.compared = 0
        self.topics: dict[int, dict[str, bytes]] = {}
        self.answers: list[Answer] = []
        self._fake, self._kafka, self._pairs = fake, kafka, pairs
        self._waiting: list[tuple[Sent, Sent]] = []
        self._pair_topics()
        self._note_topics(0)

    def _pair_topics(self) -> None:
        for name, topic_id in self._fake.clients.topic_ids.items():
            if name in self._kafka.clients.topic_ids:
                self._pairs.pair("topic", topic_id, self._kafka.clients.topic_ids[name])

    def perform(self, step: Step, at: int) -> None:
        """Run a step, and compare what is answered.

        Raises:
            _FoundError: Something differs.
        """
        fake, kafka = self._fake, self._kafka
        end_ms = kafka.now_ms + step.wait_ms
        while kafka.now_ms < end_ms:
            kafka.receive((end_ms - kafka.now_ms) / 1000)
        _checked(at, step, lambda: fake.advance_to(kafka.now_ms))
        if step.client:
            theirs = kafka.send(step, at)
            self._note_topics(at)
            if step.api in _CHOOSES_IDS:
                deadline_ms = kafka.now_ms + (_ANSWER_MS if step.api == "CreateTopics" else _GRACE_MS)
                while not theirs.is_ended and kafka.now_ms < deadline_ms:
                    kafka.receive((deadline_ms - kafka.now_ms) / 1000)
                if theirs.response is not None:
                    kafka.wait_for_effects(theirs)
                    fake.next_ids.extend(chosen_ids(theirs, kafka.clients.topic_ids))
            ours = _checked(at, step, lambda: fake.send(step, at))
            fake.next_ids.clear()
            self._pair_topics()
            if theirs.has_no_answer:
                time.sleep(0.01)
                if not theirs.is_closed:
                    kafka.give_up(theirs)
            else:
                self._waiting.append((ours, theirs))
        self._settle(step, at)
        self._compare(at)
        self._note_topics(at + 1)

    def _note_topics(self, at: int) -> None:
        topics = self._kafka.clients.topic_ids
        shown = {
            name: each for name, each in topics.items() if name in SHARED_TOPICS or name.startswith(self._pairs.run)
        }
        if not self.topics or self.topics[max(self.topics)] != shown:
            self.topics[at] = shown

    def _recorded(self, theirs: Sent) -> Answer:
        """Return an answer to keep, without what belongs to other histories."""
        frame = theirs.answer
        if theirs.response is not None and (own := self._pairs.own(theirs.response)) is not theirs.response:
            frame = bytes(response_frame(own, theirs.step.version, 0)[_SIZE_BYTES:])
        return Answer(theirs.number, theirs.answered_ms, frame)

    def _settle(self, step: Step, at: int) -> None:
        """Wait until the same requests are answered on both sides."""
        fake, kafka = self._fake, self._kafka
        start_ms = kafka.now_ms
        while True:
            waiting = [pair for pair in self._waiting if pair[0].is_ended != pair[1].is_ended]
            now_ms = kafka.now_ms
            all_wait = [pair for pair in self._waiting if not pair[0].is_ended and not pair[1].is_ended]
            if not waiting and (not all_wait or now_ms > start_ms + _GRACE_MS):
                return
            for ours, theirs in waiting:
                limit_ms = _ANSWER_MS if ours.is_ended else TOLERANCE_MS
                if now_ms > start_ms + limit_ms:
                    who = ("answer", "let wait") if ours.is_ended else ("let wait", "answers")
                    answer = (ours if ours.is_ended else theirs).response
                    kind = f"{ours.step.api}: we {who[0]}, Kafka {who[1].replace('let wait', 'lets wait')}"
                    shown = f"{answer!r} to step {ours.number}"
                    raise _FoundError(
                        Difference(kind, shown if ours.is_ended else "-", "-" if ours.is_ended else shown), at
                    )
            kafka.receive(0.02)
            if any(theirs.is_ended and not ours.is_ended for ours, theirs in waiting):
                _checked(at, step, lambda: fake.advance_to(kafka.now_ms))

    def _compare(self, at: int) -> None:
        ended = [pair for pair in self._waiting if pair[0].is_ended and pair[1].is_ended]
        self._waiting = [pair for pair in self._waiting if pair not in ended]
        for ours, theirs in ended:
            self._kafka.wait_for_effects(theirs)
            self.compared += 1
            api = ours.step.api
            self.answers.append(self._recorded(theirs))
            if ours.is_closed or theirs.is_closed:
                if ours.is_closed != theirs.is_closed:
                    closes = ("closes", "answers") if ours.is_closed else ("answer", "closes")
                    shown = repr(theirs.response or ours.response)
                    raise _FoundError(
                        Difference(f"{api}: connection, we {closes[0]}, Kafka {closes[1]}", shown, shown), at
                    )
                continue
            difference = self._difference(ours, theirs)
            if difference is not None:
                raise _FoundError(difference, at)
            # Of a request that is answered at once, the time says how busy the machine is.
            if ours.number < at and abs(ours.answered_ms - theirs.answered_ms) > TOLERANCE_MS:
                times = f"{ours.answered_ms:.0f} ms", f"{theirs.answered_ms:.0f} ms"
                raise _FoundError(Difference(f"{api}: time", *times), at)

    def _difference(self, ours: Sent, theirs: Sent) -> Difference | None:
        """Compare two answers. Kafka is asked again while it is busy."""
        assert ours.response is not None
        for attempt in itertools.count(1):
            assert theirs.response is not None
            difference = self._pairs.difference(ours.step.api, ours.response, theirs.response)
            retriable = _RETRIABLE.difference(error_codes(ours.response))
            busy = difference is not None and not retriable.isdisjoint(error_codes(theirs.response))
            if not busy or attempt == _MAX_ATTEMPTS:
                return difference
            time.sleep(0.01 * attempt)
            again = self._kafka.send(theirs.step, theirs.number)
            deadline_ms = self._kafka.now_ms + _ANSWER_MS
            while not again.is_ended and self._kafka.now_ms < deadline_ms:
                self._kafka.receive(0.05)
            if again.response is None:
                return difference
            theirs = again
            self._kafka.wait_for_effects(theirs)
            self.answers[-1] = self._recorded(theirs)
        raise AssertionError


def with_probes(history: History, release: Release) -> Iterable[Step]:
    """Yield the steps, and then requests that read what the history has changed."""
    yield from history
    if is_alone(history):
        return  # Kafka describes what was committed before its log refused a write.
    touched = {
        name for name in ("%g", "%h", "%a", "%b", "%t", "%u") if any(f'"{name}' in str(each) for each in history)
    }
    versions = RELEASES[release]
    groups = sorted(touched & {"%g", "%h"})
    if groups:
        yield Step("Z", "DescribeGroups", versions["DescribeGroups"].last, {"groups": groups})
        yield Step("Z", "ConsumerGroupDescribe", versions["ConsumerGroupDescribe"].last, {"group_ids": groups})
        yield Step("Z", "ListGroups", 5, {})
        for stable in (False, True):
            asked = [{"group_id": each, "member_id": None, "member_epoch": -1, "topics": None} for each in groups]
            yield Step("Z", "OffsetFetch", 9, {"groups": asked, "require_stable": stable})
    for topic in sorted(touched & {"%a", "%b"}):
        for isolation in (0, 1):
            partitions = [{"partition_index": index, "timestamp": -1} for index in (0, 1)]
            fields = {
                "replica_id": -1,
                "isolation_level": isolation,
                "topics": [{"name": topic, "partitions": partitions}],
            }
            yield Step("Z", "ListOffsets", 8, fields)
        fetched = [{"partition": index, "fetch_offset": 0, "partition_max_bytes": 2**20} for index in (0, 1)]
        fields = {"isolation_level": 1, "max_wait_ms": 0, "topics": [{"topic": topic, "partitions": fetched}]}
        yield Step("Z", "Fetch", 12, {**fields, "session_epoch": -1, "max_bytes": 2**20})
        yield Step("Z", "DescribeProducers", 0, {"topics": [{"name": topic, "partition_indexes": [0, 1]}]})
    if names := sorted(touched & {"%t", "%u"}):
        yield Step("Z", "DescribeTransactions", 0, {"transactional_ids": names})
