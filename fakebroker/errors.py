"""Kafka's error codes (`org.apache.kafka.common.protocol.Errors`), and the exceptions of fakebroker.

Does not depend on other modules of the package.
"""

import math
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Self


class ErrorCode(IntEnum):
    """The error codes of Kafka's protocol, with Kafka's names."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133
    GROUP_DELETION_FAILED = 134
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135
    CONTROLLER_ID_NOT_REGISTERED = 136

    @property
    def retriable(self) -> bool:
        """Whether Kafka's clients retry the request (subclasses of `RetriableException`)."""
        return self in _RETRIABLE


MAX_MISTAKES = 10
"""The largest number of errors that one `ConfigError` combines."""

MOST_COUNTED = 100
"""The largest number of errors that are counted."""

MAX_SHOWN = 200
"""The longest representation of a value in an error message, in characters."""

_RETRIABLE = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    }
)


class FakebrokerError(Exception):
    """Base class of the exceptions of fakebroker."""


class ProtocolError(FakebrokerError):
    """A malformed message, or one that cannot be encoded in its version."""


class NotOnKafka(FakebrokerError):  # noqa: N818  # a statement about a test, as pytest shows it
    """A `KafkaCluster` cannot do this: only a fake cluster can, or the test needs another Kafka.

    The pytest plugin skips the test, with the message as the reason.
    """

    @classmethod
    def fake(cls, what: str) -> Self:
        """Return the error for something that only a fake cluster can do, such as "cluster.advance"."""
        return cls(f"needs fakebroker: {what}")


class ConfigError(FakebrokerError):
    """A setting, option or argument that is unknown, of the wrong type or out of range.

    Args:
        sentence: The error message.
        field: The setting, option or argument; None if the error does not concern a single one.
        value: Its value; None if it is missing.
        expected: The expected values, such as "an integer >= 1".
    """

    def __init__(
        self, sentence: str, *, field: str | None = None, value: object = None, expected: str | None = None
    ) -> None:
        super().__init__(sentence)
        self.field, self.value, self.expected = field, value, expected
        self._mistakes: tuple[ConfigError, ...] = ()

    @property
    def mistakes(self) -> "tuple[ConfigError, ...]":
        """The errors that this one combines, see `all_of`; by default only this one."""
        return self._mistakes or (self,)  # Storing `self` would create a reference cycle.

    @classmethod
    def of(cls, field: str, value: object, expected: str, *, where: str = "") -> "ConfigError":
        """Return the error `field=value: expected ...`.

        Args:
            field: The setting, option or argument; empty if the data as a whole is invalid.
            value: Its value.
            expected: The expected values, such as "an integer >= 1".
            where: A prefix that names the context, such as "group 'g'".
        """
        sentence = f"{where}{': ' if where else ''}{field}{'=' if field else ''}{shown(value)}: expected {expected}"
        return cls(sentence, field=field or None, value=value, expected=expected)

    @classmethod
    def missing(cls, field: str, expected: str, *, where: str = "") -> "ConfigError":
        """Return the error `field is missing: expected ...`."""
        prefix = f"{where}: " if where else ""
        return cls(f"{prefix}{field} is missing: expected {expected}", field=field, expected=expected)

    @classmethod
    def unknown(cls, field: str, value: object, expected: str, *, kind: str = "field") -> "ConfigError":
        """Return the error of a field, setting or filter that does not exist.

        Args:
            field: The unknown name.
            value: The given value.
            expected: The known names, as returned by `one_of`.
            kind: What the name is for, such as "filter", for the message.
        """
        return cls(
            f"{field}={shown(value)}: unknown {kind}; expected {expected}", field=field, value=value, expected=expected
        )

    @classmethod
    def all_of(cls, mistakes: Sequence["ConfigError"], *, where: str = "") -> "ConfigError":
        """Combine errors into one, with a line for each and the attributes of the first.

        Args:
            mistakes: One or more errors; those after the first `MAX_MISTAKES` are only counted, up to `MOST_COUNTED`.
            where: A prefix that names the context, such as the name of a file.
        """
        prefix = f"{where}: " if where else ""
        first, reported = mistakes[0], mistakes[:MAX_MISTAKES]
        if len(mistakes) == 1 and not where:
            return first
        text = prefix + str(first)
        if len(mistakes) > 1:
            more = f"{MOST_COUNTED} or more" if len(mistakes) >= MOST_COUNTED else len(mistakes)
            count = f"{more} errors" if len(mistakes) <= MAX_MISTAKES else f"the first {MAX_MISTAKES} errors of {more}"
            text = "\n".join([prefix + count, *(f"  {each}" for each in reported)])
        error = cls(text, field=first.field, value=first.value, expected=first.expected)
        error._mistakes = tuple(reported)
        return error

    def within(self, path: str) -> "ConfigError":
        """Return the error with its field prefixed by the path of the enclosing table, such as "events[2]"."""
        if self.field is None:
            return ConfigError(f"{path}: {self}", field=path, value=self.value, expected=self.expected)
        separator = "." if str(self).startswith((f"{self.field}=", f"{self.field} is missing")) else ": "
        field = f"{path}.{self.field}"
        return ConfigError(f"{path}{separator}{self}", field=field, value=self.value, expected=self.expected)


class AuthenticationError(FakebrokerError):
    """A client is not authenticated. The message is the text for the client; it is empty if there is no special one."""


class TransportError(FakebrokerError, OSError):
    """A connection cannot go on, because of bytes that the peer has sent. The message is the reason to log."""


class ListenError(FakebrokerError):
    """A broker cannot listen at its address."""


class DataDirectoryError(FakebrokerError):
    """A data directory that cannot be used or read, or whose disk has failed."""

    @classmethod
    def of(cls, path: str, what: str, expected: str) -> Self:
        """Return the error `data_dir='...': what: expected ...`."""
        return cls(f"data_dir={path!r}: {what}: expected {expected}")


class DiskFullError(DataDirectoryError):
    """There is no space for files of a data directory. Its existing files are intact."""


class WaitTimeout(FakebrokerError, TimeoutError):  # noqa: N818  # Named like TimeoutError.
    """A condition was not met before the timeout. The message describes the actual state.

    Args:
        sentence: The error message.
        condition: The condition, such as "group g: stable()"; empty if the message alone describes it.
        timeout_s: The timeout in seconds.
        state: The actual state, as text.
        wait: The id with which the wait can be continued over HTTP.
    """

    def __init__(
        self,
        sentence: str,
        *,
        condition: str = "",
        timeout_s: float | None = None,
        state: str = "",
        wait: str | None = None,
    ) -> None:
        super().__init__(sentence)
        self.condition, self.timeout_s, self.state, self.wait = condition, timeout_s, state, wait

    @classmethod
    def of(cls, condition: str, timeout_s: float, state: str) -> "WaitTimeout":
        """Return the error `not reached within 10 s: condition`, with the state in further lines."""
        text = f"not reached within {timeout_s:g} s: {condition}\n{state}"
        return cls(text, condition=condition, timeout_s=timeout_s, state=state)


class ConditionNotMet(FakebrokerError, AssertionError):  # noqa: N818  # Says what has happened, like WaitTimeout.
    """A condition does not hold that is required to hold. The message describes the actual state."""


class ClusterStopped(FakebrokerError):  # noqa: N818  # Says what has happened, like WaitTimeout.
    """The cluster stopped during a wait."""


class PollError(FakebrokerError):
    """A consumer that was polled during a wait failed.

    Args:
        sentence: The error message.
        error: The exception of the consumer, which is also the cause of this one; or the error that a message of
            confluent-kafka contained.
    """

    def __init__(self, sentence: str, *, error: object = None) -> None:
        super().__init__(sentence)
        self.error = error


class IncompleteJournalError(FakebrokerError, AssertionError):
    """A query or an assertion that depends on requests that the journal has dropped."""


def shown(value: object) -> str:
    """Return the `repr` of a value for an error message, shortened to `MAX_SHOWN` characters."""
    try:
        text = repr(value)
    except ValueError:  # an integer of more than 4,300 digits
        text = f"a value of type {type(value).__name__} that is too long to show"
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."


_JOINERS_AND_SPACES = "\u200c\u200d\u00a0\u3000"
"""Characters of ordinary text that `str.isprintable` excludes: joiners of emoji and letters, wide spaces."""


def printable(text: str) -> str:
    """Replace characters that control a terminal, end a line or are invisible: clients choose names freely."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in _JOINERS_AND_SPACES else "\N{REPLACEMENT CHARACTER}" for each in text
    )


def cut_line(line: str, most: int = MAX_SHOWN) -> str:
    """Return a line of printable characters, or its beginning with the number of characters that are left out."""
    return printable(line if len(line) <= most else f"{line[:most]}... and {len(line) - most} more characters")


def cut_lines(text: str) -> str:
    """Return a text with shortened lines of printable characters."""
    return "\n".join(map(cut_line, text.split("\n")))


def and_more(total: int, shown: int, what: str) -> list[str]:
    """Return the line "... and 3 more groups"; no line if all are shown."""
    return [f"... and {total - shown} more {what}"] if total > shown else []


def one_of(
    names: Iterable[object],
    given: object = None,
    *,
    none: str = "none: there are none",
    other: str = "",
    most: int | None = None,
) -> str:
    """Return the expectation "one of a, b", with "did you mean 'a'?" if the given value resembles a name.

    Args:
        names: The expected names, in the order in which they are listed.
        given: The invalid value.
        none: The expectation if there are no names.
        other: An alternative to the names, such as "a table".
        most: Maximum number of names to list; by default all are listed.
    """
    known = [str(name) for name in names]
    if not known:
        return none
    listed = ", ".join(known[:most])
    if most is not None and len(known) > most:
        listed += f" and {len(known) - most} more"
    expected = f"one of {listed}" + (f" or {other}" if other else "")
    near = nearest(given, known)
    return expected if near in (None, given) else f"{expected}; did you mean {near!r}?"


def nearest(given: object, names: Iterable[str]) -> str | None:
    """Return the name that a value resembles most, or None if it resembles none."""
    if not isinstance(given, str):
        return None
    from difflib import get_close_matches  # A slow import that only errors need.

    by_folded = {name.lower(): name for name in names}
    close = get_close_matches(given.lower(), by_folded, n=1)
    return by_folded[close[0]] if close else None


def check_number(
    field: str,
    value: object,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    where: str = "",
) -> None:
    """Check that an argument is a finite number within bounds.

    Args:
        field: The name of the argument.
        value: Its value.
        least: The inclusive lower bound.
        above: The exclusive lower bound.
        most: The inclusive upper bound.
        where: The context for the error message.

    Raises:
        ConfigError: It is not a number, not finite, or out of bounds.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError.of(field, value, "a finite number", where=where)
    if not is_number or not _is_within(value, least, above, most):  # type: ignore[arg-type]  # a number by `is_number`
        raise ConfigError.of(field, value, f"a number{bounds(least, above, most)}", where=where)


def check_integer(
    field: str, value: object, *, least: int | None = None, most: int | None = None, where: str = ""
) -> None:
    """Check that an argument is an integer within bounds.

    Args:
        field: The name of the argument.
        value: Its value.
        least: The inclusive lower bound.
        most: The inclusive upper bound.
        where: The context for the error message.

    Raises:
        ConfigError: It is not an integer, or out of bounds.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not _is_within(value, least, None, most):
        raise ConfigError.of(field, value, f"an integer{bounds(least, None, most)}", where=where)


def _is_within(value: float, least: float | None, above: float | None, most: float | None) -> bool:
    return (least is None or value >= least) and (above is None or value > above) and (most is None or value <= most)


def bounds(
    least: float | None = None, above: float | None = None, most: float | None = None, below: float | None = None
) -> str:
    """Return the bounds of a number as text to append to its type, such as " >= 1" or " from 0 to 1"."""
    if least is not None and most is not None:
        return f" from {_formatted(least)} to {_formatted(most)}"
    signs = ((">=", least), (">", above), ("<=", most), ("<", below))
    return " and".join(f" {sign} {_formatted(bound)}" for sign, bound in signs if bound is not None)


def _formatted(number: float) -> str:
    return f"{number:g}" if isinstance(number, float) else str(number)
