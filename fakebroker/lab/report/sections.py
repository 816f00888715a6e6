"""Parts of reports, as data: charts, tables, and a section with both."""

from collections.abc import Sequence

import msgspec
from markupsafe import Markup


class Chart(msgspec.Struct, frozen=True):
    """A chart with its heading.

    Attributes:
        title: Its heading, with the unit.
        svg: The chart, from `replay.report.charts.drawing`.
    """

    title: str
    svg: Markup


class ReportTable(msgspec.Struct, frozen=True):
    """A table.

    Attributes:
        columns: The headings of its columns.
        rows: Its cells, as text.
        left: How many of the first columns are text; the others are numbers.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1


class ReportSection(msgspec.Struct, frozen=True):
    """A section of the report.

    Attributes:
        title: Its heading.
        about: Text about its contents, and what to look for.
        tables: Its tables.
        charts: Its charts, which are beside each other if there is space.
    """

    title: str
    about: str = ""
    tables: Sequence[ReportTable] = ()
    charts: Sequence[Chart] = ()
