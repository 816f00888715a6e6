"""Server-side assignors of consumer groups (KIP-848): pure functions from a group to its target assignment.

Depends on `errors` and `assignment` only. `group_spec.py` has the arguments and results; `range_assignor.py`,
`uniform_assignor.py` and `uniform_heterogeneous.py` are the algorithms, and `hash_set.py` is the order of Java's sets,
which one of them depends on. Start with `group_spec.py`.
"""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from fakebroker.coordinator.group.modern.assignors.group_spec import Assignor
from fakebroker.coordinator.group.modern.assignors.range_assignor import assign_ranges
from fakebroker.coordinator.group.modern.assignors.uniform_assignor import assign_uniformly

ASSIGNORS: Mapping[str, Assignor] = MappingProxyType({"uniform": assign_uniformly, "range": assign_ranges})
"""Kafka's assignors by name, in the default order of `group.consumer.assignors`. The first one is the default."""

ASSIGNORS_OF_4_0_0: Mapping[str, Assignor] = MappingProxyType(
    {**ASSIGNORS, "uniform": partial(assign_uniformly, first_get_extra=True)}
)
"""The assignors of Kafka 4.0.0, whose `uniform` moves more partitions than needed (KAFKA-18688, fixed in 4.0.1)."""
