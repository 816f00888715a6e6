"""What comes before the brokers are asked: whose path it is that counts, methods, and headers for browsers."""

import http.client
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.support.control.control_server import BASE, TIMEOUT_S, Asking, asking

FRONT = ("/", "/docs", "/healthz", "/page/page.js", f"{BASE}/stream")


@pytest.fixture(scope="module")
def control() -> Iterator[Asking]:
    with asking(1) as made:
        yield made


@pytest.fixture(scope="module")
def guarded() -> Iterator[Asking]:
    with asking(1, host="0.0.0.0", token="secret") as made:
        yield made


@pytest.mark.parametrize(
    "path",
    [
        "/page%2Fx",
        "/page%2F..%2Fv1%2Fclusters",
        "/page/../v1/clusters",
        "/page/%2e%2e/v1/clusters",
        "/docs/../v1/clusters",
        "//v1/clusters",
        "/v1/clusters%3F",
        "/v1%2Fclusters",
        "/healthz%2F..%2Fv1/clusters",
        "http://x/page/../v1/clusters",
    ],
)
@pytest.mark.parametrize("host", ["x", "x/v1/clusters?", "x/v1/clusters#", "/v1/clusters?"])
def test_no_spelling_of_a_path_leads_around_the_token(guarded: Asking, path: str, host: str) -> None:
    answer = guarded.ask("GET", path, headers={"host": host})
    assert answer.status in (401, 404)
    assert b"bootstrap" not in answer.body


def test_the_path_that_is_asked_for_is_that_of_the_request(guarded: Asking) -> None:
    shown = {"host": "x/v1/clusters?", "authorization": "Bearer secret"}
    assert guarded.ask("GET", "/metrics", headers=shown).headers["content-type"].startswith("text/plain")
    answer = guarded.ask("GET", "/page%2Fx", headers=shown)
    assert (answer.status, answer.json["value"]) == (404, "/page%2Fx")


def test_the_query_is_passed_on(control: Asking) -> None:
    answer = control.ask("GET", f"{BASE}/groups?sort=%3F%26")
    assert (answer.status, answer.json["value"]) == (422, "?&")


@pytest.mark.parametrize("path", [*FRONT, BASE, "/nowhere", "/page/nowhere.js"])
def test_no_other_page_shows_it_in_a_frame(control: Asking, path: str) -> None:
    headers = control.ask("HEAD", path).headers
    assert headers["content-security-policy"] == "frame-ancestors 'none'"
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"


def test_a_refusal_has_these_headers_too(guarded: Asking) -> None:
    assert guarded.ask("GET", BASE).headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(("path", "allowed"), [(path, "GET, HEAD, OPTIONS") for path in FRONT])
@pytest.mark.parametrize("method", ["POST", "DELETE", "TRACE", "BREW"])
def test_another_method_is_a_problem(control: Asking, path: str, allowed: str, method: str) -> None:
    answer = control.ask(method, path)
    assert (answer.status, answer.headers["allow"]) == (405, allowed)
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.json["field"], answer.json["value"]) == ("method", method)


def test_another_method_is_a_problem_for_the_brokers_too(control: Asking) -> None:
    for method in ("PUT", "TRACE", "BREW"):
        answer = control.ask(method, "/v1/clusters")
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS, POST")
        assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/", "GET, HEAD, OPTIONS"),
        (f"{BASE}/stream", "GET, HEAD, OPTIONS"),
        (BASE, "DELETE, GET, HEAD, OPTIONS"),
        (f"{BASE}/reset", "OPTIONS, POST"),
    ],
)
def test_options_are_told(control: Asking, path: str, allowed: str) -> None:
    answer = control.ask("OPTIONS", path)
    assert (answer.status, answer.headers["allow"], answer.body) == (204, allowed, b"")


def test_the_head_of_an_answer_is_that_of_its_get(control: Asking) -> None:
    for path in ("/", "/healthz", "/v1/clusters"):
        head, get = control.ask("HEAD", path), control.ask("GET", path)
        assert (head.status, head.headers["content-length"], head.body) == (200, str(len(get.body)), b"")


def test_the_head_of_a_stream_ends(control: Asking) -> None:
    connection = control.connect()
    connection.request("HEAD", f"{BASE}/stream")
    with connection.getresponse() as head:
        assert (head.status, head.getheader("content-type")) == (200, "text/event-stream")
    connection.request("GET", "/healthz")
    with connection.getresponse() as health:
        assert health.status == 200
    connection.close()


def test_what_is_no_http_request_is_closed(control: Asking) -> None:
    address = urlsplit(control.server.url)
    assert address.hostname is not None
    with socket.create_connection((address.hostname, address.port or 0), TIMEOUT_S) as raw:
        raw.sendall(
            b"GET /v1/clusters HTTP/1.1\r\nhost: 127.0.0.1\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
            b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        response = http.client.HTTPResponse(raw)
        response.begin()
        assert response.status == 403
    assert control.ask("GET", "/healthz").status == 200
