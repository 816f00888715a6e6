"""Access to the control server: tokens, loopback addresses, cross-origin requests, DNS rebinding."""

from collections.abc import Iterator

import pytest

from fakebroker.control.auth import Guard, effective_token, is_loopback
from fakebroker.control.problems import Problem
from tests.support.control.control_server import BASE, ControlHarness, controlled_cluster

HOST = "127.0.0.1:9644"


@pytest.fixture(scope="module")
def control() -> Iterator[ControlHarness]:
    with controlled_cluster(1, token="secret") as harness:
        yield harness


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_requests_without_the_token_are_rejected(control: ControlHarness, subtests: pytest.Subtests) -> None:
    assert control.request("GET", BASE, headers=bearer("secret")).status == 200
    for headers in ({}, bearer("wrong"), bearer(""), bearer("sécret"), {"authorization": "Basic c2VjcmV0"}):
        with subtests.test(headers=headers):
            response = control.request("GET", BASE, headers=headers)
            assert (response.status, response.headers["www-authenticate"]) == (401, "Bearer")
            assert response.json["field"] == "authorization"
            assert "secret" not in response.body.decode()


def test_only_health_and_static_pages_need_no_token(control: ControlHarness, subtests: pytest.Subtests) -> None:
    for path, status in {
        "/healthz": 200,
        "/": 200,
        "/docs": 200,
        "/metrics": 401,
        "/openapi.json": 401,
        f"{BASE}/stream": 401,
    }.items():
        with subtests.test(path=path):
            assert control.request("GET", path).status == status


def test_a_token_is_generated_for_addresses_other_than_loopback(subtests: pytest.Subtests) -> None:
    for host in ("127.0.0.1", "::1", "localhost", "127.8.8.8"):
        with subtests.test(host=host):
            assert is_loopback(host)
            assert effective_token(host, None) is None
            assert effective_token(host, "given") == "given"
    for host in ("0.0.0.0", "::", "192.168.0.1", "example.org"):
        with subtests.test(host=host):
            first, second = effective_token(host, None), effective_token(host, None)
            assert first is not None
            assert len(first) >= 32
            assert first != second


def test_cross_origin_writes_are_rejected(subtests: pytest.Subtests) -> None:
    guard = Guard("127.0.0.1")
    for headers in (
        {"origin": "http://evil.example"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):
        with subtests.test(headers=headers):
            with pytest.raises(Problem) as caught:
                guard.check("POST", BASE, {"host": HOST, **headers})
            assert caught.value.status == 403
            guard.check("GET", BASE, {"host": HOST, **headers})


def test_same_origin_writes_and_writes_without_a_browser_are_accepted(subtests: pytest.Subtests) -> None:
    for headers in (
        dict[str, str](),
        {"origin": f"http://{HOST}", "sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"},
    ):
        with subtests.test(headers=headers):
            Guard("127.0.0.1").check("POST", BASE, {"host": HOST, **headers})


def test_unknown_host_names_are_rejected_on_loopback(subtests: pytest.Subtests) -> None:
    for host in (
        "evil.example:9644", "", "[", "192.168.0.1", f"{HOST}/x", f"{HOST}?", f"{HOST}#", f"x@{HOST}", f"{HOST}\\x",
    ):  # fmt: skip
        with subtests.test(host=host):
            with pytest.raises(Problem) as caught:
                Guard("127.0.0.1").check("GET", BASE, {"host": host})
            assert caught.value.status == 421
            Guard("0.0.0.0").check("GET", BASE, {"host": host})


def test_the_response_to_a_cross_origin_write_names_the_origin(control: ControlHarness) -> None:
    response = control.request("POST", f"{BASE}/reset", headers={**bearer("secret"), "origin": "http://evil.example"})
    assert (response.status, response.json["field"]) == (403, "origin")
