"""The invariants that a design can promise. `history.checker` checks them."""

ONE_OWNER, ALL_OWNED, LIVE_STAYS, NONE_SKIPPED = "one-owner", "all-owned", "live-stays", "none-skipped"

INVARIANTS = {
    ONE_OWNER: "No partition is owned by two members, except by members that were removed and do not know it yet.",
    ALL_OWNED: "At the end, long after the last event, each partition has one owner, and no rebalance is in progress.",
    LIVE_STAYS: "No member is removed whose process runs without a pause, on a network without faults.",
    NONE_SKIPPED: "No record is skipped: a member starts at or before the first record that was not consumed.",
}
"""What each invariant says, by name."""
