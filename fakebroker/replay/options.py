"""Options and exit statuses of the commands. Does not need the extra `spark`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

PASSED, COULD_NOT_RUN, BAD_INPUT, FAILED, INTERRUPTED = 0, 1, 2, 3, 130
"""Exit statuses: success; something failed; a file or an option is wrong; the verdict is bad; ended by the user."""

Transport = Literal["tcp", "memory"]
Record = Literal["all", "changes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """The options of `fakebroker replay`.

    Attributes:
        file: The workload.
        bootstrap: HOST:PORT of a cluster, or several with commas; an embedded one is started if not given.
        transport: Members play over TCP, or are simulated in memory, in virtual time.
        record: A row for each request, or one for many heartbeats that change nothing; the first over TCP, the second
            in memory if not given.
        lanes: How many connections to each broker the members of a task share; one per member if not given.
        tasks: Among how many Spark tasks the groups are distributed; as many as run at once if not given.
        master: Spark's master URL.
        out: Directory for the results; `runs/<workload>-<time>` if not given.
        seed: Of every random choice; the workload's own if not given, drawn if that has none.
    """

    file: Path
    bootstrap: str | None = None
    transport: Transport = "tcp"
    record: Record | None = None
    lanes: int | None = None
    tasks: int | None = None
    master: str = "local[*]"
    out: Path | None = None
    seed: int | None = None
