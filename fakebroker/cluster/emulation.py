"""What one broker speaks: the release of Kafka that it passes for, and the versions of each API that it answers.

Knows the tables of the protocol; no broker and no request.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fakebroker.errors import ConfigError
from fakebroker.protocol.registry import API_BY_NAME, APIS, PROPOSALS, Api
from fakebroker.protocol.releases import NEWEST, RELEASES, Release, release
from fakebroker.protocol.schema import NO_VERSIONS, Versions

MAX_BROKERS = 1000

VersionCap = tuple[int, int] | None
"""The first and the last version of an API, or None for a broker that lacks it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """How one broker of a cluster is to be; brokers of different releases make a cluster that is being upgraded.

    Attributes:
        as_version: A release of Kafka from 0.10.0 on, such as "2.8": the broker answers the versions that this release
            answers, and behaves as it does. None is the newest behavior, and every version that there is.
        api_versions: For some APIs by name, the first and last version to answer, or None to lack the API; at most what
            the release has.
    """

    as_version: str | None = None
    api_versions: Mapping[str, VersionCap] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a broker speaks.

    Attributes:
        release: The release that it behaves as.
        versions: The versions that it tells of, by the key of the API.
    """

    release: Release
    versions: Mapping[int, Versions]

    @classmethod
    def of(cls, broker: Broker, proposals: Sequence[str] = ()) -> "Dialect":
        """What a broker that is to be like this speaks.

        Args:
            broker: How it is to be.
            proposals: Names of proposals for Kafka, which it speaks if it is of the newest release, as a broker that
                has them would be.

        Raises:
            ConfigError: There is no such release, API, version or proposal.
        """
        named = None if broker.as_version is None else _release(broker.as_version)
        ranges = {api.name: _range(api, named) for api in APIS} | _proposed(named or NEWEST, proposals)
        for name, cap in broker.api_versions.items():
            if name not in API_BY_NAME:
                raise ConfigError(f"api_versions: unknown API {name!r}, expected one of {', '.join(API_BY_NAME)}")
            ranges[name] = _capped(API_BY_NAME[name], ranges[name], cap)
        versions = {api.key: spoken for api in APIS if (spoken := ranges[api.name]) is not None}
        return cls(named or NEWEST, versions)

    @property
    def expects_instances(self) -> bool:
        """Whether it has the proposal `batch-join`."""
        api = API_BY_NAME["JoinGroup"]
        return PROPOSALS["batch-join"][api.name].last in self.versions.get(api.key, NO_VERSIONS)


def _proposed(named: Release, proposals: Sequence[str]) -> dict[str, Versions | None]:
    """The versions that proposals give APIs."""
    for name in proposals:
        if name not in PROPOSALS:
            raise ConfigError(f"proposals: {name!r}, expected some of {', '.join(PROPOSALS)}")
    if named != NEWEST:
        return {}
    return {api: versions for name in proposals for api, versions in PROPOSALS[name].items()}


def _release(as_version: str) -> Release:
    if not isinstance(as_version, str):  # 3.10 would come as 3.1
        raise ConfigError(f"as_version={as_version!r}: expected a string, such as '2.8'")
    return release(as_version)


def _range(api: Api, named: Release | None) -> Versions | None:
    """What a release has of an API, as far as its messages are known here."""
    if named is None:
        return api.advertised_versions
    had = RELEASES[named].get(api.name)
    return None if had is None else _both(had, api.request.VERSIONS)


def _both(one: Versions, other: Versions) -> Versions | None:
    """The versions that are in both ranges."""
    first, last = max(one.first, other.first), min(one.last, other.last)
    return Versions(first, last) if first <= last else None


def _capped(api: Api, spoken: Versions | None, cap: VersionCap) -> Versions | None:
    if cap is None:
        if api.name == "ApiVersions":
            raise ConfigError("api_versions: ApiVersions=None, expected versions: clients begin with it")
        return None
    wanted = Versions(*cap)
    capped = None if spoken is None else _both(spoken, wanted)
    if capped is None:
        there = f"versions in {spoken}" if spoken else "None: the release lacks it"
        raise ConfigError(f"api_versions: {api.name}={wanted}, expected {there}")
    return capped


def dialects(
    brokers: int | Sequence[Broker],
    as_version: str | None,
    api_versions: Mapping[str, VersionCap],
    proposals: Sequence[str] = (),
) -> list[Dialect]:
    """What each broker of a new cluster speaks: what it says itself, and else what the cluster as a whole says.

    Raises:
        ConfigError: There is no such release, API, version or proposal; or there cannot be so many brokers.
    """
    count = brokers if isinstance(brokers, int) else len(brokers)
    if not 1 <= count <= MAX_BROKERS:
        raise ConfigError(f"brokers={count}: expected 1 to {MAX_BROKERS}")
    if isinstance(brokers, int):
        return [Dialect.of(Broker(as_version=as_version, api_versions=api_versions), proposals)] * count
    each_like = [
        Broker(as_version=each.as_version or as_version, api_versions={**api_versions, **each.api_versions})
        for each in brokers
    ]
    return [Dialect.of(like, proposals) for like in each_like]
