"""Long names and names of odd characters, of all kinds, on the wire and in everything that shows them."""

import logging
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from urllib.parse import quote

import pytest

from fakebroker import FakeCluster
from fakebroker.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from fakebroker.protocol.messages.join_group import JoinGroupResponse
from fakebroker.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitResponse
from fakebroker.protocol.messages.sync_group import SyncGroupResponse
from fakebroker.protocol.registry import APIS
from fakebroker.protocol.schema import Message
from fakebroker.protocol.types import unsigned_varint
from tests.support.control.control_server import ControlHarness, controlled_cluster
from tests.support.control.top_process import run_top
from tests.support.group_requests import commit_request, join_request, sync_request
from tests.support.message_versions import filled, with_text
from tests.support.server.bystander import unharmed
from tests.support.wire_client import Address, WireClient, find_coordinator

pytestmark = pytest.mark.fake_cluster(brokers=1, topics={"orders": 1})

TEXTS: Mapping[str, str] = {
    "NUL": "a\0b",
    "combining": "e" + "\u0301" * 300,
    "right to left": "\u202eabc\u202c\u0645\u062b\u0627\u0644",
    "invisible": "a\u200b\u200d\ufeff\u2060b",
    "line breaks": "a\r\nb\u2028c\u2029d\x85e",
    "escape sequences": "\x1b[2J\x1b]0;title\x07\x9b1m",
    "joined emoji": "👩‍👩‍👧‍👦" * 20,
    "markup": "<script>alert(1)</script> [bold red]x[/] `|*_ & \"'",
    "paths": "../../%2e%2e/%00/?a=b#c",
    "last of Unicode": "\U0010ffff\uffff\ufffe",
    "spaces": "  \t ",
    "long": "x" * 32_700,
    "long and wide": "群" * 10_000,
}
"""Group ids, member ids (through client ids), instance ids, transactional ids and metadata."""


@pytest.fixture(scope="module")
def control() -> Iterator[ControlHarness]:
    """A cluster in which each text is the id of a group, an instance, a client and a transaction."""
    with controlled_cluster(brokers=1, topics={"orders": 1}) as harness:
        for text in TEXTS.values():
            with WireClient(harness.cluster.brokers[0], text) as wire:
                make_group(wire, text)
        yield harness


def make_group(wire: WireClient, text: str) -> None:
    """Make a group of one static member with a committed offset, and a transactional producer; check the answers."""
    (found,) = wire.ask(find_coordinator(text), FindCoordinatorResponse).coordinators
    assert (found.key, found.error_code) == (text, 0)
    joined = wire.ask(join_request(text, group_instance_id="i" + text[:30_000]), JoinGroupResponse)
    assert joined.error_code == 0
    sync = sync_request(joined.member_id, text, joined.generation_id, {joined.member_id: b"all"})
    assert wire.ask(sync, SyncGroupResponse).error_code == 0
    commit = commit_request(7, 0, text, joined.member_id, joined.generation_id, text[:1000])
    (topic,) = wire.ask(commit, OffsetCommitResponse, 9).topics
    assert topic.partitions[0].error_code == 0
    key = FindCoordinatorRequest(key_type=1, coordinator_keys=[text])
    assert wire.ask(key, FindCoordinatorResponse).coordinators[0].error_code == 0
    init = InitProducerIdRequest(transactional_id=text, transaction_timeout_ms=60_000)
    assert wire.ask(init, InitProducerIdResponse, 4).error_code == 0


def test_every_api(fake_cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    """Each string of each request is a text, in turn; a request is answered, or its connection closed with a reason."""
    caplog.set_level(logging.WARNING)
    with unharmed(fake_cluster) as bystander:
        for text in TEXTS.values():
            for api in APIS:
                version = api.versions.last
                request = with_text(filled(api.request, version), version, text)
                with WireClient(fake_cluster.brokers[0], text) as wire:
                    wire.send(request)
                    with suppress(ConnectionError):
                        wire.receive()
            bystander.check()
    assert "internal error" not in caplog.text


MALFORMED = {
    "half a surrogate pair": (b"\xed\xa0\x80", "\ufffd"),
    "both halves": (b"\xed\xa0\xbd\xed\xba\x80", "\ufffd\ufffd"),
    "no UTF-8": (b"a\xff\xfe", "a\ufffd\ufffd"),
    "overlong": (b"\xc0\x80", "\ufffd\ufffd"),
    "beyond Unicode": (b"\xf4\x90\x80\x80", "\ufffd" * 4),
    "incomplete": (b"\xe7", "\ufffd"),
    "long": (b"\xff" * 10_000, "\ufffd" * 10_000),
}
"""Texts that are not UTF-8, and what Kafka makes of them."""


class MalformedClient(WireClient):
    """Sends bytes that are not UTF-8, as client id and in messages.

    Args:
        broker: The broker.
        text: Where requests have this text, the bytes are sent.
        data: The bytes.
    """

    def __init__(self, broker: Address, text: str, data: bytes) -> None:
        super().__init__(broker, text)
        self._replaced = [
            (struct.pack(">h", len(valid := text.encode())) + valid, struct.pack(">h", len(data)) + data),
            (unsigned_varint(len(valid) + 1) + valid, unsigned_varint(len(data) + 1) + data),
        ]

    def frame(self, request: Message, version: int, correlation_id: int) -> bytes:
        body = super().frame(request, version, correlation_id)[4:]
        for valid, malformed in self._replaced:
            body = body.replace(valid, malformed)
        return struct.pack(">i", len(body)) + body


def test_malformed_utf_8_is_replaced_and_echoed(fake_cluster: FakeCluster, subtests: pytest.Subtests) -> None:
    """Kafka's brokers take the replaced text for the name of a group, a client and a transaction, and return it."""
    for name, (data, text) in MALFORMED.items():
        with subtests.test(name), MalformedClient(fake_cluster.brokers[0], text, data) as wire:
            make_group(wire, text)
            (group,) = wire.ask(DescribeGroupsRequest(groups=[text]), DescribeGroupsResponse).groups
            (member,) = group.members
            assert (group.group_id, member.client_id, group.group_state) == (text, text, "Stable")


def test_malformed_utf_8_that_cannot_be_echoed_closes_the_connection(
    fake_cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Replaced by three bytes each, the bytes are too long for a string: no API answers, and no log has it."""
    long = "x" * 20_000
    with unharmed(fake_cluster) as bystander:
        for api in APIS:
            request = with_text(filled(api.request, api.versions.last), api.versions.last, long)
            with MalformedClient(fake_cluster.brokers[0], long, b"\xff" * len(long)) as wire:
                wire.client_id = "short"
                wire.send(request)
                with suppress(ConnectionError):
                    wire.receive()
        bystander.check()
    closed = [record.getMessage() for record in caplog.records]
    assert len(closed) > len(APIS) / 2
    assert all("string of 60000 bytes with replaced ones, expected at most 32767" in each for each in closed)


def test_responses_have_the_same_names(control: ControlHarness) -> None:
    texts = list(TEXTS.values())
    with WireClient(control.cluster.brokers[0]) as wire:
        listed = wire.ask(ListGroupsRequest(states_filter=[], types_filter=[]), ListGroupsResponse)
        assert sorted(group.group_id for group in listed.groups) == sorted(texts)
        described = wire.ask(DescribeGroupsRequest(groups=texts), DescribeGroupsResponse).groups
    for group, text in zip(described, texts, strict=True):
        (member,) = group.members
        assert (group.group_id, member.client_id) == (text, text)
        assert member.group_instance_id == "i" + text[:30_000]


def test_http_has_the_same_names(control: ControlHarness) -> None:
    listed = control.get("/groups")
    assert {group["group_id"] for group in listed["groups"]} == set(TEXTS.values())
    for text in TEXTS.values():
        path = f"/groups/{quote(text, safe='')}"
        assert control.get(path)["group_id"] == text
        assert control.get(f"{path}/timeline")
        assert_plain(control.cluster.group(text).explain())


def test_reports_have_one_line_for_each_line_and_no_control_characters(control: ControlHarness) -> None:
    cluster = control.cluster
    assert_plain(cluster.report())
    for text in TEXTS.values():
        assert_plain(cluster.group(text).explain())
        assert_plain(str(cluster.group(text).timeline()))
        assert_plain(cluster.transaction(text).explain())
    # Each group is one line, and its member another one: names do not end lines.
    states = cluster.report().split("\n\n")[2].splitlines()
    assert len(states) == 3 * len(TEXTS)


def test_top_has_no_control_characters(control: ControlHarness) -> None:
    shown = run_top(control.server.url, "--once")
    assert shown.returncode == 0, shown.stderr
    assert_plain(shown.stdout)


def assert_plain(text: str) -> None:
    """Assert that a text has no characters that a terminal acts upon. Joined emoji remain."""
    assert {each for each in text if not each.isprintable()} <= {"\n", "\u200d", "\u00a0"}
