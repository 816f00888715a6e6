"""Spark SQL expressions for the actions of members and their random times.

The expressions are for rows with the columns `group`, `member`, `size` (the group's initial number of members) and
`index` (of the member in the group; at least `size` for members that join later, see `Grow`).
"""

from pyspark.sql import Column, functions as f

from fakebroker.replay.workload.behavior import Behavior, Grow, Restart
from fakebroker.replay.workload.checks import LEAVING
from fakebroker.replay.workload.population import MIGRATION_STEP_S, Groups
from fakebroker.replay.workload.table import Span, ends
from fakebroker.replay.workload.workload import Workload

_NO_ACTS = "cast(array() as array<struct<at_ms: double, action: string, for_ms: double>>)"

_STEPS = 1 << 53
"""Number of different random numbers in [0, 1): the precision of doubles."""


class RandomChoices:
    """Reproducible random numbers in Spark SQL: hashes of the seed, the name of a choice, and columns of the row.

    Args:
        seed: Seed of all choices.
    """

    def __init__(self, seed: int) -> None:
        self._seed = str(seed)

    def share(self, choice: str, *row: Column) -> Column:
        """Return a uniform random number in [0, 1), which depends on the choice and the columns."""
        return f.pmod(f.xxhash64(f.lit(self._seed), f.lit(choice), *row), f.lit(_STEPS)) / f.lit(float(_STEPS))

    def seed(self, choice: str) -> Column:
        """Return the seed of a member's own random numbers."""
        return f.xxhash64(f.lit(self._seed), f.lit(choice), f.col("group"), f.col("member"))

    def of_group(self, choice: str) -> Column:
        """Return a random number that is the same for all members of a group."""
        return self.share(choice, f.col("group"))

    def of_member(self, choice: str) -> Column:
        """Return a random number of the member."""
        return self.share(choice, f.col("group"), f.col("member"))

    def within_ms(self, span: Span, drawn: Column) -> Column:
        """Return a time in a span, in milliseconds.

        Args:
            span: Seconds, or two limits of seconds.
            drawn: Position in the span, in [0, 1).
        """
        first_s, last_s = ends(span)
        return f.lit(1000.0 * first_s) + drawn * (1000.0 * (last_s - first_s))


def acts_of(population: Groups, workload: Workload, choose: RandomChoices) -> Column:
    """Return the acts of a member, ordered by time."""
    initial_acts = [_act(_arrival_ms(population, choose), "start"), *_behaviors(population, choose)]
    if population.restart:
        initial_acts.append(_restart(population.restart, choose))
    if population.migrate_at_s is not None:
        initial_acts.append(_migration(population.migrate_at_s, choose))
    acts = f.concat(*initial_acts)
    if population.grow:
        started_ms = _grown_ms(population.grow, choose)
        acts = f.when(f.col("index") < f.col("size"), acts).otherwise(_act(started_ms, "start"))
    end_ms = 1000 * workload.duration_s * (1 - LEAVING * choose.of_group("end"))
    return f.array_sort(f.concat(acts, _act(end_ms, "leave")))


def is_static(population: Groups, choose: RandomChoices) -> Column:
    """Return whether a member is static, with an instance id."""
    drawn = choose.of_member("static") < population.static
    if population.grow is None:
        return drawn
    return f.when(f.col("index") < f.col("size"), drawn).otherwise(f.lit(population.grow.how == "static"))


def _act(at_ms: Column, action: str, for_ms: Column | None = None) -> Column:
    """Return an array of one act."""
    lasting_ms = f.lit(0.0) if for_ms is None else f.round(for_ms, 3)
    at_ms = f.round(at_ms, 3)
    return f.array(f.struct(at_ms.alias("at_ms"), f.lit(action).alias("action"), lasting_ms.alias("for_ms")))


def _arrival_ms(population: Groups, choose: RandomChoices) -> Column:
    arrival = population.arrival
    drawn = choose.of_group("arrival") if arrival.by == "group" else choose.of_member("arrival")
    if arrival.bursts and arrival.every_s:
        return f.lit(1000.0 * arrival.at_s) + f.floor(drawn * arrival.bursts) * (1000.0 * arrival.every_s)
    # Given their number, the times of a Poisson process are uniform and independent.
    spread_s = arrival.spread_s(population.member_count, population.group_count)
    return choose.within_ms((arrival.at_s, arrival.at_s + spread_s), drawn)


def _behaviors(population: Groups, choose: RandomChoices) -> list[Column]:
    """Return the acts of each behavior. All depend on one random number, so that a member has at most one behavior."""
    drawn, begins, acts = choose.of_member("behavior"), 0.0, []
    for action, behavior in population.behaviors.items():
        is_chosen = (drawn >= begins) & (drawn < begins + behavior.share)
        acts.append(f.when(is_chosen, _behavior(action, behavior, choose)).otherwise(f.expr(_NO_ACTS)))
        begins += behavior.share
    return acts


def _behavior(action: str, behavior: Behavior, choose: RandomChoices) -> Column:
    at_ms = choose.within_ms(behavior.at_s, choose.of_member(f"{action} at"))
    if (for_s := getattr(behavior, "for_s", None)) is not None:
        return _act(at_ms, action, choose.within_ms(for_s, choose.of_member(f"{action} for")))
    if (return_after_s := getattr(behavior, "return_after_s", None)) is None:
        return _act(at_ms, action)
    return_ms = at_ms + choose.within_ms(return_after_s, choose.of_member(f"{action} return"))
    return f.concat(_act(at_ms, action), _act(return_ms, "start"))


def _restart(restart: Restart, choose: RandomChoices) -> Column:
    first_ms = choose.within_ms(restart.at_s, choose.of_group("restart at"))
    at_ms = first_ms + f.col("index") * (1000.0 * restart.every_s)
    return_ms = at_ms + choose.within_ms(restart.return_after_s, choose.of_member("restart return"))
    return f.concat(_act(at_ms, "leave"), _act(return_ms, "start"))


def _migration(at_s: Span, choose: RandomChoices) -> Column:
    step_ms = 1000.0 * MIGRATION_STEP_S
    at_ms = choose.within_ms(at_s, choose.of_group("migrate at")) + f.col("index") * step_ms
    return f.concat(_act(at_ms, "migrate"), _act(at_ms + step_ms, "start"))


def _grown_ms(grow: Grow, choose: RandomChoices) -> Column:
    first_ms = choose.within_ms(grow.at_s, choose.of_group("grow at"))
    return first_ms + (f.col("index") - f.col("size")) * (1000.0 * grow.every_s)
