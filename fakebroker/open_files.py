"""The limit on open files of the process (RLIMIT_NOFILE), which also limits its connections."""

from contextlib import suppress

from fakebroker.errors import FakebrokerError

try:
    import resource
except ImportError:  # Windows has no comparable limit.
    resource = None  # type: ignore[assignment]  # the functions below look for it

_OTHER_FILES = 200
"""Files that a process has open besides its connections: libraries, logs, pipes."""


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
            f"{wanted:,} connections in one process need {needed:,} open files, the hard limit is {hard:,}: raise it "
            f"with `ulimit -Hn {needed}` or play in more tasks, or over lanes"
        )
    _raise_to(needed if hard == resource.RLIM_INFINITY else hard, hard)


def allow_all() -> None:
    """Raise the soft limit to the hard one, for a process whose number of connections is unknown."""
    if resource is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        _raise_to(hard, hard)


def _raise_to(soft: int, hard: int) -> None:
    with suppress(ValueError, OSError):  # some systems have a lower limit than the hard one
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
