"""Conditions as values: their text, their JSON, what is composed of them, and what is no condition."""

from typing import Any

import pytest

from fakebroker.cluster.handles.cluster import LocalCluster
from fakebroker.cluster.handles.conditions import Condition, condition_of, has_predicates, predicate
from fakebroker.cluster.handles.definition import DEFINITIONS
from fakebroker.cluster.handles.local import Local
from fakebroker.errors import ConfigError
from tests.support.cluster.cluster_harness import ClusterHarness, ClusterHarnessEnvironment
from tests.support.cluster.method_arguments import call_of, event_of

CONDITIONS = [name for name, definition in DEFINITIONS.items() if definition.kind == "condition"]


@pytest.fixture
def cluster() -> LocalCluster:
    harness = ClusterHarness({"orders": 6}, brokers=3)
    environment = ClusterHarnessEnvironment(harness)
    return LocalCluster(Local(harness.cluster, environment, new_cluster=lambda: harness.cluster))


@pytest.mark.parametrize("name", CONDITIONS)
def test_each_condition_is_equal_to_its_json(cluster: LocalCluster, name: str) -> None:
    definition = DEFINITIONS[name]
    key, arguments = call_of(definition)
    event = {"is": name, **event_of(definition)}
    condition = getattr(definition.of(cluster._owner, key), definition.method.__name__)(**arguments)
    assert condition.plain() == event
    assert condition == condition_of(event)
    assert hash(condition) == hash(condition_of(event))
    assert condition_of(condition) is condition
    assert condition != cluster.topic("other").exists()


def test_the_text_of_a_condition_is_its_expression(cluster: LocalCluster) -> None:
    stable, topic = cluster.group("g").stable(members=2, above=None), cluster.topic("orders")
    texts: dict[str, Condition[Any]] = {
        "group('g').stable(members=2)": stable,
        "topic('orders').partition(0).has(at_least=1)": topic.partition(0).has(1),
        "requested(api='Heartbeat', count=2, group='g')": cluster.requested("Heartbeat", count=2, group="g"),
        "broker(1).up() & ~broker(2).up()": cluster.broker(1).up() & ~cluster.broker(2).up(),
        "group('g').stable(members=2) & (broker(1).up() | topic('orders').exists())": stable
        & (cluster.broker(1).up() | topic.exists()),
        "~(broker(1).up() | topic('orders').exists())": ~(cluster.broker(1).up() | topic.exists()),
        "the stock is empty": predicate("the stock is empty", lambda: True),
    }
    for text, condition in texts.items():
        assert (str(condition), repr(condition)) == (text, f"<{text}>")


def test_composed_conditions_have_json(cluster: LocalCluster) -> None:
    up, other = cluster.broker(1).up(), cluster.broker(2).up()
    one, two = ({"is": "broker.up", "node_id": node_id} for node_id in (1, 2))
    assert (up & other & ~up).plain() == {"all": [one, two, {"not": one}]}
    assert (up | other).plain() == {"any": [one, two]}
    nested = up & (other | ~(up & other))
    assert nested.plain() == {"all": [one, {"any": [two, {"not": {"all": [one, two]}}]}]}
    assert condition_of(nested.plain()).plain() == nested.plain()
    assert [str(leaf) for leaf in nested.leaves()] == [str(each) for each in (up, other, up, other)]


def test_composed_conditions_hold_in_one_moment(cluster: LocalCluster) -> None:
    up, down = cluster.broker(1).up(), cluster.broker(4).up()
    for condition, expected in (
        (up, True),
        (down, False),
        (~down, True),
        (up & ~down, True),
        (up & down, False),
        (up | down, True),
        (down | ~up, False),
        (~(up & down), True),
    ):
        assert cluster.holds(condition) is expected, condition


def test_a_condition_has_no_truth_value(cluster: LocalCluster) -> None:
    with pytest.raises(TypeError, match=r"^a condition is neither true nor false \(broker\(1\)\.up\(\)\): expected"):
        assert cluster.broker(1).up()


def test_predicates_cannot_be_sent(cluster: LocalCluster) -> None:
    condition = cluster.broker(1).up() & predicate("the stock is empty", lambda: True)
    assert has_predicates(condition)
    assert not has_predicates(cluster.broker(1).up())
    expected = "^condition='the stock is empty': expected a condition without predicates, which cannot be sent$"
    for use in (condition.plain, lambda: cluster.expect(condition)):
        with pytest.raises(ConfigError, match=expected):
            use()
    for arguments, field in (((1, lambda: True), "what=1"), (("it is so", True), "function=True")):
        with pytest.raises(ConfigError, match=f"^{field}: expected "):
            predicate(*arguments)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (True, r"^condition=True: expected a condition such as \{'is': 'group.stable', 'group_id': 'g'\}"),
        ({}, r"^condition=\{\}: expected a condition such as "),
        ({"all": []}, "expected a condition such as "),
        ({"any": {}}, "expected a condition such as "),
        ({"not": 1}, "^condition=1: expected a condition such as "),
        ({"is": "group.stabel", "group_id": "g"}, r"^condition\.is='group\.stabel': .* did you mean 'group.stable'\?$"),
        ({"is": "broker.stop", "node_id": 1}, r"^condition\.is='broker\.stop': expected one of broker\.up"),
        ({"is": "group.stable"}, r"^condition: group_id is missing"),
        ({"is": "group.stable", "group_id": 1}, r"^condition: group_id=1: expected a string"),
        ({"is": "group.stable", "group_id": "g", "members": -1}, r"^condition: members=-1: expected an integer >= 0"),
        ({"is": "group.state", "group_id": "g"}, "state"),
        ({"is": "group.state", "group_id": "g", "state": "Stabel"}, r"^state='Stabel': .* did you mean 'Stable'\?$"),
        ({"is": "topic.has", "topic": "orders"}, r"^condition: at_least is missing"),
    ],
)
def test_what_is_no_condition(cluster: LocalCluster, value: Any, message: str) -> None:
    for use in (condition_of, cluster.holds, cluster.expect):
        with pytest.raises(ConfigError, match=message):
            use(value)


def test_arguments_are_checked_when_a_condition_is_built(cluster: LocalCluster) -> None:
    group = cluster.group("g")
    no_condition: Any = True
    for build, message in (
        (lambda: group.state(), "state"),
        (lambda: group.state("Stabel"), r"^state='Stabel': .*did you mean 'Stable'\?$"),
        (lambda: group.stable(members=-1), "^members=-1: expected an integer >= 0"),
        (lambda: group.member("a", "STABEL"), r"^state='STABEL': .*did you mean 'STABLE'\?$"),
        (lambda: group.committed("orders", at_least=1), "orders"),
        (lambda: cluster.transaction("t").state(), "state"),
        (lambda: cluster.transaction("t").state("Ongoing", pending="Later"), "^pending='Later': expected one of"),
        (lambda: cluster.topic("orders").has(-1), "^at_least=-1: expected an integer >= 0"),
        (lambda: group.stable() & no_condition, "^condition=True: expected a condition, such as group.stable"),
        (lambda: group.stable() | no_condition, "^condition=True: expected a condition, such as group.stable"),
    ):
        with pytest.raises(ConfigError, match=message):
            build()
