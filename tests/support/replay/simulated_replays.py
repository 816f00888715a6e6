"""Small replays in memory for tests: scripts, settings, and the events that are recorded."""

from collections.abc import Mapping, Sequence
from typing import Any

from fakebroker.replay.script.script import Act, Script
from fakebroker.replay.simulation.simulation import Simulation, SimulationSettings
from fakebroker.replay.workload.workload import Cluster

Row = dict[str, Any]
"""A row of `events.parquet`."""


def script(group: str, number: int, *acts: Act, **changes: Any) -> Script:
    """Return the script of the member `GROUP-NUMBER`; without acts it starts at once and stays."""
    plain = Script(
        population="some",
        group=group,
        member=f"{group}-{number}",
        instance_id=None,
        topics=("orders",),
        assignor="range",
        session_timeout_ms=6_000,
        rebalance_timeout_ms=8_000,
        heartbeat_interval_ms=1_000,
        commit_interval_ms=2_500,
        consume_per_s=100.0,
        acts=acts or (Act(0.0, "start"),),
    )
    return plain._replace(**changes)


def two_broker_settings(duration_s: float = 30.0, **changes: Any) -> SimulationSettings:
    """Return the settings of a simulation with two brokers and a topic of four partitions."""
    settings: Mapping[str, Any] = {"seed": 7, "cluster": Cluster(brokers=2), "topics": {"orders": 4}} | changes
    return SimulationSettings(duration_s=duration_s, **settings)


def play_in_memory(
    scripts: Sequence[Script], settings: SimulationSettings, *, is_fast: bool = True, partition: int = 0
) -> tuple[Simulation, list[Row]]:
    """Simulate an offsets partition; return the simulation and its events, in the order in which they were sent."""
    simulation = Simulation(scripts, partition, settings, is_fast=is_fast)
    rows = [row for batches in simulation.run() for batch in batches for row in batch.to_pylist()]
    return simulation, sorted(rows, key=_order)


def _order(row: Row) -> tuple[Any, ...]:
    return row["sent_us"], row["member"] or "", row["kind"], row["api"], repr(row)


def rows_of(rows: Sequence[Row], api: str, member: str | None = None) -> list[Row]:
    """Return the events of an API or an action; of one member, if it is given."""
    return [row for row in rows if row["api"] == api and member in (None, row["member"])]
