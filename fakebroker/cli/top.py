"""`fakebroker top`: a served cluster, live in a terminal."""

from typing import Annotated

import typer

from fakebroker.errors import ConfigError


def top(
    control: Annotated[
        str, typer.Option(metavar="URL", help="Where `serve --control` listens.")
    ] = "http://127.0.0.1:9644",
    cluster: Annotated[str, typer.Option(metavar="NAME", help="Which of its clusters.")] = "default",
    token: Annotated[
        str | None, typer.Option(envvar="FAKEBROKER_CONTROL_TOKEN", help="What the control API wants to be shown.")
    ] = None,
    every: Annotated[float, typer.Option(metavar="SECONDS", help="How often to look.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once and print that, as without a terminal.")] = False,
) -> None:
    """Watch a cluster that another process serves: brokers, groups, requests and what happens."""
    try:
        from fakebroker.control.top.screen import watch  # the base install has nothing to draw with
    except ImportError:
        raise ConfigError("top needs the extra 'control': pip install 'fakebroker[control]'") from None
    watch(control, cluster, token, every_s=every, once=once)
