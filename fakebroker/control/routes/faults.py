"""Operations on faults."""

from typing import Any, TypedDict

from fakebroker.cluster.faults.injection import ActiveFault
from fakebroker.cluster.faults.rule import Fault
from fakebroker.control.clusters import Served
from fakebroker.control.problems import not_found
from fakebroker.control.routes.operations import CLUSTER, operation
from fakebroker.server.journal_files import plain_fault

FAULT = f"{CLUSTER}/faults/{{id}}"


class FaultRow(TypedDict):
    """A fault in force: its settings other than defaults, and the number of requests it was applied to."""

    id: str
    rule: dict[str, Any]
    hits: int


class FaultList(TypedDict):
    """All faults in force, in the order in which they were added, including those that are used up."""

    faults: list[FaultRow]


@operation("GET", f"{CLUSTER}/faults")
def list_faults(served: Served) -> FaultList:
    """List all faults in force."""
    return {"faults": [_row(rule_id, rule) for rule_id, rule in served.rules().items()]}


@operation("POST", f"{CLUSTER}/faults", status=201, body=Fault)
def add_fault(served: Served, body: Fault) -> FaultRow:
    """Inject a fault; a fault that can never take effect is rejected."""
    served.cluster.add_fault(body)
    rule_id, rule = list(served.rules().items())[-1]
    return _row(rule_id, rule)


@operation("DELETE", f"{CLUSTER}/faults", status=204)
def clear_faults(served: Served) -> None:
    """Remove all faults; responses that they delay are still sent when they are due."""
    served.cluster.clear_faults()


@operation("GET", FAULT)
def get_fault(served: Served, id: str) -> FaultRow:  # noqa: A002  # the name in the address
    """Get a fault."""
    return _row(id, _rule(served, id))


@operation("DELETE", FAULT, status=204)
def remove_fault(served: Served, id: str) -> None:  # noqa: A002  # the name in the address
    """Remove a fault."""
    served.cluster.cluster.faults.remove(_rule(served, id))


def _rule(served: Served, rule_id: str) -> ActiveFault:
    rules = served.rules()
    if rule_id not in rules:
        raise not_found("fault", rule_id, f"one of {', '.join(rules)}" if rules else "none: no fault is in force")
    return rules[rule_id]


def _row(rule_id: str, rule: ActiveFault) -> FaultRow:
    return {"id": rule_id, "rule": plain_fault(rule.fault), "hits": rule.hits}
