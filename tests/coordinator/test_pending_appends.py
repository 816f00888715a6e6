"""Appends that complete later: nothing is answered before, later operations wait in order, and nothing else changes."""

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from fakebroker.coordinator.group import controls
from fakebroker.coordinator.group.api import OffsetToCommit, SyncResult
from fakebroker.coordinator.group.invariants import check
from fakebroker.coordinator.group.records import Record
from fakebroker.errors import ErrorCode
from tests.coordinator.test_append_failures import contents
from tests.support.coordinator.batch_joins import batch, expected, joining, register
from tests.support.coordinator.coordinator_harness import REBALANCE_MS, SESSION_MS, Call, CoordinatorHarness, protocols

NONE = ErrorCode.NONE
FAILED = ErrorCode.COORDINATOR_NOT_AVAILABLE
NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR
BOTH = pytest.mark.parametrize("error", [NONE, FAILED])

Done = Callable[[ErrorCode], None]


class LateDriver(CoordinatorHarness):
    """A driver whose appends complete when it says so, from `postpone` on; until then at once."""

    def __init__(self, **config: Any) -> None:
        self.is_late = False
        self.pending: deque[tuple[int, tuple[Record, ...], Done]] = deque()
        super().__init__(**config)

    def postpone(self) -> None:
        self.is_late = True

    def _append(self, partition: int, records: tuple[Record, ...], done: Done) -> None:
        if self.is_late:
            self.pending.append((partition, records, done))
        else:
            super()._append(partition, records, done)

    def complete_append(self, error: ErrorCode = NONE) -> None:
        """Complete the oldest append."""
        partition, records, done = self.pending.popleft()
        if not error:
            self.batches.append((partition, records))
        done(error)
        self.settle()

    def complete_appends(self) -> None:
        while self.pending:
            self.complete_append()

    # Requests, each with the list of its results

    def start_leave(self, *members: tuple[str, str | None], group_id: str = "g") -> list[Any]:
        return self._start(self.coordinator.leave_group, group_id, members, self.now_ms)

    def start_commit(
        self, member_id: str = "", generation_id: int = -1, offset: int = 1, topic: str = "t", group_id: str = "g"
    ) -> list[Any]:
        offsets = [OffsetToCommit(topic=topic, partition=0, offset=offset)]
        return self._start(
            self.coordinator.commit_offsets, group_id, generation_id, member_id, None, offsets, self.now_ms
        )

    def start_delete(self, group_id: str = "g") -> list[Any]:
        return self._start(self.coordinator.delete_group, group_id, self.now_ms)

    def start_delete_offsets(self, topic: str = "t", group_id: str = "g") -> list[Any]:
        return self._start(self.coordinator.delete_offsets, group_id, [(topic, 0)])

    def _start(self, request: Callable[..., None], *arguments: object) -> list[Any]:
        results: list[Any] = []
        request(*arguments, results.append)
        self.settle()
        return results


def stable(size: int = 2, static: tuple[str, ...] = (), **config: Any) -> tuple[LateDriver, list[str]]:
    """A stable group whose further appends are late."""
    driver = LateDriver(**config)
    member_ids = driver.stable(size, static)
    driver.postpone()
    return driver, member_ids


# One request


@BOTH
def test_a_commit_takes_effect_and_is_answered_when_it_is_stored(error: ErrorCode) -> None:
    driver, (member_id, _) = stable()
    results = driver.start_commit(member_id, 1, offset=5)
    assert (results, driver.committed()) == ([], None)
    assert driver.heartbeat(member_id, 1) is NONE
    driver.complete_append(error)
    assert (results, driver.committed()) == ([[error]], None if error else 5)


@BOTH
def test_a_commit_creates_its_group_when_it_is_stored(error: ErrorCode) -> None:
    driver = LateDriver()
    driver.postpone()
    results = driver.start_commit()
    assert (results, driver.state()) == ([], "-")
    driver.complete_append(error)
    assert (results, driver.state()) == ([[error]], "-" if error else "Empty")


@BOTH
def test_the_first_join_waits_for_its_group(error: ErrorCode) -> None:
    driver = LateDriver()
    driver.postpone()
    call = driver.join()
    assert (call.is_parked, driver.state()) == (True, "PreparingRebalance")
    driver.complete_append(error)
    if error:
        assert (call.error, driver.state()) == (error, "-")
    driver.advance(1_000_000)
    assert call.error is error


@BOTH
def test_no_sync_is_answered_before_the_generation_is_stored(error: ErrorCode) -> None:
    driver = LateDriver()
    leader, follower = driver.complete(2)
    driver.postpone()
    early = driver.sync(follower, 1)
    call = driver.sync(leader, 1, [(leader, b"a"), (follower, b"b")])
    assert early.is_parked
    assert call.is_parked
    assert driver.state() == "CompletingRebalance"
    assert driver.heartbeat(leader, 1) is NONE
    driver.complete_append(error)
    if error:
        assert early.result == call.result == SyncResult(error)
        assert driver.state() == "PreparingRebalance"
    else:
        assert (early.synced.assignment, call.synced.assignment) == (b"b", b"a")
        assert driver.state() == "Stable"


@BOTH
def test_a_replaced_static_member_is_answered_when_it_is_stored(error: ErrorCode) -> None:
    driver, (member_id,) = stable(0, ("i",))
    before = contents(driver.group())
    call = driver.join(instance_id="i")
    assert call.is_parked
    driver.complete_append(error)
    assert call.error is error
    assert (contents(driver.group()) == before) == bool(error)
    assert driver.heartbeat(member_id, 1, "i") is (NONE if error else ErrorCode.FENCED_INSTANCE_ID)


@BOTH
def test_the_last_leave_is_answered_when_the_empty_group_is_stored(error: ErrorCode) -> None:
    driver, (member_id,) = stable(1)
    results = driver.start_leave((member_id, None))
    assert (results, driver.state()) == ([], "Empty")
    assert driver.heartbeat(member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    driver.complete_append(error)
    assert results == [(error, []) if error else (NONE, [NONE])]
    assert (driver.state(), driver.group().generation_id) == ("Empty", 2)


@BOTH
def test_a_group_is_deleted_when_its_tombstones_are_stored(error: ErrorCode) -> None:
    driver = LateDriver()
    driver.commit()
    driver.postpone()
    results = driver.start_delete()
    assert (results, driver.committed()) == ([], 1)
    driver.complete_append(error)
    assert (results, driver.state()) == ([error], "Empty" if error else "-")


@BOTH
def test_offsets_are_deleted_when_their_tombstones_are_stored(error: ErrorCode) -> None:
    driver = LateDriver()
    driver.commit()
    driver.commit(topic="u")
    driver.postpone()
    results = driver.start_delete_offsets()
    driver.coordinator.delete_topic_offsets("u")
    assert (results, driver.committed(), len(driver.pending)) == ([], 1, 1)
    driver.complete_append(error)
    assert results == [(error, []) if error else (NONE, [NONE])]
    assert (driver.committed(), driver.committed("u")) == (1 if error else None, 1)
    driver.complete_append(error)
    assert driver.committed("u") == (1 if error else None)


@BOTH
def test_offsets_expire_when_their_tombstones_are_stored(error: ErrorCode) -> None:
    driver = LateDriver(offsets_retention_ms=1_000)
    driver.commit()
    driver.postpone()
    driver.advance(600_000)
    assert (driver.committed(), driver.state()) == (1, "Empty")
    driver.complete_append(error)
    assert driver.state() == ("Empty" if error else "-")
    if error:  # The next look finds them again.
        driver.advance(600_000)
        driver.complete_append()
        assert driver.state() == "-"


# Operations that arrive meanwhile


def test_requests_wait_and_run_in_order() -> None:
    driver, (leader, follower) = stable()
    commits = [driver.start_commit(leader, 1, offset=offset) for offset in (1, 2)]
    left = driver.start_leave((follower, None))
    late_commit = driver.start_commit(follower, 1, offset=3)
    call = driver.join(leader)
    assert not any([*commits, left, late_commit])
    assert (call.is_parked, list(driver.group().members)) == (True, [leader, follower])
    driver.complete_append()
    assert (commits, driver.committed()) == ([[[NONE]], []], 1)
    driver.complete_append()
    assert (commits[1], driver.committed(), left) == ([[NONE]], 2, [(NONE, [NONE])])
    assert late_commit == [[ErrorCode.UNKNOWN_MEMBER_ID]]
    assert call.joined.generation_id == 2
    assert not driver.pending


def test_a_failed_append_does_not_hold_up_what_waits() -> None:
    driver, (leader, _) = stable()
    first, second = (driver.start_commit(leader, 1, offset=offset) for offset in (1, 2))
    driver.complete_append(FAILED)
    driver.complete_append()
    assert (first, second, driver.committed()) == ([[FAILED]], [[NONE]], 2)


def test_heartbeats_and_fetches_do_not_wait() -> None:
    driver, (leader, _) = stable()
    driver.start_commit(leader, 1, offset=7)
    driver.now_ms += 5
    assert driver.heartbeat(leader, 1) is NONE
    assert driver.group().members[leader].deadline_ms == driver.now_ms + SESSION_MS
    assert driver.committed() is None


def test_other_partitions_do_not_wait() -> None:
    driver, (leader, _) = stable()
    driver.start_commit(leader, 1, offset=7)
    driver.is_late = False
    assert driver.group().partition != driver.coordinator._runtime.partition_for("h")
    assert driver.commit(group_id="h") is NONE
    assert driver.join(group_id="h").is_parked
    assert driver.state("h") == "PreparingRebalance"


def test_a_sync_that_arrives_while_the_generation_is_stored_gets_its_assignment() -> None:
    driver = LateDriver()
    leader, follower = driver.complete(2)
    driver.postpone()
    calls = [driver.sync(leader, 1, [(follower, b"b")]), driver.sync(follower, 1)]
    assert all(call.is_parked for call in calls)
    driver.complete_append()
    assert [call.synced.assignment for call in calls] == [b"", b"b"]


def test_a_group_created_meanwhile_is_found() -> None:
    driver = LateDriver()
    driver.postpone()
    results = driver.start_commit()
    call = driver.join()
    driver.complete_append()
    assert (results, driver.state()) == ([[NONE]], "PreparingRebalance")
    driver.complete_appends()
    driver.advance(1_000_000)
    assert call.error is NONE


def test_timers_wait() -> None:
    driver, (leader, follower) = stable()
    driver.advance(SESSION_MS - 1)
    driver.heartbeat(follower, 1)
    driver.start_commit(follower, 1)
    driver.advance(SESSION_MS / 2)
    assert (driver.state(), leader in driver.group().members) == ("Stable", True)
    driver.complete_append()
    assert (driver.state(), leader in driver.group().members) == ("PreparingRebalance", False)
    assert driver.group().join_deadline_ms == driver.group().state_since_ms + REBALANCE_MS


def test_a_session_that_is_extended_meanwhile_does_not_expire() -> None:
    driver, (leader, follower) = stable()
    driver.advance(SESSION_MS - 1)
    driver.start_commit(follower, 1)
    driver.advance(1)
    driver.heartbeat(leader, 1)
    driver.complete_append()
    assert (driver.state(), list(driver.group().members)) == ("Stable", [leader, follower])
    driver.advance(SESSION_MS)
    driver.complete_appends()
    assert driver.state() == "Empty"


def test_controls_wait() -> None:
    driver, (leader, _) = stable()
    driver.start_commit(leader, 1)
    controls.force_rebalance(driver.coordinator, driver.group(), driver.now_ms)
    controls.expire(driver.coordinator, driver.group(), leader, driver.now_ms)
    driver.settle()
    assert driver.state() == "Stable"
    driver.complete_append()
    assert (driver.state(), leader in driver.group().members) == ("PreparingRebalance", False)


def test_a_control_whose_member_has_left_does_nothing() -> None:
    driver, (leader, follower) = stable()
    driver.start_commit(leader, 1)
    driver.start_leave((follower, None))
    controls.expire(driver.coordinator, driver.group(), follower, driver.now_ms)
    controls.force_rebalance(driver.coordinator, driver.group(), driver.now_ms)
    driver.complete_append()
    assert (driver.state(), list(driver.group().members)) == ("PreparingRebalance", [leader])


# The coordinator moves meanwhile


def test_what_waits_gets_not_coordinator() -> None:
    driver, (leader, follower) = stable()
    first = driver.start_commit(leader, 1)
    waiting = [
        driver.start_commit(leader, 1),
        driver.start_leave((follower, None)),
        driver.start_delete_offsets(),
        driver.start_delete(),
    ]
    calls = [driver.join(leader), driver.sync(follower, 1)]
    driver.advance(SESSION_MS)
    driver.coordinator.resign(driver.group().partition, driver.now_ms)
    driver.settle()
    assert (first, waiting) == (
        [[NOT_COORDINATOR]],
        [[[NOT_COORDINATOR]], [(NOT_COORDINATOR, [])], [(NOT_COORDINATOR, [])], [NOT_COORDINATOR]],
    )
    assert [call.error for call in calls] == [NOT_COORDINATOR] * 2
    assert driver.state() == "-"
    driver.complete_append()  # Too late: nothing comes of it here.
    assert (first, driver.state()) == ([[NOT_COORDINATOR]], "-")


@pytest.mark.parametrize("act", ["sync", "replace", "join", "leave"])
def test_a_procedure_that_is_suspended_ends(act: str) -> None:
    driver = LateDriver()
    if act == "sync":
        (member_id,) = driver.complete(1)
    elif act != "join":
        (member_id,) = driver.stable(0, ("i",))
    driver.postpone()
    results: list[Any] = []
    call = Call()
    if act == "sync":
        call = driver.sync(member_id, 1)
    elif act == "leave":
        results = driver.start_leave(("", "i"))
    else:
        call = driver.join(instance_id="i")
    assert len(driver.pending) == 1
    driver.coordinator.resign(driver.group().partition, driver.now_ms)
    driver.settle()
    assert results == [(NOT_COORDINATOR, [])] if act == "leave" else call.error is NOT_COORDINATOR
    assert driver.state() == "-"
    driver.complete_append()
    assert driver.state() == "-"
    driver.advance(1_000_000)


def test_a_partition_that_is_led_again_is_not_blocked() -> None:
    driver, (leader, _) = stable()
    driver.start_commit(leader, 1)
    partition = driver.group().partition
    driver.coordinator.resign(partition, driver.now_ms)
    driver.coordinator.lead(partition, driver.now_ms)
    second = driver.start_commit()
    driver.complete_append()  # The append of the former time changes nothing.
    assert (second, driver.state()) == ([], "-")
    driver.complete_append()
    assert (second, driver.state()) == ([[NONE]], "Empty")


# Batches (KAFKA-8397)


@BOTH
def test_a_batch_is_handled_step_by_step(error: ErrorCode) -> None:
    driver = LateDriver()
    driver.postpone()
    call = batch(driver, expected("x"), joining(protocols=protocols("range")))
    assert call.is_parked
    driver.complete_append(error)
    if error:
        assert (call.errors, driver.state()) == ([error] * 2, "-")
        return
    assert (call.is_parked, driver.state()) == (True, "PreparingRebalance")
    assert not driver.pending
    driver.advance(REBALANCE_MS)
    assert call.errors == [NONE, NONE]


def test_static_members_replaced_in_a_batch_are_stored_one_after_the_other() -> None:
    driver, former = stable(0, ("i", "j"))
    call = batch(driver, joining(instance_id="i"), joining(instance_id="j"))
    assert (call.is_parked, len(driver.pending)) == (True, 1)
    driver.complete_append(FAILED)
    assert (call.is_parked, len(driver.pending)) == (True, 1)
    driver.complete_append()
    assert call.errors == [FAILED, NONE]
    assert former[0] in driver.group().members
    assert former[1] not in driver.group().members


def test_joins_admitted_together_are_not_lost() -> None:
    driver = LateDriver()
    driver.stable(1)
    register(driver, "x", "y")
    driver.postpone()
    calls = [driver.join(instance_id=instance_id) for instance_id in "xy"]
    assert (driver.state(), len(driver.pending)) == ("Stable", 1)
    driver.coordinator.resign(driver.group().partition, driver.now_ms)
    driver.settle()
    assert [call.error for call in calls] == [NOT_COORDINATOR] * 2


def test_an_append_that_raises_blocks_nothing() -> None:
    driver, (leader, _) = stable()

    def fail(partition: int, records: tuple[Record, ...], done: Done) -> None:
        raise ValueError("cannot be encoded")

    append, driver.coordinator._runtime._append = driver.coordinator._runtime._append, fail
    with pytest.raises(ValueError, match="encoded"):
        driver.start_commit(leader, 1)
    driver.coordinator._runtime._append = append
    results = driver.start_commit(leader, 1)
    driver.complete_append()
    assert results == [[NONE]]


# Any history


class SeededDriver(LateDriver):
    """Appends complete up to 50 ms after they begin; everything else happens at multiples of 100 ms."""

    def __init__(self, seed: int | None, **config: Any) -> None:
        self._random = Random(seed)
        self._due: deque[float] = deque()
        super().__init__(**config)
        self.is_late = seed is not None

    def _append(self, partition: int, records: tuple[Record, ...], done: Done) -> None:
        super()._append(partition, records, done)
        if self.is_late:
            self._due.append(self.now_ms + self._random.randint(0, 4) * 10)

    def advance(self, duration_ms: float) -> None:
        end_ms = self.now_ms + duration_ms
        while True:
            next_ms = min(end_ms, self._due[0] if self._due else end_ms, self.coordinator.next_deadline() or end_ms)
            super().advance(max(0.0, next_ms - self.now_ms))
            if self._due and self._due[0] <= self.now_ms:
                self._due.popleft()
                self.complete_append()
            elif self.now_ms >= end_ms:
                break
        while self._due:  # An operation has one time, so it does not matter when its append completes.
            self._due.popleft()
            self.complete_append()


def play(driver: LateDriver, seed: int) -> list[Any]:
    """A random history of three groups; returns the answers to its requests."""
    random = Random(seed)
    answers: list[Any] = []
    for _ in range(250):
        group_id = random.choice("gh")
        group = driver.coordinator.group(group_id)
        members = list(group.members) if group else []
        member_id = random.choice([*members, "", "nobody"])
        generation_id = group.generation_id if group else 0
        instance_id = random.choice([None, "i", "j"])
        actions: list[Callable[[], Any]] = [
            partial(driver.join, group_id=group_id, instance_id=instance_id, two_step=random.random() < 0.3),
            partial(driver.join, member_id, group_id=group_id),
            *[partial(driver.sync, each, generation_id, [(each, b"a")], group_id=group_id) for each in members],
            partial(driver.start_leave, (member_id, None), group_id=group_id),
            partial(driver.start_commit, member_id, generation_id, random.randrange(9), group_id=group_id),
            partial(driver.start_commit, offset=random.randrange(9), topic=random.choice("tu"), group_id=group_id),
            partial(driver.start_delete_offsets, group_id=group_id),
            partial(driver.start_delete, group_id),
            partial(driver.coordinator.delete_topic_offsets, "u"),
            partial(batch, driver, expected("i"), joining(), group_id=group_id),
            partial(batch, driver, joining(instance_id="i"), joining(instance_id="j"), group_id=group_id),
        ]
        answers.append(random.choice(actions)())
        driver.advance(random.choice([100, 100, 1_000, 3_000]))
    return [answer.result if isinstance(answer, Call) else answer for answer in answers]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("delay_ms", [0, 1_000])
def test_when_appends_complete_makes_no_difference(seed: int, delay_ms: int) -> None:
    config = {"group_initial_rebalance_delay_ms": delay_ms, "offsets_topic_num_partitions": 1}
    prompt, late = SeededDriver(None, **config), SeededDriver(seed, **config)
    assert play(late, seed) == play(prompt, seed)
    assert late.batches == prompt.batches
    assert {group.group_id: described(group) for group in late.coordinator.groups()} == {
        group.group_id: described(group) for group in prompt.coordinator.groups()
    }
    assert len(late.batches) > 30


def described(group: Any) -> dict[str, Any]:
    check(group)
    found = contents(group)
    stored = found.pop("extension").stored_values()
    for name in ("config", "send", "controls", "change", "timer_number", "parked_joins", "parked_syncs"):
        del found[name]
    return found | {"stored_values": stored, "parked": [list(group.parked_joins), list(group.parked_syncs)]}
