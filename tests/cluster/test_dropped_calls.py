"""Random queries on journals that have dropped calls: each answer equals that of a journal without limits."""

from random import Random
from typing import Any

import pytest

from fakebroker.cluster.call import Call
from fakebroker.cluster.faults.rule import Fault
from fakebroker.cluster.inspect.journal_queries import JournalView
from fakebroker.cluster.journal.journal import Journal, new_journal
from fakebroker.errors import IncompleteJournalError
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from fakebroker.protocol.registry import api_of
from fakebroker.protocol.schema import Message
from tests.support.cluster.cluster_harness import ClusterHarness

NAMES = ("a", "b")
CALLS, QUERIES, SEEDS = 12, 40, 15


def random_call(random: Random, harness: ClusterHarness, now_ms: float) -> Call:
    requests: list[tuple[Message, Message]] = [
        (
            HeartbeatRequest(
                group_id=random.choice(NAMES),
                generation_id=1,
                member_id=random.choice(NAMES),
                group_instance_id=random.choice((None, *NAMES)),
            ),
            HeartbeatResponse(error_code=random.choice((0, 16))),
        ),
        (FindCoordinatorRequest(key=random.choice(NAMES)), FindCoordinatorResponse()),
        (
            MetadataRequest(topics=[MetadataRequestTopic(name=random.choice(NAMES))]),
            MetadataResponse(brokers=[], topics=[]),
        ),
    ]
    request, response = random.choice(requests)
    peer = harness.peer(random.choice((1, 2)))
    call = Call(peer, api_of(request), random.choice((3, 4)), 1, random.choice(NAMES), request, 50)
    call.received_ms = now_ms
    call.fault = random.choice((None, None, Fault(api=None, drop=True)))
    if random.random() < 0.9:
        call.response, call.answered_ms = response, now_ms
    return call


def random_filters(random: Random) -> dict[str, Any]:
    known: dict[str, tuple[Any, ...]] = {
        "client_id": NAMES,
        "group": NAMES,
        "member": NAMES,
        "instance_id": NAMES,
        "topic": NAMES,
        "broker": (1, 2),
        "version": (3, 4),
        "error": ("NONE", "NOT_COORDINATOR"),
        "fault": (True, False),
        "since": tuple(float(now) for now in range(0, CALLS, 3)),
        "until": tuple(float(now) for now in range(0, CALLS, 3)),
    }
    names = random.sample(list(known), random.choice((0, 1, 1, 2)))
    return {name: random.choice(known[name]) for name in names}


def view(journal: Journal) -> JournalView:
    return JournalView(
        tuple(journal), journal.dropped, (1, 2), journal.mode, tuple(journal.dropped_calls), lambda topic_id: None
    )


def outcome(query: Any, *arguments: Any, **filters: Any) -> Any:
    """Return the result of a query, or the type of its error."""
    try:
        return query(*arguments, **filters)
    except AssertionError as error:
        return type(error)


@pytest.mark.parametrize("mode", ["full", "headers"])
def test_answers_are_those_of_a_journal_without_limits(mode: str, subtests: pytest.Subtests) -> None:
    answered = unknown = 0
    for seed in range(SEEDS):
        random, harness = Random(seed), ClusterHarness(brokers=2)
        limited, complete = new_journal(mode, random.choice((0, 1, 4, 8)), 1_000_000), new_journal("full", 1000, 10**9)
        for now in range(CALLS):
            call = random_call(random, harness, float(now))
            for journal in (complete, limited):
                journal.add(call)
                if call.answered_ms is not None:
                    journal.add_response(call, 10)
        for number in range(QUERIES):
            apis = [
                random.choice(("Heartbeat", "FindCoordinator", "Metadata")) for _ in range(random.choice((1, 2, 3)))
            ]
            filters = random_filters(random)
            api = random.choice((None, apis[0]))
            for name, arguments in (("count", (api,)), ("assert_never", (api,)), ("assert_order", apis)):
                expected = outcome(getattr(view(complete), name), *arguments, **filters)
                given = outcome(getattr(view(limited), name), *arguments, **filters)
                answered += given is not IncompleteJournalError
                unknown += given is IncompleteJournalError
                if given not in (expected, IncompleteJournalError):
                    with subtests.test(seed=seed, number=number, name=name, arguments=arguments, **filters):
                        assert given == expected
    assert answered > 300
    assert unknown > 300


def test_repeated_requests_of_a_connection_are_counted_in_each_journal() -> None:
    harness = ClusterHarness()
    peer, request = harness.peer(1), HeartbeatRequest(group_id="a", generation_id=1, member_id="m")
    journals = [new_journal("full", 1, 1_000_000) for _ in range(2)]
    for now_ms in range(6):
        call = Call(peer, api_of(request), 4, now_ms, "c", request, 50)
        call.received_ms, call.response, call.answered_ms = now_ms, HeartbeatResponse(), now_ms
        journals[now_ms % 3 == 0].add(call)
    # The calls received at 5 ms and at 3 ms are kept.
    kinds = [[(kind.groups, kind.calls, kind.last_ms) for kind in journal.dropped_calls] for journal in journals]
    assert kinds == [[(("a",), 3, 4)], [(("a",), 1, 0)]]
