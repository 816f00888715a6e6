"""OAUTHBEARER with unsecured tokens: which are valid, and the answers to those that are not."""

from typing import Any

import pytest

from fakebroker.errors import AuthenticationError, ProtocolError
from fakebroker.security.oauthbearer import OAuthBearerServer, TokenRules
from tests.support.security.tokens import first_message, token

NOW_MS = 1_000_000_000.0
GOOD = {"sub": "alice", "exp": 1_000_005, "iat": 1_000_000}


def server() -> OAuthBearerServer:
    return OAuthBearerServer(lambda: NOW_MS)


@pytest.mark.parametrize(
    "message",
    [
        first_message(token(GOOD)),
        first_message(token({"sub": "alice", "exp": 1_000_005.0})),
        first_message(token(GOOD), authorization_id="alice"),
        first_message(token(GOOD), trace="a b", other="x"),
        first_message(token(GOOD)).replace(b"Bearer ", b"bEARER  "),
    ],
)
def test_a_valid_token_authenticates(message: bytes) -> None:
    exchange = server()
    assert exchange.respond(message) == b""
    assert (exchange.user, exchange.expires_ms) == ("alice", 1_000_005_000)


@pytest.mark.parametrize(
    "claims",
    [
        {**GOOD, "exp": 1_000_000},
        {**GOOD, "exp": "1000005"},
        {**GOOD, "exp": True},
        {**GOOD, "exp": float("nan")},
        {**GOOD, "exp": float("inf")},
        {**GOOD, "exp": 10**300},
        {"sub": "alice"},
        {**GOOD, "iat": 1_000_001},
        {**GOOD, "iat": "x"},
        {**GOOD, "sub": " "},
        {**GOOD, "sub": 7},
        {"exp": 1_000_005},
        [],
    ],
)
def test_an_invalid_token_is_answered_and_then_refused(claims: Any) -> None:
    exchange = server()
    assert exchange.respond(first_message(token(claims))) == b'{"status":"invalid_token"}'
    assert exchange.user is None
    with pytest.raises(AuthenticationError) as refused:
        exchange.respond(b"\x01")
    assert str(refused.value) == '{"status":"invalid_token"}'


@pytest.mark.parametrize(
    "text",
    [
        token(GOOD, alg="HS256"),
        token(GOOD) + "c2lnbmVk",
        token(GOOD).removesuffix("."),
        token(GOOD) + ".",
        "a.b.c",
        "...",
        "x",
    ],
)
def test_other_tokens_are_invalid(text: str) -> None:
    assert server().respond(first_message(text)) == b'{"status":"invalid_token"}'


def test_another_token_may_follow_an_invalid_one() -> None:
    exchange = server()
    exchange.respond(first_message("x"))
    assert exchange.respond(first_message(token(GOOD))) == b""
    assert exchange.user == "alice"


@pytest.mark.parametrize(
    "message",
    [b"", b"\x01", b"n,,", b"n,,\x01\x01", b"y,,\x01auth=Bearer x\x01\x01", b"n,,\x01auth=Bearer\x01\x01",
     b"n,,\x01auth=Bearer x\x01", b"n,,\x01auth=Bearer x y\x01\x01", b"n,,\x01a1=x\x01auth=Bearer x\x01\x01"],
)  # fmt: skip
def test_malformed_messages_are_refused_without_a_reason(message: bytes) -> None:
    with pytest.raises(AuthenticationError) as refused:
        server().respond(message)
    assert not str(refused.value)


def test_another_scheme_and_another_authorization_id_are_refused() -> None:
    with pytest.raises(ProtocolError):
        server().respond(first_message(token(GOOD)).replace(b"Bearer", b"Basic"))
    with pytest.raises(AuthenticationError, match="authorization id"):
        server().respond(first_message(token(GOOD), authorization_id="bob"))


@pytest.mark.parametrize(
    ("scope", "required", "is_enough"),
    [
        ("LOGIN", ("LOGIN",), True),
        (" LOGIN ", ("LOGIN",), True),
        (["READ", " LOGIN ", ""], ("LOGIN", "READ"), True),
        ([1, True, None], ("1", "true", "null"), True),
        (None, ("null",), True),
        ("LOGIN READ", ("LOGIN READ",), True),  # A string is one scope; a setting has none with a space.
        ("LOGIN READ", ("LOGIN",), False),
        (["LOGIN"], ("LOGIN", "READ"), False),
        ([["LOGIN"]], ("LOGIN",), False),
        ({"LOGIN": 1}, ("LOGIN",), False),
        ([], ("LOGIN",), False),
        ("anything", (), True),
    ],
)
def test_required_scopes(scope: Any, required: tuple[str, ...], is_enough: bool) -> None:
    exchange = OAuthBearerServer(lambda: NOW_MS, TokenRules(required_scope=required))
    answer = exchange.respond(first_message(token({**GOOD, "scope": scope})))
    refusal = f'{{"status":"insufficient_scope", "scope":"[{", ".join(required)}]"}}'
    assert answer.decode() == ("" if is_enough else refusal)
    assert exchange.user == ("alice" if is_enough else None)
    if not is_enough:
        with pytest.raises(AuthenticationError) as refused:
            exchange.respond(b"\x01")
        assert str(refused.value) == refusal


def test_a_scope_that_is_missing_or_a_number() -> None:
    exchange = OAuthBearerServer(lambda: NOW_MS, TokenRules(required_scope=("LOGIN",)))
    assert exchange.respond(first_message(token(GOOD))) == b'{"status":"insufficient_scope", "scope":"[LOGIN]"}'
    assert server().respond(first_message(token({**GOOD, "scope": 1}))) == b'{"status":"invalid_token"}'


@pytest.mark.parametrize(
    ("claims", "is_valid"),
    [
        ({"exp": 999_998.001}, True),
        ({"exp": 999_998}, False),
        ({"iat": 1_000_002, "exp": 1_000_005}, True),
        ({"iat": 1_000_002.001, "exp": 1_000_005}, False),
        ({"iat": 999_999, "exp": 999_999}, False),
    ],
)
def test_clock_skew(claims: dict[str, float], is_valid: bool) -> None:
    exchange = OAuthBearerServer(lambda: NOW_MS, TokenRules(clock_skew_ms=2_000))
    exchange.respond(first_message(token({"sub": "alice", **claims})))
    assert (exchange.user is not None) is is_valid
