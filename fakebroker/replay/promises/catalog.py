"""All promises by name."""

from fakebroker.replay.promises.commits import CommitsKept
from fakebroker.replay.promises.consumer_protocol import (
    BeatingConsumersStay,
    EpochsRise,
    FencedConsumersRefused,
    OwnersOneAfterAnother,
    RevokedCommitted,
    SilentConsumersOut,
    StaleEpochsRefused,
    TargetsReached,
    UnknownConsumersRefused,
)
from fakebroker.replay.promises.coordinators import Answered, CoordinatorFound, OneCoordinator
from fakebroker.replay.promises.generations import Covered, GenerationsRise, OneLeader, OneOwner
from fakebroker.replay.promises.membership import BeatingStays, FencedRefused, SilentOut, StaleRefused, UnknownRefused
from fakebroker.replay.promises.observer import Promise
from fakebroker.replay.promises.transactions import Atomic, OldEpochsRefused, OverdueAborted, StableOffsetRises

PROMISES: dict[str, tuple[type[Promise], ...]] = {
    kinds[0].name: kinds
    for kinds in (
        (OneOwner, OwnersOneAfterAnother),
        (Covered,),
        (OneLeader,),
        (GenerationsRise,),
        (CommitsKept,),
        (SilentOut, SilentConsumersOut),
        (BeatingStays, BeatingConsumersStay),
        (StaleRefused, StaleEpochsRefused),
        (FencedRefused, FencedConsumersRefused),
        (UnknownRefused, UnknownConsumersRefused),
        (Answered,),
        (CoordinatorFound,),
        (OneCoordinator,),
        (EpochsRise,),
        (RevokedCommitted,),
        (TargetsReached,),
        (Atomic,),
        (OldEpochsRefused,),
        (OverdueAborted,),
        (StableOffsetRises,),
    )
}
"""The promises by their names in `[promises] check`, in the order of reports.

Some promises have two observers. The first sees groups of the classic protocol and has the sentence of the promise. The
second sees groups of the consumer protocol (KIP-848).
"""

TRANSACTION_PROMISES = ("atomic", "old-epochs-refused", "overdue-aborted", "stable-offset-rises")
"""The promises of transaction coordinators. Without transactions, they have no case."""

CONSUMER_PROMISES = ("epochs-rise", "revoked-committed", "targets-reached")
"""The promises to members of the consumer protocol only. Without such members, they have no case."""


def applicable_promises(*, is_transactional: bool, has_consumers: bool) -> list[str]:
    """Return the names of the promises that a workload checks by default."""
    left_out = (*(() if is_transactional else TRANSACTION_PROMISES), *(() if has_consumers else CONSUMER_PROMISES))
    return [name for name in PROMISES if name not in left_out]
