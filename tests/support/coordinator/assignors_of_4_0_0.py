"""The assignors of Kafka 4.0.0, from which the vectors are. Its `uniform` moves more partitions than needed.

KAFKA-18688 is fixed in 4.0.1. A release here means its newest patch.
"""

from collections.abc import Mapping
from functools import partial

from fakebroker.coordinator.consumer.assignors import ASSIGNORS, Assignor, assign_uniformly

ASSIGNORS_OF_4_0_0: Mapping[str, Assignor] = {**ASSIGNORS, "uniform": partial(assign_uniformly, first_get_extra=True)}
