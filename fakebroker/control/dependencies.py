"""Checks that the dependencies of the control server are installed, without importing them."""

from importlib.util import find_spec

from fakebroker.errors import ConfigError

REQUIRED = ("hypercorn", "prometheus_client")


def check_installed(needed: tuple[str, ...] = REQUIRED) -> None:
    """Raise an error if a dependency of the extra `control` is missing.

    Raises:
        ConfigError: A dependency is missing.
    """
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise ConfigError(f"--control needs {', '.join(missing)}: expected pip install 'fakebroker[control]'")
