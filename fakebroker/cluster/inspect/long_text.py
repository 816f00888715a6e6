"""Shortens texts for reports; what is left out is counted."""

MAX_LINE = 200
"""Maximum number of characters of a line in a report."""


def cut_line(line: str, most: int = MAX_LINE) -> str:
    """Return a line, or its beginning with the number of characters that are left out."""
    return line if len(line) <= most else f"{line[:most]}... and {len(line) - most} more characters"


def cut_lines(text: str) -> str:
    """Return a text with shortened lines."""
    return "\n".join(map(cut_line, text.split("\n")))


def and_more(total: int, shown: int, what: str) -> list[str]:
    """Return the line "... and 3 more groups"; no line if all are shown."""
    return [f"... and {total - shown} more {what}"] if total > shown else []
