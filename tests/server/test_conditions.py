"""Conditions as values: composition, text, JSON; and what holds now."""

import operator
import threading
from collections.abc import Callable
from typing import Any

import pytest

from fakebroker import Condition, ConditionNotMet, ConfigError, FakeCluster, predicate
from fakebroker.cluster.handles.conditions import condition_of

CLUSTER = FakeCluster(topics={"orders": 2})
"""A cluster that never starts: conditions are built without it."""

STABLE = CLUSTER.group("billing").stable(members=2)
HAS = CLUSTER.topic("dlq").has(1)
UP = CLUSTER.broker(1).up()
TRUE = predicate("it is true", lambda: True)

CONDITIONS: list[tuple[Condition[Any], str, dict[str, Any]]] = [
    (
        STABLE,
        "group('billing').stable(members=2)",
        {"is": "group.stable", "group_id": "billing", "members": 2},
    ),
    (
        CLUSTER.group("billing").state("Empty", above=3),
        "group('billing').state(state='Empty', above=3)",
        {"is": "group.state", "group_id": "billing", "state": "Empty", "above": 3},
    ),
    (
        CLUSTER.group("billing").member("app", "STABLE"),
        "group('billing').member(member='app', state='STABLE')",
        {"is": "group.member", "group_id": "billing", "member": "app", "state": "STABLE"},
    ),
    (
        CLUSTER.group("billing").committed("orders-0", at_least=5),
        "group('billing').committed(partition='orders-0', at_least=5)",
        {"is": "group.committed", "group_id": "billing", "partition": "orders-0", "at_least": 5},
    ),
    (
        CLUSTER.transaction("payments").state(pending="PrepareAbort"),
        "transaction('payments').state(pending='PrepareAbort')",
        {"is": "transaction.state", "transactional_id": "payments", "pending": "PrepareAbort"},
    ),
    (HAS, "topic('dlq').has(at_least=1)", {"is": "topic.has", "topic": "dlq", "at_least": 1}),
    (CLUSTER.topic("dlq").exists(), "topic('dlq').exists()", {"is": "topic.exists", "topic": "dlq"}),
    (
        CLUSTER.topic("dlq").partition(3).has(1),
        "topic('dlq').partition(3).has(at_least=1)",
        {"is": "partition.has", "topic": "dlq", "partition": 3, "at_least": 1},
    ),
    (UP, "broker(1).up()", {"is": "broker.up", "node_id": 1}),
    (
        CLUSTER.requested("Heartbeat", "app", count=2, group="billing"),
        "requested(api='Heartbeat', client_id='app', count=2, group='billing')",
        {"is": "requested", "api": "Heartbeat", "client_id": "app", "count": 2, "group": "billing"},
    ),
    (STABLE & HAS, f"{STABLE} & {HAS}", {"all": [STABLE.plain(), HAS.plain()]}),
    (STABLE | HAS, f"{STABLE} | {HAS}", {"any": [STABLE.plain(), HAS.plain()]}),
    (~STABLE, f"~{STABLE}", {"not": STABLE.plain()}),
    (~(STABLE & HAS), f"~({STABLE} & {HAS})", {"not": {"all": [STABLE.plain(), HAS.plain()]}}),
    ((STABLE | HAS) & UP, f"({STABLE} | {HAS}) & {UP}", {"all": [{"any": [STABLE.plain(), HAS.plain()]}, UP.plain()]}),
    ((STABLE & HAS) | UP, f"{STABLE} & {HAS} | {UP}", {"any": [{"all": [STABLE.plain(), HAS.plain()]}, UP.plain()]}),
    (STABLE & (HAS & UP), f"{STABLE} & {HAS} & {UP}", {"all": [STABLE.plain(), HAS.plain(), UP.plain()]}),
]
"""Conditions, with their text and their JSON."""


def test_texts_and_json(subtests: pytest.Subtests) -> None:
    for condition, text, data in CONDITIONS:
        with subtests.test(text):
            assert str(condition) == text
            assert repr(condition) == f"<{text}>"
            assert condition.plain() == data
            assert str(condition_of(data)) == text
            assert condition_of(data).plain() == data
            assert condition_of(condition) is condition


def test_equal_conditions_of_things_are_equal() -> None:
    assert CLUSTER.group("billing").stable(2) == STABLE
    assert condition_of(STABLE.plain()) == STABLE
    assert CLUSTER.group("billing").stable(3) != STABLE
    assert CLUSTER.group("other").stable(2) != STABLE
    assert len({STABLE, CLUSTER.group("billing").stable(members=2), HAS}) == 2


def test_a_condition_is_neither_true_nor_false(subtests: pytest.Subtests) -> None:
    error = (
        r"^a condition is neither true nor false \(.*\): expected cluster\.holds\(condition\) to look once, or cluste"
    )
    for condition in (STABLE, STABLE & HAS, STABLE | HAS, ~STABLE, TRUE):
        with subtests.test(str(condition)):
            uses: list[Callable[[Any], object]] = [
                bool,
                operator.not_,
                lambda each: each and HAS,
                lambda each: each or HAS,
            ]
            for use in uses:
                with pytest.raises(TypeError, match=error):
                    use(condition)


def test_only_conditions_are_combined() -> None:
    wrong: Any
    for wrong in (True, None, lambda: True, "stable"):
        for combine in (operator.and_, operator.or_):
            with pytest.raises(
                ConfigError, match=r"^condition=.*: expected a condition, such as group\.stable\(\), or "
            ):
                combine(STABLE, wrong)


def test_what_can_be_wrong_with_a_predicate() -> None:
    with pytest.raises(ConfigError, match=r"^what=<function .*>: expected a string$"):
        predicate(lambda: True, lambda: True)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ConfigError, match=r"^function=True: expected a function without arguments$"):
        predicate("it is true", True)  # type: ignore[arg-type]  # wrong on purpose


def test_predicates_have_no_json() -> None:
    for condition in (TRUE, STABLE & TRUE, STABLE | TRUE, ~TRUE):
        with pytest.raises(
            ConfigError, match=r"^condition='it is true': expected a condition without predicates, which"
        ):
            condition.plain()


INVALID: list[tuple[Any, str]] = [
    (
        "group.stable",
        "condition='group.stable': expected a condition such as {'is': 'group.stable', 'group_id': 'g'}, or",
    ),
    ({}, "condition={}: expected a condition such as"),
    ({"all": []}, "condition={'all': []}: expected a condition such as"),
    ({"all": STABLE.plain()}, "condition={'all': {'is': "),
    ({"not": 5}, "condition=5: expected a condition such as"),
    ({"any": [STABLE.plain(), 5]}, "condition=5: expected a condition such as"),
    (
        {"is": "group.stabel", "group_id": "g"},
        "condition.is='group.stabel': expected one of broker.up, fault.hit, group.committed, ",
    ),
    (
        {"is": "broker.stop", "node_id": 1},
        "condition.is='broker.stop': expected one of broker.up, fault.hit, group.committed, ",
    ),
    ({"is": "group.stable"}, "condition: group_id is missing: expected a string"),
    ({"is": "group.stable", "group_id": "g", "membres": 1}, "condition: membres=1: unknown field; expected one of "),
    ({"is": "group.stable", "group_id": "g", "members": -1}, "condition: members=-1: expected an integer >= 0"),
    ({"is": "group.state", "group_id": "g", "state": "Steady"}, "state='Steady': expected one of Empty, "),
    (
        {"is": "group.committed", "group_id": "g", "partition": "o", "at_least": 1},
        "partition='o': expected a topic and ",
    ),
]
"""What is no condition, with the beginning of the error."""


def test_invalid_json_is_rejected(subtests: pytest.Subtests) -> None:
    for data, error in INVALID:
        with subtests.test(error):
            with pytest.raises(ConfigError) as caught:
                condition_of(data)
            assert str(caught.value).startswith(error)


def test_what_holds_now() -> None:
    cluster = FakeCluster(topics={"orders": 2})
    exists, missing = cluster.topic("orders").exists(), cluster.topic("dlq").exists()
    assert cluster.holds(exists)
    assert not cluster.holds(missing)
    assert cluster.holds(~missing)
    assert cluster.holds(exists & ~missing)
    assert not cluster.holds(exists & missing)
    assert cluster.holds(exists | missing)
    assert not cluster.holds(~(exists | missing))
    assert cluster.holds(~(exists & missing))
    # A state that was is not what holds now.
    cluster.group("g").seed(1, topics=["orders"])
    cluster.group("g").rebalance()
    assert not cluster.holds(cluster.group("g").stable())
    assert cluster.holds(cluster.group("g").state("PreparingRebalance"))
    for wrong in (True, None, {"is": "group.stable", "group_id": "g"}):
        with pytest.raises(
            ConfigError, match=r"^condition=.*: expected a condition, such as cluster\.group\('billing'\)"
        ):
            cluster.holds(wrong)  # type: ignore[arg-type]  # wrong on purpose


def test_holds_calls_predicates_in_this_thread() -> None:
    threads: list[threading.Thread] = []

    def look() -> bool:
        threads.append(threading.current_thread())
        return True

    with FakeCluster(topics={"orders": 1}) as cluster:
        exists = cluster.topic("orders").exists()
        assert cluster.holds(predicate("looked", look))
        assert cluster.holds(exists & predicate("looked", look))
        assert not cluster.holds(exists & ~predicate("looked", look))
    assert threads == [threading.current_thread()] * 3


def test_what_is_expected_has_to_hold_now() -> None:
    cluster = FakeCluster(topics={"orders": 1})
    cluster.expect(cluster.topic("orders").exists())
    with pytest.raises(ConditionNotMet) as caught:
        cluster.expect(cluster.topic("orders").exists() & cluster.topic("order").exists())
    assert isinstance(caught.value, AssertionError)
    assert str(caught.value) == (
        "topic('orders').exists() & topic('order').exists(): it does not hold\n"
        "topic orders has 0 records; offsets of partitions: 0: 0 to 0\n"
        "no topic `order`; nearest: `orders`; others: orders"
    )
    with pytest.raises(ConfigError, match=r"^condition='it is true': expected a condition without predicates"):
        cluster.expect(TRUE)


def test_unknown_arguments_are_errors_with_the_known_ones(fake_cluster: FakeCluster, subtests: pytest.Subtests) -> None:
    group = fake_cluster.group("g")
    calls: dict[str, Callable[[], object]] = {
        r"^wait\(\) .* argument 'timeout': .*; did you mean 'timeout_s'\?$": lambda: fake_cluster.wait(
            group.stable(),
            timeout=1,  # type: ignore[call-arg]
        ),
        r"^stays\(\) .* argument 'for': expected one of condition, for_s, polling; did": lambda: fake_cluster.stays(
            group.stable(),
            **{"for": 1},  # type: ignore[arg-type]
        ),
        r"^group\.stable\(\) .* argument 'member': .* did you mean 'members'\?$": lambda: group.stable(member=2),  # type: ignore[call-arg]
        r"^group\.move_coordinator\(\) missing a required argument: 'to'$": lambda: group.move_coordinator(),  # type: ignore[call-arg]
        r"^topic\.records\(\) .* 'commited': expected one of partition, committed; did you mean 'committed'": (
            lambda: fake_cluster.topic("t").records(commited=True)  # type: ignore[call-arg]
        ),
        r"^group\.explain\(\) .* argument 'x': expected none: there are none$": lambda: group.explain(x=1),  # type: ignore[call-arg]
    }
    for message, call in calls.items():
        with subtests.test(message=message), pytest.raises(TypeError, match=message):
            call()
