"""Server-side assignors of consumer groups (KIP-848): pure functions from a group to its target assignment.

Depends on `errors` and `assignment` only. `group_spec.py` has the arguments and results; `range_assignor.py`,
`uniform_assignor.py` and `uniform_heterogeneous.py` are the algorithms, and `hash_set.py` is the order of Java's sets,
which one of them depends on. Start with `group_spec.py`.
"""

from collections.abc import Mapping
from types import MappingProxyType

from fakebroker.coordinator.group.modern.assignors.group_spec import Assignor
from fakebroker.coordinator.group.modern.assignors.range_assignor import assign_ranges
from fakebroker.coordinator.group.modern.assignors.uniform_assignor import assign_uniformly

ASSIGNORS: Mapping[str, Assignor] = MappingProxyType({"uniform": assign_uniformly, "range": assign_ranges})
"""Kafka's assignors by name, in the default order of `group.consumer.assignors`. The first one is the default."""
