"""Waits for conditions over HTTP. A wait that has timed out can be continued by another request."""

from typing import Any, TypedDict

import msgspec

from fakebroker.cluster.call import Call
from fakebroker.cluster.handles.conditions import DEFAULT_TIMEOUT_S, Condition, HandleCondition, condition_of
from fakebroker.cluster.handles.definition import plain_result
from fakebroker.control.clusters import ServedCluster
from fakebroker.control.problems import problem_of
from fakebroker.control.routes.arguments import check_range
from fakebroker.control.routes.operations import CLUSTER, operation
from fakebroker.errors import ConfigError, WaitTimeout
from fakebroker.server.journal_files import plain_call
from fakebroker.server.waits import LocalWatch, condition_not_met

MAX_WAIT_S = 60


class Wait(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A condition, such as `{"is": "group.stable", "group_id": "billing"}`; or `wait`, the id of one to continue."""

    condition: Any = None
    wait: str | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S


class Stay(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A condition that has to hold for some wall-clock seconds."""

    condition: Any
    for_s: float


class Look(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Conditions to look at in one moment, without `all`, `any` and `not`."""

    conditions: list[Any]


class Result(TypedDict):
    """What a condition has found: a view; a list for `all`; null for `any` and `not`."""

    found: Any


class Results(TypedDict):
    """What conditions have found: null if they do not hold, else a list with one item."""

    found: list[list[Any] | None]


@operation("POST", f"{CLUSTER}/wait", body=Wait)
async def wait(served: ServedCluster, body: Wait) -> Result:
    """Wait until a condition holds. Error 408 has an id, with which another request continues the wait."""
    check_range("timeout_s", body.timeout_s, 0, MAX_WAIT_S)
    if body.condition is None and body.wait is None:
        raise ConfigError.missing("condition", "a condition, or wait to continue one")
    if body.condition is not None and body.wait is not None:
        raise ConfigError.of("wait", body.wait, "none, because there is a condition")
    watch = served.local.watch(condition_of(body.condition)) if body.wait is None else served.kept_wait(body.wait)
    try:
        with served.waiting():
            if body.wait is None:
                await served.run(watch.begin)
            await watch.pause_async(watch.changes, body.timeout_s)
    except BaseException:
        watch.close()
        raise
    if watch.error is not None:
        watch.close()
        raise watch.error
    if watch.found is None:
        # The control client begins each wait with a request that does not wait.
        state = await served.read(lambda: watch.state(has_timed_out=body.timeout_s > 0))
        error = WaitTimeout.of(str(watch.condition), body.timeout_s, state)
        problem = problem_of(error)
        problem.wait = served.keep_wait(watch)
        raise problem
    watch.close()
    found = watch.found
    return {"found": await served.read(lambda: _plain_found(served, found.value))}


@operation("POST", f"{CLUSTER}/stays", status=204, body=Stay)
async def stays(served: ServedCluster, body: Stay) -> None:
    """Require that a condition holds in every moment of a span of time; error 412 has the state in which it did not."""
    check_range("for_s", body.for_s, 0, MAX_WAIT_S)
    condition = condition_of(body.condition)
    watch = served.local.watch(~condition)
    try:
        with served.waiting():
            await served.run(watch.begin)
            await watch.pause_async(watch.changes, body.for_s)
        await served.read(lambda: _check(condition, body.for_s, watch))
    finally:
        watch.close()


def _check(condition: Condition[Any], for_s: float, watch: LocalWatch) -> None:
    if watch.error is not None:
        raise watch.error
    if watch.found is not None:
        raise condition_not_met(condition, for_s, watch)


@operation("POST", f"{CLUSTER}/look", body=Look)
def look(served: ServedCluster, body: Look) -> Results:
    """Look at conditions in one moment, and return what each has found."""
    conditions = [condition_of(each) for each in body.conditions]
    leaves = [each for each in conditions if isinstance(each, HandleCondition)]
    if len(leaves) < len(conditions):
        raise ConfigError.of("conditions", body.conditions, "conditions without all, any and not")
    found = served.local.look(leaves)
    return {"found": [None if each is None else [_plain_found(served, each.value)] for each in found]}


def _plain_found(served: ServedCluster, value: Any) -> Any:
    """Return what a condition has found in a form that can be encoded as JSON."""
    if isinstance(value, Call):
        return plain_call(value, served.core.topics.past_or_present_name_of)
    return [_plain_found(served, each) for each in value] if isinstance(value, list | tuple) else plain_result(value)
