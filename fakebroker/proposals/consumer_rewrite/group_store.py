"""One coordinator's view of the groups in the registry: reads the groups of a shard, writes generations."""

from collections.abc import Callable, Hashable

from fakebroker.errors import ErrorCode
from fakebroker.proposals.consumer_rewrite.api import GroupMetadata
from fakebroker.proposals.consumer_rewrite.errors import NONE, NOT_COORDINATOR_FOR_GROUP
from fakebroker.proposals.consumer_rewrite.registry import Registry, RegistryError, RegistryErrorCode

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
    """Reads and writes the groups of one coordinator.

    The version of a shard's node counts how often coordinators have read the shard. A coordinator that was replaced has
    an older version, even before it notices. The registry rejects its writes, including writes in transit.

    Args:
        registry: The registry, shared by all coordinators.
    """

    def __init__(self, registry: Registry[GroupMetadata | None]) -> None:
        self._registry = registry
        self._epochs: dict[Hashable, int] = {}

    def read(self, shard: Hashable) -> dict[str, GroupMetadata]:
        """Exclude earlier coordinators of a shard, and return its groups in the order of their creation."""
        path = shard_path(shard)
        if self._registry.find(path) is None:
            if self._registry.find(ROOT) is None:
                self._registry.create(ROOT, None)
            self._registry.create(path, None)
        self._epochs[shard] = self._registry.set(path, None)
        groups = {}
        for child in self._registry.children(path):
            data, _ = self._registry.get(child)
            assert data is not None, f"{child}: expected the metadata of a group"
            groups[_text(child.rpartition("/")[2])] = data
        return groups

    def prepared_write(self, shard: Hashable, group_id: str, metadata: GroupMetadata) -> Callable[[], ErrorCode]:
        """Return a function that writes a group of a shard that was read before; it may be called later.

        The function returns NONE or NOT_COORDINATOR_FOR_GROUP. NOT_COORDINATOR_FOR_GROUP: the group was not written,
        because a coordinator, perhaps this one again, has read the shard since the write was prepared.
        """
        path, check = group_path(shard, group_id), (shard_path(shard), self._epochs[shard])

        def write() -> ErrorCode:
            try:
                if self._registry.find(path) is None:
                    self._registry.create(path, metadata, check=check)
                else:
                    self._registry.set(path, metadata, check=check)
            except RegistryError as error:
                if error.code is not RegistryErrorCode.BAD_VERSION:
                    raise
                return NOT_COORDINATOR_FOR_GROUP
            return NONE

        return write
