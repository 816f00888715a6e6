"""The pytest plugin. Most tests write a small test module and run pytest on it."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from fakebroker import read_journal

pytest_plugins = "pytester"

ONLY_THIS_PLUGIN = ("-p", "no:cacheprovider", "-p", "fakebroker.pytest_plugin")
"""Options for a run with this plugin only. Loading all installed plugins would take most of the time of the run."""

READS = """
from confluent_kafka import Consumer

def read(cluster, group_id="readers"):
    cluster.topic("orders").create(2)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group_id})
    consumer.subscribe(["orders"])
    while not consumer.assignment():
        consumer.poll(0.1)
    consumer.close()
"""
"""The beginning of a test module. `read` runs a consumer that joins a group and leaves it."""


@pytest.fixture(autouse=True)
def _only_this_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def run(pytester: pytest.Pytester, source: str, *options: str) -> pytest.RunResult:
    """Run a test module, together with those that the test has made before."""
    pytester.makepyfile(test_it=source)
    return pytester.runpytest_inprocess(*ONLY_THIS_PLUGIN, *options)


def names(result: pytest.RunResult) -> list[str]:
    """Return the names of the tests that passed, from the output of `-v`."""
    return [found[1] for line in result.outlines if (found := re.search(r"::(\S+) PASSED", line))]


# A cluster for each test


def test_fixture_mark_and_factory(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import pytest

        def test_default(fake_cluster):
            assert len(fake_cluster.brokers) == 3
            assert len(fake_cluster.bootstrap_servers.split(",")) == 3

        @pytest.mark.fake_cluster(brokers=1, topics={"orders": 6})
        def test_marked(fake_cluster):
            assert len(fake_cluster.brokers) == 1

        @pytest.mark.fake_cluster(first_node_id=0)
        def test_marked_with_the_first_node_id(fake_cluster):
            assert [broker.node_id for broker in fake_cluster.brokers] == [0, 1, 2]

        @pytest.mark.fake_cluster(2)
        def test_marked_without_names(fake_cluster):
            assert len(fake_cluster.brokers) == 2

        def test_two_at_once(fake_cluster_factory):
            one, two = fake_cluster_factory(brokers=1), fake_cluster_factory(brokers=2, seed=5)
            assert two.seed == 5
            assert one.bootstrap_servers != two.bootstrap_servers
        """,
    )
    result.assert_outcomes(passed=5)


def test_a_cluster_does_not_outlive_its_test(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import gc
        import weakref

        clusters = []

        def test_starts_two(fake_cluster, fake_cluster_factory):
            clusters.extend(map(weakref.ref, (fake_cluster, fake_cluster_factory())))

        def test_starts_none():
            gc.collect()
            assert [cluster() for cluster in clusters] == [None, None]
        """,
    )
    result.assert_outcomes(passed=2)


def test_a_mark_extends_those_of_its_class_and_module(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import pytest
        from fakebroker.server.fake_cluster import internals

        pytestmark = pytest.mark.fake_cluster(
            2,
            topics={"orders": 6, "payments": 3},
            config={"group.max.size": 5},
            api_versions={"Fetch": (4, 11)},
            clock="manual",
            seed=5,
        )

        def settings(cluster):
            topics = {topic.name: len(topic.partitions) for topic in cluster.topics()}
            config = internals(cluster).cluster.config
            return len(cluster.brokers), topics, config.number("group.max.size"), cluster.seed

        def test_module(fake_cluster):
            assert settings(fake_cluster) == (2, {"orders": 6, "payments": 3}, 5, 5)

        @pytest.mark.fake_cluster(topics={"orders": 1, "refunds": 2}, config={"num.partitions": 4}, seed=6)
        def test_function(fake_cluster):
            assert settings(fake_cluster) == (2, {"orders": 1, "payments": 3, "refunds": 2}, 5, 6)
            assert internals(fake_cluster).cluster.config.number("num.partitions") == 4
            fake_cluster.advance(1)

        @pytest.mark.fake_cluster(brokers=4, topics=None, config=None, api_versions=None)
        def test_none_replaces(fake_cluster):
            assert settings(fake_cluster) == (4, {}, 2**31 - 1, 5)

        @pytest.mark.fake_cluster(topics={"refunds": 2}, seed=7)
        class TestClass:
            def test_class(self, fake_cluster):
                assert settings(fake_cluster) == (2, {"orders": 6, "payments": 3, "refunds": 2}, 5, 7)

            @pytest.mark.fake_cluster(1, {"refunds": 9}, seed=8)
            @pytest.mark.fake_cluster(seed=9)
            def test_method(self, fake_cluster, fake_cluster_module):
                assert settings(fake_cluster) == (1, {"orders": 6, "payments": 3, "refunds": 9}, 5, 9)
                assert settings(fake_cluster_module) == (2, {"orders": 6, "payments": 3}, 5, 5)
        """,
    )
    result.assert_outcomes(passed=5)


def test_releases_are_those_of_the_nearest_mark_that_names_some(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import pytest
        from fakebroker.server.fake_cluster import internals

        pytestmark = pytest.mark.fake_cluster(as_version=["2.8", "4.2"])

        @pytest.mark.fake_cluster(topics={"orders": 1})
        def test_of_the_module(fake_cluster):
            pass

        @pytest.mark.fake_cluster(as_version="3.9")
        def test_one(fake_cluster):
            assert {str(broker.release) for broker in internals(fake_cluster).cluster.brokers.values()} == {"3.9"}
        """,
        "-v",
    )
    assert names(result) == ["test_of_the_module[kafka-2.8]", "test_of_the_module[kafka-4.2]", "test_one"]


def test_too_many_positional_arguments_of_the_mark_are_a_usage_error(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import pytest

        @pytest.mark.fake_cluster(1, {}, {}, 5, "2.8")
        def test_it(fake_cluster):
            pass
        """,
    )
    result.stdout.fnmatch_lines(["*5 arguments without names: expected at most 4*"])


def test_an_invalid_argument_of_the_mark_is_named(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import pytest

        @pytest.mark.fake_cluster(partial_frame_timeout_s=float("nan"))
        def test_it(fake_cluster):
            pass
        """,
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*ConfigError: partial_frame_timeout_s=nan: expected a finite number"])


def test_a_list_of_releases_parametrizes_tests(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import pytest
        from fakebroker.server.fake_cluster import internals

        @pytest.mark.fake_cluster(brokers=1, as_version=["2.0", "3.9"])
        @pytest.mark.parametrize("name", ["a", "b"])
        def test_direct(name, fake_cluster):
            assert len(fake_cluster.brokers) == 1

        @pytest.fixture
        def releases(fake_cluster):
            return [str(broker.release) for broker in internals(fake_cluster).cluster.brokers.values()]

        @pytest.mark.fake_cluster(as_version=("2.8", "4.2"))
        def test_through_a_fixture(releases, request):
            assert request.node.name == f"test_through_a_fixture[kafka-{releases[0]}]"

        @pytest.mark.fake_cluster(as_version="2.8")
        def test_one(releases):
            assert releases == ["2.8"] * 3
        """,
        "-v",
    )
    assert names(result) == [
        "test_direct[kafka-2.0-a]",
        "test_direct[kafka-2.0-b]",
        "test_direct[kafka-3.9-a]",
        "test_direct[kafka-3.9-b]",
        "test_through_a_fixture[kafka-2.8]",
        "test_through_a_fixture[kafka-4.2]",
        "test_one",
    ]


# Clusters for many tests


def test_a_module_shares_a_cluster(pytester: pytest.Pytester) -> None:
    source = """
        import pytest

        pytestmark = pytest.mark.fake_cluster(brokers=1, topics={"orders": 6}, seed=5)
        seen, clusters = [], []

        @pytest.mark.parametrize("turn", [1, 2, 3])
        def test_reset_in_between(turn, fake_cluster_module):
            assert fake_cluster_module.groups() == []
            fake_cluster_module.group("readers").seed(members=1, topics=["orders"])
            (member,) = fake_cluster_module.group("readers").describe().members
            clusters.append(fake_cluster_module)
            seen.append((fake_cluster_module.bootstrap_servers, member.member_id))
            assert seen == seen[:1] * turn

        def test_without_the_fixture_it_is_not_reset():
            assert [cluster.group("readers").describe().state for cluster in clusters] == ["Stable"] * 3

        @pytest.mark.fake_cluster(brokers=2)
        def test_marks_of_tests_do_not_apply(fake_cluster, fake_cluster_module):
            assert [len(cluster.brokers) for cluster in (fake_cluster, fake_cluster_module)] == [2, 1]
    """
    pytester.makepyfile(test_other=source)
    run(pytester, source).assert_outcomes(passed=10)


def test_a_module_shares_a_cluster_per_release(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import pytest

        pytestmark = pytest.mark.fake_cluster(as_version=["2.8", "4.2"])
        clusters = []

        def test_one(fake_cluster_module):
            clusters.append(fake_cluster_module)

        def test_two(fake_cluster_module):
            assert clusters[-1] is fake_cluster_module
        """,
        "-v",
    )
    assert names(result) == [f"test_{name}[kafka-{release}]" for release in ("2.8", "4.2") for name in ("one", "two")]


def test_a_shared_cluster_is_prepared_after_each_reset(pytester: pytest.Pytester) -> None:
    document = Path(__file__).parents[1] / "scenarios" / "reference" / "pytest.md"
    (example,) = re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL)
    run(pytester, example).assert_outcomes(passed=2)


def test_the_cluster_of_a_session_is_prepared_after_each_reset(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def fake_cluster_session_setup():
            return lambda cluster: cluster.group("readers").seed()
        """
    )
    source = """
        def test_one(fake_cluster_session):
            assert [group.group_id for group in fake_cluster_session.groups()] == ["readers"]
            fake_cluster_session.group("more").seed()

        def test_two(fake_cluster_session):
            assert [group.group_id for group in fake_cluster_session.groups()] == ["readers"]
    """
    pytester.makepyfile(test_other=source)
    run(pytester, source).assert_outcomes(passed=4)


def test_an_error_of_the_setup_is_an_error_of_each_test(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import pytest

        calls = []

        @pytest.fixture(scope="module")
        def fake_cluster_module_setup():
            def setup(cluster):
                calls.append(cluster)
                if len(calls) == 2:
                    raise KeyError("mine")

            return setup

        def test_one(fake_cluster_module):
            pass

        def test_two(fake_cluster_module):
            pass

        def test_three(fake_cluster_module):
            pass
        """,
    )
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*KeyError: 'mine'*"])


def test_a_setup_that_is_not_a_function_is_named(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import pytest

        @pytest.fixture(scope="module")
        def fake_cluster_module_setup():
            pass

        def test_one(fake_cluster_module):
            pass
        """,
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*fake_cluster_module_setup=None: expected a fixture that returns a function*"])


def test_a_session_shares_a_cluster(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def fake_cluster_session_arguments():
            return {"brokers": 2, "topics": {"orders": 6}}

        @pytest.fixture(scope="session")
        def application(fake_cluster_session):
            return {"servers": fake_cluster_session.bootstrap_servers}
        """
    )
    source = """
        def test_through_a_fixture(application, fake_cluster_session):
            assert fake_cluster_session.bootstrap_servers == application["servers"]
            assert len(fake_cluster_session.brokers) == 2
            fake_cluster_session.topic("parcels").create()

        def test_directly(fake_cluster_session):
            fake_cluster_session.topic("parcels").create()
    """
    pytester.makepyfile(test_other=source)
    run(pytester, source).assert_outcomes(passed=4)


# Asynchronous tests


ASYNC_PLUGINS = {"anyio": "anyio", "trio": "pytest_trio"}
"""Maps the mark of async tests to the package of the plugin that runs them. The plugin has the name of the mark."""


@pytest.mark.parametrize("mark", [mark for mark, package in ASYNC_PLUGINS.items() if find_spec(package)])
def test_an_async_test_has_a_cluster(pytester: pytest.Pytester, mark: str) -> None:
    result = run(
        pytester,
        f"""
        import pytest
        import trio
        from fakebroker.server.fake_cluster import internals

        @pytest.mark.{mark}
        @pytest.mark.fake_cluster(brokers=1)
        async def test_it(fake_cluster_async):
            (broker,) = fake_cluster_async.brokers
            is_cluster_thread = internals(fake_cluster_async).server.is_cluster_thread
            assert is_cluster_thread is trio.lowlevel.in_trio_run()
            if is_cluster_thread:
                await (await trio.open_tcp_stream(broker.host, broker.port)).aclose()
            fake_cluster_async.group("readers").seed()
            assert False
        """,
        "-p",
        {"anyio": "anyio.pytest_plugin", "trio": "pytest_trio.plugin"}[mark],
    )
    result.assert_outcomes(failed=2 if mark == "anyio" else 1)  # anyio also runs it on asyncio.
    result.stdout.fnmatch_lines(["*AssertionError*", "*fake cluster 1*", "readers: Empty*"])


# Failed tests


def test_a_failed_test_shows_its_cluster(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        READS
        + """
def test_it(fake_cluster):
    read(fake_cluster)
    fake_cluster.transaction("payments").seed()
    assert False
        """,
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*fake cluster 1*",
            "seed=*",
            "errors returned: none, except usual ones: 1 JoinGroup MEMBER_ID_REQUIRED",
            "  orders-0 *",
            "readers: Empty, generation 2*",
            "payments: Ongoing, producer 0 in epoch 0",
            "*JoinGroup *MEMBER_ID_REQUIRED *readers",
            "readers has been in Empty for *",
            "group readers, since *",
            "payments has been in Ongoing for *",
            "transactional id payments, since *",
        ]
    )


def test_the_traceback_of_an_error_ends_at_the_call_of_the_test(pytester: pytest.Pytester) -> None:
    source = """
        import pytest
        from fakebroker.server.fake_cluster import internals

        def test_it(fake_cluster):
            fake_cluster.wait(fake_cluster.group("g").stable(), timeout_s=0)

        @pytest.mark.fake_cluster(brokers="many")
        def test_setup(fake_cluster):
            pass

        def test_command(fake_cluster):
            fake_cluster.broker(7).stop()

        def test_assertion(fake_cluster):
            fake_cluster.journal.assert_order("JoinGroup")

        def test_error_of_the_test(fake_cluster):
            internals(fake_cluster).run(lambda: 1 / 0)
        """
    result = run(pytester, source)
    result.assert_outcomes(failed=4, errors=1)
    result.stdout.fnmatch_lines(
        [
            ">       return fake_cluster_factory(**_marked(request))",
            "E       *ConfigError: brokers='many': expected an integer or a list",
            '>       fake_cluster.wait(fake_cluster.group("g").stable(), timeout_s=0)',
            "E       *WaitTimeout: not reached within 0 s: group('g').stable()",
            "*test_it.py:5: WaitTimeout",
            "*test_it.py:12: ConfigError",
            "*test_it.py:15: AssertionError",
        ],
    )
    shown = result.stdout.str()
    assert "waits.py" not in shown
    assert "definition.py" not in shown
    assert "lifecycle.py" in shown  # An error that is not of this package may be a bug of it.
    assert "waits.py" in run(pytester, source, "--full-trace").stdout.str()


def test_a_failed_action_of_a_fault_fails_the_test(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        READS
        + """
def test_it(fake_cluster):
    fake_cluster.inject_fault("JoinGroup", times=1, then={"do": "broker.start", "node_id": 1})
    read(fake_cluster)

def test_without_error(fake_cluster):
    fake_cluster.inject_fault("JoinGroup", times=1, then={"do": "topic.create", "topic": "more"})
    read(fake_cluster)
        """,
    )
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(
        ["actions of faults failed:", "broker.start(node_id=1) at <JoinGroup v*: expected a broker that is down*"]
    )


def test_a_fault_that_misses_fails_the_test(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        READS
        + """
def test_it(fake_cluster):
    fake_cluster.inject_fault("JoinGroup", group="reader", error="NOT_COORDINATOR", times=1)
    read(fake_cluster)

def test_it_may_miss(fake_cluster):
    fake_cluster.inject_fault("JoinGroup", group="reader", error="NOT_COORDINATOR", times=1, may_miss=True)
    read(fake_cluster)

def test_another_error(fake_cluster):
    fake_cluster.inject_fault("JoinGroup", group="reader", error="NOT_COORDINATOR", times=1)
    assert False

def test_a_cluster(request):
    from fakebroker import FakeCluster
    with FakeCluster() as cluster:
        cluster.inject_fault("JoinGroup", drop=True)
        """,
    )
    result.assert_outcomes(failed=3, passed=1)
    result.stdout.fnmatch_lines(
        ["inject_fault(*group='reader'*) was applied to no request; *nearest group: 'readers'*"]
    )
    result.stdout.fnmatch_lines(["*ConditionNotMet: inject_fault(api='JoinGroup', drop=True) was applied to no *"])


def test_a_failed_test_shows_its_shared_cluster(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        def test_one(fake_cluster_session):
            fake_cluster_session.group("one").seed()

        def test_two(fake_cluster, fake_cluster_session):
            fake_cluster.group("two").seed()
            fake_cluster_session.group("three").seed()
            assert False

        def test_neither():
            assert False
        """,
    )
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["*fake cluster 1*", "two: *", "*fake cluster 2*", "three: *"])
    result.stdout.no_fnmatch_line("*fake cluster 3*")
    result.stdout.no_fnmatch_line("one: *")


def test_journals_of_failed_tests_are_kept(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        READS
        + """
import pytest

def test_passes(fake_cluster):
    read(fake_cluster)

@pytest.mark.parametrize("name", ["a/b", "a:b", "long" * 100])
def test_fails(name, fake_cluster_session):
    read(fake_cluster_session)
    assert False

@pytest.mark.fake_cluster(journal="off")
def test_has_none(fake_cluster):
    assert False
        """,
        "--fakebroker-keep-journal=some/where",
    )
    result.assert_outcomes(passed=1, failed=4)
    result.stdout.fnmatch_lines(
        ["journal: */some/where/test_it.py-test_fails-a-b-1-*.jsonl", "journal not kept: *off*"]
    )
    journals = [read_journal(path) for path in (pytester.path / "some" / "where").iterdir()]
    assert len(journals) == 3
    for journal in journals:
        assert journal.count("JoinGroup") == 2


# The run


def test_the_log_is_printed_while_tests_run(pytester: pytest.Pytester, capfd: pytest.CaptureFixture[str]) -> None:
    source = """
        import logging

        def test_it():
            logging.getLogger("fakebroker").info("hello")
            logging.getLogger("fakebroker").debug("secret")
    """
    run(pytester, source, "--fakebroker-log=info").assert_outcomes(passed=1)
    errors = capfd.readouterr().err
    assert errors.endswith(" INFO fakebroker: hello\n")
    assert "secret" not in errors
    run(pytester, source).assert_outcomes(passed=1)
    assert capfd.readouterr().err == ""


def test_an_unknown_log_level_is_a_usage_error(pytester: pytest.Pytester) -> None:
    result = run(pytester, "", "--fakebroker-log=loud")
    result.stderr.fnmatch_lines(["*--fakebroker-log=loud: expected one of *INFO*"])


@pytest.mark.slow
def test_processes_of_a_run_have_their_own_clusters(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import os
        import pytest

        @pytest.mark.parametrize("turn", range(6))
        def test_it(turn, fake_cluster, fake_cluster_module, fake_cluster_session):
            for cluster in (fake_cluster, fake_cluster_module, fake_cluster_session):
                cluster.topic("orders").create()
            assert turn < 4, os.environ["PYTEST_XDIST_WORKER"]
        """,
        *("-p", "xdist", "-n", "2", "--fakebroker-keep-journal=kept"),
    )
    result.assert_outcomes(passed=4, failed=2)
    assert len(list((pytester.path / "kept").iterdir())) == 2 * 3


def test_the_plugin_imports_nothing_else() -> None:
    code = (
        "import sys, fakebroker.pytest_plugin; print(*(name for name in sys.modules if name.startswith('fakebroker')))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["fakebroker", "fakebroker.pytest_plugin"]
