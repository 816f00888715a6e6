"""The page with ten thousand groups behind it, and more requests than anybody can read."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, expect

from fakebroker import FakeCluster
from fakebroker.cluster.seed import GroupSeed
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.support.control.browser import Member, is_live, looking_at, settled
from tests.support.wire_client import WireClient

pytestmark = pytest.mark.slow

GROUP = "payments"


def seed(cluster: FakeCluster, groups: int) -> None:
    cluster.seed_groups(GroupSeed(group_id=f"group-{number:05}", topics=["orders"], lag=0) for number in range(groups))


@contextmanager
def under_load(cluster: FakeCluster) -> Iterator[None]:
    """As many requests as one connection can ask, until the end of the block."""
    is_over = threading.Event()

    def ask() -> None:
        with WireClient(cluster.brokers[0]) as wire:
            while not is_over.is_set():
                for _ in range(500):
                    wire.send(FindCoordinatorRequest(coordinator_keys=[GROUP]))
                for _ in range(500):
                    wire.receive()

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def counted(page: Page, words: str) -> None:
    expect(page.locator(".bar [role=status]")).to_have_text(words)


def test_finds_one_of_ten_thousand_groups(browser: Browser, cluster: FakeCluster, url: str) -> None:
    seed(cluster, 9_999)
    with Member(cluster, GROUP, "one"), looking_at(browser, url) as page:
        settled(cluster, GROUP, 1)
        rows = page.locator(".groups tbody tr")
        counted(page, "1 to 100 of 10,000 groups")
        expect(rows).to_have_count(100)
        expect(rows.first).to_contain_text(GROUP)

        page.get_by_label("Order").select_option("name")
        page.get_by_role("button", name="More").click()
        counted(page, "101 to 200 of 10,000 groups")
        expect(rows.first).to_contain_text("group-00100")

        page.get_by_label("Search group ids").fill("GROUP-0777")
        counted(page, "10 groups")
        page.get_by_label("Search group ids").fill("")
        page.get_by_label("State").select_option("Stable")
        counted(page, "1 group")
        page.get_by_label("State").select_option("PreparingRebalance")
        expect(page.get_by_text("No group is like this.")).to_be_visible()


def test_says_when_it_samples(browser: Browser, cluster: FakeCluster, url: str) -> None:
    with looking_at(browser, f"{url}#requests") as page, under_load(cluster):
        is_live(page)
        expect(page.locator(".note")).to_contain_text("Sampled: 50 of the last")
        assert page.locator(".requests tbody tr").count() <= 200


def test_stays_of_use_with_ten_thousand_groups_under_load(browser: Browser, cluster: FakeCluster, url: str) -> None:
    seed(cluster, 10_000)
    with looking_at(browser, f"{url}#requests") as page, under_load(cluster):
        expect(page.locator(".note")).to_contain_text("Sampled: 50 of the last")
        page.get_by_label("Client id").fill("nobody")
        page.keyboard.press("Enter")
        expect(page.locator(".note")).to_contain_text("Every request like this that the journal still has")
        page.keyboard.press("Escape")
        page.keyboard.press("g")
        counted(page, "1 to 100 of 10,000 groups")
        page.get_by_label("Search group ids").fill("group-07777")
        counted(page, "1 group")
        page.get_by_role("link", name="group-07777").click()
        expect(page.locator(".explanation")).to_contain_text("group-07777 has been in Empty")
        page.keyboard.press("b")
        page.keyboard.press("Enter")
        expect(page.locator("#partition")).to_contain_text(": 2")  # Two hundred groups, more or less, lie on each.
        expect(page.locator("#status")).to_have_text("Live")
