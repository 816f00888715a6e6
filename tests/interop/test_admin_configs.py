"""Configs of topics and brokers described, altered and reset, with real admin clients."""

from typing import Any

import pytest
from aiokafka.admin.config_resource import ConfigResource as AioResource, ConfigResourceType as AioType
from confluent_kafka.admin._config import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource as ConfluentResource,
    ConfigSource,
)
from kafka import TopicPartition
from kafka.admin import ConfigResource, OffsetSpec
from kafka.errors import MessageSizeTooLargeError

from fakebroker import FakeCluster
from fakebroker.cluster.configs.topic_configs import TOPIC_CONFIGS
from tests.support.kafka_clients.aiokafka_client import aio_admin
from tests.support.kafka_clients.client import Record, StartAdmin
from tests.support.kafka_clients.confluent_client import CONFLUENT, confluent_admin, outcomes
from tests.support.kafka_clients.kafka_python_client import KAFKA_PYTHON, python_admin

pytestmark = [pytest.mark.slow, pytest.mark.fake_cluster(topics={"orders": 1, "returns": 1})]

SET, DELETE = AlterConfigOpType.SET, AlterConfigOpType.DELETE
APPEND, SUBTRACT = AlterConfigOpType.APPEND, AlterConfigOpType.SUBTRACT


def change(type_: str, name: str, *entries: tuple[AlterConfigOpType, str, str | None]) -> ConfluentResource:
    configs = [ConfigEntry(key, value, incremental_operation=operation) for operation, key, value in entries]
    return ConfluentResource(type_, name, incremental_configs=configs)


def own_configs(start_admin: StartAdmin, topic: str) -> dict[str, str]:
    """Return the configs that were set for a topic, with kafka-python."""
    described = python_admin(start_admin).describe_configs([ConfigResource("TOPIC", topic)])
    return {name: each["value"] for name, each in described["topic"][topic].items()}


def test_all_clients_describe_the_same_configs(start_admin: StartAdmin) -> None:
    confluent, python, aio = confluent_admin(start_admin), python_admin(start_admin), aio_admin(start_admin)
    resource = ConfluentResource("topic", "orders")
    outcomes(confluent.incremental_alter_configs([change("topic", "orders", (SET, "retention.ms", "5000"))]))
    reported = outcomes(confluent.describe_configs([resource]))[resource]
    by_python = python.describe_configs([ConfigResource("TOPIC", "orders")], config_filter="all")["topic"]["orders"]
    (response,) = aio.run(aio.inner.describe_configs([AioResource(AioType.TOPIC, "orders")]))
    ((_, _, _, _, by_aio),) = response.resources
    values = {name: each.value for name, each in reported.items()}
    assert values == {name: each["value"] for name, each in by_python.items()}
    assert values == {name: value for name, value, *_ in by_aio}
    defaults = {name: key.default_text for name, key in TOPIC_CONFIGS.items()}
    assert {name: value for name, value in values.items() if value != defaults[name]} == {
        "retention.ms": "5000",
    }
    own = by_python["retention.ms"]
    assert (own["config_source"], own["config_type"], own["read_only"]) == ("DYNAMIC_TOPIC_CONFIG", "LONG", False)
    assert by_python["cleanup.policy"]["config_source"] == "DEFAULT_CONFIG"


@pytest.mark.fake_cluster(config={"num.partitions": 4})
def test_all_clients_describe_a_broker(start_admin: StartAdmin) -> None:
    python, confluent, aio = python_admin(start_admin), confluent_admin(start_admin), aio_admin(start_admin)
    described = python.describe_configs([ConfigResource("BROKER", str(node_id)) for node_id in (1, 2, 3)], True, "all")
    for node_id, configs in described["broker"].items():
        assert (configs["node.id"]["value"], configs["node.id"]["read_only"]) == (node_id, True)
        assert configs["num.partitions"]["config_source"] == "STATIC_BROKER_CONFIG"
        assert [each["value"] for each in configs["num.partitions"]["synonyms"]] == ["4", "1"]
    resource = ConfluentResource("broker", "2")
    reported = outcomes(confluent.describe_configs([resource]))[resource]
    assert {name: each.value for name, each in reported.items()} == {
        name: each["value"] for name, each in described["broker"]["2"].items()
    }
    assert reported["num.partitions"].source == ConfigSource.STATIC_BROKER_CONFIG.value
    assert reported["log.retention.bytes"].source == ConfigSource.DEFAULT_CONFIG.value
    requested = AioResource(AioType.BROKER, "2", configs={"num.partitions": None})
    (response,) = aio.run(aio.inner.describe_configs([requested]))
    ((error, _, _, name, ((key, value, *_),)),) = response.resources
    assert (error, name, key, value) == (0, "2", "num.partitions", "4")


def test_confluent_alters_incrementally(start_admin: StartAdmin) -> None:
    admin = confluent_admin(start_admin)

    def alter(*entries: tuple[AlterConfigOpType, str, str | None], **options: Any) -> dict[str, str]:
        resource = change("topic", "orders", *entries)
        assert outcomes(admin.incremental_alter_configs([resource], **options)) == {resource: None}
        return own_configs(start_admin, "orders")

    assert alter((SET, "retention.ms", "5000"), (APPEND, "cleanup.policy", "compact")) == {
        "cleanup.policy": "delete,compact",
        "retention.ms": "5000",
    }
    assert alter((SUBTRACT, "cleanup.policy", "delete")) == {"cleanup.policy": "compact", "retention.ms": "5000"}
    assert alter((DELETE, "cleanup.policy", None)) == {"retention.ms": "5000"}
    assert alter((SET, "retention.ms", "7000"), validate_only=True) == {"retention.ms": "5000"}


def test_altering_without_increments_replaces_all_configs(start_admin: StartAdmin) -> None:
    confluent, aio = confluent_admin(start_admin), aio_admin(start_admin)
    for name, value in (("retention.ms", "5000"), ("segment.ms", "6000")):
        resource = ConfluentResource("topic", "orders", {name: value})
        with pytest.deprecated_call():
            futures = confluent.alter_configs([resource])
        assert outcomes(futures) == {resource: None}
        assert own_configs(start_admin, "orders") == {name: value}
    (response,) = aio.run(aio.inner.alter_configs([AioResource(AioType.TOPIC, "orders", {"flush.ms": "7000"})]))
    assert [tuple(each) for each in response.resources] == [(0, None, 2, "orders")]
    assert own_configs(start_admin, "orders") == {"flush.ms": "7000"}


@pytest.mark.parametrize("incremental", [True, False])
def test_kafka_python_alters_and_resets(incremental: bool, start_admin: StartAdmin) -> None:
    admin = python_admin(start_admin)
    for wanted in ({"retention.ms": "5000"}, {"segment.ms": "6000"}):
        altered = admin.alter_configs([ConfigResource("TOPIC", "orders", wanted)], incremental=incremental)
        assert altered == {"topic": {"orders": "OK"}}
    # Without incremental changes, it also sends the present configs, so that they are kept.
    assert own_configs(start_admin, "orders") == {"retention.ms": "5000", "segment.ms": "6000"}
    one = ConfigResource("TOPIC", "orders", {"retention.ms": None})
    assert admin.reset_configs([one], incremental=incremental) == {"topic": {"orders": "OK"}}
    assert own_configs(start_admin, "orders") == {"segment.ms": "6000"}
    assert admin.reset_configs([ConfigResource("TOPIC", "orders", {})], incremental=incremental) == {
        "topic": {"orders": "OK"}
    }
    assert own_configs(start_admin, "orders") == {}


def test_confluent_gets_errors_for_invalid_configs(start_admin: StartAdmin) -> None:
    admin = confluent_admin(start_admin)
    resources = {
        change("topic", "nowhere", (SET, "retention.ms", "1")): "UNKNOWN_TOPIC_OR_PART",
        change("topic", "orders", (SET, "retention.bits", "1")): "INVALID_CONFIG",
        change("topic", "returns", (SET, "retention.ms", "soon")): "INVALID_CONFIG",
        change("broker", "2", (SET, "node.id", "7")): "INVALID_REQUEST",
    }
    assert {each: outcomes(admin.incremental_alter_configs([each]))[each] for each in resources} == resources
    missing = ConfluentResource("topic", "nowhere")
    assert outcomes(admin.describe_configs([missing])) == {missing: "UNKNOWN_TOPIC_OR_PART"}
    assert (own_configs(start_admin, "orders"), own_configs(start_admin, "returns")) == ({}, {})


def test_kafka_python_and_aiokafka_get_errors_for_invalid_configs(start_admin: StartAdmin) -> None:
    admin, aio = python_admin(start_admin), aio_admin(start_admin)
    for type_, name, configs, error in (
        ("TOPIC", "nowhere", {"retention.ms": "1"}, "UnknownTopicOrPartitionError"),
        ("TOPIC", "orders", {"retention.bits": "1"}, "InvalidConfigurationError"),
        ("TOPIC", "orders", {"retention.ms": "-2"}, "InvalidConfigurationError"),
        ("BROKER", "2", {"node.id": "7"}, "InvalidRequestError"),
        ("BROKER_LOGGER", "2", {"root": "LOUD"}, "InvalidConfigurationError"),
        ("BROKER_LOGGER", "2", {"no.such": "INFO"}, "InvalidConfigurationError"),
    ):
        altered = admin.alter_configs([ConfigResource(type_, name, configs)], raise_on_unknown=False)
        assert error in altered[type_.lower()][name]
    (response,) = aio.run(aio.inner.alter_configs([AioResource(AioType.TOPIC, "orders", {"retention.bits": "1"})]))
    assert [(code, name) for code, _, _, name in response.resources] == [(40, "orders")]
    assert own_configs(start_admin, "orders") == {}


def test_an_altered_config_takes_effect(fake_cluster: FakeCluster, start_admin: StartAdmin) -> None:
    admin, servers = python_admin(start_admin), fake_cluster.bootstrap_servers
    admin.alter_configs([ConfigResource("TOPIC", "orders", {"max.message.bytes": "1000"})])
    large = [Record(b"x" * 2000)]
    with pytest.raises(MessageSizeTooLargeError):
        KAFKA_PYTHON.produce(servers, "orders", large, None)
    KAFKA_PYTHON.produce(servers, "returns", large, None)
    admin.alter_configs([ConfigResource("TOPIC", "orders", {"max.message.bytes": "5000"})])
    CONFLUENT.produce(servers, "orders", large, None)
    place = TopicPartition("orders", 0)
    assert admin.list_partition_offsets({place: OffsetSpec.LATEST})[place].offset == 1


def test_an_altered_broker_config_is_described(start_admin: StartAdmin) -> None:
    confluent, admin = confluent_admin(start_admin), python_admin(start_admin)
    resource = change("broker", "2", (SET, "log.retention.bytes", "5000"))
    assert outcomes(confluent.incremental_alter_configs([resource])) == {resource: None}
    reported = admin.describe_configs([ConfigResource("BROKER", node_id) for node_id in "123"])["broker"]
    assert {
        node_id: {name: each["value"] for name, each in configs.items()} for node_id, configs in reported.items()
    } == {
        "1": {},
        "2": {"log.retention.bytes": "5000"},
        "3": {},
    }
    assert reported["2"]["log.retention.bytes"]["config_source"] == "DYNAMIC_BROKER_CONFIG"
