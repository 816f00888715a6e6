"""The page at `/` in a headless Chromium, with consumers of confluent-kafka in the cluster."""

import json
import re

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from fakebroker import FakeCluster
from fakebroker.cluster.seeding.seed import GroupSeed
from fakebroker.control.server import ControlServer
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from fakebroker.server.fake_cluster import internals
from tests.support.control.browser import (
    HTTP_ERROR,
    StallableConsumer,
    Theme,
    low_contrast_texts,
    open_page,
    rebalance_waiting_for_slow,
    wait_until_live,
    wait_until_stable,
)
from tests.support.control.consumer_members import reconciling
from tests.support.wire_client import WireClient

pytestmark = pytest.mark.slow

GROUP = "payments"
STRANGE_IDS = (
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    '"><b>bold</b>',
    "a/b?c#d%2F&e",
    "größe 日本 😀",
    ".",
    "..",
    "~2E",
    "~7E2E~",
)


def broker_card(page: Page, node_id: int) -> Locator:
    return page.get_by_role("listitem", name=f"Broker {node_id}", exact=True)


def rebalancing_items(page: Page) -> Locator:
    return page.get_by_role("list", name="Groups that are rebalancing").get_by_role("listitem")


def recent_changes(page: Page) -> Locator:
    return page.get_by_role("list", name="Recent changes").get_by_role("listitem")


# Rebalancing now


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_rebalance_is_shown_with_its_cause_when_the_page_opens(
    browser: Browser, cluster: FakeCluster, url: str, theme: Theme
) -> None:
    with rebalance_waiting_for_slow(cluster, GROUP) as slow, open_page(browser, url, theme) as page:
        heading = page.get_by_role("region", name="Rebalancing now").get_by_role("heading").first
        expect(heading).to_have_text("1 group rebalancing")
        expect(rebalancing_items(page)).to_contain_text(f"{GROUP}PreparingRebalance")
        expect(rebalancing_items(page)).to_contain_text("waiting for slow; 2 of 3 have joined")
        assert low_contrast_texts(page) == []

        index = internals(cluster).cluster.offsets_partition_of(GROUP).index
        expect(page.locator(".partitions [data-rebalancing]")).to_have_attribute(
            "aria-label", f"Partition {index}: 1 group, 3 members, rebalancing"
        )

        slow.resume()
        expect(heading).to_have_text("No group is rebalancing")
        expect(recent_changes(page).first).to_contain_text(f"{GROUP} Stable")


def test_a_rebalance_that_starts_while_the_page_is_open_is_also_a_recent_change(
    browser: Browser, cluster: FakeCluster, url: str
) -> None:
    cluster.group(GROUP).seed(2, topics=["orders"])
    with open_page(browser, url) as page:
        wait_until_live(page)
        expect(recent_changes(page)).to_have_count(0)
        cluster.group(GROUP).rebalance()
        expect(recent_changes(page)).to_contain_text(f"{GROUP} PreparingRebalance")
        expect(rebalancing_items(page)).to_contain_text(f"{GROUP}PreparingRebalance")


# One group


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_timeline_of_a_group_shows_a_rebalance_and_its_end(
    browser: Browser, cluster: FakeCluster, url: str, theme: Theme
) -> None:
    with rebalance_waiting_for_slow(cluster, GROUP) as slow, open_page(browser, url, theme) as page:
        page.get_by_role("link", name=GROUP).first.click()
        expect(page.locator(".explanation")).to_contain_text("Waiting for slow")
        picture = page.locator(".picture")
        expect(picture.locator("text.bad")).to_have_text("has not rejoined")
        expect(picture.locator(".member.joined.open")).to_have_count(2)
        expect(picture.locator(".state.PreparingRebalance title").last).to_contain_text(
            "JoinGroup of new, a new member"
        )
        expect(page.locator("tr.missing")).to_contain_text("slow")
        assert low_contrast_texts(page) == []

        picture.focus()
        page.keyboard.press("ArrowLeft")
        expect(page.locator(".readout")).to_contain_text("PreparingRebalance, generation")

        generation_id = cluster.group(GROUP).describe().generation_id
        slow.resume()
        expect(page.locator(".view .chip").first).to_have_text("Stable")
        expect(page.locator(".facts").last).to_contain_text(f"generation {generation_id + 1}")
        expect(picture.get_by_text(f"gen {generation_id + 1}")).to_be_attached()
        expect(picture.locator(".joined.open")).to_have_count(0)
        expect(page.get_by_role("row").filter(has_text="new").first).to_contain_text("orders-")
        # The timeline is redrawn as time passes, without changes of the group.
        stable = picture.locator(".state.Stable title").last
        expect(stable).to_have_text(re.compile(r"^Stable for [\d.]+ s: "))
        expect(stable).not_to_have_text(stable.text_content() or "")
        with reconciling(cluster, "consumers"):
            page.goto(f"{url}#groups/consumers")
            expect(page.locator(".facts").last).to_contain_text("epoch 3 · assignment epoch 3 · uniform · 2 members")
            members = page.locator(".members tbody tr")
            expect(members.first).to_contain_text("a has not given up partitions")
            expect(members.first).to_contain_text("UNREVOKEDorders-0..2orders-3..5, until ")
            expect(members.last).to_contain_text("UNRELEASEDorders-3..5 of aorders-3..5")
            expect(picture.locator(".revoking.open")).to_have_count(1)
            assert low_contrast_texts(page) == []


def test_the_commands_of_a_group_work(browser: Browser, cluster: FakeCluster, url: str) -> None:
    with StallableConsumer(cluster, GROUP, "one"), StallableConsumer(cluster, GROUP, "two"):
        wait_until_stable(cluster, GROUP, 2)
        with open_page(browser, f"{url}#groups/{GROUP}", allowed_errors=(HTTP_ERROR,)) as page:
            state = page.locator(".view .chip").first
            page.get_by_role("button", name="Release").click()
            expect(page.get_by_role("alert").filter(has_text="expected a group that is held")).to_be_visible()
            page.get_by_role("button", name="Hold", exact=True).click()
            page.get_by_role("button", name="Force rebalance").click()
            expect(state).to_have_text("PreparingRebalance")
            expect(page.locator(".explanation")).to_contain_text("2 of 2 members have joined this rebalance")
            page.get_by_role("button", name="Release").click()
            expect(state).to_have_text("Stable")
            page.get_by_role("row").filter(has_text="one").get_by_role("button", name="Evict").first.click()
            expect(page.locator(".scroll").nth(2)).to_contain_text("left: one")
            leader = cluster.group(GROUP).coordinator().node_id
            to = next(each.node_id for each in cluster.brokers if each.node_id != leader)
            page.get_by_label("Move coordinator to").select_option(str(to))
            page.get_by_role("button", name="Move").click()
            expect(page.locator(".facts").last).to_contain_text(f"coordinator: broker {to}")
            wait_until_stable(cluster, GROUP, 2)


def test_the_commands_of_a_consumer_group_work(browser: Browser, cluster: FakeCluster, url: str) -> None:
    with reconciling(cluster, GROUP) as (a, b), open_page(browser, f"{url}#groups/{GROUP}") as page:
        state, facts = page.locator(".view .chip").first, page.locator(".facts").last
        members = page.locator(".members tbody tr")
        members.first.get_by_role("button", name="Hold").click()
        expect(members.first).to_contain_text("a has not given up partitions, held")
        a.beat(confirms=True)
        expect(page.locator(".explanation")).to_contain_text("What a must give up is held until it is released.")
        members.first.get_by_role("button", name="Release").click()
        expect(members.first).not_to_contain_text("held")
        a.beat()
        b.beat()
        expect(state).to_have_text("Stable")
        expect(members.last).to_contain_text("STABLEorders-3..5")
        changes = page.locator(".columns tbody").first
        expect(changes).to_contain_text("a in epoch 2 has orders-0..2, has to give up orders-3..5")

        expect(page.get_by_label("State to hold in").locator("option")).to_have_text(["Assigning", "Reconciling"])
        page.locator(".actions").get_by_role("button", name="Hold").click()
        expect(facts).to_contain_text("held in Assigning")
        page.get_by_role("button", name="Force rebalance").click()
        expect(state).to_have_text("Assigning")
        expect(facts).to_contain_text("epoch 4 · assignment epoch 3")
        members.last.get_by_role("button", name="Fence epoch").click()
        expect(members.last.locator("td").nth(1)).to_have_text("0")


# Groups


def test_names_from_clients_are_shown_as_text_and_work_in_urls(
    browser: Browser, cluster: FakeCluster, url: str
) -> None:
    for group_id in STRANGE_IDS:
        cluster.group(group_id).seed([STRANGE_IDS[0]], topics=["orders"])
    with WireClient(cluster.brokers[0], client_id=STRANGE_IDS[1]) as wire, open_page(browser, url) as page:
        wire.send(FindCoordinatorRequest(coordinator_keys=[STRANGE_IDS[0]]))
        wire.receive()
        for group_id in STRANGE_IDS:
            page.locator(".groups").get_by_role("link", name=group_id, exact=True).click()
            expect(page.locator("h2.id")).to_have_text(group_id)
            expect(page.locator(".explanation")).to_contain_text(f"{group_id} has been in Stable")
            page.get_by_role("button", name="Hold", exact=True).click()
            page.get_by_role("button", name="Force rebalance").click()
            expect(page.locator(".view .chip").first).to_have_text("PreparingRebalance")
            expect(page.locator(".columns tbody").first.get_by_role("row")).to_have_count(2)
            expect(page.locator(".view tbody").first).to_contain_text(STRANGE_IDS[0])
            page.get_by_role("link", name="All groups").click()
        page.keyboard.press("r")
        page.get_by_label("Client id").fill(STRANGE_IDS[1])
        page.keyboard.press("Enter")
        page.get_by_role("button", name="FindCoordinator").click()
        expect(page.locator(".detail pre").first).to_contain_text(STRANGE_IDS[0])
        expect(page.locator("img, body script")).to_have_count(0)


def test_a_group_with_the_empty_id_is_shown(browser: Browser, cluster: FakeCluster, url: str) -> None:
    cluster.group("").seed(topics=["orders"], lag=0)
    cluster.group(GROUP).seed(1, topics=["orders"])
    with open_page(browser, url) as page:
        page.locator(".groups").get_by_role("link", name="(empty id)").click()
        expect(page.locator("h2.id")).to_have_text("(empty id)")
        expect(page.locator(".explanation")).to_contain_text("has been in Empty")
        expect(page.get_by_role("row").filter(has_text="orders-5")).to_be_visible()


def test_the_lag_of_a_group_is_shown_in_the_list_and_by_partition(
    browser: Browser, cluster: FakeCluster, url: str
) -> None:
    lag = {"orders-0": 1_200, "orders-1": 0}
    cluster.group(GROUP).seed(1, topics=["orders"], offsets={"orders-0": 5, "orders-1": 3}, lag=lag)
    with open_page(browser, url) as page:
        columns, row = page.locator(".groups thead th"), page.locator(".groups tbody tr")
        expect(columns).to_contain_text(["Members", "Lag", "Rebalances"])
        expect(row.locator(".lag")).to_have_text("1,200")
        cluster.topic("orders").produce(["new"], partition=1)
        expect(row.locator(".lag")).to_have_text("1,201")  # No event of the group announces records.
        row.get_by_role("link", name=GROUP).click()
        committed = page.locator(".columns table").last
        expect(committed.locator("th")).to_have_text(["Partition", "Offset", "Lag", "Metadata"])
        expect(committed.locator("tbody tr")).to_have_text(["orders-051,200", "orders-131"])
        cluster.topic("orders").produce(["newer"], partition=1)
        expect(committed.locator("tbody tr").last).to_have_text("orders-132")
        cluster.topic("orders").delete()
        expect(committed.locator("tbody tr")).to_have_count(0)


def test_equal_changes_are_listed_once_each_with_a_manual_clock(browser: Browser) -> None:
    with (
        FakeCluster(topics={"orders": 1}, clock="manual") as cluster,
        ControlServer(cluster) as server,
        StallableConsumer(cluster, GROUP, "one"),
    ):
        wait_until_stable(cluster, GROUP, 1)
        with open_page(browser, f"{server.url}/#groups/{GROUP}") as page:
            for _ in range(3):
                generation_id = cluster.group(GROUP).describe().generation_id
                cluster.group(GROUP).rebalance()
                cluster.wait(cluster.group(GROUP).state(above=generation_id))
                wait_until_stable(cluster, GROUP, 1)
                expected = [str(moment.generation_id) for moment in reversed(cluster.group(GROUP).timeline().moments)]
                changes = page.locator(".columns tbody").first
                expect(changes.locator("td:nth-child(2)")).to_have_text(expected)


# Requests


def test_requests_are_filtered_and_shown_with_their_bodies(browser: Browser, cluster: FakeCluster, url: str) -> None:
    with (
        rebalance_waiting_for_slow(cluster, GROUP),
        open_page(browser, f"{url}#requests", allowed_errors=(HTTP_ERROR,)) as page,
    ):
        rows = page.locator(".requests tbody tr")
        expect(rows.filter(has_text="Heartbeat").first).to_contain_text(GROUP)
        page.get_by_role("button", name="Pause").click()
        expect(page.get_by_role("button", name="Resume")).to_be_visible()
        page.get_by_role("button", name="Resume").click()

        page.get_by_label("API").fill("JoinGroup")
        page.get_by_label("Client id").fill("new")
        page.keyboard.press("Enter")
        expect(rows).to_have_count(2)
        expect(rows.first).to_contain_text("pending")
        expect(rows.last).to_contain_text("MEMBER_ID_REQUIRED")
        rows.last.get_by_role("button").click()
        bodies = page.locator(".detail pre")
        expect(bodies).to_have_count(2)
        request, response = bodies.all_inner_texts()
        assert json.loads(request)["group_id"] == GROUP
        assert json.loads(response)["error_code"] == "MEMBER_ID_REQUIRED"

        page.get_by_label("API").fill("JoinGruppe")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert").filter(has_text="JoinGruppe").first).to_contain_text(
            "api='JoinGruppe': expected one of Produce, "
        )


# Commands


def test_faults_are_added_shown_and_removed(browser: Browser, cluster: FakeCluster, url: str) -> None:
    with (
        StallableConsumer(cluster, GROUP, "one"),
        open_page(browser, f"{url}#faults", allowed_errors=(HTTP_ERROR,)) as page,
    ):
        wait_until_stable(cluster, GROUP, 1)
        form = page.locator("form.fault")
        form.get_by_label("API").fill("Heartbeat")
        form.get_by_label("Group").fill(GROUP)
        form.get_by_label("Value").fill("OFFSET_OUT_OF_RANGE")
        form.get_by_role("button", name="Add fault").click()
        expect(form.get_by_role("alert")).to_contain_text("OFFSET_OUT_OF_RANGE")
        assert cluster.faults() == []

        form.get_by_label("Value").fill("REBALANCE_IN_PROGRESS")
        form.get_by_label("Maximum count").fill("3")
        form.get_by_role("button", name="Add fault").click()
        row = page.locator(".view tbody tr")
        expect(row).to_contain_text(f"Heartbeat, group: {GROUP}, maximum count: 3")
        expect(row).to_contain_text("return error: REBALANCE_IN_PROGRESS")
        expect(row.locator(".hits")).to_have_text("3 (over)")
        expect(page.locator("#fault-count")).to_have_text("")
        row.get_by_role("button", name="Remove").click()
        expect(page.get_by_text("No faults.")).to_be_visible()
        assert cluster.faults() == []


def test_brokers_stop_and_start_and_coordinators_move(browser: Browser, cluster: FakeCluster, url: str) -> None:
    with StallableConsumer(cluster, GROUP, "one"), open_page(browser, url) as page:
        wait_until_stable(cluster, GROUP, 1)
        leader = cluster.group(GROUP).coordinator().node_id
        index = internals(cluster).cluster.offsets_partition_of(GROUP).index
        broker_card(page, leader).get_by_role("button", name="Stop").click()
        expect(broker_card(page, leader)).to_contain_text("down")
        expect(broker_card(page, leader).locator(".partitions button")).to_have_count(0)
        broker_card(page, leader).get_by_role("button", name="Start").click()
        expect(broker_card(page, leader)).to_contain_text("up")

        wait_until_stable(cluster, GROUP, 1)
        away = cluster.group(GROUP).coordinator().node_id
        page.get_by_label("Load time").fill("600000")
        broker_card(page, away).get_by_role("button", name=f"Partition {index}:").click()
        expect(page.locator("#partition")).to_contain_text(f"__consumer_offsets-{index} on broker {away}: 1 group")
        page.get_by_label("Move it to").select_option(str(leader))
        page.locator("#partition").get_by_role("button", name="Move").click()
        square = broker_card(page, leader).get_by_role("button", name=f"Partition {index}:")
        expect(square).to_have_attribute("aria-label", f"Partition {index}: 0 groups, 0 members, loading")
        page.get_by_role("button", name="Finish loading").click()
        expect(square).to_have_attribute("aria-label", f"Partition {index}: 1 group, 1 member")
        wait_until_stable(cluster, GROUP, 1)


def test_a_manual_clock_is_advanced(browser: Browser) -> None:
    with FakeCluster(topics={"orders": 1}, clock="manual") as cluster, ControlServer(cluster) as server:
        cluster.group(GROUP).seed(1, topics=["orders"])
        began_ms = internals(cluster).server.clock.now_ms()
        with open_page(browser, f"{server.url}/#clock") as page:
            expect(page.get_by_text("their time stops until it is advanced")).to_be_visible()
            page.get_by_role("button", name="+5 s", exact=True).click()
            session = page.get_by_role("row").filter(has_text="session")
            expect(session).to_contain_text("40.0 s")
            page.get_by_label("Seconds").fill("39")
            page.get_by_role("button", name="Advance by seconds").click()
            expect(session).to_contain_text("1.0 s")
            page.get_by_role("button", name="Advance to next deadline").click()
            expect(session).to_have_count(0)
        assert internals(cluster).server.clock.now_ms() - began_ms == pytest.approx(45_000)
        assert cluster.group(GROUP).describe().state == "Empty"


def test_the_page_can_be_used_with_the_keyboard_alone(browser: Browser, cluster: FakeCluster, url: str) -> None:
    cluster.seed_groups(GroupSeed(group_id=f"group-{number}", members=1, topics=["orders"]) for number in range(3))
    with open_page(browser, url) as page:
        wait_until_live(page)
        focus = page.locator(":focus")
        page.keyboard.press("/")
        page.keyboard.type("GROUP-")
        expect(page.locator(".bar [role=status]")).to_have_text("3 groups")
        page.keyboard.press("Escape")
        for key in "jjk":
            page.keyboard.press(key)
        expect(focus).to_have_text("group-0")
        page.keyboard.press("Enter")
        expect(page.locator("h2.id")).to_have_text("group-0")
        page.keyboard.press("Escape")
        expect(page.get_by_label("Search group ids")).to_be_visible()

        page.keyboard.press("b")
        expect(focus).to_have_attribute("aria-label", re.compile("^Partition 0: "))
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        expect(page.locator("#partition")).to_contain_text("__consumer_offsets-")
        for _ in range(3):
            page.keyboard.press("Tab")
        page.keyboard.press("Shift+Tab")

        page.keyboard.press("f")
        expect(page.get_by_role("heading", name="Add a fault")).to_be_visible()
        page.keyboard.press("/")
        page.keyboard.type("Heartbeat")
        page.get_by_label("Value").focus()
        page.keyboard.type("REBALANCE_IN_PROGRESS")
        page.keyboard.press("Enter")
        expect(page.locator(".view tbody tr")).to_contain_text("Heartbeat")
        page.keyboard.press("Escape")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        expect(page.locator(".view tbody tr")).to_have_count(0)

        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_hidden()
        page.keyboard.press("t")
        page.keyboard.press("t")
        expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
        page.reload()
        expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()


def test_a_narrow_window_does_not_break_group_ids_into_pieces(browser: Browser, cluster: FakeCluster, url: str) -> None:
    with rebalance_waiting_for_slow(cluster, GROUP), open_page(browser, url, size=(400, 900)) as page:
        link = page.get_by_role("link", name=GROUP, exact=True).last
        expect(link).to_be_visible()
        assert link.evaluate("link => link.getClientRects().length") == 1
