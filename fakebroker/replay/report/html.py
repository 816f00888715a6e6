"""Renders reports as self-contained HTML pages: no network access, no scripts, light and dark color schemes.

The templates are in `templates/`; each page includes the style sheet `templates/style.css`.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fakebroker.replay.members.request_outcomes import MEANINGS
from fakebroker.replay.report import figures, wording
from fakebroker.replay.run_summary import Summary


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


def _used_columns(events: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns in which at least one of the events has a value."""
    return [name for name in events[0] if any(event[name] is not None for event in events)]


_ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_ENVIRONMENT.globals |= {"figures": figures, "meanings": MEANINGS}
_ENVIRONMENT.filters |= {
    "broker": wording.broker,
    "event": wording.event,
    "ms": wording.ms,
    "number": wording.number,
    "share": wording.share,
    "times": wording.times,
    "used_columns": _used_columns,
    "utc": _utc,
}
