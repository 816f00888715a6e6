"""One member of a classic group, as plain data."""

from collections.abc import Callable, Container
from dataclasses import dataclass
from math import inf


@dataclass(slots=True, eq=False, kw_only=True)
class Member:
    """One member (Kafka's `ClassicGroupMember`).

    Attributes:
        instance_id: Set for a static member (KIP-345).
        protocols: Names with metadata, the favorite first.
        deadline_ms: When its session (or, while new, its wait for the first generation) expires. Infinite once it has
            expired while an answer to the member is pending: it starts again with that answer.
        is_new: Added in the rebalance in progress, so it is removed at its deadline even if its join is parked.
        keeper: Suspends the session, on behalf of heartbeats that are accounted for later. Called with the group's id
            before a timer of the group expires; it then resumes the sessions of the group's members.
        assignment: What the leader assigned to it, kept until the leader's next sync or until a rebalance starts before
            the leader has synced.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    is_new: bool
    deadline_ms: float = inf
    keeper: Callable[[str], None] | None = None
    assignment: bytes = b""

    @property
    def session_ends_ms(self) -> float:
        """When its session expires; infinite while it is suspended."""
        return self.deadline_ms if self.keeper is None else inf

    def metadata_for(self, protocol_name: str) -> bytes:
        """Return the metadata of the first protocol of that name."""
        return next(metadata for name, metadata in self.protocols if name == protocol_name)

    def vote(self, candidates: Container[str]) -> str:
        """Return the member's favorite among `candidates`."""
        return next(name for name, _ in self.protocols if name in candidates)
