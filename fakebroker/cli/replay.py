"""`fakebroker replay`: a workload replayed with Spark."""

from pathlib import Path
from typing import get_args

import click

from fakebroker.cli.run_options import PATH, master_option
from fakebroker.replay.options import Record, ReplayOptions, Transport


@click.command()
@click.argument("file", type=PATH)
@click.option("--bootstrap", metavar="HOST:PORT", help="Address of a cluster; without it, an embedded one.")
@click.option(
    "--transport",
    type=click.Choice(get_args(Transport)),
    default="tcp",
    show_default=True,
    help="Over TCP, or simulated in memory, in virtual time.",
)
@click.option(
    "--record",
    type=click.Choice(get_args(Record)),
    help="A row for each request, or one for many heartbeats that change nothing; the latter in memory.",
)
@click.option(
    "--lanes", type=click.IntRange(min=1), help="Connections per task and broker; without it, one per member."
)
@click.option("--tasks", type=click.IntRange(min=1), help="Spark tasks; without it, as many as run at once.")
@master_option
@click.option("--out", metavar="DIRECTORY", type=PATH, help="Directory for the results; else runs/WORKLOAD-TIME.")
@click.option("--seed", type=int, help="Seed for a reproducible workload.")
def replay(
    file: Path,
    bootstrap: str | None,
    transport: Transport,
    record: Record | None,
    lanes: int | None,
    tasks: int | None,
    master: str,
    out: Path | None,
    seed: int | None,
) -> int:
    """Replay a workload with Spark and report what the coordinators did.

    FILE is the workload, in TOML.

    Status 0: every promise was kept and every expectation met; 3: one was not; 2: a file or an option is wrong; 1:
    anything else went wrong; 130: it was interrupted.
    """
    from fakebroker.replay import commands  # the base install has no Spark

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
    return commands.replay(options)
