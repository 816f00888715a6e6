"""The configs of groups (resources of the type GROUP), by release: the new group protocols read them.

They are stored and given back, and their values are checked. Consumer groups use those that begin with `consumer.`; the
others have no effect. Source: GroupConfig; bounds are the defaults of the brokers' `group.consumer.*`, `group.share.*`
and `group.streams.*`. The first arguments of `ConfigKey` are the type, the default, the smallest and the largest valid
number.
"""

import re
from collections.abc import Mapping

from fakebroker.cluster.configs.definitions import ConfigKey, ConfigType
from fakebroker.cluster.configs.topic_configs import values_error
from fakebroker.protocol.releases import Release

KIP_848 = Release(4, 0)
"""The first release with configs of groups."""

_INT, _STRING = ConfigType.INT, ConfigType.STRING

_SESSION = ConfigKey(_INT, 45_000, 45_000, 60_000, about="Time without heartbeats after which a member is removed.")
_HEARTBEAT = ConfigKey(_INT, 5000, 5000, 15_000, about="Time between two heartbeats of a member.")

_SINCE: tuple[tuple[Release, dict[str, ConfigKey]], ...] = (
    (
        Release(4, 0),
        {
            "consumer.heartbeat.interval.ms": _HEARTBEAT,
            "consumer.session.timeout.ms": _SESSION,
            "share.auto.offset.reset": ConfigKey(_STRING, "latest", about="Where a share partition starts."),
            "share.heartbeat.interval.ms": _HEARTBEAT,
            "share.record.lock.duration.ms": ConfigKey(
                _INT, 30_000, 15_000, 60_000, about="How long a fetched record belongs to a member."
            ),
            "share.session.timeout.ms": _SESSION,
        },
    ),
    (
        Release(4, 1),
        {
            "share.isolation.level": ConfigKey(
                _STRING, "read_uncommitted", choices=("read_committed", "read_uncommitted")
            ),
            "streams.heartbeat.interval.ms": _HEARTBEAT,
            "streams.num.standby.replicas": ConfigKey(_INT, 0, 0, 2, about="Standby replicas of each task."),
            "streams.session.timeout.ms": _SESSION,
        },
    ),
    (
        Release(4, 2),
        {
            "streams.initial.rebalance.delay.ms": ConfigKey(
                _INT, 3000, 0, about="Wait of an empty group for further members."
            ),
        },
    ),
)

_AUTO_OFFSET_RESET = re.compile(
    r"earliest|latest|by_duration:P(?!$)(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?", re.I
)


def group_configs(release: Release) -> dict[str, ConfigKey]:
    """Return the configs of groups in a release, sorted by name; none before 4.0."""
    return dict(sorted(each for since, keys in _SINCE if since <= release for each in keys.items()))


def group_configs_error(configs: Mapping[str, str], release: Release) -> str | None:
    """Return an error message if a group may not have these configs, else None (GroupConfig.validate)."""
    keys = group_configs(release)
    unknown = [name for name in configs if name not in keys]
    if unknown:
        return f"Unknown group config name: {unknown[0]}"
    reset = configs.get("share.auto.offset.reset")
    if reset is not None and not _AUTO_OFFSET_RESET.fullmatch(reset):
        expected = "earliest, latest or by_duration: and a duration, such as by_duration:PT1H"
        return f"Invalid value {reset} for configuration share.auto.offset.reset: expected {expected}"
    # A session is longer than the interval of heartbeats, because the bounds of both do not overlap.
    return values_error(configs, keys)
