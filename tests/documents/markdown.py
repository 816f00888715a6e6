"""Generated parts of Markdown documents, Markdown tables, and the parts of Google-style docstrings."""

import inspect
import re
from collections.abc import Iterable, Mapping
from textwrap import dedent


def fill(text: str, parts: Mapping[str, str]) -> str:
    """Return a document with its generated parts, each between `<!-- name -->` and `<!-- /name -->`.

    Raises:
        ValueError: A part is missing in the document, or is there more than once.
    """
    for name, content in parts.items():
        head, begin, rest = text.partition(f"<!-- {name} -->\n")
        _, end, tail = rest.partition(f"<!-- /{name} -->")
        if not begin or not end or begin in tail:
            raise ValueError(f"expected one part between <!-- {name} --> and <!-- /{name} -->")
        text = f"{head}{begin}{content}\n{end}{tail}"
    return text


def table(header: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    """Return a table; bars in cells are escaped."""
    return "\n".join([_row(header), "|" + "---|" * len(header), *map(_row, rows)])


def _row(cells: tuple[object, ...]) -> str:
    return f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def description(documented: object) -> str:
    """Return the docstring of an object without its sections, paragraphs separated by blank lines."""
    text = re.split(r"^(?:Args|Attributes|Returns|Yields|Raises):$", inspect.getdoc(documented) or "", flags=re.M)[0]
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))


def section(documented: object, name: str) -> str:
    """Return the text of a docstring's section, such as `Args`, without its indentation; "" if it has none."""
    found = re.search(rf"^{name}:\n((?: .*\n?|\n)*)", inspect.getdoc(documented) or "", re.MULTILINE)
    return dedent(found[1]).strip() if found else ""


def entries(documented: object, name: str) -> dict[str, str]:
    """Return the entries `name: description` of a docstring's section, each description on one line."""
    found = re.findall(r"^(\w+(?:, \w+)*): (.*(?:\n +.*)*)", section(documented, name), re.MULTILINE)
    return {names: " ".join(about.split()) for names, about in found}
