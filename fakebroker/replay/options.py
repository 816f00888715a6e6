"""Options and exit statuses of the commands. Does not require the extra `spark`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

PASSED, COULD_NOT_RUN, BAD_INPUT, FAILED, INCONCLUSIVE, INTERRUPTED = 0, 1, 2, 3, 4, 130
"""Exit statuses: success; another error; an invalid file or option; the verdict; interrupted by the user."""

STATUS_OF = {"passed": PASSED, "failed": FAILED, "inconclusive": INCONCLUSIVE}
"""Exit statuses by the outcome of the verdict."""

Transport = Literal["tcp", "memory"]
Record = Literal["all", "changes"]
GroupProtocol = Literal["classic", "consumer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """The options of `fakebroker replay`.

    Attributes:
        file: The workload file.
        bootstrap: HOST:PORT of the cluster under test, several separated by commas; if not given, an embedded cluster
            is started.
        allow_existing: Whether topics and groups of the workload may exist in the cluster `bootstrap`.
        client_config: File with the client's security settings; see `fakebroker.client.client_config`.
        transport: `tcp` for real connections, `memory` for a simulation in virtual time.
        record: `all` for one row per request; `changes` to fold successive successful heartbeats of a member into one
            row (see `EventRecorder`). If not given, `all` over TCP and `changes` in memory.
        lanes: Connections per broker that the members of a task share; if not given, each member has its own.
        tasks: Number of Spark tasks among which groups are distributed; if not given, as many as can run at once.
        scale: Factor by which the workload is scaled down, > 0 and <= 1; see `fakebroker.replay.workload.scale`.
        protocol: `group.protocol` of all populations, instead of that in the workload.
        master: Spark's master URL.
        out: Directory for the results; `runs/<workload>-<time>` if not given.
        seed: Seed of all random choices; if not given, the workload's `seed`, or a random one if it has none.
    """

    file: Path
    bootstrap: str | None = None
    allow_existing: bool = False
    client_config: Path | None = None
    transport: Transport = "tcp"
    record: Record | None = None
    lanes: int | None = None
    tasks: int | None = None
    scale: float = 1.0
    protocol: GroupProtocol | None = None
    master: str = "local[*]"
    out: Path | None = None
    seed: int | None = None
