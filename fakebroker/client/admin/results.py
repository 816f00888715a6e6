"""What comes of asking for many things at once: for each its value or its error. Knows no connections."""

from collections.abc import Iterator, Mapping
from typing import ClassVar, Generic, TypeVar

from fakebroker.client.member.assignors import TopicPartition
from fakebroker.errors import ErrorCode, FakebrokerError

V = TypeVar("V")


class AdminError(FakebrokerError):
    """Something was asked for one thing, and failed.

    Args:
        key: The thing.
        api: The API asked, by Kafka's name.
        error: How it failed.
        why: What else is known of it.

    Attributes:
        what: What failed and how, without the thing.
    """

    kind: ClassVar[str] = "key"

    def __init__(self, key: str, api: str, error: ErrorCode, why: str | None = None) -> None:
        self.key, self.api, self.error = key, api, error
        self.what = f"{api} failed with {error.name}" + (f": {why}" if why else "")
        super().__init__(f"{self.kind} {key!r}: {self.what}")


class GroupError(AdminError):
    """What was asked for one group failed.

    Attributes:
        partitions: Where partitions failed and not the group as a whole: the error of each that did.
    """

    kind = "group"

    def __init__(
        self,
        group: str,
        api: str,
        error: ErrorCode,
        why: str | None = None,
        partitions: Mapping[TopicPartition, ErrorCode] | None = None,
    ) -> None:
        super().__init__(group, api, error, why)
        self.partitions = dict(partitions or {})

    @property
    def group(self) -> str:
        return self.key


class TransactionError(AdminError):
    """What was asked for one transactional id failed."""

    kind = "transactional id"


class MemberError(AdminError):
    """What was asked for one static member failed."""

    kind = "member"

    @property
    def instance_id(self) -> str:
        return self.key


class TopicError(AdminError):
    """What was asked for one topic failed."""

    kind = "topic"

    @property
    def topic(self) -> str:
        return self.key


class BrokerError(AdminError):
    """What was asked of one broker failed."""

    kind = "broker"


class Results(Mapping[str, V | AdminError], Generic[V]):
    """For each thing asked for, in the order asked: its value, or the error that it failed with."""

    __slots__ = ("_outcomes",)

    def __init__(self, outcomes: Mapping[str, V | AdminError]) -> None:
        self._outcomes = dict(outcomes)

    def __getitem__(self, key: str) -> V | AdminError:
        return self._outcomes[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._outcomes)

    def __len__(self) -> int:
        return len(self._outcomes)

    def __repr__(self) -> str:
        return f"Results({self._outcomes!r})"

    @property
    def values_by_key(self) -> dict[str, V]:
        """The values of those that did not fail."""
        return {key: outcome for key, outcome in self.items() if not isinstance(outcome, AdminError)}

    @property
    def errors(self) -> dict[str, AdminError]:
        """The errors of those that failed."""
        return {key: outcome for key, outcome in self.items() if isinstance(outcome, AdminError)}

    def all(self) -> dict[str, V]:
        """All values.

        Raises:
            AdminError: Some failed; it is the first of them.
        """
        for error in self.errors.values():
            raise error
        return self.values_by_key
