"""Equal values of members and groups, kept once: most groups of a cluster have the same subscriptions.

Does not depend on groups. Values must not be modified.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar

T = TypeVar("T")

_MOST_KEPT = 1_000
"""Number of values that are kept for later ones: those used last."""
_MOST_BYTES = 1_000
"""Larger values of members are rarely equal, and not shared."""


def shared_protocols(protocols: tuple[tuple[str, bytes], ...]) -> tuple[tuple[str, bytes], ...]:
    """Return equal protocols that were passed before, or these."""
    is_large = sum(len(metadata) for _, metadata in protocols) > _MOST_BYTES
    return protocols if is_large else _shared(protocols)


def shared_assignment(assignment: bytes) -> bytes:
    """Return an equal assignment that was passed before, or this one."""
    return assignment if len(assignment) > _MOST_BYTES else _shared(assignment)


def shared_text(text: str) -> str:
    """Return an equal text that was passed before, or this one."""
    return _shared(text)


def shared_timeouts(timeouts_ms: tuple[int, int]) -> tuple[int, int]:
    """Return a pair of equal numbers that was passed before, or this one."""
    return _shared(timeouts_ms)


def shared_topics(topics: frozenset[str]) -> frozenset[str]:
    """Return an equal set of topics that was passed before, or this one."""
    return _shared(topics)


@lru_cache(_MOST_KEPT)
def shared_counts(items: tuple[tuple[str, int], ...]) -> Mapping[str, int]:
    """Return the mapping with these items."""
    return dict(items)


@lru_cache(_MOST_KEPT)
def _equal(value: Any) -> Any:
    return value


def _shared(value: T) -> T:
    found: T = _equal(value)
    return found
