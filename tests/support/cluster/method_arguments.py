"""Arguments for the public methods of `FakeCluster`, for tests that call all of them."""

import os
from typing import Any

import trio

from fakebroker import AclRule, Broker, FakeCluster, Fault, MemberSeed

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "abort_transaction": ("payments",),
    "add_broker": (Broker(as_version="2.8"),),
    "add_fault": (Fault(api="Heartbeat", error="NOT_COORDINATOR"),),
    "advance": (1,),
    "allow": ("alice", "READ"),
    "assert_never": ("JoinGroup",),
    "assert_order": ("JoinGroup",),
    "bootstrap_servers_of": ("PLAINTEXT",),
    "call": (lambda: True,),
    "call_async": (lambda: True,),
    "choose_assignment": ("stable", {"app": ["orders-0"]}),
    "choose_leader": ("stable", "app"),
    "coordinator_of": ("stable",),
    "create_partitions": ("orders", 7),
    "create_topic": ("more", 2),
    "delay_sync": ("stable", "app", 1),
    "delete_topic": ("orders",),
    "deny": ("alice", "READ"),
    "evict": ("stable", "app"),
    "expire": ("stable", "app"),
    "explain": ("stable",),
    "explain_transaction": ("payments",),
    "export_journal": (os.devnull,),
    "fail": ("Heartbeat",),
    "fail_append": ("stable",),
    "fail_transaction_append": ("payments",),
    "fence": ("stable", "instance"),
    "fence_epoch": ("stable", "app"),
    "fence_producer": ("payments",),
    "force_rebalance": ("stable",),
    "group": ("stable",),
    "hold": ("stable", "PreparingRebalance"),
    "hold_markers": ("payments",),
    "move_coordinator": ("stable", 2),
    "move_offsets_partition": (1, 2),
    "move_transaction_coordinator": ("payments", 2),
    "offsets": ("stable",),
    "release": ("stable",),
    "release_markers": ("payments",),
    "release_sync": ("stable", "app"),
    "remove_acl": ("alice", "READ", "allow"),
    "remove_broker": (1,),
    "produce": ("orders", ["a"]),
    "records": ("orders",),
    "restart_broker": (1,),
    "seed_group": ("new",),
    "seed_groups": ([],),
    "seed_hanging_transaction": ("orders-2",),
    "seed_transaction": ("new",),
    "set_broker": (1,),
    "start_broker": (2,),
    "start_task": (trio.sleep_forever,),
    "stop_broker": (1,),
    "timeline": ("stable",),
    "transaction": ("payments",),
    "transaction_timeline": ("payments",),
    "upgrade_broker": (1, "2.8"),
    "wait_for_commit": ("stable", "orders-1"),
    "wait_for_generation": ("stable",),
    "wait_for_member": ("stable", "app"),
    "wait_for_request": ("JoinGroup",),
    "wait_for_transaction": ("payments", "Dead"),
    "wait_for_state": ("stable", "Dead"),
    "wait_until": ("nothing", lambda cluster: False),
    "watch": (lambda: True,),
    "when_stopped": (lambda: None,),
}
"""Arguments of the methods that require some."""

_ORDERS = {"topic": "orders"}

KEYWORDS: dict[str, dict[str, Any]] = {
    "allow": _ORDERS,
    "deny": _ORDERS,
    "fail": {"error": "NOT_COORDINATOR"},
    "remove_acl": _ORDERS,
    "set_broker": {"round_trip_s": 1.0},
    "wait_for_commit": {"at_least": 6},
    "wait_for_generation": {"above": 100},
}


def new_cluster() -> FakeCluster:
    """Return a cluster that has not started, with a stable group of one static member, a transaction, and an ACL."""
    acls = [AclRule(principal="alice", operation="READ", topic="orders")]
    cluster = FakeCluster(topics={"orders": 6}, clock="manual", acls=acls)
    member = MemberSeed(client_id="app", instance_id="instance")
    cluster.seed_group("stable", [member], topics=["orders"], offsets={"orders-1": 5}, lag={"orders-1": 0})
    cluster.seed_transaction("payments", records={"orders-0": 1})
    return cluster
