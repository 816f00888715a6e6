"""Operations on the journal."""

import re
from collections.abc import AsyncGenerator
from itertools import chain
from typing import Any, TypedDict, get_args, get_type_hints

import msgspec

from fakebroker.cluster.call import Call
from fakebroker.cluster.inspect.journal_queries import Filters, JournalView, Matcher, check_kept
from fakebroker.control.clusters import ServedCluster
from fakebroker.control.problems import Problem
from fakebroker.control.routes.arguments import check_range
from fakebroker.control.routes.operations import CLUSTER, Content, operation
from fakebroker.control.steps import Steps, next_piece
from fakebroker.server.journal_files import journal_lines, plain

MAX_LISTED = 1_000


class RequestRow(TypedDict):
    """One request with its response, if any, as kept in the journal."""

    seq: int
    api: str
    version: int
    broker: int
    client_id: str
    principal: str
    group_ids: list[str]
    member_ids: list[str]
    instance_ids: list[str]
    transactional_ids: list[str]
    producer_ids: list[int]
    generations: list[int]
    fault: bool
    received_ms: float
    handled_ms: float | None
    answered_ms: float | None
    latency_ms: float | None
    errors: list[str]
    action_errors: list[str]
    request: dict[str, Any] | None
    response: dict[str, Any] | None


class RequestList(TypedDict):
    """Some requests, oldest first.

    `last` is the number of the latest request, whether or not it is included. The journal has dropped the requests with
    the numbers 1 to `dropped`.
    """

    requests: list[RequestRow]
    last: int
    dropped: int


_FILTERS = {"api": str, "client_id": str, **get_type_hints(Filters)}


def _filters() -> type[msgspec.Struct]:
    """Return a struct with all filters. In a query, a number or an error that can be text is text."""
    fields = [(name, (str if str in get_args(kind) else kind) | None, None) for name, kind in _FILTERS.items()]
    return msgspec.defstruct("_Filters", fields, forbid_unknown_fields=True)


class JournalFilters(_filters()):  # type: ignore[misc]  # generated from the filters of `requests`
    """Filters; a request must match all of them."""

    def filters(self) -> dict[str, Any]:
        """Return the filters except `api`, by name; those that are not given are None."""
        return {name: getattr(self, name) for name in _FILTERS if name != "api"}


class JournalQuery(JournalFilters):
    """Filters; a request must match all of them. By default, the last matching requests are returned.

    With `after`, the first matching requests after that number are returned.
    With `seqs` (comma-separated numbers), only requests with these numbers are returned.
    """

    after: int | None = None
    seqs: str | None = None
    limit: int = 100


@operation("GET", f"{CLUSTER}/journal")
def list_requests(served: ServedCluster, query: JournalQuery) -> Steps[RequestList]:
    """List requests in the journal, with their responses."""
    check_range("limit", query.limit, 0, MAX_LISTED)
    check_range("after", query.after or 0, 0, 2**63 - 1)
    core = served.core
    journal = core.journal
    check_kept(journal.mode)
    node_ids = chain(core.brokers, (call.node_id for call in reversed(journal)))
    matches = Matcher(query.api, query.filters(), node_ids, core.topics.past_or_present_name_of)
    last, limit = journal.added, query.limit
    if query.seqs is not None:
        numbered = [(number, call) for number in _numbers(query.seqs) if (call := journal.at(number))]
        limit = len(numbered)
    else:
        calls = journal.newest(len(journal) if query.after is None else max(0, last - query.after))
        numbered = list(enumerate(calls, last - len(calls) + 1))
    is_forward = query.seqs is not None or query.after is not None
    rows: list[RequestRow] = []
    for number, call in numbered if is_forward else reversed(numbered):
        if len(rows) == limit:
            break
        if matches(call):
            rows.append(request_row(number, call))
        yield
    return {"requests": rows if is_forward else rows[::-1], "last": last, "dropped": journal.dropped}


def _numbers(seqs: str) -> list[int]:
    """Parse comma-separated numbers, and return them sorted and without duplicates.

    Raises:
        Problem: They are malformed, or too many.
    """
    parts = seqs.split(",")
    if len(parts) > MAX_LISTED or not all(re.fullmatch("[0-9]{1,18}", part) for part in parts):
        expected = f"1 to {MAX_LISTED} comma-separated integers"
        raise Problem(422, f"seqs={seqs!r}: expected {expected}", field="seqs", value=seqs, expected=expected)
    return sorted(set(map(int, parts)))


def request_row(number: int, call: Call) -> RequestRow:
    """Return the row of a request."""
    return {
        "seq": number,
        "api": call.api.name,
        "version": call.api_version,
        "broker": call.node_id,
        "client_id": call.client_id,
        "principal": call.principal,
        "group_ids": list(call.group_ids),
        "member_ids": list(call.member_ids),
        "instance_ids": list(call.instance_ids),
        "transactional_ids": list(call.transactional_ids),
        "producer_ids": list(call.producer_ids),
        "generations": list(call.generations),
        "fault": call.fault is not None,
        "received_ms": call.received_ms,
        "handled_ms": call.handled_ms,
        "answered_ms": call.answered_ms,
        "latency_ms": call.latency_ms,
        "errors": [error.name for error in call.errors],
        "action_errors": list(call.action_errors),
        "request": None if call.request is None else plain(call.request, call.api_version),
        "response": None if call.response is None else plain(call.response, call.response_version),
    }


@operation("GET", f"{CLUSTER}/journal.jsonl")
async def export_journal(served: ServedCluster, query: JournalFilters) -> Content:
    """Export the journal as JSON lines, for `fakebroker.read_journal`; with filters, the matching requests only."""
    view = await served.read(served.cluster.journal.view)
    view.check_kept()
    if query != JournalFilters():
        view = await served.read_in_steps(view.part(query.api, query.filters()))
    return Content(_lines(served, view), "application/x-ndjson")


async def _lines(served: ServedCluster, view: JournalView) -> AsyncGenerator[bytes, None]:
    lines = journal_lines(view)
    while piece := await served.read_piece(lambda: next_piece(lines)):
        yield "".join(piece).encode()
