"""The CPU time of a full rebalance by the number of members of the group; prints one line of JSON for each.

    python -m tests.bench.rebalance [--members N ...] [--rebalances N]

All members of one group send JoinGroup, then SyncGroup, over their own connections. Requests and responses are frames,
which are decoded and encoded in this process as in `fakebroker serve`; only sockets are missing. Prints the medians in
microseconds of CPU time for each member, and how much of it is spent until the join phase has ended.
"""

import argparse
import gc
import json
import statistics
import time

from fakebroker.cli.serve import GARBAGE_COLLECTIONS
from tests.support.cluster.group_frames import GroupFrames

MEMBERS = (500, 1_000, 2_000, 5_000, 10_000)
REBALANCES = 7


def rebalance_us(group: GroupFrames) -> tuple[float, float]:
    """Return the CPU time of the join phase and of the rest of a rebalance, in microseconds for each member."""
    members = len(group.member_ids)
    joins = group.join_requests()
    start = time.process_time()
    responses = group.send(joins)
    join_us = (time.process_time() - start) * 1e6 / members
    group.finish_join(responses)
    syncs = group.sync_requests()
    start = time.process_time()
    responses = group.send(syncs)
    sync_us = (time.process_time() - start) * 1e6 / members
    group.finish_sync(responses)
    return join_us, sync_us


def measure(members: int, rebalances: int) -> dict[str, float]:
    """Return the medians of several rebalances of a group."""
    group = GroupFrames(members)
    rebalance_us(group)
    gc.collect()
    times = [rebalance_us(group) for _ in range(rebalances)]
    return {
        "members": members,
        "us_per_member": round(statistics.median(join_us + sync_us for join_us, sync_us in times), 2),
        "join_us_per_member": round(statistics.median(join_us for join_us, _ in times), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, nargs="+", default=MEMBERS)
    parser.add_argument("--rebalances", type=int, default=REBALANCES)
    arguments = parser.parse_args()
    gc.set_threshold(*GARBAGE_COLLECTIONS)
    for members in arguments.members:
        print(json.dumps(measure(members, arguments.rebalances)), flush=True)


if __name__ == "__main__":
    main()
