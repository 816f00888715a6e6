"""Who may control: whoever is on this machine, and else who shows the token; never a page of another origin."""

from collections.abc import Iterator

import pytest

from fakebroker.control.auth import Guard, is_loopback, own_token
from fakebroker.control.problems import Problem
from tests.support.control.control_server import BASE, Asking, asking

HERE = "127.0.0.1:9644"


@pytest.fixture(scope="module")
def control() -> Iterator[Asking]:
    with asking(1, token="secret") as made:
        yield made


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_the_token_is_wanted(control: Asking) -> None:
    assert control.ask("GET", BASE, headers=bearer("secret")).status == 200
    for headers in ({}, bearer("wrong"), bearer(""), bearer("sécret"), {"authorization": "Basic c2VjcmV0"}):
        answer = control.ask(
            "GET", BASE, headers={k: v.encode("latin-1").decode("latin-1") for k, v in headers.items()}
        )
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert answer.json["field"] == "authorization"
        assert "secret" not in answer.body.decode()


def test_what_shows_nothing_of_the_cluster_needs_no_token(control: Asking) -> None:
    for path in ("/healthz", "/", "/docs"):
        assert control.ask("GET", path).status == 200
    for path in ("/metrics", "/openapi.json", f"{BASE}/stream"):
        assert control.ask("GET", path).status == 401


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.8.8"])
def test_a_loopback_address_wants_no_token(host: str) -> None:
    assert is_loopback(host)
    assert own_token(host, None) is None
    assert own_token(host, "given") == "given"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "example.org"])
def test_elsewhere_a_token_is_made(host: str) -> None:
    first, second = own_token(host, None), own_token(host, None)
    assert first is not None
    assert len(first) >= 32
    assert first != second


@pytest.mark.parametrize(
    "headers",
    [
        {"host": HERE, "origin": "http://evil.example"},
        {"host": HERE, "origin": "http://127.0.0.1:9999"},
        {"host": HERE, "origin": "null"},
        {"host": HERE, "sec-fetch-site": "cross-site"},
        {"host": HERE, "sec-fetch-site": "same-site"},
    ],
)
def test_no_page_of_another_origin_writes(headers: dict[str, str]) -> None:
    with pytest.raises(Problem) as caught:
        Guard("127.0.0.1").check("POST", BASE, headers)
    assert caught.value.status == 403
    Guard("127.0.0.1").check("GET", BASE, headers)


@pytest.mark.parametrize(
    "headers",
    [
        {"host": HERE},
        {"host": HERE, "origin": f"http://{HERE}", "sec-fetch-site": "same-origin"},
        {"host": HERE, "sec-fetch-site": "none"},
    ],
)
def test_its_own_page_and_no_page_write(headers: dict[str, str]) -> None:
    Guard("127.0.0.1").check("POST", BASE, headers)


@pytest.mark.parametrize(
    "host",
    ["evil.example:9644", "", "[", "192.168.0.1", f"{HERE}/x", f"{HERE}?", f"{HERE}#", f"x@{HERE}", f"{HERE}\\x"],
)
def test_a_name_that_was_made_to_point_here_is_refused(host: str) -> None:
    with pytest.raises(Problem) as caught:
        Guard("127.0.0.1").check("GET", BASE, {"host": host})
    assert caught.value.status == 421
    Guard("0.0.0.0").check("GET", BASE, {"host": host})


def test_a_refusal_reaches_the_page(control: Asking) -> None:
    answer = control.ask("POST", f"{BASE}/reset", headers={**bearer("secret"), "origin": "http://evil.example"})
    assert (answer.status, answer.json["field"]) == (403, "origin")
