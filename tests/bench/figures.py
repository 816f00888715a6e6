"""Figures of the benchmarks, and their aims."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One row of a table.

    Attributes:
        what: What is measured.
        measured: The result.
        unit: Its unit; "times" for a ratio.
        aim: The aim; None if there is none.
        is_limit: Whether the aim is a maximum instead of a minimum.
        name: Its name in recorded results, for ratios that must not fall; "" for others.
    """

    what: str
    measured: float
    unit: str
    aim: float | None = None
    is_limit: bool = False
    name: str = ""

    @property
    def verdict(self) -> str:
        if self.aim is None:
            return ""
        is_reached = self.measured <= self.aim if self.is_limit else self.measured >= self.aim
        return "reached" if is_reached else "MISSED"

    @property
    def value(self) -> str:
        return shown(self.measured)

    @property
    def shown_aim(self) -> str:
        return "" if self.aim is None else f"{'at most ' if self.is_limit else ''}{shown(self.aim)}"


def shown(number: float) -> str:
    """Return a number with three significant digits, or as an integer from 100 on."""
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:.3f}" if number < 0.1 else f"{number:.2f}" if number < 10 else f"{number:.1f}"
