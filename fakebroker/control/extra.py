"""Whether what the control server stands on is installed. Imports none of it."""

from importlib.util import find_spec

from fakebroker.errors import ConfigError

NEEDED = ("hypercorn", "msgspec", "starlette")


def check_installed(needed: tuple[str, ...] = NEEDED) -> None:
    """Refuse to go on without the extra.

    Raises:
        ConfigError: Something of it is missing.
    """
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise ConfigError(f"--control needs {', '.join(missing)}: expected pip install 'fakebroker[control]'")
