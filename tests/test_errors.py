"""Errors of invalid arguments of the public API name field, value and expectation, as attributes and in their text."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio

from fakebroker import Broker, ConfigError, FakeCluster, Scaled, predicate
from fakebroker.client.admin.admin import Admin
from fakebroker.client.consumer.consumer import Consumer
from fakebroker.client.consumer.consumer_settings import ConsumerSettings
from fakebroker.client.member.member_settings import MemberSettings
from fakebroker.client.transport import addresses
from fakebroker.cluster.journal.journal import new_journal
from fakebroker.cluster.seeding.seed import GroupSeed
from fakebroker.errors import bounds, check_integer, check_number, one_of, shown
from fakebroker.protocol.registry import API_BY_NAME
from fakebroker.protocol.releases import RELEASES, release
from fakebroker.server.fake_cluster import internals
from fakebroker.server.journal_files import parse_journal
from tests.support.trio_runner import in_trio_with_sockets

FINITE, AT_LEAST_0, ABOVE_0 = "a finite number", "a number >= 0", "a number > 0"
ADVANCE_S = "a number from 0 to 1000000000"
INT32 = "an integer from 1 to 2147483647"
VERSION = "an integer from 0 to 32767"
SEED = GroupSeed(group_id="g")
TOPIC = "a topic that is not internal, one of orders"
SERVERS = "HOST:PORT, or several with commas"
APIS, VERSIONS = list(API_BY_NAME), list(RELEASES)

BROKER = Broker(api_versions=None)  # type: ignore[arg-type]  # wrong on purpose
ARGUMENTS: list[tuple[str, Any, tuple[str, object, str]]] = [
    ("partial_frame_timeout_s", "x", ("partial_frame_timeout_s", "x", AT_LEAST_0)),
    ("partial_frame_timeout_s", None, ("partial_frame_timeout_s", None, AT_LEAST_0)),
    ("brokers", 3.0, ("brokers", 3.0, "an integer or a list")),
    ("brokers", "3", ("brokers", "3", "an integer or a list")),
    ("brokers", [5], ("brokers[0]", 5, "a table")),
    ("brokers", [BROKER], ("brokers[0].api_versions", None, "a table")),
    ("api_versions", {"Fetch": 3}, ("api_versions.Fetch", 3, "a list of 2 (such as (0, 3)) or none")),
    ("api_versions", {"Fetch": ("a", 1)}, ("api_versions.Fetch[0]", "a", VERSION)),
    ("topics", ["t"], ("topics", ["t"], "a table (such as {'orders': 6}) or none")),
    ("topics", {"t": "x"}, ("topics.t", "x", "an integer")),
    ("config", 5, ("config", 5, "a table or none")),
    ("seed", "x", ("seed", "x", "an integer or none")),
    ("proposals", "batch-join", ("proposals", "batch-join", "a list")),
    ("host", 5, ("host", 5, "a string")),
    ("clock", 5, ("clock", 5, "one of real, manual or a table")),
]
"""Arguments of `FakeCluster` of the wrong type: name, value, and the error's field, value and expectation."""

Case = tuple[Callable[[], object], str, object, str]

CONSTRUCTION: list[Case] = [
    (lambda: FakeCluster(0), "brokers", 0, "an integer from 1 to 1000"),
    (lambda: FakeCluster(1001), "brokers", 1001, "an integer from 1 to 1000"),
    (lambda: FakeCluster([]), "brokers", 0, "an integer from 1 to 1000"),
    (lambda: FakeCluster(1, as_version="2.9"), "as_version", "2.9", one_of(VERSIONS, "2.9")),
    (lambda: FakeCluster([Broker(as_version="x")]), "as_version", "x", one_of(VERSIONS)),
    (lambda: FakeCluster(1, as_version=3.9), "as_version", 3.9, "a string (such as '2.8') or none"),  # type: ignore[arg-type]  # wrong on purpose
    (lambda: release("4"), "as_version", "4", one_of(VERSIONS)),
    (lambda: FakeCluster(1, api_versions={"Fetch": (99, 99)}), "api_versions.Fetch", (99, 99), "versions in 4-18"),
    (lambda: FakeCluster(1, proposals=["batch"]), "proposals[0]", "batch", "batch-join"),
    (lambda: FakeCluster(1, topics={"a b": 1}), "topic", "a b", "a name of 1 to 249 characters "),
    (lambda: FakeCluster(1, topics={"a": 0}), "partitions", 0, "an integer from 1 to 100000"),
    (lambda: FakeCluster(1, topics={"a": True}), "topics.a", True, "an integer"),
    (lambda: FakeCluster(1, config={"group.max.size": 0}), "group.max.size", 0, INT32),
    (lambda: FakeCluster(1, config={"group.max.size": 1.5}), "group.max.size", 1.5, "an integer"),
    (lambda: FakeCluster(1, config={"group.max.size": math.nan}), "config.group.max.size", math.nan, FINITE),
    (lambda: FakeCluster(1, config={"num.partitions": "x"}), "num.partitions", "x", "an integer"),
    (lambda: FakeCluster(1, config={"delete.topic.enable": 2}), "delete.topic.enable", 2, "true or false"),
    (lambda: FakeCluster(1, clock="manul"), "clock", "manul", "one of real, manual or a table (such"),  # type: ignore[arg-type]  # wrong on purpose
    (lambda: Scaled(0), "factor", 0, ABOVE_0),
    (lambda: Scaled(math.inf), "factor", math.inf, FINITE),
    (lambda: FakeCluster(2, port=65535), "port", 65535, "an integer from 0 to 65534"),
    (lambda: FakeCluster(1, port=-1), "port", -1, "an integer from 0 to 65535"),
    (lambda: FakeCluster(1, journal="ful"), "journal", "ful", "one of off, headers, full; did you mean 'full'?"),  # type: ignore[arg-type]  # wrong on purpose
    (lambda: new_journal("full", -1, 0), "journal_calls", -1, "an integer >= 0"),
    (lambda: FakeCluster(1, max_unsent_bytes=-1), "max_unsent_bytes", -1, "an integer >= 0"),
    (lambda: FakeCluster(1, partial_frame_timeout_s=math.nan), "partial_frame_timeout_s", math.nan, FINITE),
    (lambda: FakeCluster(1, partial_frame_timeout_s=-1), "partial_frame_timeout_s", -1, AT_LEAST_0),
    (lambda: FakeCluster(1, partial_frame_timeout_s=10**400), "partial_frame_timeout_s", 10**400, AT_LEAST_0),
    *((partial(FakeCluster, **{name: given}), *error) for name, given, error in ARGUMENTS),
]

ClusterCase = tuple[Callable[[FakeCluster], object], str, object, str]

CALLS: list[ClusterCase] = [
    (lambda c: c.topic("orders").create(), "topic", "orders", "a topic that does not exist yet"),
    (lambda c: c.topic("").create(), "topic", "", "a name of 1 to 249 characters "),
    (lambda c: c.topic("a").create(1, 9), "replication_factor", 9, "an integer from 1 to 3"),
    (lambda c: c.topic("oders").create_partitions(3), "topic", "oders", TOPIC),
    (lambda c: c.topic("orders").create_partitions(2), "total", 2, "an integer from 3 to 100000"),
    (lambda c: c.topic("__consumer_offsets").delete(), "topic", "__consumer_offsets", TOPIC),
    (lambda c: internals(c).server.clock.advance(-1), "seconds", -1, ADVANCE_S),
    (lambda c: internals(c).server.clock.advance(math.nan), "seconds", math.nan, FINITE),
    (lambda c: internals(c).server.clock.advance(2e9), "seconds", 2e9, ADVANCE_S),
    (lambda c: internals(c).server.clock.advance("1"), "seconds", "1", ADVANCE_S),  # type: ignore[arg-type]  # wrong on purpose
    (lambda c: c.wait(c.group("g").state("Stabel")), "state", "Stabel", "did you mean 'Stable'?"),
    (lambda c: c.wait(c.group("g").stable(), timeout_s=math.nan), "timeout_s", math.nan, FINITE),
    (lambda c: c.wait(c.group("g").stable(), timeout_s=math.inf), "timeout_s", math.inf, FINITE),
    (lambda c: c.wait(predicate("x", lambda: None), timeout_s=-1), "timeout_s", -1, AT_LEAST_0),
    (lambda c: trio.run(lambda: c.wait_async(c.group("g").stable(), timeout_s=-1)), "timeout_s", -1, AT_LEAST_0),
    (lambda c: c.wait(c.requested("Fetch", count=0)), "count", 0, "an integer >= 1"),
    (lambda c: c.wait(c.requested("Fecth")), "api", "Fecth", one_of(APIS, "Fecth")),
    (
        lambda c: c.wait(c.group("g").committed("orders", at_least=1)),
        "partition",
        "orders",
        "a topic and a number, such as ",
    ),
    (lambda c: c.journal.requests("JoinGrop"), "api", "JoinGrop", one_of(APIS, "JoinGrop")),
    (lambda c: c.journal.count(broker=9), "broker", 9, "one of 1, 2, 3"),
    (lambda c: c.journal.count(since=math.nan), "since", math.nan, FINITE),
    (lambda c: c.journal.count(error="NOT_CORDINATOR"), "error", "NOT_CORDINATOR", "did you mean 'NOT_COORDINATOR'?"),
    (lambda c: c.journal.count(grp="g"), "grp", "g", "one of client_id, group, member, instance_id, "),  # type: ignore[call-arg]  # wrong on purpose
    (lambda c: c.journal.assert_order(), "steps", (), "one or more"),
    (lambda c: c.journal.assert_order(3), "step", 3, "the name of an API, or a pair of a name and a dict of filters"),  # type: ignore[arg-type]  # wrong on purpose
    (lambda c: c.group("g").hold("Stable"), "state", "Stable", "one of PreparingRebalance, CompletingRebalance"),
    (lambda c: c.group("g").rebalance(), "group_id", "g", "an existing group; its coordinator has none"),
    (lambda c: c.group("seeded").evict("x"), "member", "x", ""),
    (lambda c: c.group("seeded").fence_instance("i"), "member", "i", "a static member; the group has none"),
    (lambda c: c.group("zz").release(), "group_id", "zz", "a group that is held, but there is none"),
    (lambda c: c.broker(1).upgrade("2.8", {"Fetch": (-1, 2)}), "api_versions.Fetch[0]", -1, VERSION),
    (lambda c: c.group(b"g").coordinator(), "group_id", b"g", "a string"),  # type: ignore[arg-type]  # wrong on purpose
    (lambda c: c.restore(5), "snapshot", 5, "a Snapshot"),  # type: ignore[arg-type]  # wrong on purpose
    (lambda c: c.seed_groups(None), "groups", None, "a list of GroupSeed, a table, or the path of a Parquet file"),  # type: ignore[arg-type]  # wrong on purpose
    (lambda c: c.seed_groups(SEED), "groups", SEED, "a list of GroupSeed, a table, or the path of a Parquet file"),  # type: ignore[arg-type]  # wrong on purpose
    (lambda c: c.group("seedde").rebalance(), "group_id", "seedde", "an existing group; its coordinator has none"),
]

CLIENTS: list[Case] = [
    (lambda: addresses("here"), "bootstrap_servers", "here", SERVERS),
    (lambda: Consumer("here:0"), "bootstrap_servers", "here:0", SERVERS),
    (lambda: Admin("x"), "bootstrap_servers", "x", SERVERS),
    (lambda: Admin("h:1", request_timeout_ms=math.nan), "request_timeout_ms", math.nan, FINITE),
    (lambda: Admin("h:1", retry_backoff_ms=0), "retry_backoff_ms", 0, ABOVE_0),
    (lambda: Admin("h:1", connect_timeout_ms=math.inf), "connect_timeout_ms", math.inf, FINITE),
    (lambda: ConsumerSettings(group_id=""), "group_id", "", "a name, or None for no group"),
    (lambda: ConsumerSettings(max_poll_records=0), "max_poll_records", 0, INT32),
    (lambda: ConsumerSettings(fetch_max_bytes=math.nan), "fetch_max_bytes", math.nan, INT32),  # type: ignore[arg-type]  # wrong on purpose
    (lambda: ConsumerSettings(assignor="stiky"), "assignor", "stiky", "did you mean 'sticky'?"),
    (lambda: ConsumerSettings(auto_offset_reset="latst"), "auto_offset_reset", "latst", "did you mean 'latest'?"),  # type: ignore[arg-type]  # wrong on purpose
    (lambda: ConsumerSettings(instance_id="."), "instance_id", ".", "a name of 1 to 249 characters "),
    (lambda: ConsumerSettings(heartbeat_interval_ms=45_000), "heartbeat_interval_ms", 45_000, "less than session_ti"),
    (lambda: _member(session_timeout_ms=math.inf), "session_timeout_ms", math.inf, FINITE),
    (lambda: _member(retry_backoff_ms=-1), "retry_backoff_ms", -1, AT_LEAST_0),
]


def _member(**settings: Any) -> MemberSettings:
    return MemberSettings(group_id="g", client_id="c", topics=(), **settings)


def assert_config_error(call: Callable[[], object], field: str, value: object, expected: str) -> None:
    """Check the error of a call; its expectation contains `expected`."""
    with pytest.raises(ConfigError) as caught:
        call()
    error = caught.value
    assert (error.field, repr(error.value)) == (field, repr(value))
    assert error.expected is not None
    assert expected in error.expected
    kind = " unknown filter;" if "unknown" in str(error) else ""
    assert str(error).endswith(f"{field}={shown(value)}:{kind} expected {error.expected}")
    assert [mistake.field for mistake in error.mistakes] == [field]


def test_invalid_arguments_of_constructors(subtests: pytest.Subtests) -> None:
    for call, field, value, expected in [*CONSTRUCTION, *CLIENTS]:

        def construct(call: Callable[[], object] = call) -> object:
            created = call()
            return created.__enter__() if isinstance(created, FakeCluster) else created

        with subtests.test(f"{field}={shown(value)}"):
            assert_config_error(construct, field, value, expected)


def test_invalid_arguments_of_methods(subtests: pytest.Subtests) -> None:
    with FakeCluster(topics={"orders": 2}, clock="manual") as cluster:
        cluster.group("seeded").seed(members=1, topics=["orders"])
        for call, field, value, expected in CALLS:
            with subtests.test(f"{field}={shown(value)}"):
                assert_config_error(partial(call, cluster), field, value, expected)


def test_errors_of_unknown_settings_and_apis_suggest_the_nearest_name() -> None:
    cases: list[tuple[Callable[[], object], str, str, str]] = [
        (lambda: FakeCluster(config={"num.partition": 3}), "num.partition", "setting", "num.partitions"),
        (lambda: FakeCluster(api_versions={"Ftch": None}), "api_versions.Ftch", "API", "Fetch"),
    ]
    for call, field, kind, near in cases:
        with pytest.raises(
            ConfigError, match=rf": unknown {kind}; expected one of .*; did you mean '{near}'\?$"
        ) as caught:
            call()
        assert caught.value.field == field


def test_all_invalid_settings_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        FakeCluster(config={"num.partitions": 0, "group.max.size": 5, "message.max.bytes": "x"})
    assert [mistake.field for mistake in caught.value.mistakes] == ["num.partitions", "message.max.bytes"]


@in_trio_with_sockets
async def test_invalid_timeouts_of_a_consumer() -> None:
    with FakeCluster(1) as cluster:
        async with Consumer(cluster.bootstrap_servers, group_id="g") as consumer:
            for timeout, expected in ((-1, AT_LEAST_0), (math.nan, FINITE), (math.inf, FINITE)):
                for wait in (consumer.poll, lambda s: consumer.assignment(timeout=s)):
                    with pytest.raises(ConfigError) as caught:
                        await wait(timeout)
                    assert (caught.value.field, caught.value.expected) == ("timeout", expected)


def test_invalid_lines_of_a_journal() -> None:
    assert_config_error(
        lambda: parse_journal(['{"format":1,"mode":"ful","dropped":0,"brokers":[]}'], "j"), "mode", "ful", "full"
    )


def test_checks_of_numbers() -> None:
    check_number("n", 0, least=0)
    check_number("n", 0.5, above=0, most=1)
    check_integer("n", 5, least=5, most=5)
    check_number("n", -5)
    for infinite in (math.nan, math.inf, -math.inf):
        assert_config_error(partial(check_number, "n", infinite), "n", infinite, FINITE)
    for value in (True, None, "1", 2, -1):
        assert_config_error(partial(check_number, "n", value, least=0, most=1), "n", value, "a number from 0 to 1")
    for other in (True, None, "1", 1.0, math.nan, 0):
        assert_config_error(partial(check_integer, "n", other, least=1), "n", other, "an integer >= 1")
    assert_config_error(lambda: check_number("n", 3, above=3, where="here"), "n", 3, "a number > 3")
    assert (bounds(), bounds(0, 1), bounds(0, most=2.5), bounds(above=0, below=1)) == (
        "",
        " >= 0 and > 1",
        " from 0 to 2.5",
        " > 0 and < 1",
    )


def test_lists_of_expected_names() -> None:
    assert one_of(["a", "b", "c"], most=2) == "one of a, b and 1 more"
    assert (
        one_of(["real", "manual"], "manul", other="a pace") == "one of real, manual or a pace; did you mean 'manual'?"
    )
    assert one_of([1, 2], "1") == "one of 1, 2"
