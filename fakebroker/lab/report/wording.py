"""Formats of figures and their confidence intervals."""

from fakebroker.lab.estimate import Estimate
from fakebroker.lab.study.figures import Figure

_LEAST = 0.001
"""Intervals that are narrower than this multiple of the value are not shown: its three digits are exact."""


def short(value: float) -> str:
    """Format a number with three significant digits: 0.123, 1.23, 12.3, 1,234, 12.3k, 1.23M."""
    rounded = float(f"{value:.3g}")
    if abs(rounded) >= 1e6:
        return f"{rounded / 1e6:,g}M"
    if abs(rounded) >= 1e4:
        return f"{rounded / 1e3:g}k"
    if abs(rounded) >= 1000:
        return f"{value:,.0f}"
    return "<0.0001" if 0 < abs(rounded) < 0.0001 else f"{rounded:g}"


def estimate(figure: Figure, value: Estimate | None) -> str:
    """Format a mean in the unit of its figure, with half of its confidence interval: 1.23 ±0.04."""
    if value is None:
        return "-"
    half = (value.high - value.low) / 2
    mean = short(value.mean / figure.divisor)
    return f"{mean} ±{short(half / figure.divisor)}" if half > _LEAST * abs(value.mean) else mean
