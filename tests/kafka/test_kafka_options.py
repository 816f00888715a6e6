"""The options `--kafka...` of the pytest plugin. The Kafka of most runs is a fake cluster, over TCP."""

from collections.abc import Iterator
from typing import Any

import pytest

from fakebroker import FakeCluster

pytest_plugins = "pytester"

ONLY_THIS_PLUGIN = ("-p", "no:cacheprovider", "-p", "fakebroker.pytest_plugin", "-rs")

TWO_TESTS = """
    import pytest

    pytestmark = pytest.mark.fake_cluster(topics={"orders": 2})

    def test_on_both(fake_cluster):
        fake_cluster.topic("orders").produce(["a"])
        assert fake_cluster.wait(fake_cluster.topic("orders").has(1))[0].value == b"a"

    def test_on_a_fake(fake_cluster):
        fake_cluster.group("billing").seed(members=1, topics=["orders"])
        fake_cluster.clear_faults()
"""


@pytest.fixture(autouse=True)
def _only_this_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("FAKEBROKER_KAFKA", raising=False)


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=1) as cluster:
        yield cluster


def run(pytester: pytest.Pytester, source: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(test_it=source)
    return pytester.runpytest_inprocess(*ONLY_THIS_PLUGIN, *options)


def on(fake: FakeCluster, pytester: pytest.Pytester, source: str, *options: str) -> pytest.RunResult:
    """Run tests on a Kafka."""
    return run(pytester, source, "--kafka", fake.bootstrap_servers, *options)


def topics(fake: FakeCluster) -> list[str]:
    return [each.name for each in fake.topics() if not each.is_internal]


def test_tests_run_on_kafka_or_say_what_they_need(fake: FakeCluster, pytester: pytest.Pytester) -> None:
    result = on(fake, pytester, TWO_TESTS)
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(
        [
            f"fakebroker: tests run on Kafka {fake.bootstrap_servers}, not on fake clusters",
            "SKIPPED * test_it.py:9: needs fakebroker: cluster.group('billing').seed",
        ]
    )
    assert fake.journal.count("Produce") == 1
    assert topics(fake) == []
    run(pytester, TWO_TESTS).assert_outcomes(passed=2)


def test_strict_makes_failures(fake: FakeCluster, pytester: pytest.Pytester) -> None:
    result = on(fake, pytester, TWO_TESTS, "--kafka-strict")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["needs fakebroker: cluster.group('billing').seed"])


def test_the_environment_variable(
    fake: FakeCluster, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKEBROKER_KAFKA", fake.bootstrap_servers)
    run(pytester, TWO_TESTS).assert_outcomes(passed=1, skipped=1)


def test_marks_choose_the_kafka_of_a_test(fake: FakeCluster, pytester: pytest.Pytester) -> None:
    source = f"""
        import pytest
        from fakebroker import FakeCluster, KafkaCluster

        @pytest.mark.kafka(None)
        def test_always_on_a_fake(fake_cluster):
            assert isinstance(fake_cluster, FakeCluster)

        @pytest.mark.kafka("{fake.bootstrap_servers}")
        def test_always_on_kafka(fake_cluster):
            assert isinstance(fake_cluster, KafkaCluster)

        def test_default(fake_cluster):
            assert isinstance(fake_cluster, FakeCluster)
    """
    run(pytester, source).assert_outcomes(passed=3)
    on(fake, pytester, source).assert_outcomes(passed=2, failed=1)


def test_arguments_of_marks_are_compared(fake: FakeCluster, pytester: pytest.Pytester) -> None:
    result = on(
        fake,
        pytester,
        """
        import pytest

        @pytest.mark.fake_cluster(config={"group.max.size": 5})
        def test_config(fake_cluster):
            raise AssertionError

        @pytest.mark.fake_cluster(brokers=3)
        def test_brokers(fake_cluster):
            raise AssertionError

        @pytest.mark.fake_cluster(as_version=["2.8", "4.4"])
        def test_releases(fake_cluster):
            raise AssertionError

        @pytest.mark.fake_cluster(clock="manual", seed=5)
        def test_unused(fake_cluster):
            assert fake_cluster.topics() == []
        """,
    )
    result.assert_outcomes(passed=1, skipped=4)
    result.stdout.fnmatch_lines(["*needs group.max.size=5; Kafka at *", "*needs 3 brokers; *"])


def test_all_fixtures(fake: FakeCluster, pytester: pytest.Pytester) -> None:
    on(
        fake,
        pytester,
        """
        import pytest
        from fakebroker import KafkaCluster

        pytestmark = pytest.mark.fake_cluster(topics={"orders": 1})

        @pytest.fixture(scope="module")
        def fake_cluster_module_setup():
            return lambda cluster: cluster.topic("orders").produce(["first"])

        @pytest.mark.parametrize("number", range(2))
        def test_module(fake_cluster_module, number):
            assert isinstance(fake_cluster_module, KafkaCluster)
            fake_cluster_module.topic("orders").produce(["second"])
            assert len(fake_cluster_module.topic("orders").records()) == 2

        def test_factory(fake_cluster_factory):
            assert isinstance(fake_cluster_factory(topics={"payments": 1}), KafkaCluster)
        """,
    ).assert_outcomes(passed=3)
    assert topics(fake) == []


def test_a_mark_is_needed_by_a_fixture_of_a_module(fake: FakeCluster, pytester: pytest.Pytester) -> None:
    on(
        fake,
        pytester,
        """
        import pytest

        pytestmark = pytest.mark.fake_cluster(tls=True)

        def test_module(fake_cluster_module):
            raise AssertionError
        """,
    ).assert_outcomes(skipped=1)


def test_a_failed_test_has_a_report_and_leaves_nothing(fake: FakeCluster, pytester: pytest.Pytester) -> None:
    result = on(
        fake,
        pytester,
        """
        import pytest

        @pytest.mark.fake_cluster(topics={"orders": 1})
        def test_fails(fake_cluster):
            fake_cluster.topic("orders").produce(["a"])
            raise AssertionError
        """,
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*- Kafka 1 -*", "*orders-0   0      1*", "*orders-0 @0  key None, value b'a'*"])
    assert topics(fake) == []


def test_a_name_with_a_prefix(fake: FakeCluster, pytester: pytest.Pytester) -> None:
    source = """
        import pytest

        @pytest.mark.fake_cluster(topics={"orders": 1})
        def test_name(fake_cluster):
            assert fake_cluster.name("orders") == "ci-orders"
    """
    on(fake, pytester, source, "--kafka-prefix", "ci-").assert_outcomes(passed=1)
    fake.topic("ci-orders").create(1)
    on(fake, pytester, source, "--kafka-prefix", "ci-").assert_outcomes(errors=1)
    on(fake, pytester, source, "--kafka-prefix", "ci-", "--kafka-clean").assert_outcomes(passed=1)


def test_clients_of_a_skipped_test_do_not_live_on(fake: FakeCluster, pytester: pytest.Pytester) -> None:
    on(
        fake,
        pytester,
        """
        import weakref

        clients = []

        class Client:
            pass

        def test_skipped(fake_cluster):
            client = Client()
            clients.append(weakref.ref(client))
            fake_cluster.journal.count("Fetch")

        def test_next():
            assert clients[0]() is None
        """,
    ).assert_outcomes(passed=1, skipped=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--kafka-clean",), "--kafka-clean: expected --kafka with it"),
        (("--kafka-prefix", "ci-"), "--kafka-prefix: expected --kafka with it"),
        (("--kafka", "nowhere"), "--kafka='nowhere': expected HOST:PORT, or a release such as 4.4.0"),
        (("--kafka", ""), "--kafka='': expected HOST:PORT, or a release such as 4.4.0"),
        (("--kafka", "3.9.0"), "--kafka='3.9.0': expected one of 4.0, *a full version since 4.0.0*"),
        (("--kafka", "127.0.0.1:1", "--kafka-brokers", "3"), "--kafka-brokers=3: expected a release with it*"),
        (("--kafka", "4.4", "--kafka-brokers", "0"), "--kafka-brokers=0: expected an integer >= 1"),
        (("--kafka", "127.0.0.1:1", "--kafka-prefix", "a/b"), "--kafka-prefix='a/b': expected a name of *"),
        (
            ("--kafka", "127.0.0.1:1", "--kafka-client-config", "no.properties"),
            "--kafka-client-config: 'no.properties': expected a file of properties (No such file or directory)",
        ),
        (("--kafka", "127.0.0.1:1"), "--kafka=127.0.0.1:1: *127.0.0.1:1 cannot be reached: Connection refused"),
    ],
)
def test_options_without_effect_are_errors(pytester: pytest.Pytester, options: tuple[str, ...], message: str) -> None:
    result = run(pytester, TWO_TESTS, *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{message}*"])


def test_mistakes_in_marks_are_the_same_errors_as_on_a_fake(fake: FakeCluster, pytester: pytest.Pytester) -> None:
    source = """
        import pytest

        @pytest.mark.fake_cluster(topic={"orders": 1})
        def test_unknown(fake_cluster):
            pass

        @pytest.mark.fake_cluster(clock="manuel")
        def test_clock(fake_cluster):
            pass

        @pytest.mark.fake_cluster(topics={"or ders": 1})
        def test_topic(fake_cluster):
            pass

        @pytest.mark.fake_cluster(config={"group.max.siz": 5})
        def test_config(fake_cluster):
            pass
    """
    on_fake, on_kafka = run(pytester, source), on(fake, pytester, source)
    for result in (on_fake, on_kafka):
        result.assert_outcomes(errors=4)
    errors = [[line for line in result.outlines if line.startswith("E  ")] for result in (on_fake, on_kafka)]
    assert errors[0] == errors[1]


def test_a_mark_with_a_mistake_is_named(pytester: pytest.Pytester) -> None:
    result = run(pytester, "import pytest\n@pytest.mark.kafka('foo')\ndef test_it(fake_cluster): pass")
    result.stdout.fnmatch_lines(["*the mark kafka='foo': expected HOST:PORT, or a release such as 4.4.0"])


def test_a_forgotten_prefix_is_named(fake: FakeCluster, pytester: pytest.Pytester) -> None:
    result = on(
        fake,
        pytester,
        f"""
        import pytest
        from confluent_kafka import Producer, Consumer, TopicPartition

        @pytest.mark.fake_cluster(topics={{"orders": 1}})
        def test_topic(fake_cluster):
            producer = Producer({{"bootstrap.servers": "{fake.bootstrap_servers}"}})
            producer.produce("orders", b"a")
            assert producer.flush(10) == 0
            fake_cluster.wait(fake_cluster.topic("orders").has(1), 0)

        @pytest.mark.fake_cluster(topics={{"payments": 1}})
        def test_group(fake_cluster):
            consumer = Consumer({{"bootstrap.servers": "{fake.bootstrap_servers}", "group.id": "billing"}})
            consumer.commit(offsets=[TopicPartition("ci-payments", 0, 1)], asynchronous=False)
            consumer.close()
            fake_cluster.wait(fake_cluster.group("billing").committed("payments-0", at_least=1), 0)
        """,
        *("--kafka-prefix", "ci-"),
    )
    result.assert_outcomes(failed=2, errors=1)
    result.stdout.fnmatch_lines(
        [
            "*topic orders is new and was not deleted: the application has to use the name that `cluster.name` returns",
            "*There is a new topic 'orders' without the prefix: *cluster.name('orders'), which returns 'ci-orders'.",
            "*There is a new group 'billing' without the prefix: *",
        ]
    )


def test_workers_need_a_prefix(fake: FakeCluster, pytester: pytest.Pytester) -> None:
    workers: Any = ("-p", "xdist", "--numprocesses", "2")
    result = on(fake, pytester, TWO_TESTS, *workers)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*expected --kafka-prefix with several workers*"])
    source = (
        TWO_TESTS
        + """
    def test_prefix(fake_cluster, worker_id):
        assert fake_cluster.name("orders") == f"ci-{worker_id}-orders"
    """
    )
    on(fake, pytester, source, *workers, "--kafka-prefix", "ci-").assert_outcomes(passed=2, skipped=1)
    assert topics(fake) == []
