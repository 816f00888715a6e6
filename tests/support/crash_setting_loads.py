"""Further applications whose broker is killed: settings that requests change, and consumer groups of KIP-848."""

import random

from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from fakebroker.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from fakebroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)
from fakebroker.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from fakebroker.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from fakebroker.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from fakebroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.support.crash_loads import RECORDS, retried
from tests.support.wire_client import WireClient

SCRAM, QUOTA = "SCRAM", "quota"
CONFIGS = {
    "topic": (2, RECORDS, "max.message.bytes"),
    "broker": (4, "1", "message.max.bytes"),
    "all brokers": (4, "", "message.max.bytes"),
    "group": (32, "settings", "consumer.session.timeout.ms"),
}
"""Type and name of a resource, and one of its configs."""
_QUOTA_KEY = "producer_byte_rate"
_SHA_256 = 1
_RANGES = {"group": (45_001, 60_000), SCRAM: (4_096, 16_385)}
"""Valid values of settings."""

Setting = tuple[str, str]


class Settings:
    """Changes configs of topics, brokers and groups, quotas, and SCRAM credentials, of which it removes some again."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._values: dict[Setting, int] = {}
        self._pending: tuple[Setting, int] | None = None

    def step(self, wire: WireClient) -> None:
        kind = self._rng.choice([SCRAM, QUOTA, *CONFIGS])
        setting = (kind, f"user-{self._rng.randrange(5)}" if kind in (SCRAM, QUOTA) else "")
        value = self._rng.randrange(*_RANGES.get(kind, (100_000, 900_000)))
        if self._values.get(setting) and self._rng.random() < 0.3:
            value = 0  # It is removed.
        self._pending = setting, value
        if kind == SCRAM:
            _set_scram(wire, setting[1], value)
        elif kind == QUOTA:
            _set_quota(wire, setting[1], value)
        else:
            _set_config(wire, kind, value)
        self._values[setting], self._pending = value, None

    def check(self, wire: WireClient) -> None:
        found = {**_scram(wire), **_quotas(wire), **{(kind, ""): _config(wire, kind) for kind in CONFIGS}}
        if self._pending:
            setting, value = self._pending
            assert found.get(setting, 0) in (self._values.get(setting, 0), value), setting
            self._values[setting], self._pending = found.get(setting, 0), None
        assert {setting: value for setting, value in found.items() if value} == {
            setting: value for setting, value in self._values.items() if value
        }


def _set_scram(wire: WireClient, user: str, iterations: int) -> None:
    upsertion = ScramCredentialUpsertion(
        name=user, mechanism=_SHA_256, iterations=iterations, salt=b"salt", salted_password=b"salted"
    )
    request = (
        AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
        if iterations
        else AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion(name=user, mechanism=_SHA_256)], upsertions=[]
        )
    )
    [result] = wire.ask(request, AlterUserScramCredentialsResponse, 0).results
    assert result.error_code == ErrorCode.NONE


def _scram(wire: WireClient) -> dict[Setting, int]:
    response = wire.ask(DescribeUserScramCredentialsRequest(users=None), DescribeUserScramCredentialsResponse, 0)
    return {(SCRAM, each.user): each.credential_infos[0].iterations for each in response.results}


def _set_quota(wire: WireClient, user: str, value: int) -> None:
    entry = EntryData(
        entity=[EntityData(entity_type="user", entity_name=user)],
        ops=[OpData(key=_QUOTA_KEY, value=float(value), remove=not value)],
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=False)
    [result] = wire.ask(request, AlterClientQuotasResponse, 1).entries
    assert result.error_code == ErrorCode.NONE


def _quotas(wire: WireClient) -> dict[Setting, int]:
    anything = ComponentData(entity_type="user", match_type=2, match=None)
    request = DescribeClientQuotasRequest(components=[anything], strict=True)
    entries = wire.ask(request, DescribeClientQuotasResponse, 1).entries
    return {(QUOTA, str(each.entity[0].entity_name)): int(each.values[0].value) for each in entries or ()}


def _set_config(wire: WireClient, kind: str, value: int) -> None:
    type_, name, config = CONFIGS[kind]
    change = AlterableConfig(name=config, config_operation=0 if value else 1, value=str(value) if value else None)
    resource = AlterConfigsResource(resource_type=type_, resource_name=name, configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    [result] = wire.ask(request, IncrementalAlterConfigsResponse, 1).responses
    assert result.error_code == ErrorCode.NONE, result.error_message


def _config(wire: WireClient, kind: str) -> int:
    """Return the value that was set at a resource; 0 if it has a default."""
    type_, name, config = CONFIGS[kind]
    resource = DescribeConfigsResource(resource_type=type_, resource_name=name, configuration_keys=[config])
    [result] = wire.ask(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse, 4).results
    assert result.error_code == ErrorCode.NONE
    sources = {"topic": 1, "broker": 2, "all brokers": 3, "group": 8}  # DescribeConfigsResponse.ConfigSource
    return next((int(each.value or 0) for each in result.configs if each.config_source == sources[kind]), 0)


class ConsumerGroups:
    """Groups of one member with the protocol of KIP-848, which has its partition and its epoch after a restart."""

    RECENT = 20

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._members: list[tuple[str, str, int]] = []
        self._count = 0

    def step(self, wire: WireClient) -> None:
        self._count += 1
        group, member_id = f"consumers-{self._count}", f"member-{self._rng.randrange(1_000_000)}"
        joined = _heartbeat(wire, group, member_id, 0, owned=[])
        assert joined.assignment is not None
        _heartbeat(wire, group, member_id, joined.member_epoch, owned=joined.assignment.topic_partitions)
        self._members.append((group, member_id, joined.member_epoch))

    def check(self, wire: WireClient) -> None:
        for group, member_id, epoch in self._members[-self.RECENT :]:
            answer = _heartbeat(wire, group, member_id, epoch, owned=[])
            assert answer.member_epoch == epoch
            assert answer.assignment is not None
            assert [each.partitions for each in answer.assignment.topic_partitions] == [[0]]
        self._members.clear()  # Their sessions expire.


def _heartbeat(
    wire: WireClient, group: str, member_id: str, epoch: int, owned: list[HeartbeatTopicPartitions]
) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[RECORDS],
        topic_partitions=owned,
    )

    def attempt() -> tuple[int, ConsumerGroupHeartbeatResponse]:
        response = wire.ask(request, ConsumerGroupHeartbeatResponse, 1)
        return response.error_code, response

    return retried(attempt)
