"""The decision table of ACLs, and filters."""

from typing import NamedTuple

import pytest
from hypothesis import given, strategies as st

from fakebroker.security.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    AclStore,
    PatternType,
    ResourcePattern,
    ResourceType,
)

READ, WRITE, DESCRIBE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


def acl(text: str) -> Acl:
    """Parse an ACL, such as "allow alice READ orders"; "ord.." is a prefix, and "alice@10.0.0.1" has a host."""
    permission, who, operation, name = text.split()
    user, _, host = who.partition("@")
    pattern = ResourcePattern(TOPIC, name.removesuffix(".."), PREFIXED if name.endswith("..") else LITERAL)
    return Acl(pattern, f"User:{user}", host or "*", AclOperation[operation], AclPermission[permission.upper()])


class Decision(NamedTuple):
    """ACLs, separated by commas, and whether alice at 10.0.0.1 may do something with the topic "orders"."""

    acls: str
    operation: AclOperation
    is_allowed: bool


DECISIONS = (
    Decision("", READ, False),
    Decision("allow alice READ orders", READ, True),
    Decision("allow bob READ orders", READ, False),
    Decision("allow alice READ orders", WRITE, False),
    Decision("allow alice READ order", READ, False),
    Decision("allow alice READ orders2", READ, False),
    Decision("allow * READ orders", READ, True),
    Decision("allow alice READ *", READ, True),
    Decision("allow alice READ ord..", READ, True),
    Decision("allow alice READ orders..", READ, True),
    Decision("allow alice READ orders2..", READ, False),
    Decision("allow alice READ *..", READ, False),
    Decision("allow alice ALL orders", READ, True),
    Decision("allow alice@10.0.0.1 READ orders", READ, True),
    Decision("allow alice@10.0.0.2 READ orders", READ, False),
    # A denial has precedence, wherever it is.
    Decision("allow alice READ orders,deny alice READ orders", READ, False),
    Decision("deny alice READ orders,allow alice READ orders", READ, False),
    Decision("allow alice READ orders,deny * READ *", READ, False),
    Decision("allow alice READ *,deny alice READ ord..", READ, False),
    Decision("allow alice READ orders,deny alice ALL ord..", READ, False),
    Decision("allow alice READ orders,deny bob READ orders", READ, True),
    Decision("allow alice READ orders,deny alice@10.0.0.2 READ orders", READ, True),
    Decision("allow alice READ orders,deny alice WRITE orders", READ, True),
    # Permissions include the permission to describe, denials do not.
    Decision("allow alice READ orders", DESCRIBE, True),
    Decision("allow alice WRITE orders", DESCRIBE, True),
    Decision("allow alice DELETE orders", DESCRIBE, True),
    Decision("allow alice ALTER orders", DESCRIBE, True),
    Decision("allow alice CREATE orders", DESCRIBE, False),
    Decision("allow alice ALTER_CONFIGS orders", DESCRIBE, False),
    Decision("allow alice ALTER_CONFIGS orders", AclOperation.DESCRIBE_CONFIGS, True),
    Decision("allow alice READ orders", AclOperation.DESCRIBE_CONFIGS, False),
    Decision("allow alice DESCRIBE orders", READ, False),
    Decision("allow alice ALL orders,deny alice READ orders", DESCRIBE, True),
    Decision("allow alice ALL orders,deny alice DESCRIBE orders", READ, True),
    Decision("allow alice ALL orders,deny alice ALL orders", DESCRIBE, False),
)


def store(texts: str, *, allows_without_acls: bool = False) -> AclStore:
    return AclStore([acl(each) for each in texts.split(",") if each], allows_without_acls=allows_without_acls)


@pytest.mark.parametrize("decision", DECISIONS, ids=[f"{each.acls}: {each.operation.name}" for each in DECISIONS])
def test_decisions(decision: Decision) -> None:
    acls = store(decision.acls)
    assert acls.allows("User:alice", "10.0.0.1", decision.operation, TOPIC, "orders") is decision.is_allowed


def test_other_types_of_resources_are_not_affected() -> None:
    assert not store("allow alice ALL *").allows("User:alice", "h", READ, GROUP, "orders")


def test_super_users_may_do_everything() -> None:
    acls = AclStore([acl("deny * ALL *")], super_users=["User:alice"])
    assert acls.allows("User:alice", "h", WRITE, TOPIC, "orders")
    assert not acls.allows("User:bob", "h", WRITE, TOPIC, "orders")
    assert acls.copy().allows_any("User:alice", "h", WRITE, TOPIC)


def test_resources_without_acls_may_be_open() -> None:
    """An ACL of anybody, for any operation, closes the resource to all whom no ACL allows."""
    for texts, expected in (
        ("", True),
        ("allow bob READ news", True),
        ("allow bob READ orders", False),
        ("deny bob READ orders", False),
        ("allow bob READ *", False),
        ("allow bob READ ord..", False),
        ("allow alice READ orders", True),
    ):
        acls = store(texts, allows_without_acls=True)
        assert acls.allows("User:alice", "h", READ, TOPIC, "orders") is expected, texts
        acls.add(acl("allow bob READ orders"))
        acls.remove(acl("allow bob READ orders"))
        assert len(acls) == len([each for each in texts.split(",") if each and each != "allow bob READ orders"])


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ("", False),
        ("allow alice WRITE orders", True),
        ("allow alice ALL orders", True),
        ("allow alice READ orders", False),
        ("allow alice ALTER orders", False),
        ("allow bob WRITE orders", False),
        ("allow alice WRITE orders,deny alice WRITE orders", False),
        ("allow alice WRITE orders,deny alice WRITE ord..", False),
        ("allow alice WRITE orders,deny alice WRITE orders..", False),
        ("allow alice WRITE orders,deny alice WRITE *", False),
        ("allow alice WRITE *,deny alice WRITE ord..", True),
        ("allow alice WRITE *,deny alice WRITE *", False),
        ("allow alice WRITE ord..,deny alice WRITE orders", True),
        ("allow alice WRITE ord..,deny alice WRITE or..", False),
        ("allow alice WRITE orders,deny alice READ orders", True),
        ("allow alice WRITE orders,allow alice WRITE news,deny alice ALL o..", True),
    ],
)
def test_any_topic(texts: str, expected: bool) -> None:
    assert store(texts).allows_any("User:alice", "h", WRITE, TOPIC) is expected


NAMES = st.text("ab", min_size=1, max_size=3)
ACLS = st.builds(
    Acl,
    st.builds(
        ResourcePattern, st.sampled_from([TOPIC, GROUP]), NAMES | st.just("*"), st.sampled_from([LITERAL, PREFIXED])
    ),
    st.sampled_from(["User:a", "User:b", "User:*"]),
    st.sampled_from(["h", "i", "*"]),
    st.sampled_from([READ, WRITE, DESCRIBE, ALL]),
    st.sampled_from([ALLOW, DENY]),
)


@given(st.lists(ACLS, max_size=8), st.lists(ACLS, max_size=8), NAMES, st.sampled_from([READ, WRITE, DESCRIBE]))
def test_the_index_finds_the_same_acls_as_a_search(
    acls: list[Acl], removed: list[Acl], name: str, operation: AclOperation
) -> None:
    indexed = AclStore([*acls, *removed])
    for each in removed:
        indexed.remove(each)
    applying = [each for each in indexed if AclFilter(TOPIC, name, PatternType.MATCH).matches(each)]
    concerned = [each for each in applying if each.concerns("User:a", "h") and each.covers(operation)]
    expected = bool(concerned) and all(each.permission is ALLOW for each in concerned)
    assert indexed.allows("User:a", "h", operation, TOPIC, name) is expected


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (AclFilter(), ["orders", "ord..", "*", "news"]),
        (AclFilter(name="orders"), ["orders"]),
        (AclFilter(name="orders", pattern_type=LITERAL), ["orders"]),
        (AclFilter(name="ord", pattern_type=PREFIXED), ["ord.."]),
        (AclFilter(name="orders", pattern_type=PREFIXED), []),
        (AclFilter(pattern_type=PREFIXED), ["ord.."]),
        (AclFilter(name="orders", pattern_type=PatternType.MATCH), ["orders", "ord..", "*"]),
        (AclFilter(pattern_type=PatternType.MATCH), ["orders", "ord..", "*", "news"]),
        (AclFilter(resource_type=GROUP), []),
        (AclFilter(principal="User:bob"), ["news"]),
        (AclFilter(host="1.2.3.4"), ["news"]),
        (AclFilter(host="*"), ["orders", "ord..", "*"]),
        (AclFilter(operation=WRITE), ["ord.."]),
        (AclFilter(operation=DESCRIBE), []),
        (AclFilter(permission=DENY), ["*"]),
        (AclFilter(operation=AclOperation.UNKNOWN), []),
        (AclFilter(pattern_type=PatternType.UNKNOWN), []),
    ],
)
def test_filters(wanted: AclFilter, expected: list[str]) -> None:
    acls = store("allow alice READ orders,allow alice WRITE ord..,deny alice READ *,allow bob@1.2.3.4 READ news")
    found = [each.pattern.name + ".." * (each.pattern.pattern_type is PREFIXED) for each in acls.matching(wanted)]
    assert found == expected


def test_unknown_codes() -> None:
    assert (AclOperation(99), AclPermission(99), ResourceType(99), PatternType(99)) == (0, 0, 0, 0)
