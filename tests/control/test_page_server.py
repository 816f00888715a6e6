"""The page and the server behind it: its token, its end, its other clusters, and the connection to it."""

import json
import urllib.request

import pytest
from playwright.sync_api import Browser, expect

from fakebroker import FakeCluster
from fakebroker.control.server import ControlServer
from tests.control.browsing import PATIENCE_MS, REFUSED, is_live, looking_at

pytestmark = pytest.mark.slow

GROUP = "payments"


def test_asks_for_the_token(browser: Browser, cluster: FakeCluster) -> None:
    with (
        ControlServer(cluster, token="sesame") as server,
        looking_at(browser, server.url + "/", may_say=(REFUSED,)) as page,
    ):
        dialog = page.get_by_role("dialog", name="This cluster wants a token")
        dialog.get_by_label("Token").fill("wrong")
        page.keyboard.press("Enter")
        expect(dialog).to_contain_text("That is not it.")
        dialog.get_by_label("Token").fill("sesame")
        page.keyboard.press("Enter")
        is_live(page)
        page.reload()
        is_live(page)
        expect(dialog).to_be_hidden()


def test_says_that_the_server_is_gone_and_comes_back_with_it(browser: Browser, cluster: FakeCluster) -> None:
    gone = ("Failed to load resource: net::ERR_",)
    with ControlServer(cluster) as server:
        looking = looking_at(browser, server.url + "/", may_say=gone)
        page = looking.__enter__()
        is_live(page)
    expect(page.get_by_role("status").filter(has_text="does not answer")).to_be_visible()
    with ControlServer(cluster, port=int(server.url.rpartition(":")[2])):
        is_live(page)
        looking.__exit__(None, None, None)


def test_a_page_that_nobody_sees_has_no_connection(browser: Browser, cluster: FakeCluster, url: str) -> None:
    with looking_at(browser, url) as page:
        is_live(page)
        with page.expect_event("requestfailed", lambda request: "/stream?" in request.url):
            page.evaluate(_SHOW, False)
        cluster.seed_group(GROUP, 1, topics=["orders"])
        with page.expect_request("**/stream?*"):
            page.evaluate(_SHOW, True)
        expect(page.locator(".groups").get_by_role("link", name=GROUP)).to_be_visible()


_SHOW = """is_seen => {
    Object.defineProperty(document, "hidden", { get: () => !is_seen, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_another_cluster_of_the_process_can_be_chosen(browser: Browser, url: str) -> None:
    body = json.dumps({"name": "other", "brokers": 1}).encode()
    request = urllib.request.Request(f"{url}v1/clusters", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE_MS / 1000) as response:
        assert response.status == 201
    with looking_at(browser, url) as page:
        expect(page.locator("li.broker")).to_have_count(3)
        page.get_by_label("Cluster", exact=True).select_option("other")
        expect(page.locator("li.broker")).to_have_count(1)
        expect(page.get_by_label("Cluster", exact=True)).to_have_value("other")
