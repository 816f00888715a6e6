"""The targets of the fuzzing, by name."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

from tests.fuzz.mutation import mutated
from tests.fuzz.targets import (
    cluster_frames,
    control_api,
    coordinator_records,
    data_directory,
    message_codec,
    record_batches,
    sasl,
    tls,
)


@dataclass(frozen=True, slots=True)
class Target:
    """A target.

    Attributes:
        run: Takes an input. Raises any exception if there is a defect; malformed inputs are none.
        seeds: Returns valid inputs.
        max_bytes: The largest input that the search tries.
        mutate: Returns a mutation of an input, besides those of libFuzzer; None if there are only these.
    """

    run: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    max_bytes: int
    mutate: Callable[[bytes, Random], bytes] | None = None


TARGETS = {
    "messages": Target(message_codec.run, message_codec.seeds, 1_024),
    "records": Target(record_batches.run, record_batches.seeds, 1_024),
    "coordinator-records": Target(coordinator_records.run, coordinator_records.seeds, 1_024),
    "sasl": Target(sasl.run, sasl.seeds, 1_024),
    "tls": Target(tls.run, tls.seeds, 512),
    "data-directory": Target(data_directory.run, data_directory.seeds, 4_096),
    "control": Target(control_api.run, control_api.seeds, 2_048),
    "cluster": Target(cluster_frames.run, cluster_frames.seeds, 4_096, mutated),
}
