"""The schema of `violations.parquet`: all violations of promises in a run. Does not depend on Spark."""

from typing import NamedTuple

import pyarrow as pa


class ViolationRow(NamedTuple):
    """A violation of a promise. The fields are the columns of the file and of the queries in `promise_queries`.

    Attributes:
        promise: Name of the promise, as in `[promises]`.
        group: The group, if the violation concerns one.
        generation: The generation, if the violation concerns one.
        members: Names of the members.
        at_us: Start of the violation.
        until_us: End of the violation.
        what: Description for reports.
    """

    promise: str
    group: str | None
    generation: int | None
    members: list[str]
    at_us: int
    until_us: int
    what: str


SCHEMA = pa.schema(
    [
        pa.field("promise", pa.string()),
        pa.field("group", pa.string()),
        pa.field("generation", pa.int32()),
        pa.field("members", pa.list_(pa.string())),
        pa.field("at_us", pa.int64()),
        pa.field("until_us", pa.int64()),
        pa.field("what", pa.string()),
    ]
)
