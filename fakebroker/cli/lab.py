"""`fakebroker lab`: compare designs of group coordination."""

from pathlib import Path

import click
from click.core import ParameterSource

from fakebroker.cli.run_options import PATH, master_option

_UNUSED = {
    "FILES": ("groups",),
    "--placement": ("designs", "scale", "tasks"),
    "--histories": ("groups", "seeds", "scale", "tasks", "master"),
}
"""Options that have no effect, by what is run."""


@click.command()
@click.argument("files", type=PATH, nargs=-1)
@click.option(
    "--designs",
    metavar="NAMES",
    show_default="all designs",
    help="Names of designs, separated by commas. The others are compared with the first one. A name may also be that "
    "of a Python file with a design, except with --histories.",
)
@click.option(
    "--histories",
    type=click.IntRange(min=1),
    metavar="N",
    help="Play N random histories of a small group with each design, and write short ones that break an invariant.",
)
@click.option("--placement", is_flag=True, help="Compare placements of groups, instead of designs in scenarios.")
@click.option(
    "--groups",
    type=click.IntRange(min=1, max=10_000_000_000),
    default=100_000_000,
    show_default=True,
    help="Number of groups that are placed.",
)
@click.option("--seeds", type=click.IntRange(min=1), default=5, show_default=True, help="Number of seeds.")
@click.option("--seed", type=int, default=1, show_default=True, help="First seed; the others follow.")
@click.option(
    "--scale",
    type=click.FloatRange(min=0, min_open=True, max=1),
    default=1.0,
    show_default=True,
    metavar="FACTOR",
    help="Run smaller scenarios: multiply the number of groups by FACTOR. Populations keep at least 20 groups, or all "
    "of them; if that is too many, groups of more than 20 members get fewer.",
)
@click.option(
    "--tasks",
    type=click.IntRange(min=1),
    show_default="8 per core",
    help="Number of Spark tasks, among which the runs are distributed.",
)
@master_option
@click.option("--out", metavar="DIRECTORY", type=PATH, show_default="runs/lab-TIME", help="Directory for the results.")
def lab(
    files: tuple[Path, ...],
    designs: str | None,
    histories: int | None,
    placement: bool,
    groups: int,
    seeds: int,
    seed: int,
    scale: float,
    tasks: int | None,
    master: str,
    out: Path | None,
) -> int:
    """Compare designs of group coordination in virtual time, with Spark.

    FILES are scenarios, in TOML. Each design runs in each scenario with each seed; the same seed gives all designs the
    same members, failures and delays. With --placement, there are no files: groups are placed at brokers by the hash of
    their names, by election, and by size, and the brokers' load is compared. With --histories, designs are searched for
    histories in which two members own a partition, or another invariant is broken.

    \b
    Exit status:
      0    all runs were completed
      1    a run failed, or the study could not be completed
      2    a scenario file or an option is invalid
      3    a design breaks an invariant that it promises
      130  interrupted; the report covers the runs until then
    """
    from fakebroker.lab.commands import lab as run
    from fakebroker.lab.options import StudyOptions

    if placement + (histories is not None) + bool(files) != 1:
        raise click.UsageError("expected FILES, --placement or --histories")
    _check_unused("--placement" if placement else "FILES" if files else "--histories")
    options = StudyOptions(
        files=files,
        histories=histories,
        placement=placement,
        groups=groups,
        designs=tuple(name.strip() for name in designs.split(",")) if designs else (),
        seeds=seeds,
        seed=seed,
        scale=scale,
        tasks=tasks,
        master=master,
        out=out,
    )
    return run(options)


def _check_unused(mode: str) -> None:
    """Reject options that have no effect.

    Raises:
        click.UsageError: One of them is given.
    """
    context = click.get_current_context()
    for name in _UNUSED[mode]:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} has no effect with {mode}")
