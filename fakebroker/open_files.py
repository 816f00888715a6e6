"""The limit on open files of this process (RLIMIT_NOFILE), which also limits its connections."""

from contextlib import suppress

from fakebroker.errors import FakebrokerError

try:
    import resource
except ImportError:  # Windows has no comparable limit.
    resource = None  # type: ignore[assignment]  # checked by the functions below

_OTHER_FILES = 200
"""An upper bound of the open files that are not connections: libraries, logs, pipes."""


def file_limit() -> int:
    """Return the current limit on open files of this process; 0 if there is none."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] if resource else 0


def allow_connections(wanted: int) -> None:
    """Raise the soft limit, up to the hard limit, so that this process may open `wanted` connections.

    Raises:
        FakebrokerError: The hard limit is too low.
    """
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise FakebrokerError(
            f"{wanted:,} connections in one process need {needed:,} open files, the hard limit is {hard:,}: "
            f"raise it with `ulimit -Hn {needed}`, or use more tasks or lanes"
        )
    _raise_to(needed if hard == resource.RLIM_INFINITY else hard, hard)


def allow_all() -> None:
    """Raise the soft limit to the hard limit, for processes with an unknown number of connections."""
    if resource is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        _raise_to(hard, hard)


def _raise_to(soft: int, hard: int) -> None:
    with suppress(ValueError, OSError):  # on some systems the effective limit is below the hard limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
