"""Transaction coordinators, and partitions, each with a bug that breaks one promise about transactions and no other.

A new entry of `BUGS` also needs one in `BROKEN` of `tests/replay/test_promises_broken.py`.
"""

from collections.abc import Callable, Sequence
from itertools import count
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from fakebroker.cluster.logs.partition_log import PartitionLog
from fakebroker.cluster.topics import OFFSETS_TOPIC
from fakebroker.coordinator.transaction.coordinator import TransactionCoordinator
from fakebroker.coordinator.transaction.transaction import ONGOING, Markers, ProducerResult, Transaction
from fakebroker.errors import ErrorCode
from fakebroker.replay.members.events import SCHEMA, Event
from fakebroker.replay.script.script import Act, Script, Transactions
from fakebroker.replay.simulation.simulation import Simulation, SimulationSettings
from fakebroker.replay.workload.workload import Cluster
from fakebroker.topic_partition import TopicPartition
from tests.support.replay.scripted_group import PARTITIONS, script

_DURATION_S = 90.0

Bug = Callable[[pytest.MonkeyPatch], None]
"""Puts a bug into coordinators or logs."""


class _ChangesMarkers(TransactionCoordinator):
    """Sends other markers than those of the transaction, and takes their results for those."""

    def changed(self, markers: Markers) -> list[Markers]:
        """Return the markers that are sent."""
        raise NotImplementedError

    def _write_markers(self, transaction: Transaction, now_ms: float) -> None:
        send = self._send_markers

        def send_changed(markers: Markers) -> None:
            for each in self.changed(markers):
                send(each)

        self._send_markers = send_changed
        super()._write_markers(transaction, now_ms)
        self._send_markers = send

    def _of_transaction(self, markers: Markers) -> Markers:
        transaction = self.transaction(markers.transactional_id)
        return markers if transaction is None or transaction.markers is None else transaction.markers

    def awaits(self, markers: Markers) -> bool:
        return super().awaits(self._of_transaction(markers))

    def marker_written(self, markers: Markers, partition: TopicPartition, error: ErrorCode, now_ms: float) -> None:
        super().marker_written(self._of_transaction(markers), partition, error, now_ms)


class _AbortsAPart(_ChangesMarkers):
    """Sends ABORT instead of COMMIT to some of the partitions of a transaction."""

    @staticmethod
    def is_aborted(place: TopicPartition) -> bool:
        raise NotImplementedError

    def changed(self, markers: Markers) -> list[Markers]:
        lost = tuple(place for place in markers.partitions if self.is_aborted(place))
        rest = tuple(place for place in markers.partitions if place not in lost)
        parts = replace(markers, partitions=lost, is_commit=False), replace(markers, partitions=rest)
        return [each for each in parts if each.partitions]


class AbortsRecords(_AbortsAPart):
    """Drops the records of committed transactions in one partition."""

    @staticmethod
    def is_aborted(place: TopicPartition) -> bool:
        return place == ("payments", 0)


class AbortsOffsets(_AbortsAPart):
    """Drops the offsets of committed transactions."""

    @staticmethod
    def is_aborted(place: TopicPartition) -> bool:
        return place[0] == OFFSETS_TOPIC


class CommitsAborted(_ChangesMarkers):
    """Sends COMMIT also for transactions that were aborted."""

    def changed(self, markers: Markers) -> list[Markers]:
        return [replace(markers, is_commit=True)]


class AcceptsOldEpochs(TransactionCoordinator):
    """Answers EndTxn of an old epoch without an error."""

    def end(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        *,
        is_commit: bool,
        raises_epoch: bool,
        now_ms: float,
        token: object = None,
    ) -> ProducerResult | None:
        result = super().end(
            transactional_id,
            producer_id,
            epoch,
            is_commit=is_commit,
            raises_epoch=raises_epoch,
            now_ms=now_ms,
            token=token,
        )
        is_old = result is not None and result.error is ErrorCode.PRODUCER_FENCED
        return ProducerResult(ErrorCode.NONE, producer_id, epoch) if is_old else result


class NeverAborts(TransactionCoordinator):
    """Never aborts a transaction that has timed out."""

    def _expire(self, transaction: Transaction, deadline_ms: float, now_ms: float) -> None:
        if transaction.state is not ONGOING:
            super()._expire(transaction, deadline_ms, now_ms)


def _coordinator(kind: type[TransactionCoordinator]) -> Bug:
    return lambda patch: patch.setattr("fakebroker.cluster.transactions.TransactionCoordinator", kind)


def _log(stable_offset: Callable[[PartitionLog], int]) -> Bug:
    return lambda patch: patch.setattr(PartitionLog, "last_stable_offset", property(stable_offset))


def _goes_back() -> Callable[[PartitionLog], int]:
    """Return a last stable offset that is sometimes lower by one record."""
    calls = count()
    correct: Callable[[PartitionLog], int] = vars(PartitionLog)["last_stable_offset"].fget
    return lambda log: correct(log) - (next(calls) % 7 == 0 < correct(log))


BUGS: dict[str, tuple[str, Bug]] = {
    "aborts records in one partition": ("atomic", _coordinator(AbortsRecords)),
    "drops the offsets of transactions": ("atomic", _coordinator(AbortsOffsets)),
    "commits aborted transactions": ("atomic", _coordinator(CommitsAborted)),
    "shows records before the marker": ("atomic", _log(lambda log: log.high_watermark)),
    "accepts old epochs": ("old-epochs-refused", _coordinator(AcceptsOldEpochs)),
    "never aborts overdue transactions": ("overdue-aborted", _coordinator(NeverAborts)),
    "lets the last stable offset go back": ("stable-offset-rises", _log(_goes_back())),
}
"""Bugs by what they do, with the promise that they break."""

_EVENTS: tuple[dict[str, Any], ...] = (
    {"do": "broker.stop"},
    {"do": "broker.restart"},
    {"do": "broker.restart", "load_ms": 700},
    {"do": "inject_fault", "api": "EndTxn", "drop": True, "times": 2},
    {"do": "inject_fault", "api": "InitProducerId", "drop": True, "times": 2},
    {"do": "inject_fault", "api": "TxnOffsetCommit", "drop": True, "times": 2},
    {"do": "inject_fault", "api": "Produce", "delay_s": 3, "times": 2},
    {"do": "inject_fault", "api": "EndTxn", "error": "NOT_COORDINATOR", "times": 2},
    {"do": "brokers.elect_preferred"},
)


def transactional_members(seed: int = 0, *acts: Act) -> list[Script]:
    """Return two members that consume the topic "orders" and produce to "payments"; some transactions are left open.

    Args:
        seed: Seed of the outcomes.
        acts: What the first member does besides its start and its end.
    """
    made = Transactions(
        topic="payments",
        records=8,
        interval_ms=2_000,
        timeout_ms=5_000,
        abort=0.15,
        crash=0.2,
        return_ms=(0.0, 50_000.0),
        seed=0,
    )
    members = []
    for number, name in enumerate(("a", "b")):
        planned = (Act(0.0, "start"), *(acts if number == 0 else ()), Act(80_000.0, "leave"))
        transactions = made._replace(seed=2 * seed + number)
        members.append(script(name, topics=("orders",), acts=planned, commit_interval_ms=0, transactions=transactions))
    return members


def played_with(bug: str) -> tuple[list[Script], list[Event]]:
    """Play transactional members in memory against coordinators with a bug; return the scripts and the events."""
    with pytest.MonkeyPatch.context() as patch:
        BUGS[bug][1](patch)
        return _played(transactional_members(), 3)


def random_transactions(seed: int) -> tuple[list[Script], list[Event]]:
    """Play transactional members while brokers stop and restart, requests are lost, and one member is suspended."""
    random = Random(seed)
    acts = random.choice(((), (Act(12_000.0, "pause", 20_000.0),), (Act(12_000.0, "crash"), Act(15_000.0, "start"))))
    events = []
    for at_s in sorted(random.uniform(5, 60) for _ in range(random.choice((0, 1, 3)))):
        event = {"at_s": at_s, **random.choice(_EVENTS)}
        if "broker" in event["do"]:
            event["node_id"] = random.randint(1, 3)
        events.append(event)
        if event["do"] == "broker.stop":
            events.append({"at_s": at_s + 4, "do": "broker.start", "node_id": event["node_id"]})
    release = random.choice((None, None, "3.9", "2.8"))
    return _played(transactional_members(seed, *acts), seed, events, release)


def _played(
    members: list[Script], seed: int, events: Sequence[dict[str, Any]] = (), release: str | None = None
) -> tuple[list[Script], list[Event]]:
    settings = SimulationSettings(
        seed=seed,
        cluster=Cluster(brokers=3, as_version=release),
        topics=PARTITIONS,
        duration_s=_DURATION_S,
        folds=True,
        events=events,
    )
    rows = [row for batches in Simulation(members, 0, settings).run() for batch in batches for row in batch.to_pylist()]
    return members, [_event(row) for row in rows]


def _event(row: dict[str, Any]) -> Event:
    """Return the event in a row: structs are tuples."""
    values = dict(row)
    for name in ("offsets", "found"):
        found = values[name]
        values[name] = None if found is None else [tuple(each.values()) for each in found]
    made = values["transaction"]
    values["transaction"] = made and tuple(made.values())
    return Event(**{name: values[name] for name in SCHEMA.names})
