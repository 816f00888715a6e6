"""HTTP around the operations: paths, methods, security headers, HEAD, requests that are not plain HTTP."""

import http.client
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.support.control.control_server import BASE, TIMEOUT_S, ControlHarness, controlled_cluster

STATIC_AND_STREAM = ("/", "/docs", "/healthz", "/page/page.js", f"{BASE}/stream")


@pytest.fixture(scope="module")
def control() -> Iterator[ControlHarness]:
    with controlled_cluster(1) as harness:
        yield harness


@pytest.fixture(scope="module")
def guarded() -> Iterator[ControlHarness]:
    with controlled_cluster(1, host="0.0.0.0", token="secret") as harness:
        yield harness


def test_no_encoding_of_a_path_bypasses_the_token(guarded: ControlHarness, subtests: pytest.Subtests) -> None:
    for path in (
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
    ):
        for host in ("x", "x/v1/clusters?", "x/v1/clusters#", "/v1/clusters?"):
            with subtests.test(path=path, host=host):
                response = guarded.request("GET", path, headers={"host": host})
                assert response.status in (401, 404)
                assert b"bootstrap" not in response.body


def test_the_path_is_that_of_the_request_line_not_of_the_host_header(guarded: ControlHarness) -> None:
    headers = {"host": "x/v1/clusters?", "authorization": "Bearer secret"}
    assert guarded.request("GET", "/metrics", headers=headers).headers["content-type"].startswith("text/plain")
    response = guarded.request("GET", "/page%2Fx", headers=headers)
    assert (response.status, response.json["value"]) == (404, "/page%2Fx")


def test_the_query_is_decoded(control: ControlHarness) -> None:
    response = control.request("GET", f"{BASE}/groups?sort=%3F%26")
    assert (response.status, response.json["value"]) == (422, "?&")


def test_responses_have_security_headers(
    control: ControlHarness, guarded: ControlHarness, subtests: pytest.Subtests
) -> None:
    for path in (*STATIC_AND_STREAM, BASE, "/nowhere", "/page/nowhere.js"):
        with subtests.test(path=path):
            headers = control.request("HEAD", path).headers
            assert headers["content-security-policy"] == "frame-ancestors 'none'"
            assert headers["x-frame-options"] == "DENY"
            assert headers["x-content-type-options"] == "nosniff"
    assert guarded.request("GET", BASE).headers["x-content-type-options"] == "nosniff"  # Status 401.


def test_other_methods_are_rejected(control: ControlHarness, subtests: pytest.Subtests) -> None:
    rejected = [(path, method) for path in STATIC_AND_STREAM for method in ("POST", "DELETE", "TRACE", "BREW")]
    rejected += [("/v1/clusters", method) for method in ("PUT", "TRACE", "BREW")]
    for path, method in rejected:
        with subtests.test(path=path, method=method):
            response = control.request(method, path)
            allowed = "GET, HEAD, OPTIONS, POST" if path == "/v1/clusters" else "GET, HEAD, OPTIONS"
            assert (response.status, response.headers["allow"]) == (405, allowed)
            assert response.headers["content-type"] == "application/problem+json"
            assert (response.json["field"], response.json["value"]) == ("method", method)


def test_options_lists_the_methods(control: ControlHarness, subtests: pytest.Subtests) -> None:
    for path, allowed in {
        "/": "GET, HEAD, OPTIONS",
        f"{BASE}/stream": "GET, HEAD, OPTIONS",
        BASE: "DELETE, GET, HEAD, OPTIONS",
        f"{BASE}/reset": "OPTIONS, POST",
    }.items():
        with subtests.test(path=path):
            response = control.request("OPTIONS", path)
            assert (response.status, response.headers["allow"], response.body) == (204, allowed, b"")


def test_head_returns_the_length_of_get_without_a_body(control: ControlHarness, subtests: pytest.Subtests) -> None:
    for path in ("/", "/healthz", "/v1/clusters"):
        with subtests.test(path=path):
            head, get = control.request("HEAD", path), control.request("GET", path)
            assert (head.status, head.headers["content-length"], head.body) == (200, str(len(get.body)), b"")


def test_head_of_a_stream_ends_and_the_connection_can_be_used_again(control: ControlHarness) -> None:
    connection = control.connect()
    connection.request("HEAD", f"{BASE}/stream")
    with connection.getresponse() as head:
        assert (head.status, head.getheader("content-type")) == (200, "text/event-stream")
    connection.request("GET", "/healthz")
    with connection.getresponse() as health:
        assert health.status == 200
    connection.close()


def test_websockets_are_rejected(control: ControlHarness) -> None:
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
    assert control.request("GET", "/healthz").status == 200
