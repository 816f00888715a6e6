"""The page and the server behind it: its token, its end, its other clusters, and the connection to it."""

import json
import urllib.request

import pytest
from playwright.sync_api import Browser, expect

from fakebroker import FakeCluster
from fakebroker.control.server import ControlServer
from tests.support.control.browser import PATIENCE_MS, REFUSED, faint_texts, is_live, looking_at

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


@pytest.mark.parametrize("token", [None, "sesame"])
def test_the_page_of_the_document_lists_every_operation(
    browser: Browser, cluster: FakeCluster, token: str | None
) -> None:
    with (
        ControlServer(cluster, token=token) as server,
        looking_at(browser, f"{server.url}/docs", may_say=(REFUSED,) if token else ()) as page,
    ):
        if token is not None:
            page.get_by_label("Token").fill(token)
            page.keyboard.press("Enter")
        headers = {"authorization": f"Bearer {token}"}
        request = urllib.request.Request(f"{server.url}/openapi.json", headers=headers)
        with urllib.request.urlopen(request, timeout=PATIENCE_MS / 1000) as response:
            paths = json.load(response)["paths"]
        told = page.locator("summary")
        expect(told).to_have_count(sum(map(len, paths.values())))
        told.filter(has_text="/healthz").click()
        expect(page.get_by_text("200: The brokers' loop runs.")).to_be_visible()
        told.filter(has_text="/wait/state").click()
        expect(page.locator("details[open] pre").filter(has_text='"group_id"').first).to_be_visible()
        assert faint_texts(page) == []


def test_says_that_the_server_is_gone_and_comes_back_with_it(browser: Browser, cluster: FakeCluster) -> None:
    # A request that is in flight when the server ends gets status 503.
    gone = tuple(
        f"Failed to load resource: {why}" for why in ("net::ERR_", "the server responded with a status of 503")
    )
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
