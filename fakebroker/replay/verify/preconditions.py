"""What a workload needs to exercise each promise, as far as its file tells. Does not depend on Spark.

Without the preconditions, no run of the workload can have a case of the promise. With them, a run may still have none.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import inf

from fakebroker.cluster.configs.settings import KAFKA_DEFAULTS, Config
from fakebroker.errors import ConfigError
from fakebroker.replay.promises.catalog import CONSUMER_PROMISES, TRANSACTION_PROMISES, applicable_promises
from fakebroker.replay.promises.observer import BOUND_US, OVERDUE_US, TARGET_HEARTBEATS
from fakebroker.replay.promises.transactions import OVERDUE_TRANSACTION_US
from fakebroker.replay.workload.population import Groups
from fakebroker.replay.workload.table import ends
from fakebroker.replay.workload.timeline import CONDITION_EVENTS
from fakebroker.replay.workload.workload import Workload

_BOUND_S = BOUND_US / 1e6
_OVERDUE_S = OVERDUE_US / 1e6
_OVERDUE_TRANSACTION_S = OVERDUE_TRANSACTION_US / 1e6
_INITIAL_DELAY = "group.initial.rebalance.delay.ms"
_METRICS_BY_SETTING = {
    _INITIAL_DELAY: (
        *("generations", "rebalances", "rebalance_p50_ms", "rebalance_p99_ms", "rebalance_max_ms"),
        *("unassigned_member_s", "unassigned_partition_s", "members_joined"),
    ),
    "group.consumer.heartbeat.interval.ms": (
        *("requests", "requests_per_s", "rebalance_p50_ms", "rebalance_p99_ms", "rebalance_max_ms"),
        *("unassigned_member_s", "unassigned_partition_s"),
    ),
    "group.consumer.session.timeout.ms": ("unassigned_member_s", "unassigned_partition_s", "generations"),
}
"""The metrics that depend on a setting of the brokers."""
_ON_ASSIGNMENTS = (
    "one-owner",
    "covered",
    "one-leader",
    "generations-rise",
    "commits-kept",
    "silent-out",
    "beating-stays",
    "stale-refused",
    "fenced-refused",
    "unknown-refused",
)
"""Promises about members that have got an assignment."""
_ON_GENERATIONS = ("covered", "one-leader", "generations-rise")
"""Promises about groups in which all members use the classic protocol."""


def unmet_preconditions(workload: Workload, *, is_embedded: bool = True) -> dict[str, str]:
    """Return what the workload lacks to exercise promises, by their names; only promises that it checks.

    Args:
        workload: The workload.
        is_embedded: Whether it runs on its embedded cluster, whose coordinators only move by events of the workload.
    """
    unmet, wanted = dict(_unmet(workload, is_embedded)), wanted_promises(workload)
    return {name: lacks for name, lacks in unmet.items() if name in wanted}


def wanted_promises(workload: Workload) -> Sequence[str]:
    """Return the names of the promises that a workload checks. Without a list, these are all that apply to it."""
    if workload.promises.check is not None:
        return workload.promises.check
    return applicable_promises(is_transactional=workload.is_transactional, has_consumers=bool(_consumers(workload)))


def check_required(workload: Workload, *, is_embedded: bool = True) -> None:
    """Check that a run of the workload can exercise the promises that it requires.

    Args:
        workload: The workload.
        is_embedded: As for `unmet_preconditions`.

    Raises:
        ConfigError: It cannot.
    """
    unmet = dict(_unmet(workload, is_embedded))
    mistakes = [
        ConfigError.of(f"promises.require[{index}]", name, unmet[name])
        for index, name in enumerate(workload.promises.require)
        if name in unmet
    ]
    if mistakes:
        raise ConfigError.all_of(mistakes)


def warnings(workload: Workload, *, is_embedded: bool = True) -> list[str]:
    """Return a line for each promise that a run of the workload cannot exercise, or only in part.

    Args:
        workload: The workload.
        is_embedded: As for `unmet_preconditions`.
    """
    unmet = unmet_preconditions(workload, is_embedded=is_embedded)
    lines = [f"This run cannot exercise the promise {name}: expected {lacks}" for name, lacks in unmet.items()]
    shortest_ms = min(
        population.rebalance_timeout_ms * (1 - population.timeout_jitter) for population in workload.groups
    )
    is_checked = workload.promises.check is None or "answered" in workload.promises.check
    if is_checked and workload.duration_s < shortest_ms / 1000 + _OVERDUE_S:
        lines.append(
            "This run exercises the promise answered in part: duration_s "
            f"({workload.duration_s:g}) is less than rebalance_timeout_ms ({shortest_ms:g}) plus {_OVERDUE_S:g} s, so "
            "JoinGroup and SyncGroup are overdue only if requests of other members show it"
        )
    return lines


def setting_warnings(workload: Workload, settings: Mapping[str, str]) -> list[str]:
    """Return a line for each setting on which the results depend, and that a cluster has otherwise than the workload.

    Args:
        workload: The workload. Its `[cluster]` says for which settings its expectations were written.
        settings: The settings of a broker, by Kafka's names.
    """
    expected, lines = Config({**KAFKA_DEFAULTS, **workload.cluster.config}), []
    for name, metrics in _METRICS_BY_SETTING.items():
        written_for, actual = str(expected.number(name)), settings.get(name)
        if actual is None or actual == written_for:
            continue
        concerned = [str(each) for each in workload.expect if each.kind in metrics]
        line = f"The cluster has {name}={actual}; the workload was written for {written_for}"
        if name == _INITIAL_DELAY and workload.duration_s * 1000 <= float(actual):
            lines.append(f"{line}. Its duration_s ({workload.duration_s:g}) ends before the first group is assigned")
        elif concerned:
            lines.append(f"{line}. These expectations depend on it: {'; '.join(concerned)}")
    return lines


def _unmet(workload: Workload, is_embedded: bool) -> Iterator[tuple[str, str]]:
    """Yield the promises whose preconditions are not met, with what would be expected instead."""
    duration_s, groups = workload.duration_s, workload.groups
    delay_ms = Config(workload.cluster.config).number(_INITIAL_DELAY)
    consumers, classic = _consumers(workload), [each for each in groups if not each.has_consumer_members]
    if not classic:
        yield from ((name, "groups that only use the classic protocol") for name in _ON_GENERATIONS)
    if not consumers:
        yield from ((name, "members of the protocol 'consumer'") for name in CONSUMER_PROMISES)
    else:
        yield from _unmet_of_consumers(workload, consumers)
    if is_embedded and duration_s * 1000 <= delay_ms and not consumers:
        names = (*_ON_ASSIGNMENTS, *TRANSACTION_PROMISES)
        yield from ((name, f"duration_s > {delay_ms / 1000:g} ({_INITIAL_DELAY})") for name in names)
        return
    has_events = any(event["do"] not in CONDITION_EVENTS for event in workload.event)
    is_changing = any(map(_changes, groups)) or has_events
    if not any(map(_has_several_members, groups)):
        yield "one-owner", "groups with several members"
    if classic and not any(map(_has_several_members, classic)):
        yield "one-leader", "groups with several members"
    if classic and not is_changing:
        yield "generations-rise", "members that join an existing group, for example with arrival, restart or grow"
    if not any(each.commit_interval_ms and not each.transactional for each in groups):
        yield "commits-kept", "members that commit without transactions (commit_interval_ms > 0)"
    elif not is_changing and not any(load.kind == "fetch-offsets" for load in workload.load):
        yield "commits-kept", "members that join an existing group, or a [[load]] of kind fetch-offsets"
    if lacks := _lacks_silence(workload):
        yield "silent-out", lacks
    needed_s = min(each.arrival.at_s + each.session_timeouts_ms[0] / 1000 for each in groups)
    if duration_s <= needed_s:
        yield "beating-stays", f"duration_s > {needed_s:g}, when the first member has run for its session timeout"
    is_left_behind = has_events or any(map(_can_be_left_behind, groups))
    if not any(map(_changes, consumers)) and not (classic and is_left_behind):
        yield "stale-refused", "members that send requests after their group has continued without them (pause, zombie)"
    if not any(each.static or (each.grow is not None and each.grow.how == "static") for each in groups):
        yield "fenced-refused", "static members (static > 0)"
    if not is_left_behind:
        yield "unknown-refused", "members that send requests after their session has expired (pause, zombie)"
    yield from _unmet_of_transactions(workload)
    if is_embedded and not has_events:
        yield "one-coordinator", "an [[event]] that moves coordinators, such as broker.stop"


def _consumers(workload: Workload) -> list[Groups]:
    return [population for population in workload.groups if population.has_consumer_members]


def _unmet_of_consumers(workload: Workload, consumers: Sequence[Groups]) -> Iterator[tuple[str, str]]:
    """Yield the promises to members of the consumer protocol whose preconditions are not met."""
    changing = [each for each in consumers if _has_several_members(each)]
    if not any(each.commit_interval_ms and not each.transactional for each in changing):
        yield "revoked-committed", "members of the protocol 'consumer' that commit, in groups with several members"
    interval_ms = Config(workload.cluster.config).number("group.consumer.heartbeat.interval.ms")
    needed_s = min(each.arrival.at_s for each in consumers) + TARGET_HEARTBEATS * interval_ms / 1000 + _BOUND_S
    if workload.duration_s <= needed_s:
        yield "targets-reached", f"duration_s > {needed_s:g}, when the first targets must be reached"


def _unmet_of_transactions(workload: Workload) -> Iterator[tuple[str, str]]:
    """Yield the promises about transactions whose preconditions are not met."""
    if not workload.is_transactional:
        yield from ((name, "members that use transactions (transactional)") for name in TRANSACTION_PROMISES)
        return
    crashing = [(each, each.transaction) for each in workload.groups if each.transaction and each.transaction.crash]
    if not crashing:
        yield "old-epochs-refused", "producers that stop in transactions (transaction.crash > 0)"
        yield "overdue-aborted", "producers that stop in transactions (transaction.crash > 0)"
        return
    limits_s = [(each, made, made.timeout_ms / 1000 + _OVERDUE_TRANSACTION_S) for each, made in crashing]
    long = [(each, limit_s) for each, made, limit_s in limits_s if ends(made.return_after_s)[1] > limit_s]
    if not long:
        needed_s = min(limit_s for _, _, limit_s in limits_s)
        yield (
            "overdue-aborted",
            f"transaction.return_after_s > {needed_s:g}, the timeout plus {_OVERDUE_TRANSACTION_S:g} s",
        )
        return
    needed_s = min(each.arrival.at_s + limit_s for each, limit_s in long)
    if workload.duration_s <= needed_s:
        yield "overdue-aborted", f"duration_s > {needed_s:g}, when the first transaction must be aborted"


def _has_several_members(population: Groups) -> bool:
    return population.max_members > 1 or population.grow is not None


def _changes(population: Groups) -> bool:
    """Return whether a group of the population can have more than one generation."""
    restarts = population.restart is not None or population.migrate_at_s is not None
    return _has_several_members(population) or bool(population.behaviors) or restarts


def _can_be_left_behind(population: Groups) -> bool:
    """Return whether a group can continue without a member that sends requests later."""
    if population.zombie or population.slow:
        return True
    shortest_ms = min(population.session_timeout_ms, population.rebalance_timeout_ms) * (1 - population.timeout_jitter)
    return population.pause is not None and population.pause.lasts_s * 1000 > shortest_ms


def _lacks_silence(workload: Workload) -> str | None:
    """Return what is missing for a silence that the coordinator must end, or None."""
    spans = [(at_s, for_s, each) for each in workload.groups for at_s, for_s in _silences(each)]
    if not spans:
        return "members that stop sending requests without a LeaveGroup (crash, pause)"
    long = [
        (at_s, each.session_timeouts_ms[0] / 1000)
        for at_s, for_s, each in spans
        if for_s > each.session_timeouts_ms[0] / 1000 + _BOUND_S
    ]
    if not long:
        needed_s = min(each.session_timeouts_ms[0] for _, _, each in spans) / 1000 + _BOUND_S
        return f"members that are silent for more than {needed_s:g} s, the session timeout plus {_BOUND_S:g} s"
    needed_s = min(at_s + session_s for at_s, session_s in long) + _BOUND_S
    if workload.duration_s <= needed_s:
        return f"duration_s > {needed_s:g}, when the first silent member must be removed"
    return None


def _silences(population: Groups) -> Iterator[tuple[float, float]]:
    """Yield the earliest start of members' silences and their longest duration, in seconds."""
    if pause := population.pause:
        yield ends(pause.at_s)[0], pause.lasts_s
    if zombie := population.zombie:
        yield ends(zombie.at_s)[0], (population.session_timeouts_ms[1] + population.heartbeat_interval_ms) / 1000
    if not _has_several_members(population):
        return  # other members must show that the group has continued
    if crash := population.crash:
        is_same = population.static == 1 and crash.return_after_s is not None
        yield ends(crash.at_s)[0], crash.lasts_s if is_same else inf
    if population.static and (leave := population.leave):
        yield ends(leave.at_s)[0], inf if leave.return_after_s is None else leave.lasts_s
    if population.static and (restart := population.restart):
        yield ends(restart.at_s)[0], ends(restart.return_after_s)[1]
