"""The answer to each request in each state of a group, as one table.

A cell has the answer, then the state afterwards, and "+" if the session of the member was extended. Answers are OK,
parked, or the number of the error. The state "-" means that there is no group. In the last column, the sender of the
request is the only member that has not joined in PreparingRebalance. A cell is empty if a group in that state has no
such member. A new request needs a row in `TABLE` and an entry in `REQUESTS`.
"""

from collections.abc import Callable

import pytest

from fakebroker.errors import ErrorCode
from tests.support.coordinator.coordinator_harness import CoordinatorHarness, SentRequest, protocols

SHORT = {"Empty": "E", "PreparingRebalance": "PR", "CompletingRebalance": "CR", "Stable": "S", "-": "-"}
CHANGED = protocols("range", "roundrobin")


UNKNOWN_ID = "client-none"


def group_in_state(state: str, sender: str, protocol_type: str) -> tuple[CoordinatorHarness, str]:
    """Create a group with a leader, a follower and a static member, in a state of the table.

    Args:
        state: The head of a column.
        sender: "leader", "follower", "static", "pending" or "unknown".
        protocol_type: The protocol type of the group.

    Returns:
        The harness and the member id of the sender.
    """
    harness = CoordinatorHarness()
    if state == "-":
        return harness, UNKNOWN_ID
    leader, follower, static = harness.create_completing_group(2, static=("i",), protocol_type=protocol_type)
    ids = {"leader": leader, "follower": follower, "static": static, "unknown": UNKNOWN_ID}
    if state != "CR":
        harness.sync_all([leader, follower, static])
    if state == "E":
        harness.leave((leader, None), (follower, None), (static, None))
    if sender == "pending":
        ids["pending"] = harness.request_member_id(protocol_type=protocol_type)
    if state == "PR":
        harness.join(protocol_type=protocol_type)
    if state == "PR last":
        for name, member_id in ids.items():
            if name not in (sender, "pending", "unknown"):
                harness.join(member_id, protocol_type=protocol_type, protocols=CHANGED)
    harness.advance(1_000)
    return harness, ids[sender]


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

Send = Callable[[CoordinatorHarness, str, int], SentRequest | ErrorCode]
"""Sends a request, given the harness, the member id of the sender and the generation of the group."""


def fetch_offsets(harness: CoordinatorHarness) -> ErrorCode:
    error, _ = harness.coordinator.offsets.fetch("g", None)
    return error


def delete_offset(harness: CoordinatorHarness, topic: str) -> ErrorCode:
    error, errors = harness.delete_offsets((topic, 0))
    return error or errors[0]


# The sender and its request, by the head of a row.
REQUESTS: dict[str, tuple[str, Send]] = {
    "join, new, one step": ("unknown", lambda h, member, gen: h.join("")),
    "join, new, two steps": ("unknown", lambda h, member, gen: h.join("", two_step=True)),
    "join, new static": ("unknown", lambda h, member, gen: h.join("", instance_id="j", two_step=True)),
    "join, known static without id": ("static", lambda h, member, gen: h.join("", instance_id="i")),
    "join, pending": ("pending", lambda h, member, gen: h.join(member, two_step=True)),
    "join, pending with instance": ("pending", lambda h, member, gen: h.join(member, instance_id="j")),
    "join, leader, same": ("leader", lambda h, member, gen: h.join(member)),
    "join, leader, changed": ("leader", lambda h, member, gen: h.join(member, protocols=CHANGED)),
    "join, follower, same": ("follower", lambda h, member, gen: h.join(member)),
    "join, follower, changed": ("follower", lambda h, member, gen: h.join(member, protocols=CHANGED)),
    "join, static follower, same": ("static", lambda h, member, gen: h.join(member, instance_id="i")),
    "join, unknown": ("unknown", lambda h, member, gen: h.join(member)),
    "join, known instance, wrong id": ("follower", lambda h, member, gen: h.join(member, instance_id="i")),
    "join, unknown instance": ("follower", lambda h, member, gen: h.join(member, instance_id="j")),
    "join, other protocol type": ("follower", lambda h, member, gen: h.join(member, protocol_type="connect")),
    "join, no common protocol": ("follower", lambda h, member, gen: h.join(member, protocols=protocols("x"))),
    "sync, follower": ("follower", lambda h, member, gen: h.sync(member, gen)),
    "sync, leader": ("leader", lambda h, member, gen: h.sync(member, gen)),
    "sync, static with instance": ("static", lambda h, member, gen: h.sync(member, gen, instance_id="i")),
    "sync, wrong generation": ("follower", lambda h, member, gen: h.sync(member, gen - 1)),
    "sync, wrong protocol type": ("follower", lambda h, member, gen: h.sync(member, gen, protocol_type="connect")),
    "sync, wrong protocol name": ("follower", lambda h, member, gen: h.sync(member, gen, protocol_name="x")),
    "sync, unknown": ("unknown", lambda h, member, gen: h.sync(member, gen)),
    "sync, pending": ("pending", lambda h, member, gen: h.sync(member, gen)),
    "sync, known instance, wrong id": ("follower", lambda h, member, gen: h.sync(member, gen, instance_id="i")),
    "sync, unknown instance": ("follower", lambda h, member, gen: h.sync(member, gen, instance_id="j")),
    "heartbeat": ("follower", lambda h, member, gen: h.heartbeat(member, gen)),
    "heartbeat, static with instance": ("static", lambda h, member, gen: h.heartbeat(member, gen, instance_id="i")),
    "heartbeat, wrong generation": ("follower", lambda h, member, gen: h.heartbeat(member, gen - 1)),
    "heartbeat, unknown": ("unknown", lambda h, member, gen: h.heartbeat(member, gen)),
    "heartbeat, pending": ("pending", lambda h, member, gen: h.heartbeat(member, gen)),
    "heartbeat, known instance, wrong": ("follower", lambda h, member, gen: h.heartbeat(member, gen, instance_id="i")),
    "heartbeat, unknown instance": ("follower", lambda h, member, gen: h.heartbeat(member, gen, instance_id="j")),
    "leave": ("follower", lambda h, member, gen: h.leave((member, None))[0]),
    "leave, leader": ("leader", lambda h, member, gen: h.leave((member, None))[0]),
    "leave, instance without id": ("static", lambda h, member, gen: h.leave(("", "i"))[0]),
    "leave, instance and id": ("static", lambda h, member, gen: h.leave((member, "i"))[0]),
    "leave, pending": ("pending", lambda h, member, gen: h.leave((member, None))[0]),
    "leave, pending with instance": ("pending", lambda h, member, gen: h.leave((member, "i"))[0]),
    "leave, unknown": ("unknown", lambda h, member, gen: h.leave((member, None))[0]),
    "leave, unknown instance": ("follower", lambda h, member, gen: h.leave((member, "j"))[0]),
    "leave, unknown instance without id": ("unknown", lambda h, member, gen: h.leave(("", "j"))[0]),
    "leave, nothing given": ("unknown", lambda h, member, gen: h.leave(("", None))[0]),
    "leave, known instance, wrong id": ("follower", lambda h, member, gen: h.leave((member, "i"))[0]),
    "commit, no identity": ("unknown", lambda h, member, gen: h.commit("", -1)),
    "commit, -1 with id": ("follower", lambda h, member, gen: h.commit(member, -1)),
    "commit, -1 with unknown id": ("unknown", lambda h, member, gen: h.commit(member, -1)),
    "commit, -1 with instance": ("unknown", lambda h, member, gen: h.commit("", -1, instance_id="i")),
    "commit": ("follower", lambda h, member, gen: h.commit(member, gen)),
    "commit, static with instance": ("static", lambda h, member, gen: h.commit(member, gen, instance_id="i")),
    "commit, wrong generation": ("follower", lambda h, member, gen: h.commit(member, 0)),
    "commit, unknown": ("unknown", lambda h, member, gen: h.commit(member, gen)),
    "commit, pending": ("pending", lambda h, member, gen: h.commit(member, gen)),
    "commit, known instance, wrong id": ("follower", lambda h, member, gen: h.commit(member, gen, instance_id="i")),
    "commit, unknown instance": ("follower", lambda h, member, gen: h.commit(member, gen, instance_id="j")),
    "fetch offsets": ("unknown", lambda h, member, gen: fetch_offsets(h)),
    "delete subscribed offset": ("unknown", lambda h, member, gen: delete_offset(h, "t")),
    "delete other offset": ("unknown", lambda h, member, gen: delete_offset(h, "u")),
    "delete offset, connect": ("unknown", lambda h, member, gen: delete_offset(h, "u")),
    "delete group": ("unknown", lambda h, member, gen: h.delete_group()),
}


def cells(kind: str) -> list[tuple[str, str, str]]:
    """Return request, state and expectation of each cell that is not empty, in the rows of one kind of request."""
    (_, *states), *rows = [[cell.strip() for cell in line.split("|")] for line in TABLE.strip("\n").splitlines()]
    return [
        (request, state, expected)
        for request, *expectations in rows
        if kind_of(request) == kind
        for state, expected in zip(states, expectations, strict=True)
        if expected
    ]


def kind_of(request: str) -> str:
    return request.replace(",", "").split()[0]


KINDS = list(dict.fromkeys(kind_of(request) for request in REQUESTS))


@pytest.mark.parametrize("kind", KINDS)
def test_answer_and_state_afterwards(kind: str, subtests: pytest.Subtests) -> None:
    for request, state, expected in cells(kind):
        with subtests.test(request=request, state=state):
            assert outcome(request, state) == expected


def outcome(request: str, state: str) -> str:
    """Send a request in a state; return the contents of its cell."""
    sender, send = REQUESTS[request]
    harness, member_id = group_in_state(state, sender, "connect" if "connect" in request else "consumer")
    before_ms = session_deadline(harness, member_id)
    answer = send(harness, member_id, 1 if state == "-" else harness.group().generation_id)
    after = SHORT[harness.state()]
    starts_generation = state == "PR last" and after == "CR"  # A new generation extends all sessions.
    is_extended = session_deadline(harness, member_id) not in (None, before_ms) and before_ms is not None
    return f"{text(answer)} {after}{'+' if is_extended and not starts_generation else ''}"


def test_table_has_every_request() -> None:
    assert list(REQUESTS) == list(dict.fromkeys(request for kind in KINDS for request, _, _ in cells(kind)))


def session_deadline(harness: CoordinatorHarness, member_id: str) -> float | None:
    group = harness.coordinator.groups.classic.get("g")
    member = group.members.get(member_id) if group else None
    return member.deadline_ms if member else None


def text(answer: SentRequest | ErrorCode) -> str:
    if isinstance(answer, SentRequest):
        if answer.is_parked:
            return "parked"
        answer = answer.error
    return "OK" if answer is ErrorCode.NONE else str(answer.value)
