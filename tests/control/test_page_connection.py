"""The page and its server: tokens, the API documentation, reconnects, hidden pages, several clusters."""

import json
import urllib.request

import pytest
from playwright.sync_api import Browser, expect

from fakebroker import FakeCluster
from fakebroker.control.server import ControlServer
from tests.support.control.browser import HTTP_ERROR, TIMEOUT_MS, open_page, wait_until_live

pytestmark = pytest.mark.slow

GROUP = "payments"


def test_the_page_prompts_for_the_token_and_keeps_it(browser: Browser, cluster: FakeCluster) -> None:
    with (
        ControlServer(cluster, token="sesame") as server,
        open_page(browser, server.url + "/", allowed_errors=(HTTP_ERROR,)) as page,
    ):
        dialog = page.get_by_role("dialog", name="Token required")
        dialog.get_by_label("Token").fill("wrong")
        page.keyboard.press("Enter")
        expect(dialog).to_contain_text("Invalid token.")
        dialog.get_by_label("Token").fill("sesame")
        page.keyboard.press("Enter")
        wait_until_live(page)
        page.reload()
        wait_until_live(page)
        expect(dialog).to_be_hidden()


def test_the_page_shows_a_lost_connection_and_reconnects(browser: Browser, cluster: FakeCluster) -> None:
    # A request that is in flight when the server ends gets status 503.
    lost = ("Failed to load resource: net::ERR_", f"{HTTP_ERROR} 503")
    with ControlServer(cluster) as server:
        context = open_page(browser, server.url + "/", allowed_errors=lost)
        page = context.__enter__()
        wait_until_live(page)
    expect(page.get_by_role("status").filter(has_text="No response from")).to_be_visible()
    with ControlServer(cluster, port=int(server.url.rpartition(":")[2])):
        wait_until_live(page)
        context.__exit__(None, None, None)


def test_a_connection_that_is_lost_within_a_response_is_no_error_of_the_page(browser: Browser, url: str) -> None:
    with open_page(browser, url) as page:
        wait_until_live(page)
        reason = page.evaluate(_READ_PART_OF_A_RESPONSE)
        assert reason == f"No response from {url.split('/')[2]}. Is the process running?"


_READ_PART_OF_A_RESPONSE = """async () => {
    Response.prototype.text = () => Promise.reject(new TypeError("Failed to fetch"));
    const { get } = await import(document.querySelector("script[type=module]").src.replace(/[^/]*$/, "api.js"));
    return get("/brokers").catch((error) => error.message);
}"""


def test_a_hidden_page_closes_its_event_stream(browser: Browser, cluster: FakeCluster, url: str) -> None:
    with open_page(browser, url) as page:
        wait_until_live(page)
        with page.expect_event("requestfailed", lambda request: "/stream?" in request.url):
            page.evaluate(_SET_VISIBLE, False)
        cluster.group(GROUP).seed(1, topics=["orders"])
        with page.expect_request("**/stream?*"):
            page.evaluate(_SET_VISIBLE, True)
        expect(page.locator(".groups").get_by_role("link", name=GROUP)).to_be_visible()


_SET_VISIBLE = """isVisible => {
    Object.defineProperty(document, "hidden", { get: () => !isVisible, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_another_cluster_can_be_selected(browser: Browser, url: str) -> None:
    body = json.dumps({"name": "other", "brokers": 1}).encode()
    request = urllib.request.Request(f"{url}v1/clusters", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_MS / 1000) as response:
        assert response.status == 201
    with open_page(browser, url) as page:
        expect(page.locator("li.broker")).to_have_count(3)
        page.get_by_label("Cluster", exact=True).select_option("other")
        expect(page.locator("li.broker")).to_have_count(1)
        expect(page.get_by_label("Cluster", exact=True)).to_have_value("other")
