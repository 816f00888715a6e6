"""The page /docs: Swagger UI with the OpenAPI document, without other servers."""

import json
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from fakebroker import FakeCluster
from fakebroker.control.dependencies import swagger_ui_folder
from fakebroker.control.problems import Problem
from fakebroker.control.routes import documents
from fakebroker.control.routes.openapi import document
from fakebroker.control.server import ControlServer
from tests.support.control.browser import HTTP_ERROR, open_page
from tests.support.control.control_server import ControlHarness, controlled_cluster
from tests.support.soak import soak_only

TOKEN = "sesame"

needs_swagger_ui = pytest.mark.skipif(
    find_spec("swagger_ui") is None, reason="swagger-ui-py of the extra `control` is not installed: run `make test`"
)


@pytest.fixture(scope="module")
def control() -> Iterator[ControlHarness]:
    with controlled_cluster(1, token=TOKEN) as harness:
        yield harness


def test_the_page_and_its_files_need_no_token_and_refer_to_no_other_server(
    control: ControlHarness, subtests: pytest.Subtests
) -> None:
    paths = {
        "/docs": "text/html; charset=utf-8",
        "/page/docs.js": "text/javascript; charset=utf-8",
        "/page/docs.css": "text/css; charset=utf-8",
    }
    for path, kind in paths.items():
        with subtests.test(path=path):
            response = control.request("GET", path)
            assert (response.status, response.headers["content-type"]) == (200, kind)
            assert b"http://" not in response.body
            assert b"https://" not in response.body


@needs_swagger_ui
def test_the_files_of_swagger_ui_need_no_token(control: ControlHarness, subtests: pytest.Subtests) -> None:
    for name, kind in (("swagger-ui-bundle.js", "text/javascript"), ("swagger-ui.css", "text/css")):
        with subtests.test(name=name):
            response = control.request("GET", f"/docs/{name}")
            assert (response.status, response.headers["content-type"]) == (200, f"{kind}; charset=utf-8")
            assert response.body == (swagger_ui_folder() / name).read_bytes()
    response = control.request("GET", "/docs/swagger-ui.js")
    assert (response.status, response.json["field"], response.json["value"]) == (404, "file", "swagger-ui.js")
    assert response.json["expected"].startswith("one of swagger-ui-bundle.js, swagger-ui.css")


def test_a_missing_package_is_a_problem_that_names_the_extra() -> None:
    with pytest.raises(Problem) as caught:
        swagger_ui_folder("nonesuch")
    assert caught.value.status == 503
    assert str(caught.value) == ("/docs needs the package swagger-ui-py: expected pip install 'fakebroker[control]'")


@pytest.mark.slow
def test_the_page_shows_why_swagger_ui_is_missing(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "swagger_ui_folder", lambda: swagger_ui_folder("nonesuch"))
    with (
        FakeCluster(1) as cluster,
        ControlServer(cluster) as server,
        open_page(browser, f"{server.url}/docs", allowed_errors=(HTTP_ERROR, "Refused to")) as page,
    ):
        expect(page.get_by_role("status")).to_contain_text("expected pip install 'fakebroker[control]'")


def operation(page: Page, name: str) -> Locator:
    """Return an operation by its tag and id, opened."""
    block = page.locator(f"#operations-{name}")
    block.locator(".opblock-summary-control").click()
    return block


@needs_swagger_ui
@pytest.mark.slow
@pytest.mark.parametrize("token", [None, TOKEN])
def test_operations_are_shown_and_tried_out(browser: Browser, token: str | None) -> None:
    with (
        FakeCluster(2, {"orders": 1}) as cluster,
        ControlServer(cluster, token=token) as server,
        # The browser logs the 401 for which the page prompts.
        open_page(browser, f"{server.url}/docs", allowed_errors=(HTTP_ERROR,) if token else ()) as page,
    ):
        if token is not None:
            page.get_by_role("textbox", name="Token").fill(token)
            page.keyboard.press("Enter")
        paths = json.loads(document())["paths"]
        expect(page.locator(".opblock")).to_have_count(sum(map(len, paths.values())))
        assert page.evaluate("window.versions.swaggerUI.version").split(".")[0] == "5"
        expect(page.locator(".info")).to_contain_text("OAS 3.1")
        waiting = operation(page, "cluster-wait")
        expect(waiting.locator(".opblock-section-request-body")).to_contain_text('"condition"')
        stopping = operation(page, "brokers-broker_stop")
        stopping.get_by_role("button", name="Try it out").click()
        stopping.get_by_placeholder("node_id").fill("2")
        stopping.get_by_role("textbox").last.fill('{"load_ms": 0}')
        stopping.get_by_role("button", name="Execute").click()
        expect(stopping.locator(".live-responses-table tbody .response-col_status")).to_have_text("204")
        assert [broker.up for broker in cluster.brokers] == [True, False]


@soak_only("other tests use the page")
@needs_swagger_ui
@pytest.mark.slow
def test_the_authorize_button_takes_another_token(browser: Browser) -> None:
    with (
        FakeCluster(1) as cluster,
        ControlServer(cluster, token=TOKEN) as server,
        open_page(browser, f"{server.url}/docs", allowed_errors=(HTTP_ERROR,)) as page,
    ):
        page.get_by_role("textbox", name="Token").fill(TOKEN)
        page.keyboard.press("Enter")
        listing = operation(page, "brokers-list_brokers")
        listing.get_by_role("button", name="Try it out").click()
        for token, status in (("wrong", "401"), (TOKEN, "200")):
            page.get_by_role("button", name="Authorize").click()
            dialog = page.locator(".dialog-ux")
            dialog.get_by_role("button", name="Remove authorization").click()
            dialog.get_by_role("textbox").fill(token)
            dialog.get_by_role("button", name="Apply credentials").click()
            dialog.get_by_role("button", name="Close").first.click()
            listing.get_by_role("button", name="Execute").click()
            expect(listing.locator(".live-responses-table tbody .response-col_status")).to_have_text(status)
