"""The partition ownership of groups in the registry: one node for each group."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from fakebroker.lab.designs.options.served_groups import Assignment
from fakebroker.proposals.consumer_rewrite.registry import Registry

PARENT = "/consumers"

Ownership = Mapping[str, tuple[tuple[str, int], ...]]
"""Partitions by consumer id."""


def _path(group_id: str) -> str:
    return f"{PARENT}/{quote(group_id, safe='')}"


def read_ownership(registry: Registry[Any], group_id: str) -> Ownership | None:
    """Return the registered ownership of a group; None if there is none."""
    found = registry.find(_path(group_id))
    return None if found is None else found[0]


def write_ownership(registry: Registry[Any], group_id: str, assignment: Assignment) -> None:
    """Register the ownership of a group."""
    path, data = _path(group_id), ownership_of(assignment)
    if registry.find(path) is not None:
        registry.set(path, data)
        return
    if registry.find(PARENT) is None:
        registry.create(PARENT, {})
    registry.create(path, data)


def ownership_of(assignment: Assignment) -> Ownership:
    """Return an assignment as it is registered."""
    return {consumer_id: tuple(partitions) for consumer_id, partitions in assignment.items()}
