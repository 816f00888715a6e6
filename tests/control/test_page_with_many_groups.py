"""The page with ten thousand groups and with thousands of requests per second."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, expect

from fakebroker import FakeCluster
from fakebroker.cluster.seeding.seed import GroupSeed
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.support.control.browser import StallableConsumer, open_page, wait_until_live, wait_until_stable
from tests.support.soak import soak_only
from tests.support.wire_client import WireClient

pytestmark = pytest.mark.slow

GROUP = "payments"


def seed_groups(cluster: FakeCluster, groups: int) -> None:
    cluster.seed_groups(GroupSeed(group_id=f"group-{number:05}", topics=["orders"], lag=0) for number in range(groups))


@contextmanager
def under_load(cluster: FakeCluster) -> Iterator[None]:
    """Send as many requests as one connection can until the end of the block."""
    is_over = threading.Event()

    def send() -> None:
        with WireClient(cluster.brokers[0]) as wire:
            while not is_over.is_set():
                for _ in range(500):
                    wire.send(FindCoordinatorRequest(coordinator_keys=[GROUP]))
                for _ in range(500):
                    wire.receive()

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def expect_total(page: Page, text: str) -> None:
    expect(page.locator(".bar [role=status]")).to_have_text(text)


def test_ten_thousand_groups_are_paged_sorted_and_searched(browser: Browser, cluster: FakeCluster, url: str) -> None:
    seed_groups(cluster, 9_999)
    with StallableConsumer(cluster, GROUP, "one"), open_page(browser, url) as page:
        wait_until_stable(cluster, GROUP, 1)
        rows = page.locator(".groups tbody tr")
        expect_total(page, "1 to 100 of 10,000 groups")
        expect(rows).to_have_count(100)
        expect(rows.first).to_contain_text(GROUP)

        page.get_by_label("Order").select_option("name")
        page.get_by_role("button", name="Next").click()
        expect_total(page, "101 to 200 of 10,000 groups")
        expect(rows.first).to_contain_text("group-00100")

        page.get_by_label("Search group ids").fill("GROUP-0777")
        expect_total(page, "10 groups")
        page.get_by_label("Search group ids").fill("")
        page.get_by_label("State").select_option("Stable")
        expect_total(page, "1 group")
        page.get_by_label("State").select_option("PreparingRebalance")
        expect(page.get_by_text("No matching groups.")).to_be_visible()


def test_requests_are_sampled_under_load(browser: Browser, cluster: FakeCluster, url: str) -> None:
    with open_page(browser, f"{url}#requests") as page, under_load(cluster):
        wait_until_live(page)
        expect(page.locator(".note")).to_contain_text("Sampled: 50 of the last")
        assert page.locator(".requests tbody tr").count() <= 200


@soak_only("one test with so many groups is enough")
def test_all_views_work_with_ten_thousand_groups_under_load(browser: Browser, cluster: FakeCluster, url: str) -> None:
    seed_groups(cluster, 10_000)
    with open_page(browser, f"{url}#requests") as page, under_load(cluster):
        expect(page.locator(".note")).to_contain_text("Sampled: 50 of the last")
        page.get_by_label("Client id").fill("other")
        page.keyboard.press("Enter")
        expect(page.locator(".note")).to_contain_text("0 matching requests in the journal")
        page.keyboard.press("Escape")
        page.keyboard.press("g")
        expect_total(page, "1 to 100 of 10,000 groups")
        page.get_by_label("Search group ids").fill("group-07777")
        expect_total(page, "1 group")
        page.get_by_role("link", name="group-07777").click()
        expect(page.locator(".explanation")).to_contain_text("group-07777 has been in Empty")
        page.keyboard.press("b")
        page.keyboard.press("Enter")
        expect(page.locator("#partition")).to_contain_text(": 2")  # Each partition has about 200 groups.
        expect(page.locator("#status")).to_have_text("Live")
