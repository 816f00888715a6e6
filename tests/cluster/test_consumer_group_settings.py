"""Consumer groups by release and setting: previews, assignors, defaults, and limits of the groups' own configs."""

from typing import Any

import pytest

from fakebroker.cluster.configs.changes import ResourceType
from fakebroker.cluster.configs.group_configs import effective_group_configs, group_configs_error
from fakebroker.cluster.configs.settings import Config
from fakebroker.cluster.features import Update
from fakebroker.coordinator.consumer.assignors import ASSIGNORS
from fakebroker.errors import ConfigError, ErrorCode
from fakebroker.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from fakebroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from fakebroker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from fakebroker.protocol.registry import API_BY_NAME
from fakebroker.protocol.releases import NEWEST, Release
from tests.support.cluster.cluster_harness import ClusterHarness
from tests.support.subtests import subtest_for_each

PROTOCOLS = "group.coordinator.rebalance.protocols"
CONSUMER = "classic,consumer"
HEARTBEAT, DESCRIBE = (API_BY_NAME[name].key for name in ("ConsumerGroupHeartbeat", "ConsumerGroupDescribe"))


def join(harness: ClusterHarness, group_id: str = "g") -> Any:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id="a",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["news"],
        topic_partitions=[],
    )
    return harness.ask(request, 0)


# The release, the setting, the highest advertised versions of ConsumerGroupHeartbeat and ConsumerGroupDescribe, and
# whether they work.
RELEASES: list[tuple[str, str | None, int | None, int | None, bool]] = [
    ("3.6", CONSUMER, None, None, False),
    ("3.7", None, 0, None, False),
    ("3.7", CONSUMER, 0, None, True),
    ("3.8", None, 0, 0, False),
    ("3.8", CONSUMER, 0, 0, True),
    ("3.9", None, 0, 0, False),
    ("3.9", CONSUMER, 0, 0, True),
    ("4.0", None, 1, 1, True),
    ("4.0", "classic", 1, 1, False),
    ("4.2", None, 1, 1, True),
    ("4.2", "classic,streams", 1, 1, False),
]


@subtest_for_each(("release", "protocols", "heartbeat", "describe", "works"), RELEASES)
def test_releases(
    release: str, protocols: str | None, heartbeat: int | None, describe: int | None, works: bool
) -> None:
    config: dict[str, object] = {} if protocols is None else {PROTOCOLS: protocols}
    harness = ClusterHarness({"news": 2}, as_version=release, config=config)
    advertised = harness.cluster.brokers[1].versions
    assert [advertised[key].last if key in advertised else None for key in (HEARTBEAT, DESCRIBE)] == [
        heartbeat,
        describe,
    ]
    if heartbeat is None:
        return
    joined = join(harness)
    assert joined.error_code == (ErrorCode.NONE if works else ErrorCode.UNSUPPORTED_VERSION)
    if describe is not None:
        request = ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False)
        (group,) = harness.ask(request, 0).groups
        assert (group.error_code, len(group.members)) == (joined.error_code, int(works))


def test_since_4_0_the_feature_is_needed_too() -> None:
    harness = ClusterHarness({"news": 2})
    harness.cluster.features.apply([Update("group.version", 0)])
    assert join(harness).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_previews_behave_as_the_new_coordinator() -> None:
    for release in (Release(3, 6), Release(3, 7), Release(3, 9), Release(4, 0)):
        assert Config().coordinator(release).is_before_kip_848 == (release < (4, 0))
        assert Config({PROTOCOLS: CONSUMER}).coordinator(release).is_before_kip_848 == (release < (3, 7))


def test_assignors_of_releases() -> None:
    for release in (Release(3, 7), Release(4, 0), Release(4, 1), NEWEST):
        assert Config().coordinator(release).consumer.assignors == ASSIGNORS


def test_described_defaults_of_releases() -> None:
    names = [PROTOCOLS, "group.consumer.assignors", "group.consumer.min.session.timeout.ms"]
    classes = ",".join(f"org.apache.kafka.coordinator.group.assignor.{name}Assignor" for name in ("Uniform", "Range"))
    for release, expected in {
        "3.7": ["classic", classes, "45000"],
        "3.9": ["classic", classes, "45000"],
        "4.0": [CONSUMER, "uniform,range", "45000"],
        "4.1": [f"{CONSUMER},streams", "uniform,range", "45000"],
        "4.2": [f"{CONSUMER},streams", "uniform,range", "45000"],
    }.items():
        harness = ClusterHarness(as_version=release)
        resource = DescribeConfigsResource(
            resource_type=ResourceType.BROKER, resource_name="1", configuration_keys=names
        )
        (result,) = harness.ask(DescribeConfigsRequest(resources=[resource]), 4).results
        described = {each.name: each.value for each in result.configs}
        assert [described[name] for name in names] == expected, release


# Settings without their prefix, and the error: of which setting, and what was expected.
INVALID: list[tuple[dict[str, object], str, str]] = [
    (
        {"min.session.timeout.ms": 60_001},
        "group.consumer.min.session.timeout.ms",
        "an integer <= group.consumer.max.session.timeout.ms, which is 60000",
    ),
    (
        {"session.timeout.ms": 50_000, "min.session.timeout.ms": 50_001},
        "group.consumer.min.session.timeout.ms",
        "an integer <= group.consumer.session.timeout.ms, which is 50000",
    ),
    (
        {"session.timeout.ms": 50_000, "max.session.timeout.ms": 49_999},
        "group.consumer.session.timeout.ms",
        "an integer <= group.consumer.max.session.timeout.ms, which is 49999",
    ),
    (
        {"heartbeat.interval.ms": 4999, "min.heartbeat.interval.ms": 5000},
        "group.consumer.min.heartbeat.interval.ms",
        "an integer <= group.consumer.heartbeat.interval.ms, which is 4999",
    ),
    (
        {"max.heartbeat.interval.ms": 4000},
        "group.consumer.min.heartbeat.interval.ms",
        "an integer <= group.consumer.max.heartbeat.interval.ms, which is 4000",
    ),
    (
        {"session.timeout.ms": 5000},
        "group.consumer.heartbeat.interval.ms",
        "an integer < group.consumer.session.timeout.ms, which is 5000",
    ),
    ({"regex.refresh.interval.ms": 9999}, "group.consumer.regex.refresh.interval.ms", "an integer from 10000"),
    ({"assignors": ""}, "group.consumer.assignors", "one or more of uniform, range"),
]


@subtest_for_each(("settings", "name", "expected"), INVALID)
def test_invalid_settings(settings: dict[str, object], name: str, expected: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Config({f"group.consumer.{each}": value for each, value in settings.items()})
    assert (raised.value.field, expected in (raised.value.expected or "")) == (name, True), raised.value


def test_the_classic_protocol_cannot_be_disabled() -> None:
    with pytest.raises(ConfigError, match="a list with classic, which cannot be disabled"):
        Config({PROTOCOLS: "consumer"})


def test_limits_that_are_not_set_include_the_value_of_the_brokers() -> None:
    config = Config({"group.consumer.heartbeat.interval.ms": 100, "group.consumer.session.timeout.ms": 90_000})
    assert config.number("group.consumer.min.heartbeat.interval.ms") == 100
    assert config.number("group.consumer.max.heartbeat.interval.ms") == 15_000
    assert config.number("group.consumer.min.session.timeout.ms") == 45_000
    assert config.number("group.consumer.max.session.timeout.ms") == 90_000


LIMITS = {"group.consumer.min.session.timeout.ms": 10_000, "group.consumer.max.heartbeat.interval.ms": 20_000}

# Configs of a group, and Kafka's message; None if they are valid.
OF_GROUPS: list[tuple[dict[str, str], str | None]] = [
    ({"consumer.session.timeout.ms": "20001", "consumer.heartbeat.interval.ms": "20000"}, None),
    (
        {"consumer.session.timeout.ms": "9999"},
        "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
    ),
    (
        {"consumer.session.timeout.ms": "60001"},
        "consumer.session.timeout.ms must be less than or equal to group.consumer.max.session.timeout.ms",
    ),
    (
        {"consumer.session.timeout.ms": "9999", "consumer.heartbeat.interval.ms": "4999"},
        "consumer.heartbeat.interval.ms must be greater than or equal to group.consumer.min.heartbeat.interval.ms",
    ),
    (
        {"consumer.heartbeat.interval.ms": "20001"},
        "consumer.heartbeat.interval.ms must be less than or equal to group.consumer.max.heartbeat.interval.ms",
    ),
    (
        {"consumer.session.timeout.ms": "15000", "consumer.heartbeat.interval.ms": "15000"},
        "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms",
    ),
    (
        {"streams.num.standby.replicas": "3"},
        "streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas",
    ),
    ({"consumer.heartbeat.interval.ms": "0"}, "Invalid value 0 for configuration consumer.heartbeat.interval.ms: "),
    ({"consumer.timeout.ms": "0"}, "Unknown group config name: consumer.timeout.ms"),
]


@subtest_for_each(("configs", "message"), OF_GROUPS)
def test_configs_of_groups(configs: dict[str, str], message: str | None) -> None:
    found = group_configs_error(configs, NEWEST, Config(LIMITS))
    assert found == message or (message is not None and message.endswith(": ") and (found or "").startswith(message))


@pytest.mark.parametrize(("as_version", "timeout_ms"), [("4.2", 60_000), ("4.3", 50_000), (None, 50_000)])
def test_stored_configs_outside_the_limits_have_the_nearest_value_since_4_3(
    as_version: str | None, timeout_ms: int
) -> None:
    """The brokers were started again with a lower limit (KAFKA-20162). DescribeConfigs shows what is stored."""
    config: dict[str, object] = {"group.consumer.max.session.timeout.ms": 50_000}
    harness = ClusterHarness(config=config, as_version=as_version)
    harness.cluster.resource_configs = {(ResourceType.GROUP, "g"): {"consumer.session.timeout.ms": "60000"}}
    groups = harness.cluster.brokers[1].coordinator.groups.consumer
    assert groups.session_timeout_ms("g") == timeout_ms
    resource = DescribeConfigsResource(
        resource_type=ResourceType.GROUP, resource_name="g", configuration_keys=["consumer.session.timeout.ms"]
    )
    (shown,) = harness.ask(DescribeConfigsRequest(resources=[resource]), 4).results[0].configs
    assert (shown.value, shown.config_source) == ("60000", 8)


def test_groups_have_the_brokers_values_until_their_own_are_set() -> None:
    keys = effective_group_configs(NEWEST, Config({"group.consumer.session.timeout.ms": 50_000}))
    assert keys["consumer.session.timeout.ms"].default == 50_000
    assert keys["share.session.timeout.ms"].default == 45_000
