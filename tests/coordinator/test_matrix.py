"""What each request gets in each state: the coordinator's whole table, cell by cell.

A cell reads: answer, then the state after it, then "+" if the session of the member was armed again. Answers are OK,
parked, or the number of the error. "-" is no group. The last column is PreparingRebalance with everybody in but the
member of the row. An empty cell cannot be: there is no such member in that state.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from fakebroker.errors import ErrorCode
from tests.support.coordinator.coordinator_harness import Call, CoordinatorHarness, protocols, result_of

SHORT = {"Empty": "E", "PreparingRebalance": "PR", "CompletingRebalance": "CR", "Stable": "S", "-": "-"}
CHANGED = protocols("range", "roundrobin")


@dataclass
class Scene:
    """A group with leader, follower and static member in some state, and one of them, or another id, in the focus."""

    driver: CoordinatorHarness
    id: str
    generation: int

    def join(self, member_id: str | None = None, **options: Any) -> Call:
        return self.driver.join(self.id if member_id is None else member_id, **options)

    def sync(self, stale: int = 0, **options: Any) -> Call:
        return self.driver.sync(self.id, self.generation - stale, **options)

    def heartbeat(self, stale: int = 0, **options: str) -> ErrorCode:
        return self.driver.heartbeat(self.id, self.generation - stale, **options)

    def leave(self, member_id: str | None = None, instance_id: str | None = None) -> ErrorCode:
        (error,) = self.driver.leave((self.id if member_id is None else member_id, instance_id))
        return error

    def commit(self, generation: int | None = None, member_id: str | None = None, **options: Any) -> ErrorCode:
        return self.driver.commit(
            self.id if member_id is None else member_id,
            self.generation if generation is None else generation,
            **options,
        )

    def fetch(self) -> ErrorCode:
        return self.driver.coordinator.fetch_offsets("g", None, self.driver.now_ms)[0]

    def delete_group(self) -> ErrorCode:
        return result_of(self.driver.coordinator.delete_group, "g", self.driver.now_ms)

    def delete_offset(self, topic: str) -> ErrorCode:
        error, errors = result_of(self.driver.coordinator.delete_offsets, "g", [(topic, 0)])
        return error or errors[0]


def scene(state: str, focus: str, protocol_type: str) -> Scene:
    """Builds a scene. `focus` is leader, follower, static, pending or nobody."""
    driver = CoordinatorHarness()
    if state == "-":
        return Scene(driver, "client-none", 1)
    leader, follower, static = driver.complete(2, static=("i",), protocol_type=protocol_type)
    ids = {"leader": leader, "follower": follower, "static": static, "nobody": "client-none"}
    if state != "CR":
        driver.sync_all([leader, follower, static])
    if state == "E":
        driver.leave((leader, None), (follower, None), (static, None))
    if focus == "pending":
        ids["pending"] = driver.pend(protocol_type=protocol_type)
    if state == "PR":
        driver.join(protocol_type=protocol_type)
    if state == "PR last":
        for name, member_id in ids.items():
            if name not in (focus, "pending", "nobody"):
                driver.join(member_id, protocol_type=protocol_type, protocols=CHANGED)
    driver.advance(1_000)
    return Scene(driver, ids[focus], driver.group().generation_id)


TABLE = """
                                  | -         | E         | PR        | CR        | S         | PR last
join, new, one step               | parked PR | parked PR | parked PR | parked PR | parked PR |
join, new, two steps              | 79 E      | 79 E      | 79 PR     | 79 CR     | 79 S      |
join, new static                  | parked PR | parked PR | parked PR | parked PR | parked PR |
join, known static without id     |           |           | parked PR | parked PR | OK S      | OK CR
join, pending                     | 25 -      | parked PR | parked PR | parked PR | parked PR | OK CR
join, pending with instance       | 25 -      | -1 E      | -1 PR     | -1 CR     | -1 S      | -1 PR
join, leader, same                | 25 -      | 25 E      | parked PR | OK CR     | parked PR | OK CR
join, leader, changed             | 25 -      | 25 E      | parked PR | parked PR | parked PR | OK CR
join, follower, same              | 25 -      | 25 E      | parked PR | OK CR     | OK S      | OK CR
join, follower, changed           | 25 -      | 25 E      | parked PR | parked PR | parked PR | OK CR
join, static follower, same       | 25 -      | 25 E      | parked PR | OK CR     | OK S      | OK CR
join, unknown                     | 25 -      | 25 E      | 25 PR     | 25 CR     | 25 S      |
join, known instance, wrong id    | 25 -      | 25 E      | 82 PR     | 82 CR     | 82 S      | 82 PR
join, unknown instance            | 25 -      | 25 E      | 25 PR     | 25 CR     | 25 S      | 25 PR
join, other protocol type         | 25 -      | 25 E      | 23 PR     | 23 CR     | 23 S      | 23 PR
join, no common protocol          | 25 -      | 25 E      | 23 PR     | 23 CR     | 23 S      | 23 PR
sync, follower                    | 25 -      | 25 E      | 27 PR     | parked CR | OK S      | 27 PR
sync, leader                      | 25 -      | 25 E      | 27 PR     | OK S+     | OK S      | 27 PR
sync, static with instance        | 25 -      | 25 E      | 27 PR     | parked CR | OK S      | 27 PR
sync, wrong generation            | 25 -      | 25 E      | 22 PR     | 22 CR     | 22 S      | 22 PR
sync, wrong protocol type         | 25 -      | 25 E      | 23 PR     | 23 CR     | 23 S      | 23 PR
sync, wrong protocol name         | 25 -      | 25 E      | 23 PR     | 23 CR     | 23 S      | 23 PR
sync, unknown                     | 25 -      | 25 E      | 25 PR     | 25 CR     | 25 S      |
sync, pending                     | 25 -      | 25 E      | 25 PR     | 25 CR     | 25 S      | 25 PR
sync, known instance, wrong id    | 25 -      | 25 E      | 82 PR     | 82 CR     | 82 S      | 82 PR
sync, unknown instance            | 25 -      | 25 E      | 25 PR     | 25 CR     | 25 S      | 25 PR
heartbeat                         | 25 -      | 25 E      | 27 PR+    | OK CR+    | OK S+     | 27 PR+
heartbeat, static with instance   | 25 -      | 25 E      | 27 PR+    | OK CR+    | OK S+     | 27 PR+
heartbeat, wrong generation       | 25 -      | 25 E      | 22 PR     | 22 CR     | 22 S      | 22 PR
heartbeat, unknown                | 25 -      | 25 E      | 25 PR     | 25 CR     | 25 S      |
heartbeat, pending                | 25 -      | 25 E      | 25 PR     | 25 CR     | 25 S      | 25 PR
heartbeat, known instance, wrong  | 25 -      | 25 E      | 82 PR     | 82 CR     | 82 S      | 82 PR
heartbeat, unknown instance       | 25 -      | 25 E      | 25 PR     | 25 CR     | 25 S      | 25 PR
leave                             | 25 -      | 25 E      | OK PR     | OK PR     | OK PR     | OK CR
leave, leader                     | 25 -      | 25 E      | OK PR     | OK PR     | OK PR     | OK CR
leave, instance without id        | 25 -      | 25 E      | OK PR     | OK PR     | OK PR     | OK CR
leave, instance and id            | 25 -      | 25 E      | OK PR     | OK PR     | OK PR     | OK CR
leave, pending                    | 25 -      | OK E      | OK PR     | OK PR     | OK PR     | OK CR
leave, pending with instance      | 25 -      | OK E      | OK PR     | OK PR     | OK PR     | OK CR
leave, unknown                    | 25 -      | 25 E      | 25 PR     | 25 CR     | 25 S      |
leave, unknown instance           | 25 -      | 25 E      | 25 PR     | 25 CR     | 25 S      | 25 PR
leave, unknown instance without id| 25 -      | 25 E      | 25 PR     | 25 CR     | 25 S      |
leave, nothing given              | 25 -      | 25 E      | 25 PR     | 25 CR     | 25 S      |
leave, known instance, wrong id   | 25 -      | 25 E      | 82 PR     | 82 CR     | 82 S      | 82 PR
commit, no identity               | OK E      | OK E      | 25 PR     | 25 CR     | 25 S      |
commit, -1 with id                | OK E      | OK E      | 22 PR     | 22 CR     | 22 S      | 22 PR
commit, -1 with unknown id        | OK E      | OK E      | 25 PR     | 25 CR     | 25 S      |
commit, -1 with instance          | OK E      | OK E      | 82 PR     | 82 CR     | 82 S      |
commit                            | 69 -      | 25 E      | OK PR+    | 27 CR     | OK S+     | OK PR+
commit, static with instance      | 69 -      | 25 E      | OK PR+    | 27 CR     | OK S+     | OK PR+
commit, wrong generation          | 69 -      | 25 E      | 22 PR     | 22 CR     | 22 S      | 22 PR
commit, unknown                   | 69 -      | 25 E      | 25 PR     | 25 CR     | 25 S      |
commit, pending                   | 69 -      | 25 E      | 25 PR     | 25 CR     | 25 S      | 25 PR
commit, known instance, wrong id  | 69 -      | 25 E      | 82 PR     | 82 CR     | 82 S      | 82 PR
commit, unknown instance          | 69 -      | 25 E      | 25 PR     | 25 CR     | 25 S      | 25 PR
fetch offsets                     | OK -      | OK E      | OK PR     | OK CR     | OK S      |
delete subscribed offset          | 69 -      | OK E      | 86 PR     | 86 CR     | 86 S      |
delete other offset               | 69 -      | OK E      | OK PR     | OK CR     | OK S      |
delete offset, connect            | 69 -      | OK E      | 68 PR     | 68 CR     | 68 S      |
delete group                      | 69 -      | OK -      | 68 PR     | 68 CR     | 68 S      |
"""

# The member in the focus, and what is sent.
REQUESTS: dict[str, tuple[str, Callable[[Scene], Call | ErrorCode]]] = {
    "join, new, one step": ("nobody", lambda s: s.join("")),
    "join, new, two steps": ("nobody", lambda s: s.join("", two_step=True)),
    "join, new static": ("nobody", lambda s: s.join("", instance_id="j", two_step=True)),
    "join, known static without id": ("static", lambda s: s.join("", instance_id="i")),
    "join, pending": ("pending", lambda s: s.join(two_step=True)),
    "join, pending with instance": ("pending", lambda s: s.join(instance_id="j")),
    "join, leader, same": ("leader", lambda s: s.join()),
    "join, leader, changed": ("leader", lambda s: s.join(protocols=CHANGED)),
    "join, follower, same": ("follower", lambda s: s.join()),
    "join, follower, changed": ("follower", lambda s: s.join(protocols=CHANGED)),
    "join, static follower, same": ("static", lambda s: s.join(instance_id="i")),
    "join, unknown": ("nobody", lambda s: s.join()),
    "join, known instance, wrong id": ("follower", lambda s: s.join(instance_id="i")),
    "join, unknown instance": ("follower", lambda s: s.join(instance_id="j")),
    "join, other protocol type": ("follower", lambda s: s.join(protocol_type="connect")),
    "join, no common protocol": ("follower", lambda s: s.join(protocols=protocols("x"))),
    "sync, follower": ("follower", lambda s: s.sync()),
    "sync, leader": ("leader", lambda s: s.sync()),
    "sync, static with instance": ("static", lambda s: s.sync(instance_id="i")),
    "sync, wrong generation": ("follower", lambda s: s.sync(1)),
    "sync, wrong protocol type": ("follower", lambda s: s.sync(protocol_type="connect")),
    "sync, wrong protocol name": ("follower", lambda s: s.sync(protocol_name="x")),
    "sync, unknown": ("nobody", lambda s: s.sync()),
    "sync, pending": ("pending", lambda s: s.sync()),
    "sync, known instance, wrong id": ("follower", lambda s: s.sync(instance_id="i")),
    "sync, unknown instance": ("follower", lambda s: s.sync(instance_id="j")),
    "heartbeat": ("follower", lambda s: s.heartbeat()),
    "heartbeat, static with instance": ("static", lambda s: s.heartbeat(instance_id="i")),
    "heartbeat, wrong generation": ("follower", lambda s: s.heartbeat(1)),
    "heartbeat, unknown": ("nobody", lambda s: s.heartbeat()),
    "heartbeat, pending": ("pending", lambda s: s.heartbeat()),
    "heartbeat, known instance, wrong": ("follower", lambda s: s.heartbeat(instance_id="i")),
    "heartbeat, unknown instance": ("follower", lambda s: s.heartbeat(instance_id="j")),
    "leave": ("follower", lambda s: s.leave()),
    "leave, leader": ("leader", lambda s: s.leave()),
    "leave, instance without id": ("static", lambda s: s.leave("", "i")),
    "leave, instance and id": ("static", lambda s: s.leave(None, "i")),
    "leave, pending": ("pending", lambda s: s.leave()),
    "leave, pending with instance": ("pending", lambda s: s.leave(None, "i")),
    "leave, unknown": ("nobody", lambda s: s.leave()),
    "leave, unknown instance": ("follower", lambda s: s.leave(None, "j")),
    "leave, unknown instance without id": ("nobody", lambda s: s.leave("", "j")),
    "leave, nothing given": ("nobody", lambda s: s.leave("")),
    "leave, known instance, wrong id": ("follower", lambda s: s.leave(None, "i")),
    "commit, no identity": ("nobody", lambda s: s.commit(-1, "")),
    "commit, -1 with id": ("follower", lambda s: s.commit(-1)),
    "commit, -1 with unknown id": ("nobody", lambda s: s.commit(-1)),
    "commit, -1 with instance": ("nobody", lambda s: s.commit(-1, "", instance_id="i")),
    "commit": ("follower", lambda s: s.commit()),
    "commit, static with instance": ("static", lambda s: s.commit(instance_id="i")),
    "commit, wrong generation": ("follower", lambda s: s.commit(0)),
    "commit, unknown": ("nobody", lambda s: s.commit()),
    "commit, pending": ("pending", lambda s: s.commit()),
    "commit, known instance, wrong id": ("follower", lambda s: s.commit(instance_id="i")),
    "commit, unknown instance": ("follower", lambda s: s.commit(instance_id="j")),
    "fetch offsets": ("nobody", lambda s: s.fetch()),
    "delete subscribed offset": ("nobody", lambda s: s.delete_offset("t")),
    "delete other offset": ("nobody", lambda s: s.delete_offset("u")),
    "delete offset, connect": ("nobody", lambda s: s.delete_offset("u")),
    "delete group": ("nobody", lambda s: s.delete_group()),
}


def cells() -> Iterator[tuple[str, str, str]]:
    """Request, state and expectation of each cell that is not empty."""
    (_, *states), *rows = [[cell.strip() for cell in line.split("|")] for line in TABLE.strip("\n").splitlines()]
    for request, *expectations in rows:
        for state, expected in zip(states, expectations, strict=True):
            if expected:
                yield request, state, expected


@pytest.mark.parametrize(("request_name", "state", "expected"), list(cells()))
def test_cell(request_name: str, state: str, expected: str) -> None:
    focus, send = REQUESTS[request_name]
    where = scene(state, focus, "connect" if "connect" in request_name else "consumer")
    before_ms = session_deadline(where)
    answer = send(where)
    after = SHORT[where.driver.state()]
    is_new_generation = state == "PR last" and after == "CR"  # Which arms every session anyway.
    is_armed = session_deadline(where) not in (None, before_ms) and before_ms is not None and not is_new_generation
    assert f"{text(answer)} {after}{'+' if is_armed else ''}" == expected


def test_every_request_is_in_the_table() -> None:
    assert list(REQUESTS) == list(dict.fromkeys(request for request, _, _ in cells()))


def session_deadline(where: Scene) -> float | None:
    group = where.driver.coordinator.group("g")
    member = group.members.get(where.id) if group else None
    return member.deadline_ms if member else None


def text(answer: Call | ErrorCode) -> str:
    if isinstance(answer, Call):
        if answer.is_parked:
            return "parked"
        answer = answer.error
    return "OK" if answer is ErrorCode.NONE else str(answer.value)
