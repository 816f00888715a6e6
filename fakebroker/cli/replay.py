"""`fakebroker replay`: a workload replayed with Spark."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from fakebroker.cli.run_options import MASTER


def replay(
    file: Annotated[Path, typer.Argument(help="The workload, a TOML file.")],
    bootstrap: Annotated[str | None, typer.Option(help="HOST:PORT of a cluster; without it, an embedded one.")] = None,
    transport: Annotated[
        Literal["tcp", "memory"], typer.Option(help="Over TCP, or simulated in a time of its own.")
    ] = "tcp",
    record: Annotated[
        Literal["all", "changes"] | None,
        typer.Option(help="A row a request, or one for many heartbeats that change nothing; the latter in memory."),
    ] = None,
    lanes: Annotated[
        int | None, typer.Option(min=1, help="Connections per task and broker; without it, one per member.")
    ] = None,
    tasks: Annotated[int | None, typer.Option(min=1, help="Spark tasks; without it, as many as run at once.")] = None,
    master: MASTER = "local[*]",
    out: Annotated[Path | None, typer.Option(help="Directory for the results; else runs/WORKLOAD-TIME.")] = None,
    seed: Annotated[int | None, typer.Option(help="Makes the workload repeat.")] = None,
) -> None:
    """Play a workload with Spark and report what the coordinators did.

    Status 0: every promise was kept and every expectation met; 3: one was not; 2: a file or an option is wrong; 1:
    anything else went wrong; 130: it was interrupted.
    """
    from fakebroker.replay import commands  # the base install has no Spark
    from fakebroker.replay.options import ReplayOptions

    options = ReplayOptions(
        file=file,
        bootstrap=bootstrap,
        transport=transport,
        record=record,
        lanes=lanes,
        tasks=tasks,
        master=master,
        out=out,
        seed=seed,
    )
    raise typer.Exit(commands.replay(options))
