"""Configs of groups, subscriptions of client metrics and log levels; ListConfigResources, and the telemetry APIs."""

from typing import Any

import pytest

from fakebroker.cluster import snapshot
from fakebroker.cluster.configs.changes import Operation, ResourceType
from fakebroker.cluster.configs.group_configs import group_configs
from fakebroker.cluster.configs.log_levels import CONFIGURED_LEVELS, LOGGERS
from fakebroker.cluster.configs.resolution import ConfigSource
from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages import alter_configs
from fakebroker.protocol.messages.api_versions import ApiVersionsRequest
from fakebroker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from fakebroker.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from fakebroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from fakebroker.protocol.messages.list_config_resources import ListConfigResourcesRequest
from fakebroker.protocol.messages.push_telemetry import PushTelemetryRequest
from fakebroker.protocol.releases import RELEASES, Release
from fakebroker.protocol.types import ZERO_UUID
from tests.support.cluster.cluster_harness import ClusterHarness, versions

GROUP, METRICS, LOGGER = ResourceType.GROUP, ResourceType.CLIENT_METRICS, ResourceType.BROKER_LOGGER
SET, DELETE, APPEND, SUBTRACT = Operation

Change = tuple[str, int, str | None]
TELEMETRY_KEYS = {71, 72}


def alter(
    harness: ClusterHarness, type_: int, name: str, *changes: Change, validate_only: bool = False, version: int = 1
) -> tuple[int, str | None]:
    """Send IncrementalAlterConfigs for one resource, and return the error and its message."""
    resource = AlterConfigsResource(
        resource_type=type_,
        resource_name=name,
        configs=[AlterableConfig(name=key, config_operation=how, value=value) for key, how, value in changes],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (result,) = harness.ask(request, version).responses
    return result.error_code, result.error_message


def described(harness: ClusterHarness, type_: int, name: str, *, keys: list[str] | None = None) -> Any:
    """Return the result of DescribeConfigs for one resource."""
    resource = DescribeConfigsResource(resource_type=type_, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    (result,) = harness.ask(request, versions("DescribeConfigs")[-1]).results
    return result


def configs(harness: ClusterHarness, type_: int, name: str) -> dict[str, str]:
    result = described(harness, type_, name)
    assert result.error_code == ErrorCode.NONE
    return {each.name: each.value for each in result.configs}


def listed(harness: ClusterHarness, *types: int, version: int = 1) -> list[tuple[int, str]]:
    response = harness.ask(ListConfigResourcesRequest(resource_types=list(types)), version)
    assert response.error_code == ErrorCode.NONE
    return [(each.resource_type, each.resource_name) for each in response.config_resources]


# Groups

DEFAULTS = {
    "consumer.assignment.interval.ms": "1000",
    "consumer.heartbeat.interval.ms": "5000",
    "consumer.session.timeout.ms": "45000",
    "errors.deadletterqueue.copy.record.enable": "false",
    "errors.deadletterqueue.topic.name": "",
    "share.assignment.interval.ms": "1000",
    "share.auto.offset.reset": "latest",
    "share.delivery.count.limit": "5",
    "share.heartbeat.interval.ms": "5000",
    "share.isolation.level": "read_uncommitted",
    "share.partition.max.record.locks": "2000",
    "share.record.lock.duration.ms": "30000",
    "share.renew.acknowledge.enable": "true",
    "share.session.timeout.ms": "45000",
    "streams.assignment.interval.ms": "1000",
    "streams.assignor.name": "sticky",
    "streams.heartbeat.interval.ms": "5000",
    "streams.initial.rebalance.delay.ms": "3000",
    "streams.num.standby.replicas": "0",
    "streams.rack.aware.assignment.tags": "",
    "streams.session.timeout.ms": "45000",
}


KAFKAS_INTERVAL: dict[str, object] = {"group.consumer.assignment.interval.ms": 1000}
"""Harnesses have another default."""


def test_a_group_has_kafkas_defaults_before_any_are_set() -> None:
    harness = ClusterHarness(config=KAFKAS_INTERVAL)

    assert configs(harness, GROUP, "billing") == DEFAULTS
    sources = {each.name: each.config_source for each in described(harness, GROUP, "billing").configs}
    assert sources.pop("consumer.assignment.interval.ms") == ConfigSource.STATIC_BROKER_CONFIG
    assert {*sources.values()} == {ConfigSource.DEFAULT_CONFIG}
    assert listed(harness, GROUP) == []


def test_configs_of_a_group_are_kept_shown_and_listed() -> None:
    harness = ClusterHarness(config=KAFKAS_INTERVAL)
    assert alter(harness, GROUP, "billing", ("consumer.session.timeout.ms", SET, "50000")) == (ErrorCode.NONE, None)

    (config,) = described(harness, GROUP, "billing", keys=["consumer.session.timeout.ms"]).configs
    assert (config.value, config.config_source) == ("50000", ConfigSource.GROUP_CONFIG)
    assert [(each.name, each.value, each.source) for each in config.synonyms] == [
        ("consumer.session.timeout.ms", "50000", ConfigSource.GROUP_CONFIG),
        ("group.consumer.session.timeout.ms", "45000", ConfigSource.DEFAULT_CONFIG),
    ]
    assert listed(harness, GROUP) == [(GROUP, "billing")]

    assert alter(harness, GROUP, "billing", ("consumer.session.timeout.ms", DELETE, None)) == (ErrorCode.NONE, None)
    assert configs(harness, GROUP, "billing") == DEFAULTS
    assert listed(harness, GROUP) == []


def test_synonyms_of_a_group_config(subtests: pytest.Subtests) -> None:
    """Since 4.3 the config of the brokers, of which a group inherits, is one."""
    of_group, default = ConfigSource.GROUP_CONFIG, ConfigSource.DEFAULT_CONFIG
    static, of_cluster = ConfigSource.STATIC_BROKER_CONFIG, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    of_brokers = "group.consumer.heartbeat.interval.ms"
    for as_version, name, expected in (
        ("4.2", "consumer.heartbeat.interval.ms", [("consumer.heartbeat.interval.ms", "6000", default)]),
        ("4.2", "consumer.session.timeout.ms", [("consumer.session.timeout.ms", "50000", of_group)]),
        ("4.3", "consumer.heartbeat.interval.ms", [(of_brokers, "6000", static), (of_brokers, "5000", default)]),
        (None, "consumer.heartbeat.interval.ms", [(of_brokers, "6000", static), (of_brokers, "5000", default)]),
        (
            None,
            "consumer.assignment.interval.ms",
            [
                ("group.consumer.assignment.interval.ms", "2000", of_cluster),
                ("group.consumer.assignment.interval.ms", "0", static),
                ("group.consumer.assignment.interval.ms", "1000", default),
            ],
        ),
        (None, "streams.assignor.name", [("group.streams.assignors", "sticky", default)]),
        (None, "share.isolation.level", [("share.isolation.level", "read_uncommitted", default)]),
    ):
        with subtests.test(as_version=as_version, name=name):
            harness = ClusterHarness(as_version=as_version, config={of_brokers: 6_000})
            alter(harness, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"))
            alter(harness, ResourceType.BROKER, "", ("group.consumer.assignment.interval.ms", SET, "2000"))
            (config,) = described(harness, GROUP, "g", keys=[name]).configs
            assert [(each.name, each.value, each.source) for each in config.synonyms] == expected
            assert (config.value, config.config_source) == expected[0][1:]


def test_all_configs_of_a_group_can_be_replaced() -> None:
    harness = ClusterHarness(config=KAFKAS_INTERVAL)
    alter(harness, GROUP, "g", ("share.auto.offset.reset", SET, "earliest"))
    resource = alter_configs.AlterConfigsResource(
        resource_type=GROUP,
        resource_name="g",
        configs=[alter_configs.AlterableConfig(name="share.isolation.level", value="read_committed")],
    )
    (result,) = harness.ask(alter_configs.AlterConfigsRequest(resources=[resource], validate_only=False), 2).responses

    assert result.error_code == ErrorCode.NONE
    assert configs(harness, GROUP, "g") == DEFAULTS | {"share.isolation.level": "read_committed"}


def test_configs_of_a_group_are_checked(subtests: pytest.Subtests) -> None:
    harness = ClusterHarness(config=KAFKAS_INTERVAL)
    for changes, error, message in (
        ([("session.timeout.ms", SET, "45000")], ErrorCode.INVALID_CONFIG, "Unknown group config name"),
        (
            [("consumer.session.timeout.ms", SET, "44999")],
            ErrorCode.INVALID_CONFIG,
            "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        ([("consumer.session.timeout.ms", SET, "x")], ErrorCode.INVALID_CONFIG, "expected a number"),
        (
            [("consumer.heartbeat.interval.ms", SET, "15001")],
            ErrorCode.INVALID_CONFIG,
            "consumer.heartbeat.interval.ms must be less than or equal to group.consumer.max.heartbeat.interval.ms",
        ),
        ([("share.isolation.level", SET, "none")], ErrorCode.INVALID_CONFIG, "read_committed"),
        ([("share.auto.offset.reset", SET, "by_duration:-1")], ErrorCode.INVALID_CONFIG, "by_duration:PT1H"),
        ([("share.auto.offset.reset", APPEND, "x")], ErrorCode.INVALID_CONFIG, "not LIST"),
        ([("share.auto.offset.reset", SET, None)], ErrorCode.INVALID_REQUEST, "Null value"),
    ):
        with subtests.test(changes=changes):
            code, text = alter(harness, GROUP, "g", *changes)
            assert code == error
            assert message in (text or "")
    for value in ("earliest", "LATEST", "by_duration:P1DT2H", "by_duration:PT0.5S"):
        with subtests.test(value=value):
            assert alter(harness, GROUP, "g", ("share.auto.offset.reset", SET, value), validate_only=True)[0] == 0
    assert configs(harness, GROUP, "g") == DEFAULTS


def test_releases_have_the_resource_types_and_group_configs_of_their_time(subtests: pytest.Subtests) -> None:
    since = {LOGGER: Release(2, 4), METRICS: Release(3, 7), GROUP: Release(4, 0)}
    for release in RELEASES:
        if release < (0, 11):
            continue
        with subtests.test(release=str(release)):
            harness = ClusterHarness(as_version=str(release))
            version = versions("DescribeConfigs")[0] if release >= (4, 0) else 0
            for type_, first in since.items():
                name = "1" if type_ is LOGGER else "x"
                resource = DescribeConfigsResource(resource_type=type_, resource_name=name, configuration_keys=None)
                (result,) = harness.ask(DescribeConfigsRequest(resources=[resource]), version).results
                assert (result.error_code == ErrorCode.NONE) == (release >= first), type_
                if release >= (2, 3):
                    error, _ = alter(harness, type_, name, version=0)
                    assert (error == ErrorCode.NONE) == (release >= first), type_
    assert len(group_configs(Release(3, 9))) == 0
    assert len(group_configs(Release(4, 0))) == 6
    assert len(group_configs(Release(4, 1))) == 10
    assert len(group_configs(Release(4, 2))) == 11
    assert len(group_configs(Release(4, 3))) == 17
    assert len(group_configs(Release(4, 4))) == 21


# Log levels


def test_log_levels_are_shown() -> None:
    harness = ClusterHarness()

    levels = configs(harness, LOGGER, "1")

    assert levels.keys() == set(LOGGERS)
    assert levels.items() >= CONFIGURED_LEVELS.items()
    assert levels["kafka.server.KafkaApis"] == "INFO"
    (root,) = described(harness, LOGGER, "1", keys=["root"]).configs
    assert (root.config_source, root.synonyms) == (ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG, [])
    assert (root.read_only, root.is_sensitive, root.config_type) == (False, False, 0)


def test_log_levels_are_kept_and_inherited_until_the_broker_stops() -> None:
    harness = ClusterHarness(brokers=2)
    assert alter(harness, LOGGER, "1", ("kafka", SET, "DEBUG"), ("kafka.request.logger", DELETE, None))[0] == 0

    levels = configs(harness, LOGGER, "1")
    assert (levels["kafka"], levels["kafka.request.logger"], levels["root"]) == ("DEBUG", "DEBUG", "INFO")
    assert levels["kafka.server.KafkaApis"] == "DEBUG"

    broker = harness.cluster.brokers[1]
    harness.cluster.controller.stop_broker(broker, harness.now_ms, Failover())
    harness.cluster.controller.start_broker(broker, harness.now_ms, Failover())
    assert configs(harness, LOGGER, "1").items() >= CONFIGURED_LEVELS.items()


def test_log_levels_are_checked_before_any_is_changed(subtests: pytest.Subtests) -> None:
    harness = ClusterHarness()
    before = configs(harness, LOGGER, "1")
    for name, change, error in (
        ("1", ("gone", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        ("1", ("kafka", SET, "info"), ErrorCode.INVALID_CONFIG),
        ("1", ("kafka", SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        ("1", ("gone", DELETE, None), ErrorCode.INVALID_CONFIG),
        ("1", ("root", DELETE, None), ErrorCode.INVALID_REQUEST),
        ("1", ("kafka", APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
        ("1", ("kafka", 9, "INFO"), ErrorCode.UNKNOWN_SERVER_ERROR),
        ("2", ("kafka", SET, "INFO"), ErrorCode.INVALID_REQUEST),
        ("", ("kafka", SET, "INFO"), ErrorCode.INVALID_REQUEST),
    ):
        with subtests.test(name=name, change=change):
            assert alter(harness, LOGGER, name, ("state.change.logger", SET, "TRACE"), change)[0] == error
    assert alter(harness, LOGGER, "1", ("kafka", SET, "TRACE"), validate_only=True)[0] == ErrorCode.NONE
    assert configs(harness, LOGGER, "1") == before


def test_alter_configs_does_not_know_loggers() -> None:
    resource = alter_configs.AlterConfigsResource(resource_type=LOGGER, resource_name="1", configs=[])
    request = alter_configs.AlterConfigsRequest(resources=[resource], validate_only=False)
    (result,) = ClusterHarness().ask(request, 2).responses
    assert result.error_code == ErrorCode.INVALID_REQUEST


# Subscriptions of client metrics


def test_configs_of_subscriptions_are_kept_shown_and_listed() -> None:
    harness = ClusterHarness()
    assert configs(harness, METRICS, "rates") == {"interval.ms": "300000", "match": "", "metrics": ""}
    assert alter(harness, METRICS, "rates", ("metrics", SET, "a.,b."), ("interval.ms", SET, "1000"))[0] == 0

    assert configs(harness, METRICS, "rates") == {"interval.ms": "1000", "match": "", "metrics": "a.,b."}
    interval, match, _ = described(harness, METRICS, "rates").configs
    assert [(each.value, each.source) for each in interval.synonyms] == [("1000", ConfigSource.CLIENT_METRICS_CONFIG)]
    assert match.synonyms == []
    assert (interval.config_source, match.config_source) == (
        ConfigSource.CLIENT_METRICS_CONFIG,
        ConfigSource.DEFAULT_CONFIG,
    )
    assert listed(harness, version=0) == listed(harness, METRICS) == [(METRICS, "rates")]


@pytest.mark.parametrize("release", ["3.9", "4.0"])
def test_before_4_1_subscriptions_show_only_what_was_set(release: str) -> None:
    harness = ClusterHarness(as_version=release)
    assert configs(harness, METRICS, "rates") == {}
    alter(harness, METRICS, "rates", ("metrics", SET, "a."))
    assert configs(harness, METRICS, "rates") == {"metrics": "a."}


def test_subscriptions_are_checked(subtests: pytest.Subtests) -> None:
    harness = ClusterHarness()
    for change, error in (
        (("interval", SET, "1"), ErrorCode.INVALID_REQUEST),
        (("interval.ms", SET, "99"), ErrorCode.INVALID_REQUEST),
        (("interval.ms", SET, "3600001"), ErrorCode.INVALID_REQUEST),
        (("match", SET, "client_id"), ErrorCode.INVALID_CONFIG),
        (("match", SET, "name=x"), ErrorCode.INVALID_CONFIG),
        (("match", SET, "client_id=("), ErrorCode.INVALID_CONFIG),
        (("match", SET, "client_id=a=b"), ErrorCode.INVALID_CONFIG),
    ):
        with subtests.test(change=change):
            assert alter(harness, METRICS, "rates", change)[0] == error
    assert listed(harness, METRICS) == []


# ListConfigResources


def test_resources_of_all_types_are_listed() -> None:
    harness = ClusterHarness({"news": 1}, brokers=2)
    alter(harness, GROUP, "g", ("share.auto.offset.reset", SET, "earliest"))
    alter(harness, METRICS, "m", ("metrics", SET, "*"))
    everything = [
        (ResourceType.TOPIC, "news"),
        (ResourceType.BROKER, "1"),
        (ResourceType.BROKER, "2"),
        (LOGGER, "1"),
        (LOGGER, "2"),
        (METRICS, "m"),
        (GROUP, "g"),
    ]

    assert listed(harness) == everything
    assert listed(harness, GROUP, ResourceType.TOPIC) == [everything[0], everything[-1]]


def test_unknown_types_cannot_be_listed() -> None:
    response = ClusterHarness().ask(ListConfigResourcesRequest(resource_types=[GROUP, 1]), 1)
    assert (response.error_code, response.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])


def test_configs_of_resources_are_in_snapshots() -> None:
    harness = ClusterHarness()
    alter(harness, GROUP, "g", ("share.auto.offset.reset", SET, "earliest"))
    alter(harness, LOGGER, "1", ("kafka", SET, "DEBUG"))
    taken = snapshot.take(harness.cluster)
    alter(harness, GROUP, "g", ("share.auto.offset.reset", DELETE, None))
    alter(harness, METRICS, "m", ("metrics", SET, "*"))
    alter(harness, LOGGER, "1", ("kafka", SET, "TRACE"))

    snapshot.restore(harness.cluster, taken, harness.now_ms)

    assert listed(harness, GROUP, METRICS) == [(GROUP, "g")]
    assert configs(harness, LOGGER, "1")["kafka"] == "DEBUG"


# Telemetry


def subscription(harness: ClusterHarness, instance_id: bytes = bytes(15) + b"\1", client_id: str = "client") -> Any:
    return harness.ask(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id), 0, client_id=client_id)


def push(harness: ClusterHarness, number: int, *, metrics: bytes = b"x", compression: int = 0, **other: Any) -> int:
    request = PushTelemetryRequest(
        client_instance_id=other.get("instance_id", bytes(15) + b"\1"),
        subscription_id=number,
        terminating=False,
        compression_type=compression,
        metrics=metrics,
    )
    code: int = harness.ask(request, 0).error_code
    return code


def test_without_subscriptions_no_metrics_are_requested() -> None:
    response = subscription(ClusterHarness(), ZERO_UUID)

    assert response.error_code == ErrorCode.NONE
    assert response.client_instance_id != ZERO_UUID
    assert response.requested_metrics == []
    assert response.accepted_compression_types == [4, 3, 1, 2]
    assert (response.push_interval_ms, response.telemetry_max_bytes) == (300_000, 1_048_576)
    assert response.delta_temporality


def test_a_client_gets_the_union_of_the_subscriptions_that_match_it() -> None:
    harness = ClusterHarness()
    alter(harness, METRICS, "all", ("metrics", SET, "a."), ("interval.ms", SET, "60000"))
    alter(harness, METRICS, "some", ("metrics", SET, "a.,b."), ("match", SET, "client_id=reader-.*"))
    alter(harness, METRICS, "none", ("metrics", SET, "*"), ("match", SET, "client_software_name=other"))

    assert subscription(harness).requested_metrics == ["a."]
    reader = subscription(harness, client_id="reader-1")
    assert (reader.requested_metrics, reader.push_interval_ms) == (["a.", "b."], 60_000)
    alter(harness, METRICS, "none", ("match", SET, "client_software_name=unknown,client_source_address=127.*"))
    assert subscription(harness).requested_metrics == ["*"]


def test_pushed_metrics_are_checked(subtests: pytest.Subtests) -> None:
    harness = ClusterHarness()
    alter(harness, METRICS, "all", ("metrics", SET, "*"))
    number = subscription(harness).subscription_id
    for expected, arguments in (
        (ErrorCode.NONE, {}),
        (ErrorCode.NONE, {"compression": 4, "metrics": b""}),
        (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, {"compression": 5}),
        (ErrorCode.TELEMETRY_TOO_LARGE, {"metrics": bytes(1_048_577)}),
        (ErrorCode.INVALID_REQUEST, {"instance_id": ZERO_UUID}),
    ):
        with subtests.test(expected=expected.name):
            assert push(harness, number, **arguments) == expected
    assert push(harness, number + 1) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    alter(harness, METRICS, "all", ("metrics", SET, "a."))
    assert push(harness, number) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID


def test_telemetry_is_reported_only_if_there_is_a_subscription() -> None:
    harness = ClusterHarness()
    keys = {each.api_key for each in harness.ask(ApiVersionsRequest(), 2).api_keys}
    alter(harness, METRICS, "all", ("metrics", SET, "*"))
    then = {each.api_key for each in harness.ask(ApiVersionsRequest(), 2).api_keys}

    assert keys & TELEMETRY_KEYS == set()
    assert then == keys | TELEMETRY_KEYS
