"""Renders reports as self-contained HTML pages: no network access, no scripts, light and dark color schemes.

The templates are in `templates/`; each page includes the style sheet `templates/style.css`.
"""

from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fakebroker.replay import wording
from fakebroker.replay.members.request_outcomes import MEANINGS
from fakebroker.replay.report import evidence, figures
from fakebroker.replay.run_summary import DELAYED, Summary
from fakebroker.replay.simulation.scheduler import LATENCY_MS

UNFOLDED = 3
"""Number of violations of each promise that are unfolded when the page is opened."""


def page(summary: Summary) -> str:
    """Return the report of a run as an HTML page."""
    return render("report.html", summary=summary)


def render(template: str, **values: Any) -> str:
    """Return an HTML page.

    Args:
        template: File name of its template.
        values: Variables of the template.
    """
    return _ENVIRONMENT.get_template(template).render(values)


def _utc(started: str) -> str:
    return datetime.fromisoformat(started).strftime("%Y-%m-%d %H:%M:%S UTC")


_ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_ENVIRONMENT.globals |= {
    "event_columns": evidence.COLUMNS,
    "figures": figures,
    "meanings": MEANINGS,
    "delayed": DELAYED,
    "simulated_ms": LATENCY_MS,
    "unavailable": evidence.unavailable,
    "unfolded": UNFOLDED,
    "violated": evidence.violated,
}
_ENVIRONMENT.filters |= {
    "broker": wording.broker,
    "by_chance": wording.by_chance,
    "event": wording.event,
    "ms": wording.ms,
    "number": wording.number,
    "result": wording.result,
    "share": wording.share,
    "times": wording.times,
    "utc": _utc,
}
