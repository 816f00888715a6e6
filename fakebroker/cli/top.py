"""`fakebroker top`: show a served cluster live in the terminal."""

import click

from fakebroker.errors import FakebrokerError


@click.command()
@click.option(
    "--control",
    metavar="URL",
    default="http://127.0.0.1:9644",
    show_default=True,
    help="URL of the control API, which `fakebroker serve --control` prints.",
)
@click.option(
    "--cluster",
    metavar="NAME",
    default="default",
    show_default=True,
    help="Name of the cluster; the one that serve starts is named default.",
)
@click.option(
    "--token",
    metavar="TOKEN",
    envvar="FAKEBROKER_CONTROL_TOKEN",
    show_envvar=True,
    help="Bearer token of the control API.",
)
@click.option(
    "--every",
    metavar="SECONDS",
    type=float,
    default=1.0,
    show_default=True,
    help="Refresh interval, from 0.1 to 3600.",
)
@click.option("--once", is_flag=True, help="Print one snapshot and exit; implied if the output is not a terminal.")
def top(control: str, cluster: str, token: str | None, every: float, once: bool) -> None:
    """Show a served cluster live: members that block groups, brokers, latencies, events."""
    try:
        from fakebroker.control.top.screen import watch
    except ImportError:
        raise FakebrokerError("top needs the extra 'control': pip install 'fakebroker[control]'") from None
    watch(control, cluster, token, every_s=every, once=once)
