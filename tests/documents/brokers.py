"""What brokers support: their APIs, settings and emulated releases, as tables."""

from collections.abc import Iterator
from itertools import pairwise

from fakebroker.cluster.configs.settings import SETTINGS
from fakebroker.cluster.configs.topic_configs import TOPIC_CONFIGS
from fakebroker.cluster.features import RANGES as FEATURES, FeatureRange
from fakebroker.protocol.registry import APIS
from fakebroker.protocol.releases import RELEASES, Release
from fakebroker.protocol.schema import Versions
from tests.documents.markdown import table


def apis() -> str:
    return table(("key", "API", "versions"), [(api.key, api.name, api.versions) for api in APIS])


def settings() -> str:
    rows = [
        (f"`{name}`", "none" if setting.default is None else str(setting.default).lower(), setting.about)
        for name, setting in SETTINGS.items()
    ]
    return table(("setting", "default", "meaning"), rows)


def topic_configs() -> str:
    """Topic configs that have an effect."""
    rows = [
        (f"`{name}`", f"`{key.broker_name}`" if key.broker_name else "", key.default_text or "(empty)", key.about)
        for name, key in TOPIC_CONFIGS.items()
        if key.about
    ]
    return table(("config of a topic", "setting of brokers", "default", "meaning"), rows)


def topic_configs_without_effect() -> str:
    rows = [(f"`{name}`", key.default_text or "(empty)") for name, key in TOPIC_CONFIGS.items() if not key.about]
    return table(("config of a topic", "default"), rows)


def releases() -> str:
    rows = [(str(new), ", ".join(_changes(old, new)) or "no change") for old, new in pairwise(RELEASES)]
    return table(("release", "versions"), rows)


def features() -> str:
    """The supported levels of each feature by release, and the level of a new cluster."""
    rows = [
        (f"`{name}`", *(_levels(ranges.get(name)) for ranges in FEATURES.values())) for name in FEATURES[max(FEATURES)]
    ]
    return table(("feature", *map(str, FEATURES)), rows)


def _levels(levels: FeatureRange | None) -> str:
    return "" if levels is None else f"{levels.first}-{levels.last}, {levels.initial}"


def _changes(old: Release, new: Release) -> Iterator[str]:
    """Yield the differences between the versions of a release and of the previous release."""
    for api in APIS:
        before, after = (RELEASES[release].get(api.name) for release in (old, new))
        if after and before is None:
            yield f"{api.name} {after} (new API)"
        elif after and before and after != before:
            yield f"{api.name} {' '.join(_version_changes(before, after))}"


def _version_changes(before: Versions, after: Versions) -> Iterator[str]:
    if after.last > before.last:
        yield f"+{after.last}" if after.last == before.last + 1 else f"+{Versions(before.last + 1, after.last)}"
    if after.first > before.first:
        yield f"without {Versions(before.first, after.first - 1)}"
    if after.first < before.first:
        yield f"with {Versions(after.first, before.first - 1)} again"
