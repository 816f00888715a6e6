"""Features and their levels: what each release supports, what a cluster has finalized, and UpdateFeatures.

`RANGES` is the table by release; `Features` is the state of a cluster. Only KRaft clusters have features, so releases
before 3.3, which use ZooKeeper here, have none. Finalized levels stay when brokers are added or upgraded;
UpdateFeatures changes them (FeatureControlManager). Does not depend on `Cluster`.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

import msgspec

from fakebroker.protocol.releases import Release

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
GROUP_VERSION = "group.version"
TRANSACTION_VERSION = "transaction.version"

KIP_584, KRAFT, KIP_1022 = Release(2, 7), Release(3, 3), Release(4, 0)
"""The first releases with UpdateFeatures, with KRaft brokers, and with updates of all features or none."""


class FeatureRange(NamedTuple):
    """The levels of a feature in a release.

    Attributes:
        first: The lowest level that brokers support; 0 is "disabled".
        last: The highest level that brokers support.
        initial: The finalized level of a cluster that starts with this release.
    """

    first: int
    last: int
    initial: int


# By name without ".version": "first-last=initial", or "-" if the release does not report the feature. Source:
# BrokerFeatures, MetadataVersion and other classes named after features. The initial levels are those of
# kafka-storage.sh: with a standalone controller since 4.0, with a list of voters before.
_TABLE = """
feature                  3.3   3.4   3.5     3.6     3.7     3.8     3.9     4.0     4.1     4.2     4.3     4.4
metadata                 1-7=7 1-8=8 1-11=11 1-14=14 1-19=19 1-20=20 1-21=21 7-25=25 7-27=27 7-29=29 7-30=30 7-33=33
kraft                    -     -     -       -       -       -       0-1=0   0-1=1   0-1=1   0-1=1   0-1=1   0-1=1
transaction              -     -     -       -       -       -       -       0-2=2   0-2=2   0-2=2   0-2=2   0-2=2
group                    -     -     -       -       -       -       -       0-1=1   0-1=1   0-1=1   0-1=1   0-1=1
eligible.leader.replicas -     -     -       -       -       -       -       0-1=0   0-1=1   0-1=1   0-1=1   0-1=1
share                    -     -     -       -       -       -       -       -       0-1=0   0-1=1   0-1=1   0-2=2
streams                  -     -     -       -       -       -       -       -       -       0-1=1   0-1=1   0-1=1
"""

_LEAST_METADATA_VERSION = 4
"""3.3-IV0, the first level that can be finalized (MetadataVersion.MINIMUM_BOOTSTRAP_VERSION)."""

_METADATA_CHANGES = frozenset((1, 3, 5, 6, 7, 8, 11, 13, 14, 15, 17, 23))
"""The levels of metadata.version that changed the format of metadata, so that a downgrade could lose some."""

_DEPENDENCIES: Mapping[tuple[str, int], tuple[str, int]] = {
    (KRAFT_VERSION, 1): (METADATA_VERSION, 21),
    ("eligible.leader.replicas.version", 1): (METADATA_VERSION, 23),
}
"""The least level of another feature that a level of a feature needs."""


def _ranges() -> dict[Release, dict[str, FeatureRange]]:
    head, *rows = (line.split() for line in _TABLE.strip().splitlines())
    releases = [Release(*map(int, name.split("."))) for name in head[1:]]
    table: dict[Release, dict[str, FeatureRange]] = {each: {} for each in releases}
    for name, *cells in rows:
        for each, cell in zip(releases, cells, strict=True):
            if cell != "-":
                levels, _, initial = cell.partition("=")
                first, _, last = levels.partition("-")
                table[each][f"{name}.version"] = FeatureRange(int(first), int(last), int(initial))
    return table


RANGES: Mapping[Release, Mapping[str, FeatureRange]] = _ranges()
"""The features of each release that has any, by name."""


class UpgradeType(IntEnum):
    """What a change of a level may do (FeatureUpdate.UpgradeType)."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class Update(NamedTuple):
    """The requested level of a feature. `upgrade_type` is the number in the request, possibly not an `UpgradeType`."""

    name: str
    level: int
    upgrade_type: int = UpgradeType.UPGRADE


def supported(release: Release) -> Mapping[str, FeatureRange]:
    """Return the features that a broker of a release supports; none before 3.3."""
    return RANGES.get(release, {})


class Features(msgspec.Struct):
    """The finalized features of a cluster.

    Attributes:
        finalized: Levels above 0, by feature.
        epoch: Grows with each change. 0: a cluster that uses ZooKeeper and has no features.
    """

    finalized: dict[str, int] = msgspec.field(default_factory=dict)
    epoch: int = 0

    @classmethod
    def of_new_cluster(cls, releases: Iterable[Release]) -> "Features":
        """Return the features of a new cluster: those that its oldest release finalizes."""
        ranges = supported(min(releases))
        return cls({name: each.initial for name, each in ranges.items() if each.initial}, 1 if ranges else 0)

    def level(self, name: str) -> int:
        """Return the finalized level of a feature; 0 if it is disabled."""
        return self.finalized.get(name, 0)

    def copy(self) -> "Features":
        """Return an independent copy."""
        return Features(dict(self.finalized), self.epoch)

    def restore(self, kept: "Features") -> None:
        """Restore earlier levels under a new epoch, because clients ignore features with an older one."""
        if self.finalized != kept.finalized:
            self.finalized = dict(kept.finalized)
            self.epoch += 1

    def apply(self, updates: Iterable[Update]) -> None:
        """Finalize levels, which must be valid."""
        for name, level, _ in updates:
            if level:
                self.finalized[name] = level
            else:
                self.finalized.pop(name, None)
        self.epoch += 1

    def error(self, update: Update, updates: Iterable[Update], brokers: Mapping[int, Release]) -> str | None:
        """Return why a level cannot be finalized (INVALID_UPDATE_VERSION); None if it can.

        Args:
            update: The update.
            updates: All updates of the request, on whose levels this one may depend.
            brokers: The releases of all brokers, by node id; each must support the level.
        """
        name, level, _ = update
        fault = (
            self._type_error(update)
            or _support_error(update, brokers)
            or self._direction_error(update)
            or self._downgrade_error(update)
            or self._dependency_error(update, updates)
        )
        return fault and f"Invalid update version {level} for feature {name}: {fault}"

    def _type_error(self, update: Update) -> str | None:
        if update.upgrade_type not in list(UpgradeType):
            return f"upgrade type {update.upgrade_type}: expected {', '.join(map(str, map(int, UpgradeType)))}"
        return "expected 0 or more" if update.level < 0 else None

    def _direction_error(self, update: Update) -> str | None:
        current, is_upgrade = self.level(update.name), update.upgrade_type == UpgradeType.UPGRADE
        if update.level < current and is_upgrade:
            return f"the level is {current} now; a lower one needs an upgrade type of safe or unsafe downgrade"
        if update.level > current and not is_upgrade:
            return f"the level is {current} now; a higher one needs the upgrade type {UpgradeType.UPGRADE:d}"
        return None

    def _downgrade_error(self, update: Update) -> str | None:
        name, level, upgrade_type = update
        current = self.level(name)
        if name == KRAFT_VERSION and level < current:
            return "kraft.version cannot be downgraded"
        if name != METADATA_VERSION:
            return None
        if level < _LEAST_METADATA_VERSION:
            return f"expected {_LEAST_METADATA_VERSION} (3.3-IV0) or more"
        lost = _METADATA_CHANGES & set(range(level + 1, current + 1))
        if lost and upgrade_type == UpgradeType.UNSAFE_DOWNGRADE:
            return "an unsafe downgrade of metadata is not supported"
        return "the downgrade might delete metadata" if lost else None

    def _dependency_error(self, update: Update, updates: Iterable[Update]) -> str | None:
        needed = _DEPENDENCIES.get((update.name, update.level))
        if needed is None:
            return None
        name, least = needed
        proposed = {**self.finalized, **{each.name: each.level for each in updates}}
        return None if proposed.get(name, 0) >= least else f"it depends on {name} level {least}"


def _support_error(update: Update, brokers: Mapping[int, Release]) -> str | None:
    for node_id, release in brokers.items():
        levels = supported(release).get(update.name)
        if levels is None:
            return f"broker {node_id} does not support this feature"
        if not levels.first <= update.level <= levels.last:
            return f"broker {node_id} only supports levels {levels.first} to {levels.last}"
    return None
