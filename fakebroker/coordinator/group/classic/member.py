"""One member of a classic group, as plain data."""

from collections.abc import Callable, Container
from dataclasses import dataclass
from math import inf


@dataclass(slots=True, eq=False, kw_only=True)
class Member:
    """One member (Kafka's `ClassicGroupMember`).

    Set protocols with `Group.update` and the deadline with `Group.arm_session`, which also update the group.

    Attributes:
        instance_id: Set for a static member (KIP-345).
        protocols: Pairs of name and metadata, in order of preference.
        is_new: Whether the member was added in the rebalance in progress. A new member is removed at its deadline even
            if its join is parked.
        deadline_ms: When the session expires; for a new member, when the wait for its first generation ends. Infinite
            if the session has expired while an answer to the member was pending; the answer restarts the session.
        keeper: Set while the session is suspended, because a simulation adds the member's heartbeats later. Called with
            the group id before a timer of the group expires; the keeper then calls `Groups.resume_session` for
            the members of the group.
        assignment: The last assignment by a leader. Cleared if a rebalance starts in CompletingRebalance.
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
        """When the session expires; infinite while it is suspended."""
        return self.deadline_ms if self.keeper is None else inf

    def metadata_for(self, protocol_name: str) -> bytes:
        """Return the metadata of the first protocol with this name, which the member must support."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise LookupError(protocol_name)

    def supports(self, names: Container[str]) -> bool:
        """Return whether the member supports one of the protocols."""
        return any(name in names for name, _ in self.protocols)

    def vote(self, candidates: Container[str]) -> str:
        """Return the member's most preferred protocol in `candidates`."""
        return next(name for name, _ in self.protocols if name in candidates)
