"""What an actor may be at, and what it may wait for besides its member. Names alone."""

from enum import Enum, IntEnum, auto


class Mode(Enum):
    """What a member is at.

    USUAL: What members do.
    SLOW: It does not poll: only what its heartbeat thread does goes on.
    PAUSED: Nothing at all; what comes in waits.
    SILENT: The same, before it becomes a zombie.
    ZOMBIE: The actor sends heartbeats and commits as the member it was; what comes in for the member waits.
    """

    USUAL = auto()
    SLOW = auto()
    PAUSED = auto()
    SILENT = auto()
    ZOMBIE = auto()


class Timer(IntEnum):
    """What an actor waits for besides its member; the first of those that are due together comes first.

    RESUME: The end of what lasts.
    DEED: The next deed of the script.
    POLL_LIMIT: It has not polled for the rebalance timeout (Kafka's `max.poll.interval.ms`).
    FAREWELL: The last answers are not waited for any longer.
    BEAT, COMMIT: A heartbeat or commit that the actor sends in place of its member.
    """

    RESUME = auto()
    DEED = auto()
    POLL_LIMIT = auto()
    FAREWELL = auto()
    BEAT = auto()
    COMMIT = auto()
