"""Kafka's releases, ordered by age, and the API versions of each. The table is in `releases.txt`."""

import re
from collections.abc import Mapping
from pkgutil import get_data  # importlib.resources takes 10 ms to import
from typing import NamedTuple

from fakebroker.errors import ConfigError, one_of
from fakebroker.protocol.schema import Versions


class Release(NamedTuple):
    """A Kafka release. Releases compare by age. Names have three numbers before 0.11, two since then."""

    major: int
    minor: int
    patch: int = 0

    def __str__(self) -> str:
        numbers = self if self < (0, 11) else self[:2]
        return ".".join(map(str, numbers))


NEWEST = Release(4, 4)
"""The last column of `releases.txt`; brokers that emulate no release have its behavior."""


def _read_table(text: str) -> dict[Release, dict[str, Versions]]:
    head, *rows = (line.split() for line in text.splitlines() if not line.startswith("#"))
    table: dict[Release, dict[str, Versions]] = {Release(*map(int, name.split("."))): {} for name in head[1:]}
    for api, *cells in rows:
        for versions_by_api, cell in zip(table.values(), cells, strict=True):
            if cell != "-":
                versions_by_api[api] = Versions.parse(cell)
    return table


RELEASES: Mapping[Release, Mapping[str, Versions]] = _read_table(
    (get_data("fakebroker.protocol", "releases.txt") or b"").decode("ascii")
)
"""The advertised versions by API of each release, oldest release first. Unsupported APIs are missing."""


def release(text: str) -> Release:
    """Parse the name of a release, such as `2.8`. A patch number, as in `0.10.2.1` or `3.9.1`, is ignored.

    Raises:
        ConfigError: The release is unknown.
    """
    for known in RELEASES:
        patch_numbers = 2 if known == (0, 11, 0) else 1  # Releases before 1.0 have four numbers: 0.11.0.3.
        if re.fullmatch(rf"{re.escape(str(known))}(\.[0-9]+){{0,{patch_numbers}}}", text):
            return known
    raise ConfigError.of("as_version", text, one_of(RELEASES, text))


def has_patches_of_4_2(release: Release) -> bool:
    """Return whether a release has what the last patches of 4.2 have changed: 4.4 and later have it, 4.3 has not."""
    return release >= Release(4, 2) and release != Release(4, 3)
