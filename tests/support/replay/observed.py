"""Promises and availability checks on a few events, without Spark."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa

from fakebroker.replay.members.events import Event
from fakebroker.replay.promises.availability import UNDISTURBED, Circumstances, checks_of, conditions_of, observers
from fakebroker.replay.promises.catalog import PROMISES
from fakebroker.replay.promises.group_availability import Findings
from fakebroker.replay.promises.observer import Found, Run
from fakebroker.replay.report.one_pass import keyed, known_of, observations
from fakebroker.replay.run_summary import AvailabilityCheck
from fakebroker.replay.script.script import Script
from tests.support.replay.recorded_events import PARTITIONS, table


class BrokerTimes(NamedTuple):
    """Settings of the brokers that decide what they promise, as in `Run`."""

    delay_us: int = 3_000_000
    session_us: int = 45_000_000
    heartbeat_us: int = 5_000_000


DEFAULT_TIMES = BrokerTimes()


def observed(
    events: Sequence[Event] | pa.Table,
    scripts: Iterable[Script],
    times: BrokerTimes = DEFAULT_TIMES,
    promises: Iterable[str] = PROMISES,
    partitions: dict[str, int] | None = None,
) -> tuple[list[Found], dict[str | None, Counter[str]]]:
    """Return all violations, and the number of cases of each promise by group."""
    rows = events if isinstance(events, pa.Table) else table(events)
    known = known_of(rows)
    run = Run(
        end_us=known.sent_us,
        partitions=PARTITIONS if partitions is None else partitions,
        answering=frozenset(known.answering),
        listed_us=known.listed_us or None,
        **times._asdict(),
    )
    violations: list[Found] = []
    cases: dict[str | None, Counter[str]] = defaultdict(Counter)
    kinds = [kind for name in promises for kind in PROMISES[name]]
    for observation in observations(keyed(rows), scripts, kinds, run):
        for promise in observation.promises:
            violations += promise.found
            cases[observation.group.name][promise.name] += promise.counted
    return violations, cases


def check_availability_of(
    rows: pa.Table, scripts: Sequence[Script], run: Circumstances = UNDISTURBED
) -> list[AvailabilityCheck]:
    """Return the availability checks of a replay."""
    known, findings = known_of(rows, run), Findings()
    first_act_ms = min((each.acts[0].at_ms for each in scripts if each.acts), default=None)
    conditions = conditions_of(known.sums, first_act_ms, run)
    checks = observers(conditions, findings)
    deque(observations(keyed(rows), scripts, (), Run(end_us=known.sent_us), checks), maxlen=0)
    return checks_of(known.sums, conditions, findings, run)
