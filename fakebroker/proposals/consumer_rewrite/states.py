"""The states of the coordinator for a group, and the transitions between them."""

from collections.abc import Mapping
from enum import Enum


class CoordinatorState(Enum):
    """The states of the rewrite design's coordinator, by the names of the document.

    A shard is DOWN, CATCH_UP or READY (see `Shard`). Its groups are in READY or a later state. When the shard is DOWN,
    its groups are DOWN, too. In every state from READY on, an id that is not in the group gets UnknownConsumer.

    DOWN: The coordinator is dead or demoted. Every request gets NotCoordinatorForGroup.
        Transitions: the coordinator is elected -> CATCH_UP.
    CATCH_UP: Elected; the groups are being read from the registry.
        JoinGroup: IllegalProtocolState.
        Heartbeat, OffsetCommit: CoordinatorStartupNotComplete.
        Transitions: all groups are loaded -> READY; demoted -> DOWN.
    READY: The group is loaded, and some of its consumers have not been heard yet; or it is new and has none. Sessions
        start when it is loaded.
        JoinGroup: waits for the rebalance that it starts.
        Heartbeat: NONE; IllegalGeneration for another generation.
        OffsetCommit: accepted; IllegalGeneration for another generation.
        Transitions:
            All consumers have sent a heartbeat -> STEADY.
            A consumer joins or expires, or the partitions differ from those that are owned -> PREPARE_FOR_REBALANCE.
    PREPARE_FOR_REBALANCE: Waiting for the JoinGroup of each consumer.
        JoinGroup: waits. A consumer that waits does not expire.
        Heartbeat: IllegalGeneration. The first one restarts the session, within which the consumer has to join. But an
        expired consumer gets NONE if only expired consumers have caused the rebalance, and no other one has noticed.
        OffsetCommit: accepted from the present generation.
        Transitions:
            All consumers that are alive have joined, at least one -> REBALANCING.
            All expired consumers have returned before another one has noticed -> STEADY.
    REBALANCING: The next generation is being written to the registry.
        JoinGroup: waits for the rebalance after this one.
        Heartbeat, OffsetCommit: IllegalGeneration.
        Transitions:
            The generation is written -> STEADY; joins are answered.
            The write fails -> PREPARE_FOR_REBALANCE; joins get the error. A new group is forgotten -> DOWN.
            The write shows that another coordinator was elected -> DOWN, the whole shard.
    STEADY: All consumers own partitions of the present generation. Requests as in READY.
        Transitions:
            A consumer joins or expires, or a topic changes -> PREPARE_FOR_REBALANCE.
    """

    DOWN = "Down"
    CATCH_UP = "Catch up"
    READY = "Ready"
    PREPARE_FOR_REBALANCE = "Prepare for rebalance"
    REBALANCING = "Rebalancing"
    STEADY = "Steady"


DOWN = CoordinatorState.DOWN
CATCH_UP = CoordinatorState.CATCH_UP
READY = CoordinatorState.READY
PREPARE_FOR_REBALANCE = CoordinatorState.PREPARE_FOR_REBALANCE
REBALANCING = CoordinatorState.REBALANCING
STEADY = CoordinatorState.STEADY

TRANSITIONS: Mapping[CoordinatorState, tuple[CoordinatorState, ...]] = {
    DOWN: (CATCH_UP,),
    CATCH_UP: (READY, DOWN),
    READY: (STEADY, PREPARE_FOR_REBALANCE, DOWN),
    PREPARE_FOR_REBALANCE: (REBALANCING, STEADY, DOWN),
    REBALANCING: (STEADY, PREPARE_FOR_REBALANCE, DOWN),
    STEADY: (PREPARE_FOR_REBALANCE, DOWN),
}
"""The states that may follow each state; every other transition is a bug."""


class StateMachine:
    """An object with a state of the coordinator.

    Attributes:
        state: The present state; written only by `enter`.
    """

    __slots__ = ("state",)

    def __init__(self, state: CoordinatorState) -> None:
        self.state = state

    def enter(self, state: CoordinatorState) -> None:
        """Change the state; the only method that does."""
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(f"{self!r}: no transition from {self.state} to {state}")
        self.state = state
