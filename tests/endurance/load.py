"""The clients of one process.

    python -m tests.endurance.load BOOTSTRAP_SERVERS NAME SEED SECONDS RATE

Prints a JSON object: requests, lost and late ones, checks of promises and which are broken.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

from tests.endurance.admin_clients import administrator
from tests.endurance.classic_members import ClassicGroup, classic_member
from tests.endurance.clients import GroupOffsets
from tests.endurance.consumer_members import ConsumerGroup, consumer_member
from tests.endurance.loop import Client, Loop
from tests.endurance.producers import (
    Transactions,
    committed_reader,
    idempotent_producer,
    log_reader,
    transactional_producer,
)

PROCESSES = 2
"""How many processes can run at the same time: each has partitions of its own."""

GROUPS, MEMBERS, PARTITIONS = 3, 4, 6
"""Groups of each protocol, their members, and the partitions of their topic "orders"."""

PRODUCERS, TRANSACTIONS = 6, 3
"""Producers of a process: each has its partition of "log", or two partitions of "payments"."""

TOPICS = {"orders": PARTITIONS, "log": PRODUCERS * PROCESSES, "payments": 2 * TRANSACTIONS * PROCESSES}


def clients(loop: Loop, name: str, seed: int) -> Iterator[tuple[Client, str]]:
    """Yield the clients of a process with their client ids.

    Args:
        loop: The loop that will run them.
        name: The number of the process, from 0.
        seed: The seed.
    """
    process = int(name)
    for number in range(GROUPS):
        classic = ClassicGroup(GroupOffsets(loop, f"classic-{name}-{number}", "orders"), range(PARTITIONS))
        consumer = ConsumerGroup(GroupOffsets(loop, f"consumer-{name}-{number}", "orders"))
        for member in range(MEMBERS):
            client_id = f"member-{member}"
            yield classic_member(loop, classic, f"{seed} {name} classic {number} {member}"), client_id
            yield consumer_member(loop, consumer, f"{seed} {name} consumer {number} {member}"), client_id
    for number in range(PRODUCERS):
        partition = process * PRODUCERS + number
        yield idempotent_producer(loop, "log", partition, f"{seed} {name} producer {number}"), "producer"
        yield log_reader(loop, "log", partition, f"{seed} {name} reader {number}"), "reader"
    for number in range(TRANSACTIONS):
        first = 2 * (process * TRANSACTIONS + number)
        transactions = Transactions(f"payments-{name}-{number}", "payments", (first, first + 1))
        yield transactional_producer(loop, transactions, f"{seed} {name} transactions {number}"), "payments"
        for partition in transactions.partitions:
            yield committed_reader(loop, transactions, partition, f"{seed} {name} {partition}"), "committed"
    yield administrator(loop, f"admin-{name}", f"{seed} {name} admin"), "admin"


def run(bootstrap_servers: str, name: str, seed: int, seconds: float, rate: float) -> dict[str, Any]:
    """Run the clients of a process, and return what they have seen.

    Args:
        bootstrap_servers: The addresses of all brokers, in the order of their node ids.
        name: The number of the process.
        seed: The seed.
        seconds: How long they run.
        rate: How many requests they send per second.
    """
    addresses = [address.rpartition(":") for address in bootstrap_servers.split(",")]
    count = GROUPS * MEMBERS * 2 + PRODUCERS * 2 + TRANSACTIONS * 3 + 1
    loop = Loop([(host, int(port)) for host, _, port in addresses], count / rate)
    for client, client_id in clients(loop, name, seed):
        loop.add(client, client_id)
    loop.run(seconds)
    return {
        "requests": loop.requests,
        "lost": loop.lost,
        "late": loop.late,
        "checks": dict(loop.checks),
        "broken": loop.broken,
    }


if __name__ == "__main__":
    servers, process_name, seed_text, seconds_text, rate_text = sys.argv[1:]
    print(json.dumps(run(servers, process_name, int(seed_text), float(seconds_text), float(rate_text))))
