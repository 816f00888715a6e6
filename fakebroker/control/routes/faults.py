"""Operations on faults."""

from typing import Any, TypedDict

from fakebroker.cluster.faults.append_failures import AppendFailure
from fakebroker.cluster.faults.injection import ActiveFault
from fakebroker.cluster.faults.rule import Fault
from fakebroker.control.clusters import ServedCluster
from fakebroker.control.problems import not_found
from fakebroker.control.routes.operations import CLUSTER, operation
from fakebroker.errors import one_of
from fakebroker.server.journal_files import plain_fault

FAULT = f"{CLUSTER}/faults/{{id}}"
APPEND_FAILURE = f"{CLUSTER}/append_failures/{{id}}"


class FaultRow(TypedDict):
    """A fault that was not removed.

    It has its settings other than defaults, how often it was applied, whether it applies to no further request because
    its `times`, `nth` or `for_s` have passed, and errors of its actions.
    """

    id: str
    rule: dict[str, Any]
    hits: int
    is_over: bool
    errors: list[str]


class FaultList(TypedDict):
    """All faults in the order in which they were added, including those that have reached their limit.

    `action_errors` has the last errors of actions, also of faults that have been removed.
    """

    faults: list[FaultRow]
    action_errors: list[str]


@operation("GET", f"{CLUSTER}/faults")
def list_faults(served: ServedCluster) -> FaultList:
    """List all faults."""
    rows = [_row(served, fault_id, active) for fault_id, active in served.faults().items()]
    return {"faults": rows, "action_errors": list(served.cluster.action_errors)}


@operation("POST", f"{CLUSTER}/faults", status=201, body=Fault)
def add_fault(served: ServedCluster, body: Fault) -> FaultRow:
    """Add a fault; a fault that can never take effect is rejected."""
    served.cluster.add_fault(body)
    fault_id, active = list(served.faults().items())[-1]
    return _row(served, fault_id, active)


@operation("DELETE", f"{CLUSTER}/faults", status=204)
def clear_faults(served: ServedCluster) -> None:
    """Remove all faults; responses that they have delayed are still sent later."""
    served.cluster.clear_faults()


@operation("GET", FAULT)
def get_fault(served: ServedCluster, id: str) -> FaultRow:  # noqa: A002  # the name in the path
    """Get a fault."""
    return _row(served, id, _active_fault(served, id))


@operation("DELETE", FAULT, status=204)
def remove_fault(served: ServedCluster, id: str) -> None:  # noqa: A002  # the name in the path
    """Remove a fault."""
    served.cluster.cluster.faults.remove(_active_fault(served, id))


def _active_fault(served: ServedCluster, fault_id: str) -> ActiveFault:
    faults = served.faults()
    if fault_id not in faults:
        raise not_found("fault", fault_id, f"one of {', '.join(faults)}" if faults else "none: there are no faults")
    return faults[fault_id]


def _row(served: ServedCluster, fault_id: str, active: ActiveFault) -> FaultRow:
    return {
        "id": fault_id,
        "rule": plain_fault(active.fault),
        "hits": active.hits,
        "is_over": active.is_over(served.cluster.clock.now_ms()),
        "errors": active.errors,
    }


# Appends that fail


class AppendFailureRow(TypedDict):
    """Appends to a partition of __consumer_offsets or __transaction_state that fail, and how many have failed."""

    id: str
    topic: str
    partition: int
    error: str
    times: int | None
    hits: int


class AppendFailureList(TypedDict):
    """All failures in the order in which they were added, including those that have reached their limit."""

    append_failures: list[AppendFailureRow]


@operation("GET", f"{CLUSTER}/append_failures")
def list_append_failures(served: ServedCluster) -> AppendFailureList:
    """List the failures of appends; the events `fail_append` and `fail_transaction_append` add one."""
    return {"append_failures": list(map(_append_failure_row, served.cluster.cluster.append_failures.active))}


@operation("GET", APPEND_FAILURE)
def get_append_failure(served: ServedCluster, id: str) -> AppendFailureRow:  # noqa: A002  # the name in the path
    """Get a failure of appends."""
    return _append_failure_row(_append_failure(served, id))


@operation("DELETE", APPEND_FAILURE, status=204)
def remove_append_failure(served: ServedCluster, id: str) -> None:  # noqa: A002  # the name in the path
    """Remove a failure of appends."""
    served.cluster.cluster.append_failures.remove(_append_failure(served, id))


def _append_failure(served: ServedCluster, failure_id: str) -> AppendFailure:
    active = {failure.id: failure for failure in served.cluster.cluster.append_failures.active}
    if failure_id not in active:
        raise not_found("append_failure", failure_id, one_of(active, none="none: there is none"))
    return active[failure_id]


def _append_failure_row(failure: AppendFailure) -> AppendFailureRow:
    return {
        "id": failure.id,
        "topic": failure.topic,
        "partition": failure.partition,
        "error": failure.error.name,
        "times": failure.times,
        "hits": failure.hits,
    }
