"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: described values, valid changes, and their effect."""

from typing import Any

import pytest

from fakebroker.cluster.configs.broker_configs import default_values, kafka_broker_configs, listed_configs
from fakebroker.cluster.configs.changes import Operation, ResourceType
from fakebroker.cluster.configs.definitions import ConfigKey, ConfigType
from fakebroker.cluster.configs.resolution import LOG_DIR, ConfigSource
from fakebroker.cluster.configs.settings import CLOCK_SKEW, MAX_PARTITION_BYTES, REQUIRED_SCOPE, SETTINGS, Config
from fakebroker.cluster.configs.topic_configs import TOPIC_CONFIGS
from fakebroker.cluster.emulation import Broker, EmulatedRelease
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages import alter_configs, incremental_alter_configs
from fakebroker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from fakebroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fakebroker.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from fakebroker.protocol.releases import NEWEST, RELEASES
from tests.support.cluster.cluster_harness import ClusterHarness, batch, versions

TOPIC, BROKER, LOGGER = ResourceType.TOPIC, ResourceType.BROKER, ResourceType.BROKER_LOGGER
SET, DELETE, APPEND, SUBTRACT = Operation
GROUP, CLIENT_METRICS = ResourceType.GROUP, ResourceType.CLIENT_METRICS
DESCRIBE_VERSIONS = range(5)

NEWS = (TOPIC, "news")
BROKER_1 = (BROKER, "1")
CLUSTER = (BROKER, "")

BROKER_CONFIGS = listed_configs(NEWEST)

Resource = tuple[int, str]
Outcome = tuple[int, str | None]


def describe(
    harness: ClusterHarness,
    *resources: Resource,
    keys: list[str] | None = None,
    version: int = 4,
    broker: int = 1,
    **flags: Any,
) -> list[Any]:
    """Send DescribeConfigs and return the results."""
    described = [
        DescribeConfigsResource(resource_type=type_, resource_name=name, configuration_keys=keys)
        for type_, name in resources
    ]
    results: list[Any] = harness.ask(
        DescribeConfigsRequest(resources=described, **flags), version, broker=broker
    ).results
    return results


def describe_one(harness: ClusterHarness, resource: Resource, name: str, *, version: int = 4, broker: int = 1) -> Any:
    """Return the description of one config, with its synonyms."""
    (result,) = describe(harness, resource, keys=[name], version=version, broker=broker, include_synonyms=version > 0)
    assert result.error_code == ErrorCode.NONE, result.error_message
    (config,) = result.configs
    return config


def value(harness: ClusterHarness, resource: Resource, name: str, broker: int = 1) -> tuple[str | None, ConfigSource]:
    """Return the effective value of a config, and its source."""
    config = describe_one(harness, resource, name, broker=broker)
    return config.value, ConfigSource(config.config_source)


def synonyms(harness: ClusterHarness, resource: Resource, name: str) -> list[tuple[str, str | None, ConfigSource]]:
    return [
        (each.name, each.value, ConfigSource(each.source)) for each in describe_one(harness, resource, name).synonyms
    ]


def replace(
    harness: ClusterHarness,
    resource: Resource,
    configs: dict[str, str | None],
    *,
    version: int = 2,
    broker: int = 1,
    validate_only: bool = False,
) -> Outcome:
    """Send AlterConfigs for one resource, and return error and message."""
    altered = alter_configs.AlterConfigsResource(
        resource_type=resource[0],
        resource_name=resource[1],
        configs=[alter_configs.AlterableConfig(name=name, value=text) for name, text in configs.items()],
    )
    request = alter_configs.AlterConfigsRequest(resources=[altered], validate_only=validate_only)
    (result,) = harness.ask(request, version, broker=broker).responses
    assert (result.resource_type, result.resource_name) == resource
    return result.error_code, result.error_message


def change(
    harness: ClusterHarness,
    resource: Resource,
    *changes: tuple[str, int, str | None],
    version: int = 1,
    broker: int = 1,
    validate_only: bool = False,
) -> Outcome:
    """Send IncrementalAlterConfigs for one resource, and return error and message.

    A change is a name, an operation and a value.
    """
    altered = changed_resource(resource, *changes)
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[altered], validate_only=validate_only)
    (result,) = harness.ask(request, version, broker=broker).responses
    assert (result.resource_type, result.resource_name) == resource
    return result.error_code, result.error_message


def changed_resource(
    resource: Resource, *changes: tuple[str, int, str | None]
) -> incremental_alter_configs.AlterConfigsResource:
    return incremental_alter_configs.AlterConfigsResource(
        resource_type=resource[0],
        resource_name=resource[1],
        configs=[
            incremental_alter_configs.AlterableConfig(name=name, config_operation=operation, value=text)
            for name, operation, text in changes
        ],
    )


def set_(harness: ClusterHarness, resource: Resource, name: str, text: str, broker: int = 1) -> None:
    assert change(harness, resource, (name, SET, text), broker=broker) == (ErrorCode.NONE, None)


def produce(harness: ClusterHarness, records: bytes, broker: int = 1) -> int:
    """Produce to the topic and return the error code."""
    data = TopicProduceData(name="news", partition_data=[PartitionProduceData(index=0, records=records)])
    request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1000, topic_data=[data])
    (response,) = harness.ask(request, 9, broker=broker).responses
    error: int = response.partition_responses[0].error_code
    return error


# DescribeConfigs


def test_all_configs_of_a_topic(subtests: pytest.Subtests) -> None:
    for version in DESCRIBE_VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness()
            set_(harness, NEWS, "retention.ms", "1000")
            (result,) = describe(harness, NEWS, version=version)
            assert (result.error_code, result.error_message) == (ErrorCode.NONE, "")
            assert (result.resource_type, result.resource_name) == NEWS
            by_name = {config.name: config for config in result.configs}
            assert list(by_name) == list(TOPIC_CONFIGS)
            altered, default = by_name["retention.ms"], by_name["cleanup.policy"]
            assert (altered.value, default.value) == ("1000", "delete")
            if version >= 1:
                assert altered.config_source == ConfigSource.TOPIC_CONFIG
                assert default.config_source == ConfigSource.DEFAULT_CONFIG
            else:
                assert (altered.is_default, default.is_default) == (False, True)
            types = (ConfigType.LONG, ConfigType.LIST) if version >= 3 else (ConfigType.UNKNOWN, ConfigType.UNKNOWN)
            assert (altered.config_type, default.config_type) == types
            assert not any(each.read_only or each.is_sensitive or each.synonyms for each in result.configs)
            assert {each.documentation for each in result.configs} == {None if version >= 3 else ""}


def test_all_configs_of_a_broker(subtests: pytest.Subtests) -> None:
    for version in DESCRIBE_VERSIONS:
        with subtests.test(version=version):
            harness = ClusterHarness(config={"num.partitions": 7})
            (result,) = describe(harness, BROKER_1, version=version)
            by_name = {config.name: config for config in result.configs}
            assert list(by_name) == sorted(BROKER_CONFIGS)
            # fakebroker's own, two that are internal in Kafka, and those of the authorizer's class
            unlisted = {MAX_PARTITION_BYTES, REQUIRED_SCOPE, CLOCK_SKEW, "group.consumer.regex.refresh.interval.ms"}
            unlisted |= {"leader.imbalance.per.broker.percentage", "allow.everyone.if.no.acl.found", "super.users"}
            assert set(SETTINGS) - set(by_name) == unlisted
            assert by_name["num.partitions"].value == "7"
            assert by_name["auto.create.topics.enable"].value == "true"
            assert by_name["broker.id"].value == "1"
            assert by_name["log.retention.ms"].value is None
            dynamic = {name for name, config in BROKER_CONFIGS.items() if config.is_dynamic}
            assert {each.name for each in result.configs if not each.read_only} == dynamic
            if version >= 1:
                assert by_name["num.partitions"].config_source == ConfigSource.STATIC_BROKER_CONFIG
                assert by_name["broker.id"].config_source == ConfigSource.STATIC_BROKER_CONFIG
                assert by_name["delete.topic.enable"].config_source == ConfigSource.DEFAULT_CONFIG
            else:
                assert not by_name["num.partitions"].is_default
                assert by_name["delete.topic.enable"].is_default


@pytest.mark.parametrize("keys", [None, []])
def test_no_keys_select_all_configs(keys: list[str] | None) -> None:
    (result,) = describe(ClusterHarness(), NEWS, keys=keys)
    assert len(result.configs) == len(TOPIC_CONFIGS)


def test_only_requested_and_known_keys_are_described() -> None:
    (result,) = describe(ClusterHarness(), NEWS, keys=["segment.ms", "no.such", "preallocate"])
    assert [config.name for config in result.configs] == ["preallocate", "segment.ms"]


def test_documentation_on_request() -> None:
    (result,) = describe(ClusterHarness(), NEWS, keys=["max.message.bytes", "segment.ms"], include_documentation=True)
    assert [config.documentation for config in result.configs] == ["Largest record batch.", ""]


def test_synonyms_of_a_topic_config_in_their_order() -> None:
    harness = ClusterHarness(config={"message.max.bytes": 500})
    for resource, name, text in (
        (CLUSTER, "message.max.bytes", "600"),
        (BROKER_1, "message.max.bytes", "700"),
        (NEWS, "max.message.bytes", "800"),
    ):
        set_(harness, resource, name, text)
    assert synonyms(harness, NEWS, "max.message.bytes") == [
        ("max.message.bytes", "800", ConfigSource.TOPIC_CONFIG),
        ("message.max.bytes", "700", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ("message.max.bytes", "600", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("message.max.bytes", "500", ConfigSource.STATIC_BROKER_CONFIG),
        ("message.max.bytes", "1048588", ConfigSource.DEFAULT_CONFIG),
    ]


def test_configs_of_the_same_meaning_are_synonyms() -> None:
    harness = ClusterHarness()
    assert value(harness, NEWS, "retention.ms") == ("604800000", ConfigSource.DEFAULT_CONFIG)
    assert synonyms(harness, NEWS, "retention.ms") == []
    assert synonyms(harness, BROKER_1, "log.retention.ms") == []
    set_(harness, CLUSTER, "log.retention.ms", "5000")
    both = [
        ("log.retention.ms", "5000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("log.retention.hours", "168", ConfigSource.DEFAULT_CONFIG),
    ]
    assert synonyms(harness, BROKER_1, "log.retention.ms") == both
    assert synonyms(harness, BROKER_1, "log.retention.hours") == both[1:]
    assert synonyms(harness, NEWS, "retention.ms") == both
    assert value(harness, NEWS, "retention.ms") == ("5000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)


def test_topic_defaults_are_those_of_the_answering_broker() -> None:
    harness = ClusterHarness(brokers=2)
    set_(harness, (BROKER, "2"), "log.retention.bytes", "5", broker=2)
    assert value(harness, NEWS, "retention.bytes", broker=2) == ("5", ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert value(harness, NEWS, "retention.bytes", broker=1) == ("-1", ConfigSource.DEFAULT_CONFIG)


def test_defaults_follow_the_emulated_release() -> None:
    harness = ClusterHarness(as_version="2.2")
    name = "group.max.session.timeout.ms"
    assert value(harness, BROKER_1, name) == ("300000", ConfigSource.DEFAULT_CONFIG)
    assert value(ClusterHarness(), BROKER_1, name) == ("1800000", ConfigSource.DEFAULT_CONFIG)


def test_the_cluster_wide_resource_has_only_altered_configs() -> None:
    harness = ClusterHarness(config={"message.max.bytes": 500}, as_version="4.0")
    assert describe(harness, CLUSTER)[0].configs == []
    set_(harness, CLUSTER, "message.max.bytes", "600")
    assert value(harness, CLUSTER, "message.max.bytes") == ("600", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    assert len(synonyms(harness, CLUSTER, "message.max.bytes")) == 1


def test_internal_topics_have_their_own_configs() -> None:
    harness = ClusterHarness()
    harness.cluster.topics.show_offsets_topic()
    offsets_topic = (TOPIC, "__consumer_offsets")
    assert value(harness, offsets_topic, "cleanup.policy") == ("compact", ConfigSource.TOPIC_CONFIG)
    assert value(harness, offsets_topic, "segment.bytes") == ("104857600", ConfigSource.TOPIC_CONFIG)


def test_values_in_kafkas_notation() -> None:
    harness = ClusterHarness()
    for name, text, expected in (
        ("preallocate", " TRUE ", "true"),
        ("segment.ms", " +60 ", "60"),
        ("cleanup.policy", "compact , delete", "compact,delete"),
        ("min.cleanable.dirty.ratio", "0.50", "0.5"),
        ("follower.replication.throttled.replicas", "", ""),
    ):
        set_(harness, NEWS, name, text)
        assert value(harness, NEWS, name) == (expected, ConfigSource.TOPIC_CONFIG)


def test_invalid_resources_to_describe(subtests: pytest.Subtests) -> None:
    for resource, error in [
        ((TOPIC, "gone"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((TOPIC, "no spaces"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        ((TOPIC, ""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        ((BROKER, "2"), ErrorCode.INVALID_REQUEST),
        ((BROKER, "one"), ErrorCode.INVALID_REQUEST),
        ((LOGGER, ""), ErrorCode.INVALID_REQUEST),
        ((LOGGER, "2"), ErrorCode.INVALID_REQUEST),
    ]:
        for version in versions("DescribeConfigs"):
            with subtests.test(resource=resource, version=version):
                refused, described = describe(ClusterHarness(brokers=2), resource, NEWS, version=version)
                assert (refused.resource_type, refused.resource_name, refused.error_code) == (*resource, error)
                # As in Kafka, the error of a missing topic has no text.
                assert bool(refused.error_message) == (resource != (TOPIC, "gone"))
                assert refused.configs == []
                assert (described.error_code, len(described.configs)) == (ErrorCode.NONE, len(TOPIC_CONFIGS))


def test_an_unknown_type_fails_the_whole_request(subtests: pytest.Subtests) -> None:
    for type_ in [0, 1, 99]:
        with subtests.test(type_=type_):
            results = describe(ClusterHarness(), NEWS, (type_, "x"))
            assert [(each.resource_name, each.error_code) for each in results] == [
                ("news", ErrorCode.INVALID_REQUEST),
                ("x", ErrorCode.INVALID_REQUEST),
            ]
            assert all(f"type {type_}" in each.error_message for each in results)


# AlterConfigs and IncrementalAlterConfigs


@pytest.mark.parametrize(
    ("resource", "first", "second"),
    [
        (NEWS, "retention.ms", "segment.ms"),
        (BROKER_1, "log.retention.ms", "num.io.threads"),
        (CLUSTER, "log.retention.ms", "num.io.threads"),
    ],
)
def test_replacing_all_configs(subtests: pytest.Subtests, resource: Resource, first: str, second: str) -> None:
    for version in versions("AlterConfigs"):
        with subtests.test(version=version):
            harness = ClusterHarness()
            described = BROKER_1 if resource == CLUSTER else resource
            before = value(harness, described, first)
            kept: dict[str, str | None] = {"min.insync.replicas": "1"} if resource == CLUSTER else {}
            assert replace(harness, resource, {first: "10", **kept}, version=version) == (ErrorCode.NONE, None)
            assert value(harness, resource, first)[0] == "10"
            assert replace(harness, resource, {second: "12", **kept}, version=version) == (ErrorCode.NONE, None)
            assert value(harness, resource, second)[0] == "12"
            assert value(harness, described, first) == before


def test_changing_single_configs(subtests: pytest.Subtests) -> None:
    for version in versions("IncrementalAlterConfigs"):
        with subtests.test(version=version):
            harness = ClusterHarness()
            both = ("retention.ms", SET, "10"), ("segment.ms", SET, "12")
            assert change(harness, NEWS, *both, version=version) == (ErrorCode.NONE, None)
            assert change(harness, NEWS, ("retention.ms", DELETE, None), version=version) == (ErrorCode.NONE, None)
            assert value(harness, NEWS, "retention.ms") == ("604800000", ConfigSource.DEFAULT_CONFIG)
            assert value(harness, NEWS, "segment.ms") == ("12", ConfigSource.TOPIC_CONFIG)


@pytest.mark.parametrize(
    ("resource", "name"), [(NEWS, "cleanup.policy"), (BROKER_1, "log.cleanup.policy"), (CLUSTER, "log.cleanup.policy")]
)
def test_appending_to_and_subtracting_from_lists(resource: Resource, name: str) -> None:
    harness = ClusterHarness()
    assert change(harness, resource, (name, APPEND, "compact"))[0] == ErrorCode.NONE
    assert value(harness, resource, name)[0] == "delete,compact"
    assert change(harness, resource, (name, APPEND, "compact,delete"))[0] == ErrorCode.NONE
    assert value(harness, resource, name)[0] == "delete,compact"
    assert change(harness, resource, (name, SUBTRACT, "delete"))[0] == ErrorCode.NONE
    assert value(harness, resource, name)[0] == "compact"
    assert change(harness, resource, (name, APPEND, "other"))[0] != ErrorCode.NONE
    assert value(harness, resource, name)[0] == "compact"


def test_append_and_subtract_require_a_list(subtests: pytest.Subtests) -> None:
    for resource, name in [
        (NEWS, "retention.ms"),
        (NEWS, "no.such"),
        ((TOPIC, "no spaces"), "retention.ms"),
        ((TOPIC, ""), "retention.ms"),
        ((CLIENT_METRICS, "rates"), "metrics"),
        ((CLIENT_METRICS, ""), "metrics"),
        ((GROUP, "team"), "consumer.session.timeout.ms"),
        ((GROUP, ""), "consumer.session.timeout.ms"),
    ]:
        for operation in [APPEND, SUBTRACT]:
            with subtests.test(resource=resource, name=name, operation=operation):
                error, message = change(ClusterHarness(), resource, (name, operation, "1"))
                assert error == ErrorCode.INVALID_CONFIG
                assert message == f"Can't {operation.name} to key {name} because its type is not LIST."
    for resource in [BROKER_1, CLUSTER]:
        refused = ErrorCode.INVALID_CONFIG, "Config value subtract is not allowed for config key: log.retention.ms"
        assert change(ClusterHarness(), resource, ("log.retention.ms", SUBTRACT, "1")) == refused
        unknown = "no.such", APPEND, "1"
        assert change(ClusterHarness(), resource, unknown) == (
            ErrorCode.INVALID_CONFIG,
            "Unknown config name: no.such",
        )
        older = ClusterHarness(as_version="4.2")
        assert change(older, resource, unknown) == (ErrorCode.UNKNOWN_SERVER_ERROR, None)


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        *[
            (each, ErrorCode.UNKNOWN_SERVER_ERROR)
            for each in (NEWS, (TOPIC, ""), (CLIENT_METRICS, ""), (GROUP, "team"))
        ],
        *[(each, ErrorCode.INVALID_REQUEST) for each in (BROKER_1, CLUSTER, (99, "x"))],
    ],
)
def test_an_unknown_operation(resource: Resource, expected: ErrorCode) -> None:
    error, message = change(ClusterHarness(), resource, ("retention.ms", 7, "1"))
    assert error == expected
    assert (message is None) == (expected == ErrorCode.UNKNOWN_SERVER_ERROR)


@pytest.mark.parametrize(
    ("resource", "change_of_value", "error"),
    [
        (CLUSTER, (SET, "2"), ErrorCode.NONE),
        (CLUSTER, (DELETE, None), ErrorCode.INVALID_CONFIG),
        (BROKER_1, (SET, "2"), ErrorCode.INVALID_CONFIG),
        (BROKER_1, (DELETE, None), ErrorCode.INVALID_CONFIG),
        (BROKER_1, (SET, "0"), ErrorCode.INVALID_REQUEST),
        (NEWS, (DELETE, None), ErrorCode.NONE),
    ],
)
def test_all_brokers_have_the_same_minimum_of_replicas(
    resource: Resource, change_of_value: tuple[int, str | None], error: ErrorCode
) -> None:
    name = "min.insync.replicas"
    assert change(ClusterHarness(), resource, (name, *change_of_value))[0] == error
    older = ClusterHarness(as_version="4.0")  # It has no eligible leader replicas yet.
    assert (change(older, resource, (name, *change_of_value))[0] == ErrorCode.NONE) == (change_of_value[1] != "0")


def test_eligible_replicas_need_one_minimum_of_replicas_for_all_brokers() -> None:
    name = "min.insync.replicas"
    own = ("2", ConfigSource.DYNAMIC_BROKER_CONFIG)
    of_all = ("3", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    assert value(ClusterHarness(config={name: 3}), BROKER_1, name) == of_all

    older = ClusterHarness(config={name: 3}, as_version="4.0")
    set_(older, BROKER_1, name, "2")
    assert value(older, BROKER_1, name) == own
    update = FeatureUpdateKey(feature="eligible.leader.replicas.version", max_version_level=1, upgrade_type=1)
    older.ask(UpdateFeaturesRequest(feature_updates=[update]), 1)
    assert value(older, BROKER_1, name) == of_all


def test_configs_of_all_brokers_keep_the_minimum_of_replicas() -> None:
    harness = ClusterHarness()
    assert replace(harness, CLUSTER, {"log.retention.ms": "9"})[0] == ErrorCode.INVALID_CONFIG
    assert replace(harness, CLUSTER, {"min.insync.replicas": "2"}) == (ErrorCode.NONE, None)
    assert replace(harness, BROKER_1, {}) == (ErrorCode.NONE, None)


@pytest.mark.parametrize(
    ("names", "error"),  # In the order of Kafka's hash map.
    [
        (("compression.type", "retention.ms"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", "compression.type"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (("segment.ms", "retention.ms"), ErrorCode.INVALID_CONFIG),
        (("cleanup.policy", "retention.ms"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_unknown_operation_after_one_that_needs_a_list(names: tuple[str, str], error: ErrorCode) -> None:
    changes = [(names[0], SUBTRACT, "1"), (names[1], 7, "1")]
    assert change(ClusterHarness(), NEWS, *changes)[0] == error


def test_an_unknown_operation_fails_all_resources_of_the_controller() -> None:
    harness = ClusterHarness()
    valid, failing = ("retention.ms", SET, "1000"), ("retention.ms", 7, "1")
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[
            changed_resource(resource, change)
            for resource, change in [
                (NEWS, valid),
                ((TOPIC, "gone"), failing),
                (BROKER_1, ("log.retention.ms", SET, "1000")),
                (CLUSTER, failing),
                ((LOGGER, "1"), ("root", SET, "INFO")),
                ((99, "x"), failing),
            ]
        ],
        validate_only=False,
    )
    assert [(each.error_code, each.error_message is None) for each in harness.ask(request, 1).responses] == [
        *[(ErrorCode.UNKNOWN_SERVER_ERROR, True)] * 3,
        (ErrorCode.INVALID_REQUEST, False),
        (ErrorCode.NONE, True),
        (ErrorCode.INVALID_REQUEST, False),
    ]
    assert dict(harness.topic().configs) == {}


INVALID_TOPIC_CONFIGS = {
    "no.such": "1",
    "retention.bytes": "much",
    "retention.ms": "-2",
    "segment.ms": "1_000",
    "segment.bytes": "14",
    "max.message.bytes": str(2**31),
    "flush.ms": str(2**63),
    "preallocate": "perhaps",
    "cleanup.policy": "delete,burn",
    "compression.type": "rar",
    "compression.gzip.level": "0",
    "message.timestamp.type": "createtime",
    "min.cleanable.dirty.ratio": "1.1",
    "remote.storage.enable": "true",
    "leader.replication.throttled.replicas": "0:1,x",
    "follower.replication.throttled.replicas": "*,0:1",
}


def test_invalid_topic_configs(subtests: pytest.Subtests) -> None:
    for name, text in INVALID_TOPIC_CONFIGS.items():
        with subtests.test(name=name, text=text):
            harness = ClusterHarness()
            for error, message in (replace(harness, NEWS, {name: text}), change(harness, NEWS, (name, SET, text))):
                assert error == ErrorCode.INVALID_CONFIG
                assert name in (message or "")
            assert harness.topic().configs == {}


def test_lists_of_throttled_replicas(subtests: pytest.Subtests) -> None:
    for text, stored in {"*": "*", "0:1, 1:2": "0:1,1:2", "": "", " 0:1,": "0:1,"}.items():
        with subtests.test(text=text):
            harness = ClusterHarness()
            set_(harness, NEWS, "leader.replication.throttled.replicas", text)
            assert value(harness, NEWS, "leader.replication.throttled.replicas")[0] == stored


def test_contradicting_topic_configs() -> None:
    harness = ClusterHarness()
    set_(harness, NEWS, "max.compaction.lag.ms", "10")
    assert change(harness, NEWS, ("min.compaction.lag.ms", SET, "11"))[0] == ErrorCode.INVALID_CONFIG
    assert change(harness, NEWS, ("min.compaction.lag.ms", SET, "10"))[0] == ErrorCode.NONE


def test_invalid_broker_configs(subtests: pytest.Subtests) -> None:
    for name, text, expected in [
        ("num.partitions", "3", "Cannot update these configs dynamically: num.partitions"),
        ("log.retention.hours", "3", "Cannot update these configs dynamically: log.retention.hours"),
        ("broker.id", "3", "Cannot update these configs dynamically: broker.id"),
        ("message.max.bytes", "-1", "message.max.bytes: expected 0 to 2147483647"),
        ("log.retention.bytes", "all", "log.retention.bytes: expected a number of type LONG"),
        ("log.cleanup.policy", "burn", "log.cleanup.policy: 'burn' is none of compact, delete"),
    ]:
        for resource in [BROKER_1, CLUSTER]:
            with subtests.test(name=name, text=text, resource=resource):
                harness = ClusterHarness()
                by_alter, by_incremental_alter = (
                    replace(harness, resource, {name: text}),
                    change(harness, resource, (name, SET, text)),
                )
                for error, message in (by_alter, by_incremental_alter):
                    assert error == ErrorCode.INVALID_REQUEST
                    assert expected in (message or "")
                assert [each.name for each in describe(harness, CLUSTER)[0].configs] == ["min.insync.replicas"]


def test_deleting_a_read_only_broker_config_is_allowed() -> None:
    assert change(ClusterHarness(), BROKER_1, ("num.partitions", DELETE, None)) == (ErrorCode.NONE, None)


def test_unknown_broker_configs_are_stored_and_sensitive() -> None:
    harness = ClusterHarness()
    set_(harness, BROKER_1, "my.plugin.key", "secret")
    config = describe_one(harness, BROKER_1, "my.plugin.key")
    assert (config.value, config.is_sensitive, config.config_type) == (None, True, ConfigType.UNKNOWN)
    assert (config.read_only, config.config_source) == (True, ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert [(each.name, each.value) for each in config.synonyms] == [("my.plugin.key", None)]


def test_invalid_resources_to_alter(subtests: pytest.Subtests) -> None:
    for resource, error in [
        ((TOPIC, "gone"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((TOPIC, ""), ErrorCode.INVALID_REQUEST),
        ((TOPIC, "no spaces"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        ((BROKER, "2"), ErrorCode.INVALID_REQUEST),
        ((BROKER, "one"), ErrorCode.INVALID_REQUEST),
        ((0, "news"), ErrorCode.INVALID_REQUEST),
        ((99, "news"), ErrorCode.INVALID_REQUEST),
        ((GROUP, ""), ErrorCode.INVALID_REQUEST),
        ((CLIENT_METRICS, ""), ErrorCode.INVALID_REQUEST),
    ]:
        with subtests.test(resource=resource, error=error):
            harness = ClusterHarness(brokers=2)
            for refused, message in (replace(harness, resource, {}), change(harness, resource)):
                assert refused == error
                assert message


def test_invalid_configs_are_reported_before_a_missing_topic() -> None:
    assert change(ClusterHarness(), (TOPIC, "gone"), ("no.such", SET, "1"))[0] == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("resource", [NEWS, BROKER_1, CLUSTER])
def test_null_values(resource: Resource) -> None:
    harness = ClusterHarness()
    expected = (ErrorCode.INVALID_REQUEST, "Null value not supported for : retention.ms, segment.ms")
    assert replace(harness, resource, {"retention.ms": None, "segment.ms": None}) == expected
    assert change(harness, resource, ("retention.ms", SET, None), ("segment.ms", APPEND, None)) == expected


@pytest.mark.parametrize("resource", [NEWS, BROKER_1, CLUSTER])
def test_a_duplicate_key(resource: Resource) -> None:
    error, message = change(ClusterHarness(), resource, ("segment.ms", SET, "1"), ("segment.ms", DELETE, None))
    assert (error, message) == (ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")


def test_a_duplicate_resource_is_rejected_and_others_are_altered() -> None:
    harness = ClusterHarness({"news": 1, "mail": 1})
    mail = (TOPIC, "mail")
    altered = [changed_resource(each, ("segment.ms", SET, "9")) for each in (NEWS, mail, NEWS)]
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=altered, validate_only=False)
    results = [(each.error_code, each.error_message) for each in harness.ask(request, 1).responses]
    duplicate = (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    assert results == [duplicate, (ErrorCode.NONE, None), duplicate]
    assert (dict(harness.topic("mail").configs), dict(harness.topic().configs)) == ({"segment.ms": "9"}, {})


def test_one_invalid_config_rejects_all_changes_of_its_resource() -> None:
    harness = ClusterHarness()
    assert change(harness, NEWS, ("segment.ms", SET, "9"), ("no.such", SET, "1"))[0] == ErrorCode.INVALID_CONFIG
    assert harness.topic().configs == {}


@pytest.mark.parametrize("resource", [NEWS, BROKER_1, CLUSTER])
def test_validate_only(resource: Resource) -> None:
    harness = ClusterHarness()
    name = "max.message.bytes" if resource == NEWS else "message.max.bytes"
    kept: dict[str, str | None] = {"min.insync.replicas": "1"} if resource == CLUSTER else {}
    assert replace(harness, resource, {name: "9", **kept}, validate_only=True) == (ErrorCode.NONE, None)
    assert change(harness, resource, (name, SET, "9"), validate_only=True) == (ErrorCode.NONE, None)
    assert change(harness, resource, (name, SET, "x"), validate_only=True)[0] != ErrorCode.NONE
    assert value(harness, NEWS, "max.message.bytes") == ("1048588", ConfigSource.DEFAULT_CONFIG)


# Effects of changed configs


@pytest.mark.parametrize(
    ("resource", "name"), [(NEWS, "max.message.bytes"), (BROKER_1, "message.max.bytes"), (CLUSTER, "message.max.bytes")]
)
def test_a_new_max_message_bytes_applies_at_once(resource: Resource, name: str) -> None:
    harness = ClusterHarness()
    records = batch(b"a" * 200)
    assert produce(harness, records) == ErrorCode.NONE
    set_(harness, resource, name, str(len(records) - 1))
    assert produce(harness, records) == ErrorCode.MESSAGE_TOO_LARGE
    set_(harness, resource, name, str(len(records)))
    assert produce(harness, records) == ErrorCode.NONE


def test_each_broker_uses_its_own_limit() -> None:
    harness = ClusterHarness(brokers=2)
    set_(harness, (BROKER, "2"), "message.max.bytes", "1", broker=2)
    assert harness.partition().leader_id == 1
    assert produce(harness, batch(b"a")) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("resource", "name"),
    [(NEWS, "retention.bytes"), (BROKER_1, "log.retention.bytes"), (CLUSTER, "log.retention.bytes")],
)
def test_a_new_retention_applies_at_once(resource: Resource, name: str) -> None:
    harness = ClusterHarness()
    records = batch(b"a" * 100)
    for _ in range(5):
        produce(harness, records)
    log = harness.partition().log
    assert (log.log_start_offset, log.log_end_offset) == (0, 5)
    set_(harness, resource, name, str(2 * len(records)))
    assert (log.log_start_offset, log.log_end_offset) == (3, 5)
    produce(harness, records)
    assert (log.log_start_offset, log.log_end_offset) == (4, 6)
    set_(harness, resource, name, "-1")
    produce(harness, records)
    assert (log.log_start_offset, log.log_end_offset) == (4, 7)


def test_retention_does_not_apply_to_the_offsets_topic() -> None:
    harness = ClusterHarness()
    log = harness.cluster.offsets_partition(0).log
    for _ in range(3):
        log.append(batch(b"a" * 100), 0)
    set_(harness, CLUSTER, "log.retention.bytes", "1")
    assert log.log_start_offset == 0


# Definitions


@pytest.mark.parametrize("keys", [TOPIC_CONFIGS, {name: config.key for name, config in BROKER_CONFIGS.items()}])
def test_every_default_is_a_valid_value(keys: dict[str, ConfigKey]) -> None:
    defaults = {name: key.default_text for name, key in keys.items() if key.default_text is not None}
    assert {name: keys[name].value_error(text) for name, text in defaults.items()} == dict.fromkeys(defaults)
    assert {name: keys[name].normalized(text) for name, text in defaults.items()} == defaults


# The list of each release


def names_of(harness: ClusterHarness) -> set[str]:
    (result,) = describe(harness, BROKER_1, version=1)
    return {config.name for config in result.configs}


def test_a_broker_lists_its_listeners_and_directories() -> None:
    harness = ClusterHarness(brokers=2)
    static = ConfigSource.STATIC_BROKER_CONFIG
    assert value(harness, (BROKER, "2"), "advertised.listeners", broker=2) == ("PLAINTEXT://localhost:9002", static)
    assert value(harness, (BROKER, "2"), "listeners", broker=2) == ("PLAINTEXT://:9002", static)
    assert value(harness, BROKER_1, "log.dirs") == (LOG_DIR, static)
    assert value(harness, BROKER_1, "compression.type") == ("producer", ConfigSource.DEFAULT_CONFIG)
    harness.cluster.brokers[1].host = "::1"
    assert value(harness, BROKER_1, "advertised.listeners")[0] == "PLAINTEXT://[::1]:9001"


def test_a_broker_lists_the_configs_of_its_release(subtests: pytest.Subtests) -> None:
    for as_version, count, has, has_not in [
        ("0.11", 154, "zookeeper.connect", "node.id"),
        ("2.8", 218, "advertised.host.name", "compression.gzip.level"),
        ("3.9", 314, "inter.broker.protocol.version", "advertised.host.name"),
        ("4.2", 321, "compression.gzip.level", "group.consumer.assignment.interval.ms"),
        ("4.4", len(BROKER_CONFIGS), "group.consumer.assignment.interval.ms", "zookeeper.connect"),
    ]:
        with subtests.test(as_version=as_version):
            names = names_of(ClusterHarness(as_version=as_version))
            assert len(names) == count
            assert has in names
            assert has_not not in names


def test_defaults_are_those_of_the_release(subtests: pytest.Subtests) -> None:
    for as_version, name, default in [
        ("2.4", "message.max.bytes", "1000012"),
        ("2.5", "message.max.bytes", "1048588"),
        ("3.9", "num.recovery.threads.per.data.dir", "1"),
        ("4.0", "num.recovery.threads.per.data.dir", "2"),
        ("3.9", "inter.broker.protocol.version", "3.9-IV0"),
    ]:
        with subtests.test(as_version=as_version, name=name):
            assert value(ClusterHarness(as_version=as_version), BROKER_1, name) == (
                default,
                ConfigSource.DEFAULT_CONFIG,
            )


def test_settings_have_kafkas_defaults_in_every_release(subtests: pytest.Subtests) -> None:
    for release in RELEASES:
        listed = kafka_broker_configs(release)
        with subtests.test(release=str(release)):
            defaults = default_values(release)
            differing = {name for name in SETTINGS if name in listed and listed[name].key.default != defaults.get(name)}
            assert differing == {"default.replication.factor", "auto.leader.rebalance.enable"}
            coordinator = Config().coordinator(release)
            for name, number in [
                ("group.max.session.timeout.ms", coordinator.group_max_session_timeout_ms),
                ("offsets.retention.minutes", coordinator.offsets_retention_ms // 60_000),
                ("offset.metadata.max.bytes", coordinator.offset_metadata_max_bytes),
            ]:
                assert listed[name].key.default == str(number), name


def test_passwords_are_not_returned() -> None:
    (result,) = describe(ClusterHarness(), BROKER_1)
    (password,) = (config for config in result.configs if config.name == "ssl.keystore.password")
    assert (password.is_sensitive, password.value) == (True, None)


def test_which_configs_can_be_altered_for_all_brokers() -> None:
    harness = ClusterHarness()
    error, message = change(harness, CLUSTER, ("listeners", SET, "PLAINTEXT://a:1"))
    assert (error, "broker id must be specified" in (message or "")) == (ErrorCode.INVALID_REQUEST, True)
    error, message = change(harness, BROKER_1, ("ssl.keystore.location", SET, "/tmp/store"))
    assert (error, "only per-listener" in (message or "")) == (ErrorCode.INVALID_REQUEST, True)
    error, message = change(harness, BROKER_1, ("log.dirs", SET, "/tmp"))
    assert (error, message) == (ErrorCode.INVALID_REQUEST, "Cannot update these configs dynamically: log.dirs")
    throttle = "leader.replication.throttled.rate"
    for as_version in ("4.2", None):
        harness = ClusterHarness(as_version=as_version)
        assert throttle not in names_of(harness)
        set_(harness, BROKER_1, throttle, "1000")
        assert value(harness, BROKER_1, throttle)[0] == "1000"


def test_a_topic_has_the_configs_of_the_release(subtests: pytest.Subtests) -> None:
    for as_version, count, name, default in [
        ("0.11", 24, "unclean.leader.election.enable", "false"),
        ("2.4", 26, "message.format.version", "2.4-IV1"),
        ("2.8", 26, "message.downconversion.enable", "true"),
        ("3.6", 31, "message.timestamp.after.max.ms", str(2**63 - 1)),
        ("3.9", 36, "message.format.version", "3.0-IV1"),
        ("4.2", 34, "message.timestamp.after.max.ms", "3600000"),
        ("4.4", len(TOPIC_CONFIGS), "remote.copy.lag.ms", "0"),
    ]:
        with subtests.test(as_version=as_version):
            harness = ClusterHarness(as_version=as_version)
            (result,) = describe(harness, NEWS, version=1)
            assert len(result.configs) == count
            assert value(harness, NEWS, name)[0] == default


def test_configs_of_other_releases_are_refused(subtests: pytest.Subtests) -> None:
    for as_version, name, text in [("3.5", "local.retention.ms", "1"), ("4.0", "message.format.version", "2.8")]:
        with subtests.test(as_version=as_version, name=name):
            error, message = change(ClusterHarness(as_version=as_version), NEWS, (name, SET, text))
            assert (error, message) == (ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")


def test_an_upgrade_removes_configs() -> None:
    harness = ClusterHarness(as_version="3.9")
    set_(harness, NEWS, "message.format.version", "2.8")
    set_(harness, NEWS, "retention.ms", "5000")
    harness.cluster.upgrade_broker(harness.cluster.brokers[1], EmulatedRelease.of(Broker()))
    (result,) = describe(harness, NEWS)
    assert "message.format.version" not in {config.name for config in result.configs}
    set_(harness, NEWS, "retention.ms", "6000")
    assert value(harness, NEWS, "retention.ms")[0] == "6000"
