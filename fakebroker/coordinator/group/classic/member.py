"""The record of one member of a classic group. Data and two questions about its own protocols; no behavior."""

from collections.abc import Callable, Container
from dataclasses import dataclass
from math import inf


@dataclass(slots=True, eq=False, kw_only=True)
class Member:
    """One member (Kafka's `ClassicGroupMember`).

    Attributes:
        instance_id: Set for a static member (KIP-345).
        protocols: Names with metadata, the favorite first.
        deadline_ms: When its session (or, while new, its wait for the first round) ends. Infinite once it has run out
            while an answer is owed to the member: it is armed again with that answer.
        is_new: Added in the round that is being prepared, so it is removed at its deadline even if its join is parked.
        keeper: Keeps the session, which does not end meanwhile: vouches for heartbeats that come later, if ever. Is
            told the group's id before a timer of the group runs out, and lets go of its members then.
        assignment: What the leader gave it, kept until the leader's next sync or until a round is given up.
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
        """When its session ends; infinite while somebody keeps it."""
        return self.deadline_ms if self.keeper is None else inf

    def metadata_for(self, protocol_name: str) -> bytes:
        """Metadata of the first protocol of that name."""
        return next(metadata for name, metadata in self.protocols if name == protocol_name)

    def vote(self, candidates: Container[str]) -> str:
        """The member's favorite among `candidates`."""
        return next(name for name, _ in self.protocols if name in candidates)
