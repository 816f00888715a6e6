"""Arguments for the commands, views and conditions of handles, and for the other public methods of `FakeCluster`.

For tests that call all of them.
"""

from typing import Any

from fakebroker import AclRule, FakeCluster, MemberSeed
from fakebroker.cluster.handles.definition import Definition

_STABLE = {"is": "group.stable", "group_id": "stable"}
_ACL = {"principal": "alice", "operation": "READ", "topic": "orders"}

KEYS: dict[str, dict[str, Any]] = {
    "": {},
    "acls": {},
    "append_failure": {"id": "1"},
    "broker": {"node_id": 1},
    "brokers": {},
    "fault": {"id": "1"},
    "group": {"group_id": "stable"},
    "partition": {"topic": "orders", "partition": 0},
    "topic": {"topic": "orders"},
    "transaction": {"transactional_id": "payments"},
}
"""The key of a handle of each kind, by its name in events."""

ARGUMENTS: dict[str, dict[str, Any]] = {
    "acls.allow": _ACL,
    "acls.deny": _ACL,
    "acls.remove": {**_ACL, "permission": "allow"},
    "advance": {"seconds": 1},
    "broker.set_network": {"round_trip_s": 1.0},
    "broker.start": {"node_id": 2},
    "broker.upgrade": {"as_version": "2.8"},
    "brokers.add": {"like": {"as_version": "2.8"}},
    "expect": {"condition": _STABLE},
    "group.choose_assignment": {"assignment": {"app": ["orders-0"]}},
    "group.choose_leader": {"member": "app"},
    "group.committed": {"partition": "orders-1", "at_least": 6},
    "group.delay_sync": {"member": "app", "seconds": 1},
    "group.evict": {"member": "app"},
    "group.expire": {"member": "app"},
    "group.fence_epoch": {"member": "app"},
    "group.fence_instance": {"instance_id": "instance"},
    "group.hold": {"state": "PreparingRebalance"},
    "group.member": {"member": "app"},
    "group.move_coordinator": {"to": 2},
    "group.release_sync": {"member": "app"},
    "group.seed": {"group_id": "new"},
    "group.set_offsets": {"offsets": {"orders-0": 1}, "force": True},
    "group.state": {"state": "Dead"},
    "holds": {"condition": _STABLE},
    "inject_fault": {"api": "Heartbeat", "error": "NOT_COORDINATOR"},
    "partition.has": {"at_least": 2},
    "partition.move_leader": {"topic": "__consumer_offsets", "partition": 1, "to": 2},
    "partition.seed_hanging_transaction": {"partition": 2},
    "seed_groups": {"groups": []},
    "topic.create": {"topic": "more"},
    "topic.create_partitions": {"total": 7},
    "topic.has": {"at_least": 2},
    "topic.produce": {"values": ["a"]},
    "transaction.hold": {"state": "PrepareCommit"},
    "transaction.move_coordinator": {"to": 2},
    "transaction.seed": {"transactional_id": "new"},
    "transaction.state": {"state": "Dead"},
}
"""Arguments of the definitions that require some, by the name of the definition; with other keys than those above."""


def event_of(definition: Definition) -> dict[str, Any]:
    """Return the key and the arguments of a command, a view or a condition, by name, as plain data."""
    return {**KEYS[definition.thing], **ARGUMENTS.get(definition.name, {})}


def call_of(definition: Definition) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the key of the handle and the arguments of a command, a view or a condition, by name."""
    given = event_of(definition)
    return {name: given.pop(name) for name in definition.keys}, given


def new_cluster() -> FakeCluster:
    """Return a cluster that has not started, with a stable group of one static member, a transaction, and an ACL."""
    acls = [AclRule(principal="alice", operation="READ", topic="orders")]
    cluster = FakeCluster(topics={"orders": 6}, clock="manual", acls=acls)
    member = MemberSeed(client_id="app", instance_id="instance")
    cluster.group("stable").seed([member], topics=["orders"], offsets={"orders-1": 5}, lag={"orders-1": 0})
    cluster.transaction("payments").seed(records={"orders-0": 1})
    return cluster
