"""`fakebroker replay`: replay a workload with Spark."""

from pathlib import Path
from typing import get_args

import click

from fakebroker.cli.run_options import PATH, master_option
from fakebroker.replay.options import GroupProtocol, Record, ReplayOptions, Transport


@click.command()
@click.argument("file", type=PATH)
@click.option(
    "--bootstrap",
    metavar="HOST:PORT",
    show_default="an embedded fake cluster",
    help="Kafka cluster to replay against; several addresses are separated by commas, IPv6 addresses are in brackets.",
)
@click.option(
    "--allow-existing",
    is_flag=True,
    help="Replay although the cluster has topics or groups of the workload: their members, offsets and records may be "
    "disturbed. Requires --bootstrap.",
)
@click.option(
    "--client-config",
    metavar="FILE",
    type=PATH,
    show_default="no authentication, no encryption",
    help="File with Kafka's client settings for security, as Kafka's tools take it (--command-config): "
    "security.protocol, sasl.mechanism, sasl.jaas.config, ssl.truststore.location and others. Spark's tasks read it, "
    "too: each machine needs it at this path. Requires --bootstrap.",
)
@click.option(
    "--transport",
    type=click.Choice(get_args(Transport)),
    default="tcp",
    show_default=True,
    help="tcp: over sockets, in real time. memory: simulated, in virtual time, without a cluster to connect to.",
)
@click.option(
    "--record",
    type=click.Choice(get_args(Record)),
    show_default="all with tcp, changes with memory",
    help="all: one row per request. changes: consecutive heartbeats without an effect share one row.",
)
@click.option(
    "--lanes",
    type=click.IntRange(min=1),
    show_default="one connection per member",
    help="Number of connections to each broker that the members of a Spark task share; tcp only.",
)
@click.option(
    "--tasks",
    type=click.IntRange(min=1),
    show_default="as many as can run at the same time",
    help="Number of Spark tasks, among which the groups are distributed.",
)
@click.option(
    "--scale",
    type=click.FloatRange(min=0, min_open=True, max=1),
    default=1.0,
    show_default=True,
    metavar="FACTOR",
    help="Play a smaller workload: multiply the number of groups and the rates by FACTOR. Populations keep at least "
    "20 groups, or all of them; if that is too many, groups of more than 20 members get fewer.",
)
@click.option(
    "--protocol",
    type=click.Choice(get_args(GroupProtocol)),
    show_default="those of the workload",
    help="Group protocol of all members: classic, or consumer (KIP-848).",
)
@master_option
@click.option(
    "--out", metavar="DIRECTORY", type=PATH, show_default="runs/WORKLOAD-TIME", help="Directory for the results."
)
@click.option("--seed", type=int, show_default="that of the workload, else random", help="Seed for all random choices.")
def replay(
    file: Path,
    bootstrap: str | None,
    allow_existing: bool,
    client_config: Path | None,
    transport: Transport,
    record: Record | None,
    lanes: int | None,
    tasks: int | None,
    scale: float,
    protocol: GroupProtocol | None,
    master: str,
    out: Path | None,
    seed: int | None,
) -> int:
    """Replay a workload with Spark and verify the cluster.

    FILE is the workload, in TOML.

    \b
    Exit status:
      0    passed: the cluster was available, every promise kept, every expectation met, every event done
      1    the replay could not be completed
      2    the workload file or an option is invalid
      3    failed: at least one of these was shown to be wrong
      4    inconclusive: the replay could not observe enough to say
      130  interrupted
    """
    from fakebroker.replay import commands

    options = ReplayOptions(
        file=file,
        bootstrap=bootstrap,
        allow_existing=allow_existing,
        client_config=client_config,
        transport=transport,
        record=record,
        lanes=lanes,
        tasks=tasks,
        scale=scale,
        protocol=protocol,
        master=master,
        out=out,
        seed=seed,
    )
    return commands.replay(options)
