"""`fakebroker top`: a served cluster, live in a terminal."""

import click

from fakebroker.errors import ConfigError


@click.command()
@click.option(
    "--control",
    metavar="URL",
    default="http://127.0.0.1:9644",
    show_default=True,
    help="Address at which `serve --control` listens.",
)
@click.option("--cluster", metavar="NAME", default="default", show_default=True, help="Which of its clusters.")
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
    help="Refresh interval.",
)
@click.option("--once", is_flag=True, help="Print one snapshot and exit; the default without a terminal.")
def top(control: str, cluster: str, token: str | None, every: float, once: bool) -> None:
    """Watch a served cluster live: brokers, groups, requests and events."""
    try:
        from fakebroker.control.top.screen import watch  # the base install cannot draw
    except ImportError:
        raise ConfigError("top needs the extra 'control': pip install 'fakebroker[control]'") from None
    watch(control, cluster, token, every_s=every, once=once)
