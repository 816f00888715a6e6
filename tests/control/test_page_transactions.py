"""Transactions on the page, in a headless Chromium: the list, one transactional id, and its commands."""

import pytest
from playwright.sync_api import Browser, expect

from fakebroker import FakeCluster
from tests.support.control.browser import low_contrast_texts, open_page

pytestmark = pytest.mark.slow

ID = "a/b <i>"


def test_a_transaction_is_listed_explained_and_ended(browser: Browser, cluster: FakeCluster, url: str) -> None:
    cluster.transaction(ID).seed(records={"orders-0": 2, "orders-3": 1}, epoch=7)
    cluster.transaction("other").seed(state="CompleteCommit")
    cluster.topic("orders").partition(5).seed_hanging_transaction(offset=9)
    with open_page(browser, url, "dark") as page:
        page.keyboard.press("x")
        rows = page.locator("table.groups tbody tr")
        expect(rows).to_have_count(2)
        expect(rows.first).to_contain_text("Ongoing")
        expect(page.locator("#transaction-count")).to_have_text("1 open")
        hanging = page.get_by_role("row").filter(has_text="orders-5")
        expect(hanging).to_contain_text("9")
        page.get_by_role("searchbox").fill("<I>")
        expect(rows).to_have_count(1)
        assert low_contrast_texts(page) == []

        page.get_by_role("link", name=ID).click()
        explanation, state = page.locator(".explanation"), page.locator(".view .chip").first
        expect(explanation).to_contain_text("has an open transaction with orders-0, orders-3")
        page.get_by_role("button", name="Hold markers", exact=True).click()
        page.get_by_role("button", name="Abort").click()
        expect(state).to_have_text("PrepareAbort")
        expect(explanation).to_contain_text("It waits for markers of orders-0, held until")
        expect(page.locator(".picture .state.PrepareAbort")).to_have_count(1)
        expect(page.get_by_role("row").filter(has_text="Ongoing → PrepareAbort")).to_contain_text("transaction.abort")
        assert low_contrast_texts(page) == []
        page.locator(".picture").focus()
        page.keyboard.press("ArrowLeft")
        expect(page.locator(".readout")).to_contain_text("Ongoing → PrepareAbort, epoch 8")
        page.get_by_role("button", name="Release markers").click()
        expect(state).to_have_text("CompleteAbort")
        expect(page.get_by_role("row").filter(has_text="PrepareAbort → CompleteAbort")).to_contain_text(
            "ended: orders-0"
        )
        page.keyboard.press("Escape")
        expect(page).to_have_url(f"{url}#transactions")
