"""Whether ratios have fallen since they were recorded: a decision from plain data."""

from collections.abc import Mapping
from dataclasses import dataclass

MOST_LOST = 0.15
"""How much of a recorded ratio may be lost. One run below is noise, two in a row are a regression."""

Ratios = Mapping[str, float]
"""Ratios by name; more is better."""


@dataclass(frozen=True)
class Fall:
    """A ratio that is too far below the recorded one.

    Attributes:
        name: Its name.
        measured: The ratio of this run.
        recorded: The recorded ratio.
        before: The ratio of the run before, if it was too low, too.
    """

    name: str
    measured: float
    recorded: float
    before: float | None

    @property
    def is_regression(self) -> bool:
        return self.before is not None

    def __str__(self) -> str:
        lost = f"{self.name}: {self.measured:.3g}, {1 - self.measured / self.recorded:.0%} under the recorded"
        if self.before is None:
            return f"{lost} {self.recorded:.3g}; a second run in a row with such a ratio fails"
        return f"{lost} {self.recorded:.3g}; {self.before:.3g} in the run before"


def falls(measured: Ratios, before: Ratios, recorded: Ratios) -> list[Fall]:
    """Return the ratios that are too low.

    Args:
        measured: The ratios of this run. Those that were not recorded are ignored.
        before: The ratios of the run before.
        recorded: The recorded ratios.
    """
    return [
        Fall(name, ratio, recorded[name], before[name] if _is_low(name, before, recorded) else None)
        for name, ratio in measured.items()
        if _is_low(name, measured, recorded)
    ]


def _is_low(name: str, ratios: Ratios, recorded: Ratios) -> bool:
    return name in ratios and name in recorded and ratios[name] < (1 - MOST_LOST) * recorded[name]
