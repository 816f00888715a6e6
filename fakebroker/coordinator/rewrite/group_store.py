"""One coordinator's view of the groups in the registry: reads those of a shard, writes generations by version."""

from collections.abc import Hashable

from fakebroker.coordinator.registry import Registry, RegistryError, RegistryErrorCode
from fakebroker.coordinator.rewrite.api import GroupMetadata
from fakebroker.coordinator.rewrite.errors import NONE, NOT_COORDINATOR_FOR_GROUP
from fakebroker.errors import ErrorCode

ROOT = "/consumers"
"""The node above all shards."""


def shard_path(shard: Hashable) -> str:
    """Return the node above the groups of a shard."""
    return f"{ROOT}/{_name(str(shard))}"


def group_path(shard: Hashable, group_id: str) -> str:
    """Return the node of a group, whose data is its `GroupMetadata`."""
    return f"{shard_path(shard)}/{_name(group_id)}"


def _name(text: str) -> str:
    return text.replace("%", "%25").replace("/", "%2F")


def _text(name: str) -> str:
    return name.replace("%2F", "/").replace("%25", "%")


class GroupStore:
    """Reads and writes the groups of one coordinator; every call takes effect at once.

    A group that another coordinator has written since it was read or written here has another version, and cannot be
    written here any more: so a coordinator that was demoted without its knowledge changes nothing.

    Args:
        registry: The registry, shared by all coordinators.
    """

    def __init__(self, registry: Registry[GroupMetadata | None]) -> None:
        self._registry = registry
        self._versions: dict[Hashable, dict[str, int]] = {}  # by shard and path

    def read(self, shard: Hashable) -> dict[str, GroupMetadata]:
        """Return the groups of a shard, in the order of their creation."""
        groups = {}
        versions = self._versions[shard] = {}
        path = shard_path(shard)
        for child in [] if self._registry.find(path) is None else self._registry.children(path):
            data, versions[child] = self._registry.get(child)
            assert data is not None, f"{child}: expected the metadata of a group"
            groups[_text(child.rpartition("/")[2])] = data
        return groups

    def write(self, shard: Hashable, group_id: str, metadata: GroupMetadata) -> ErrorCode:
        """Write a group of a shard that was read before.

        Returns:
            NONE; or NOT_COORDINATOR_FOR_GROUP if another coordinator has written the group, and nothing was written.
        """
        path = group_path(shard, group_id)
        versions = self._versions[shard]
        try:
            if path in versions:
                versions[path] = self._registry.set(path, metadata, versions[path])
            else:
                for parent in (ROOT, shard_path(shard)):
                    if self._registry.find(parent) is None:
                        self._registry.create(parent, None)
                self._registry.create(path, metadata)
                versions[path] = 0
        except RegistryError as error:
            if error.code not in (RegistryErrorCode.BAD_VERSION, RegistryErrorCode.NODE_EXISTS):
                raise
            return NOT_COORDINATOR_FOR_GROUP
        return NONE
