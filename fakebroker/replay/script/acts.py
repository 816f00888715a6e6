"""What members of a population do and when, as expressions of Spark SQL.

Each row has `group`, `member`, `size` (members of the group to begin with) and `index` (of the member; from `size` on
for those who come later).
"""

from pyspark.sql import Column, functions as f

from fakebroker.replay.script.choices import Choices
from fakebroker.replay.workload.behavior import Behavior, Grow, Restart
from fakebroker.replay.workload.checks import LEAVING
from fakebroker.replay.workload.population import Groups
from fakebroker.replay.workload.workload import Workload

_NO_ACTS = "cast(array() as array<struct<at_ms: double, deed: string, for_ms: double>>)"


def acts_of(population: Groups, workload: Workload, choose: Choices) -> Column:
    """All acts of the member of a row, in the order of their times."""
    to_begin_with = [_act(_arrival_ms(population, choose), "start"), *_behaviors(population, choose)]
    if population.restart:
        to_begin_with.append(_restart(population.restart, choose))
    acts = f.concat(*to_begin_with)
    if population.grow:
        started_ms = _grown_ms(population.grow, choose)
        acts = f.when(f.col("index") < f.col("size"), acts).otherwise(_act(started_ms, "start"))
    end_ms = 1000 * workload.duration_s * (1 - LEAVING * choose.of_group("end"))
    return f.array_sort(f.concat(acts, _act(end_ms, "leave")))


def is_static(population: Groups, choose: Choices) -> Column:
    """Whether the member of a row has an instance id."""
    drawn = choose.of_member("static") < population.static
    if population.grow is None:
        return drawn
    return f.when(f.col("index") < f.col("size"), drawn).otherwise(f.lit(population.grow.how == "static"))


def _act(at_ms: Column, deed: str, for_ms: Column | None = None) -> Column:
    """One act, as an array."""
    lasting_ms = f.lit(0.0) if for_ms is None else f.round(for_ms, 3)
    return f.array(f.struct(f.round(at_ms, 3).alias("at_ms"), f.lit(deed).alias("deed"), lasting_ms.alias("for_ms")))


def _arrival_ms(population: Groups, choose: Choices) -> Column:
    arrival = population.arrival
    drawn = choose.of_group("arrival") if arrival.by == "group" else choose.of_member("arrival")
    if arrival.bursts and arrival.every_s:
        return f.lit(1000.0 * arrival.at_s) + f.floor(drawn * arrival.bursts) * (1000.0 * arrival.every_s)
    # The moments of a Poisson process, given how many there are, are drawn evenly and independently.
    spread_s = arrival.spread_s(population.member_count, population.group_count)
    return choose.within_ms((arrival.at_s, arrival.at_s + spread_s), drawn)


def _behaviors(population: Groups, choose: Choices) -> list[Column]:
    """What shares of the members do; one number drawn decides, so that nobody is in two of them."""
    drawn, begins, acts = choose.of_member("behavior"), 0.0, []
    for deed, behavior in population.behaviors.items():
        is_one = (drawn >= begins) & (drawn < begins + behavior.share)
        acts.append(f.when(is_one, _behavior(deed, behavior, choose)).otherwise(f.expr(_NO_ACTS)))
        begins += behavior.share
    return acts


def _behavior(deed: str, behavior: Behavior, choose: Choices) -> Column:
    at_ms = choose.within_ms(behavior.at_s, choose.of_member(f"{deed} at"))
    if (for_s := getattr(behavior, "for_s", None)) is not None:
        return _act(at_ms, deed, choose.within_ms(for_s, choose.of_member(f"{deed} for")))
    if (return_after_s := getattr(behavior, "return_after_s", None)) is None:
        return _act(at_ms, deed)
    return_ms = at_ms + choose.within_ms(return_after_s, choose.of_member(f"{deed} return"))
    return f.concat(_act(at_ms, deed), _act(return_ms, "start"))


def _restart(restart: Restart, choose: Choices) -> Column:
    first_ms = choose.within_ms(restart.at_s, choose.of_group("restart at"))
    at_ms = first_ms + f.col("index") * (1000.0 * restart.every_s)
    return_ms = at_ms + choose.within_ms(restart.return_after_s, choose.of_member("restart return"))
    return f.concat(_act(at_ms, "leave"), _act(return_ms, "start"))


def _grown_ms(grow: Grow, choose: Choices) -> Column:
    first_ms = choose.within_ms(grow.at_s, choose.of_group("grow at"))
    return first_ms + (f.col("index") - f.col("size")) * (1000.0 * grow.every_s)
