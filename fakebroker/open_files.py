"""The limit of open files: each connection is one. Knows what the system allows, not who connects."""

from contextlib import suppress

from fakebroker.errors import FakebrokerError

try:
    import resource
except ImportError:  # Windows has no such limit worth the name.
    resource = None  # type: ignore[assignment]  # the functions below look for it

_OTHER_FILES = 200
"""What a process has open beside its connections: libraries, logs, pipes."""


def file_limit() -> int:
    """How many files this process may have open now."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] if resource else 0


def allow_connections(wanted: int) -> None:
    """See to it that this process may open so many connections; the soft limit is raised as far as the hard one.

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
    """Raise the soft limit to the hard one: for a process that cannot know how many will connect to it."""
    if resource is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        _raise_to(hard, hard)


def _raise_to(soft: int, hard: int) -> None:
    with suppress(ValueError, OSError):  # some systems have a lower limit of their own
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
