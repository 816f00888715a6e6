"""Deadlines in random histories: what they announce happens at their times and not before, and nothing else happens."""

import pytest

from fakebroker.cluster.inspect.deadlines import Deadline, pending_deadlines
from fakebroker.cluster.inspect.explain import explain
from tests.support.cluster.group_histories import GroupHistory
from tests.support.soak import examples, soak

STEPS = 40
FAST, SLOW = 16, 50
SILENT_STEPS = 25
_INTERRUPTIONS = ("load", "late_request", "preferred_election")
"""Deadlines after which groups change without a request of a member; later deadlines are pending only after them."""


def deadlines(history: GroupHistory) -> list[Deadline]:
    return pending_deadlines(history.cluster, history.now_ms)


def announced(history: GroupHistory) -> list[Deadline]:
    """Return the deadlines of groups that announce a change, up to the first interruption."""
    pending = deadlines(history)
    end_ms = min((each.at_ms for each in pending if each.kind in _INTERRUPTIONS), default=float("inf"))
    return [each for each in pending if (each.removes or each.state) and each.at_ms < end_ms]


def check_happens(seed: int, deadline: Deadline, *, is_alone: bool) -> None:
    """Advance to a deadline, while members send heartbeats; but the member of a session does not."""
    history = GroupHistory(seed, STEPS)
    silent = deadline.member_ids[0] if deadline.restarts_with_requests else ""
    history.advance_with_heartbeats(deadline.at_ms - 1, silent)
    assert set(deadline.removes) <= set(history.ids(deadline)), "too early"
    assert history.state(deadline) != deadline.state, "too early"
    history.advance_to(deadline.at_ms)
    assert not set(deadline.removes) & set(history.ids(deadline)), "too late"
    if is_alone and deadline.state:
        assert history.state(deadline) == deadline.state


def check_heartbeats_prevent(seed: int, deadline: Deadline, others: list[Deadline]) -> None:
    """Advance to the end of a session, while all members send heartbeats."""
    history = GroupHistory(seed, STEPS)
    history.advance_with_heartbeats(deadline.at_ms)
    removed = {
        member_id
        for each in others
        if not each.restarts_with_requests and each.at_ms <= deadline.at_ms and each.group_id == deadline.group_id
        for member_id in each.removes
    }
    if deadline.removes[0] not in removed:
        assert deadline.removes[0] in history.ids(deadline)


def check_silence(seed: int) -> int:
    """Advance from one deadline to the next without requests: groups change only at deadlines. Return the changes."""
    history, changes = GroupHistory(seed, STEPS), 0
    for _ in range(SILENT_STEPS):
        pending = deadlines(history)
        if not pending:
            break
        first_ms = pending[0].at_ms
        firsts = pending_deadlines(history.cluster, history.now_ms, first=1)
        until = pending_deadlines(history.cluster, history.now_ms, until_ms=first_ms)
        before = history.contents()
        history.advance_to(first_ms - 1)
        assert history.contents() == before, "a change that no deadline has announced"
        history.advance_to(first_ms)
        due = [each for each in pending if each.at_ms == first_ms]
        assert (firsts[0].at_ms, until) == (first_ms, due)
        changed = {key for key in before | history.contents() if before.get(key) != history.contents().get(key)}
        told = {(each.node_id, each.group_id) for each in due if each.removes or each.state or each.kind != "session"}
        if not any(each.kind in _INTERRUPTIONS for each in due):
            assert changed <= told, "another group than announced has changed"
        for each in due:
            if each.kind not in _INTERRUPTIONS:
                assert not set(each.removes) & set(history.ids(each))
        changes += bool(changed)
    return changes


def check_explanations(history: GroupHistory, told: list[Deadline]) -> None:
    """Check that explanations tell what happens although the members send heartbeats, and when."""
    for deadline in told:
        broker = history.cluster.coordinator_of(deadline.group_id or "")
        is_new_member = deadline.kind == "session" and not deadline.restarts_with_requests
        if broker and broker.node_id == deadline.node_id and deadline.in_s < 600 and not is_new_member:
            text = explain(history.cluster, deadline.group_id or "", history.now_ms)
            if deadline.kind != "session" and deadline.state:
                assert f"{deadline.in_s:.1f} s" in text, (deadline, text)


def check_history(seed: int) -> tuple[int, int]:
    """Check everything that a history announces. Return the numbers of announcements and of changes in silence."""
    history = GroupHistory(seed, STEPS)
    told = announced(history)
    for deadline in told:
        others = [each for each in told if each is not deadline]
        is_alone = not any(
            each.at_ms == deadline.at_ms for each in (*others, *deadlines(history)) if each is not deadline
        )
        assert deadline.text.endswith("."), deadline
        check_happens(seed, deadline, is_alone=is_alone)
        if deadline.restarts_with_requests:
            check_heartbeats_prevent(seed, deadline, others)
    check_explanations(history, told)
    return len(told), check_silence(seed)


def check_histories(count: int) -> None:
    totals = [0, 0]
    for seed in range(count):
        try:
            found = check_history(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
        totals = [total + number for total, number in zip(totals, found, strict=True)]
    assert min(totals) > count, f"announcements and changes in silence: {totals}"


def test_deadlines_happen_at_their_times() -> None:
    check_histories(FAST)


def test_a_heartbeat_shortens_the_time_for_which_a_new_member_may_wait_for_its_generation() -> None:
    check_history(423)  # The group has an earlier timer, which is over.


@soak
@pytest.mark.slow
def test_deadlines_happen_at_their_times_in_many_histories() -> None:
    check_histories(examples(SLOW, soak=5_000))
