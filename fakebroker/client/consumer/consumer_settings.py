"""The settings of a consumer, validated."""

from dataclasses import dataclass
from typing import Literal, TypedDict

from fakebroker.client.isolation_level import IsolationLevel, isolation_number
from fakebroker.client.member.assignors import PartitionAssignor
from fakebroker.client.member.consumer.consumer_member_settings import ConsumerMemberSettings
from fakebroker.client.member.member_settings import MemberSettings
from fakebroker.errors import ConfigError, check_integer, one_of
from fakebroker.topic_partition import LEGAL_NAME, MAX_INT32, is_legal_name

ResetPolicy = Literal["earliest", "latest"]
GroupProtocol = Literal["classic", "consumer"]


class ConsumerOptions(TypedDict, total=False):
    """The fields of `ConsumerSettings`, as keyword arguments of `Consumer`."""

    group_id: str | None
    client_id: str
    instance_id: str | None
    group_protocol: GroupProtocol
    group_remote_assignor: str | None
    client_rack: str | None
    assignor: str | PartitionAssignor | None
    session_timeout_ms: int | None
    heartbeat_interval_ms: int | None
    max_poll_interval_ms: int
    commit_interval_ms: int
    auto_offset_reset: ResetPolicy | None
    isolation_level: IsolationLevel
    max_poll_records: int
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    metadata_max_age_ms: int
    request_timeout_ms: int
    close_timeout_ms: int
    retry_backoff_ms: int


@dataclass(slots=True, kw_only=True)
class ConsumerSettings:
    """Kafka's consumer settings with Kafka's names and defaults; different names are documented below.

    Attributes:
        instance_id: `group.instance.id`; makes the member static (KIP-345).
        group_protocol: "classic", or "consumer" for the protocol of KIP-848, with which the broker assigns partitions
            (Kafka 4.0 and later). If a cluster does not support it, polls raise `GroupFailed`.
        group_remote_assignor: The broker's assignor, such as "uniform" or "range"; None lets the broker choose. Only
            with the consumer protocol.
        client_rack: `client.rack`. Only with the consumer protocol.
        assignor: The `partition.assignment.strategy`: a protocol name, or a custom assignor. None, the default, is
            "range". Only with the classic protocol, like the next two; the broker has them with the consumer protocol.
        session_timeout_ms: None, the default, is 45,000.
        heartbeat_interval_ms: None, the default, is 3,000.
        max_poll_interval_ms: A consumer that is not polled for this long leaves its group until the next poll. Also
            the rebalance timeout.
        commit_interval_ms: `auto.commit.interval.ms`; 0 disables automatic commits (`enable.auto.commit=false`).
            The records of a poll count as consumed, and are included in these commits, from the next poll on.
        auto_offset_reset: Where to start if no offset is committed; None raises an error.
        isolation_level: "read_committed" returns only records outside of open and aborted transactions (KIP-98).
        close_timeout_ms: How long closing waits for the last responses.
        retry_backoff_ms: The first back-off; later ones double up to one second.

    Raises:
        ConfigError: A value is invalid.
    """

    group_id: str | None = None
    client_id: str = "fakebroker"
    instance_id: str | None = None
    group_protocol: GroupProtocol = "classic"
    group_remote_assignor: str | None = None
    client_rack: str | None = None
    assignor: str | PartitionAssignor | None = None
    session_timeout_ms: int | None = None
    heartbeat_interval_ms: int | None = None
    max_poll_interval_ms: int = 300_000
    commit_interval_ms: int = 5_000
    auto_offset_reset: ResetPolicy | None = "latest"
    isolation_level: IsolationLevel = "read_uncommitted"
    max_poll_records: int = 500
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 50 * 1024 * 1024
    max_partition_fetch_bytes: int = 1024 * 1024
    metadata_max_age_ms: int = 300_000
    request_timeout_ms: int = 30_000
    close_timeout_ms: int = 5_000
    retry_backoff_ms: int = 100

    def __post_init__(self) -> None:
        if self.group_id == "":
            raise ConfigError.of("group_id", "", "a name, or None for no group")
        if self.auto_offset_reset not in ("earliest", "latest", None):
            expected = one_of(("earliest", "latest"), self.auto_offset_reset, other="None")
            raise ConfigError.of("auto_offset_reset", self.auto_offset_reset, expected)
        isolation_number(self.isolation_level)
        if self.instance_id is not None and not is_legal_name(self.instance_id):
            raise ConfigError.of("instance_id", self.instance_id, f"{LEGAL_NAME}, or None")
        if self.group_protocol not in UNSUPPORTED_SETTINGS:
            raise ConfigError.of("group_protocol", self.group_protocol, one_of(UNSUPPORTED_SETTINGS, None))
        for name in UNSUPPORTED_SETTINGS[self.group_protocol]:
            if getattr(self, name) is not None:
                expected = f"None, because it cannot be set with group_protocol={self.group_protocol!r}"
                raise ConfigError.of(name, getattr(self, name), expected)
        for name, minimum in _MINIMUM.items():
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), least=minimum, most=MAX_INT32)
        if self.group_protocol == "classic":
            self.member()
        else:
            self.consumer_member()

    def member(self) -> MemberSettings:
        """Return the settings of a member of the classic protocol, without topics.

        Raises:
            ConfigError: A value is invalid.
        """
        return MemberSettings(
            group_id=self.group_id or "",
            client_id=self.client_id,
            topics=(),
            instance_id=self.instance_id,
            assignor="range" if self.assignor is None else self.assignor,
            session_timeout_ms=45_000 if self.session_timeout_ms is None else self.session_timeout_ms,
            rebalance_timeout_ms=self.max_poll_interval_ms,
            heartbeat_interval_ms=3_000 if self.heartbeat_interval_ms is None else self.heartbeat_interval_ms,
            commit_interval_ms=self.commit_interval_ms,
            retry_backoff_ms=self.retry_backoff_ms,
            awaits_revocation=True,
            starts_at_zero=False,
        )

    def consumer_member(self) -> ConsumerMemberSettings:
        """Return the settings of a member of the consumer protocol, without topics.

        Raises:
            ConfigError: A value is invalid.
        """
        return ConsumerMemberSettings(
            group_id=self.group_id or "",
            client_id=self.client_id,
            instance_id=self.instance_id,
            rack_id=self.client_rack,
            server_assignor=self.group_remote_assignor,
            rebalance_timeout_ms=self.max_poll_interval_ms,
            commit_interval_ms=self.commit_interval_ms,
            retry_backoff_ms=self.retry_backoff_ms,
            request_timeout_ms=self.request_timeout_ms,
            awaits_revocation=True,
            starts_at_zero=False,
        )


UNSUPPORTED_SETTINGS = {
    "classic": ("group_remote_assignor", "client_rack"),
    "consumer": ("assignor", "heartbeat_interval_ms", "session_timeout_ms"),
}
"""The settings that cannot be set with each protocol (Kafka's `ConsumerConfig.checkUnsupportedConfigsPostProcess`)."""

_MINIMUM = {
    "session_timeout_ms": 1,
    "heartbeat_interval_ms": 1,
    "max_poll_interval_ms": 1,
    "commit_interval_ms": 0,
    "max_poll_records": 1,
    "fetch_min_bytes": 0,
    "fetch_max_wait_ms": 0,
    "fetch_max_bytes": 1,
    "max_partition_fetch_bytes": 1,
    "metadata_max_age_ms": 1,
    "request_timeout_ms": 1,
    "close_timeout_ms": 1,
    "retry_backoff_ms": 0,
}
"""The minimum of each number; the maximum is `MAX_INT32`."""
