"""Each seed and each kept input runs through its target; and targets notice defects."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from fakebroker.cluster.call import Call
from fakebroker.cluster.request_path import RequestPath
from fakebroker.control.routes.dispatch import Dispatcher
from fakebroker.protocol.consumer_protocol import encode_assignment
from fakebroker.protocol.records import RecordBatch
from fakebroker.security.credentials import Credentials
from fakebroker.server.data_directory import recovery
from fakebroker.server.data_directory.blocks import read_entries
from fakebroker.server.tls.tls_socket import TlsSocket
from tests.fuzz.corpus import FOLDER, inputs
from tests.fuzz.steps import StepKind, parse_steps
from tests.fuzz.targets import (
    TARGETS,
    cluster_frames,
    control_api,
    coordinator_records,
    data_directory,
    message_codec,
    record_batches,
)
from tests.fuzz.targets.sasl import PASSWORD, seeds as sasl_seeds


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_fails(name: str) -> None:
    for data in inputs(name):
        try:
            TARGETS[name].run(data)
        except Exception as error:
            error.add_note(f"with the input {data.hex()}")
            raise


def test_each_file_belongs_to_a_target() -> None:
    assert {path.stem for path in FOLDER.iterdir()} <= {*TARGETS}
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 200_000


def test_seeds_log_in_and_send_many_requests() -> None:
    steps = [step for seed in cluster_frames.seeds() for step in parse_steps(seed)]
    assert len([step for step in steps if step.kind is StepKind.SEND]) > 1_000
    assert len([*sasl_seeds()]) == 5


# Targets notice defects


def fails(name: str) -> bool:
    """Return whether an assertion of a target fails for one of its seeds."""
    try:
        for seed in TARGETS[name].seeds():
            TARGETS[name].run(seed)
    except AssertionError:
        return True
    return False


def test_messages_that_change_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = count()
    monkeypatch.setattr(message_codec, "decode", lambda *_: next(numbers))
    monkeypatch.setattr(message_codec, "encode", lambda *_: b"")
    assert fails("messages")


def test_records_that_are_skipped_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def keys(batch: RecordBatch) -> Iterator[tuple[int, bytes | None, bool]]:
        yield from ()

    monkeypatch.setattr(record_batches, "record_keys", keys)
    assert fails("records")


def test_assignments_that_change_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_records, "encode_assignment", lambda partitions: encode_assignment(partitions[1:]))
    assert fails("coordinator-records")


def test_a_login_with_a_wrong_password_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    seed = next(iter(sasl_seeds()))
    assert PASSWORD.encode() in seed
    monkeypatch.setattr(Credentials, "has_password", lambda *_: True)
    with pytest.raises(AssertionError, match="User:mario is authenticated"):
        TARGETS["sasl"].run(seed.replace(b"\0alice\0", b"\0mario\0"))


def test_decrypted_bytes_that_change_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    recv = TlsSocket.recv
    monkeypatch.setattr(TlsSocket, "recv", lambda sock, size: bytes(len(recv(sock, size))))
    assert fails("tls")


def test_a_write_that_is_skipped_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def entries(*arguments: Any) -> Any:
        for number, entry in enumerate(read_entries(*arguments)):
            if number != 1:
                yield entry
        return arguments[2]

    list(data_directory.seeds())  # Writes the directory.
    monkeypatch.setattr(recovery, "read_entries", entries)
    assert fails("data-directory")


def test_an_internal_error_of_the_control_api_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(dispatcher: Dispatcher, request: Any) -> Any:
        raise RuntimeError("a defect")

    monkeypatch.setattr(Dispatcher, "_parse", parse)
    with pytest.raises(BaseExceptionGroup) as caught:
        control_api.run(b"GET /v1/clusters")
    assert caught.group_contains(AssertionError, match="500")


def test_a_request_that_changes_another_group_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    seed = next(iter(cluster_frames.seeds()))  # Before, because it is recorded from a cluster.
    handle = RequestPath.handle

    def damage(path: RequestPath, call: Call, now_ms: float) -> bool:
        if call.client_id != "other":
            for broker in path._cluster.brokers.values():
                for group in [*broker.coordinator.groups.classic.values()]:
                    broker.coordinator.groups.drop(group, "a defect", now_ms)
        return handle(path, call, now_ms)

    monkeypatch.setattr(RequestPath, "handle", damage)
    with pytest.raises(AssertionError, match="another group"):
        cluster_frames.run(seed)
