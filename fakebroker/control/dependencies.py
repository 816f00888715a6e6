"""Checks that the dependencies of the control server are installed, without importing them."""

from importlib.util import find_spec
from pathlib import Path

from fakebroker.control.problems import Problem
from fakebroker.errors import FakebrokerError

REQUIRED = ("hypercorn", "prometheus_client")

_EXTRA = "pip install 'fakebroker[control]'"


def check_installed(needed: tuple[str, ...] = REQUIRED) -> None:
    """Raise an error if a dependency of the extra `control` is missing.

    Raises:
        FakebrokerError: A dependency is missing.
    """
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise FakebrokerError(f"--control needs {', '.join(missing)}: expected {_EXTRA}")


def swagger_ui_folder(package: str = "swagger_ui") -> Path:
    """Return the folder with the files of Swagger UI, in the package swagger-ui-py.

    The package is not imported: only its files are used, not its integrations with web frameworks.

    Raises:
        Problem: The package is not installed.
    """
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise Problem(503, f"/docs needs the package swagger-ui-py: expected {_EXTRA}", expected=_EXTRA)
    return Path(spec.submodule_search_locations[0], "static")
