"""Timelines of groups: as data, as text, as SVG."""

import re
from xml.etree import ElementTree

import pytest

from fakebroker import FakeCluster
from fakebroker.cluster.inspect.timelines import Timeline, short_names
from fakebroker.cluster.inspect.views import BrokerView
from fakebroker.coordinator.group_history import Moment
from fakebroker.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from fakebroker.protocol.messages.join_group import JoinGroupResponse
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from fakebroker.server.fake_cluster import internals
from tests.support.group_requests import join_request
from tests.support.groups_over_tcp import stable_group
from tests.support.wire_client import WireClient, until

SVG = "{http://www.w3.org/2000/svg}"
UUIDS = ("0a1b2c3d-0000-4000-8000-000000000000", "0a1b9999-0000-4000-8000-000000000000")

GOLDEN = """\
group g, since TIME UTC
D Dead, E Empty, P PreparingRebalance, C CompletingRebalance, S Stable; + joined * rejoined - gone

     time  state       gen  members  in and out            cause
    0.000  D▸E           0        0                        first JoinGroup, at broker 1
    0.000    E▸P         0        1  +app                  JoinGroup of app, a new member
    0.000      P▸C       1        1                        JoinGroup of app, a new member
    0.000        C▸S     1        1                        SyncGroup of the leader app
   12.500      P◂──S     1        2  +late                 JoinGroup of late, a new member
   30.000      P▸C       2        1  -app                  session of app expired
   31.250  D◂────C       2        0  -late                 its coordinator resigned
   31.250  D──────▸S     1        1  +app                  loaded from the log, at broker 2
   31.250      P◂──S     1        0  -app                  LeaveGroup of app
   31.250    E◂P         2        0                        LeaveGroup of app
   31.250  D◂E           2        0                        DeleteGroups
   91.250  D                                               now"""


def leave(broker: BrokerView, member_id: str) -> None:
    with WireClient(broker) as wire:
        request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member_id)])
        assert wire.ask(request, LeaveGroupResponse).error_code == 0


def make_history(cluster: FakeCluster) -> None:
    """Change the group "g": two joins, an expired session, a move of the coordinator, a LeaveGroup, a deletion."""
    member_id = stable_group(cluster, "g")
    internals(cluster).server.clock.advance(12.5)
    with WireClient(cluster.group("g").coordinator(), "late") as wire:
        pending = wire.ask(join_request("g"), JoinGroupResponse).member_id
        wire.send(join_request("g", pending))
        until(lambda: cluster.group("g").describe().state == "PreparingRebalance", cluster)
        internals(cluster).server.clock.advance(17.5)
        wire.receive()
        internals(cluster).server.clock.advance(1.25)
        cluster.group("g").move_coordinator(to=2)
    leave(cluster.group("g").coordinator(), member_id)
    with WireClient(cluster.group("g").coordinator()) as wire:
        wire.ask(DeleteGroupsRequest(groups_names=["g"]), DeleteGroupsResponse)
    internals(cluster).server.clock.advance(60)


@pytest.mark.fake_cluster(topics={"orders": 6}, clock="manual", seed=7)
def test_a_timeline_as_text(fake_cluster: FakeCluster) -> None:
    make_history(fake_cluster)
    timeline = fake_cluster.group("g").timeline()
    text = re.sub(r"since [\d-]+ [\d:.]+", "since TIME", str(timeline))
    assert text == GOLDEN
    # The group has been deleted, but its history is kept.
    assert fake_cluster.group("g").describe().state == "Dead"
    assert fake_cluster.group("g").describe().timeline() == timeline


@pytest.mark.fake_cluster(topics={"orders": 6}, clock="manual", seed=7)
def test_a_timeline_as_svg(fake_cluster: FakeCluster) -> None:
    make_history(fake_cluster)
    root = ElementTree.fromstring(fake_cluster.group("g").timeline().svg())
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert texts[0] == "group g"
    assert {"app", "late", "gen 1", "gen 2", "0.000 s", "12.500 s", "91.250 s"} <= set(texts)
    titles = [title.text or "" for title in root.iter(f"{SVG}title")]
    assert "Stable for 0.000 s: loaded from the log" in titles
    assert "PreparingRebalance for 17.500 s: JoinGroup of late, a new member" in titles
    width = float(root.attrib["width"])
    for rect in root.iter(f"{SVG}rect"):
        assert 0 <= float(rect.attrib["x"]) <= float(rect.attrib["x"]) + float(rect.attrib["width"]) <= width


def shapes(root: ElementTree.Element, kind: str) -> list[ElementTree.Element]:
    return [each for each in root.iter() if kind in each.attrib.get("class", "").split()]


@pytest.mark.fake_cluster(topics={"orders": 6}, clock="manual")
def test_svg_shows_missing_members_within_its_width(fake_cluster: FakeCluster) -> None:
    fake_cluster.group("g").seed(["a", "b", "c"], topics=["orders"])
    fake_cluster.group("g").evict("c")
    fake_cluster.advance(9)
    timeline = fake_cluster.group("g").timeline()
    for width in (200, 1000, 5000):
        root = ElementTree.fromstring(timeline.svg(width))
        assert float(root.attrib["width"]) == width
        places = [float(x) for x in root.attrib["data-x"].split()]
        assert len(places) == len(timeline.moments)
        assert places == sorted(places)
        for rect in shapes(root, "member"):
            assert float(rect.attrib["x"]) + float(rect.attrib["width"]) <= width
    missing = shapes(root, "missing")
    titles = [each.findtext(f"{SVG}title", "").partition(": ")[2] for each in missing]
    assert titles == ["has not rejoined, 9.000 s"] * 2
    assert [each.text for each in shapes(root, "bad")] == ["has not rejoined"] * 2
    few = ElementTree.fromstring(timeline.svg(max_rows=1))
    assert [each.text for each in shapes(few, "name")] == ["a"]
    assert "and 2 more members" in [each.text for each in few.iter(f"{SVG}text")]


@pytest.mark.fake_cluster(topics={"orders": 6})
def test_transitions_of_a_timeline(fake_cluster: FakeCluster) -> None:
    stable_group(fake_cluster, "g")
    timeline = fake_cluster.group("g").describe().timeline()
    assert [moment.state_to for moment in timeline.transitions] == [
        "Empty", "PreparingRebalance", "CompletingRebalance", "Stable",
    ]  # fmt: skip
    assert [timeline.group_id for timeline in (group.timeline() for group in fake_cluster.groups())] == ["g"]


@pytest.mark.fake_cluster(topics={"orders": 6})
def test_a_timeline_with_a_zombie_coordinator(fake_cluster: FakeCluster) -> None:
    member_id = stable_group(fake_cluster, "g")
    old = fake_cluster.group("g").coordinator()
    fake_cluster.group("g").move_coordinator(to=old.node_id % 3 + 1, zombie=True)
    leave(old, member_id)
    fake_cluster.brokers.stop_zombies()
    timeline = fake_cluster.group("g").timeline()
    rows = str(timeline).splitlines()
    assert rows[-4].endswith(f"LeaveGroup of app, at broker {old.node_id}")
    assert rows[-2].endswith("its coordinator resigned")
    assert rows[-1].split()[1:] == ["S", "now"]
    assert "LeaveGroup" not in timeline.svg()


def test_an_empty_timeline(fake_cluster: FakeCluster) -> None:
    timeline = fake_cluster.group("g").timeline()
    assert timeline.moments == ()
    assert str(timeline) == "group g: nothing has happened to it"
    assert ElementTree.fromstring(timeline.svg()).tag == f"{SVG}svg"


def test_long_timelines_fit_100_columns_and_svg_is_valid_xml() -> None:
    ids = tuple(f"a long client id <{number}> \x00 & more-{UUIDS[number % 2]}" for number in range(10))
    moments = tuple(
        Moment(
            at_ms=1_700_000_000_000.0 + 1_000_000 * number,
            coordinator_id=number,
            cause=f"LeaveGroup of {', '.join(ids)}",
            state_from="Stable",
            state_to="Stable",
            generation_id=99_999,
            leader_id=ids[0],
            members=ids[:number],
            joined=(ids[number],),
            rejoined=ids[:number],
            left=ids[number:],
            parked_joins=(),
            parked_syncs=(),
        )
        for number in range(10)
    )
    timeline = Timeline("<g>\x01", moments, moments[-1].at_ms)
    lines = str(timeline).splitlines()
    assert max(map(len, lines)) <= 100
    assert any("and\N{NO-BREAK SPACE}3\N{NO-BREAK SPACE}more" in line for line in lines)
    assert ElementTree.fromstring(timeline.svg()).findtext(f"{SVG}text") == "group <g>\ufffd"


def test_short_names_are_unique(subtests: pytest.Subtests) -> None:
    cases: list[tuple[tuple[str, ...], list[str]]] = [
        ((f"a-{UUIDS[0]}", f"b-{UUIDS[1]}", "own"), ["a", "b", "own"]),
        ((f"a-{UUIDS[0]}", f"a-{UUIDS[1]}"), ["a-0a1b2c3d", "a-0a1b9999"]),
        ((f"a-{UUIDS[0]}", f"a-f{UUIDS[1][1:]}"), ["a-0a1b", "a-fa1b"]),
        ((), []),
    ]
    for ids, names in cases:
        with subtests.test(ids=ids):
            assert list(short_names(ids).values()) == names


def test_short_names_of_ids_without_client_id_have_one(subtests: pytest.Subtests) -> None:
    one, two = "el9mNceSSfKFkY8RUIuaQA", "el9mZZeSSfKFkY8RUIuaQA"
    for client_ids, names in (
        ({one: "a", two: "b"}, ["a", "b"]),
        ({one: "a", two: "a"}, ["a-el9mNceS", "a-el9mZZeS"]),
        ({one: "a", two: ""}, ["a", two]),
        ({UUIDS[0]: "a", "own": "b"}, ["a", "own"]),
    ):
        with subtests.test(client_ids=client_ids):
            assert list(short_names(client_ids, client_ids).values()) == names
