"""A broken cluster: transaction coordinators and logs accept the epochs of all producers, also of fenced ones."""

from typing import Any

import pytest

from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.handlers.transaction_verification import Verification
from fakebroker.cluster.logs import producer_state
from fakebroker.coordinator.transaction.coordinator import TransactionCoordinator
from fakebroker.errors import ErrorCode

CONFIG = {"transaction.partition.verification.enable": False}
"""Broker configs of the cluster: otherwise coordinators are also asked for the epochs of batches."""


def disable_fencing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable fencing in all clusters of this process, until the end of the test."""
    for name in ("add_partitions", "end"):
        monkeypatch.setattr(TransactionCoordinator, name, _in_current_epoch(name))
    monkeypatch.setattr(Verification, "error_of_epoch", lambda *arguments: ErrorCode.NONE)
    for name in ("_check_epoch", "_check_next"):
        monkeypatch.setattr(producer_state, name, lambda batch, producer: None)
    append_error = Cluster._append_error

    def without_epochs(*arguments: Any) -> ErrorCode:
        error = append_error(*arguments)
        return ErrorCode.NONE if error is ErrorCode.INVALID_PRODUCER_EPOCH else error

    monkeypatch.setattr(Cluster, "_append_error", without_epochs)


def _in_current_epoch(name: str) -> Any:
    method = getattr(TransactionCoordinator, name)

    def accept(
        self: TransactionCoordinator, transactional_id: str, producer_id: int, epoch: int, *more: Any, **options: Any
    ) -> Any:
        found = self.transaction(transactional_id)
        return method(self, transactional_id, producer_id, found.value.epoch if found else epoch, *more, **options)

    return accept
