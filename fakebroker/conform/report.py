"""The results of `fakebroker conform` as text, JSON and JUnit's XML. Pure."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from xml.etree import ElementTree

from fakebroker.conform.conformance import VERDICTS, Conformance, Played

_SHOWN_NEEDS = 12


def table(rows: Sequence[Sequence[str]], right: Iterable[int] = ()) -> str:
    """Return rows as columns of equal width; the first row is the head.

    Args:
        rows: The cells.
        right: The columns that are aligned to the right.
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    numbers = set(right)
    lines = [
        "  ".join(
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def text(results: Conformance, *, shows_all: bool = False) -> str:
    """Return the results for a terminal: what differs, what is explained, what was not playable, and the numbers.

    Args:
        results: The results.
        shows_all: Whether each transcript has a line, also those with the same results.
    """
    parts = [_differences(results)]
    if shows_all:
        rows = [("transcript", "result", "")]
        rows += [(each.name, each.verdict, "; ".join(each.reasons)) for each in results.played]
        parts.append(table(rows))
    else:
        parts += [_explained(results), _not_playable(results)]
    rows_of_subjects = [["subject", *VERDICTS]]
    for subject in sorted({each.subject for each in results.played}):
        count = Counter(each.verdict for each in results.played if each.subject == subject)
        rows_of_subjects.append([subject, *(str(count[verdict] or "-") for verdict in VERDICTS)])
    total = results.count()
    rows_of_subjects.append(["all", *(str(total[verdict]) for verdict in VERDICTS)])
    parts.append(table(rows_of_subjects, right=range(1, 5)))
    again = [each.name for each in results.played if each.attempts > 1 and each.verdict != "differs"]
    if again:
        parts.append(
            "Differed at first, and did not differ when played again:\n" + "\n".join(f"  {each}" for each in again)
        )
    if results.left:
        parts.append("Not removed from the cluster:\n" + "\n".join(f"  {each}" for each in results.left))
    parts.append(summary(results))
    return "\n\n".join(filter(None, parts)) + "\n"


def summary(results: Conformance) -> str:
    """Return one sentence."""
    total = results.count()
    compared = sum(total[verdict] for verdict in ("same", "explained", "differs"))
    if not compared:
        return f"Nothing was compared with Kafka {results.release}: no transcript is playable."
    return (
        f"Compared {compared} of {len(results.played)} transcripts with Kafka {results.release}: {total['same']} same,"
        f" {total['explained']} explained, {total['differs']} differ."
    )


def _differences(results: Conformance) -> str:
    parts = []
    for each in results.played:
        if each.difference is not None:
            requests = "\n".join(f"      {line}" for line in each.difference.requests)
            parts.append(
                f"{each.name} differs at {each.difference.place}\n"
                f"  - {each.difference.expected}\n"
                f"  + {each.difference.actual}\n" + (f"    the requests before:\n{requests}" if requests else "")
            )
    return "\n".join(parts)


def _explained(results: Conformance) -> str:
    rows = [(each.name, "; ".join(each.reasons)) for each in results.played if each.verdict == "explained"]
    return table([("explained", "why Kafka differs"), *rows]) if rows else ""


def _not_playable(results: Conformance) -> str:
    needs = Counter(
        reason for each in results.played if each.verdict == "not playable" for reason in each.reasons[:1]
    ).most_common()
    if not needs:
        return ""
    rows = [("not playable", "transcripts"), *((need, str(number)) for need, number in needs[:_SHOWN_NEEDS])]
    if len(needs) > _SHOWN_NEEDS:
        rows.append(("other needs", str(sum(number for _, number in needs[_SHOWN_NEEDS:]))))
    return table(rows, right=[1])


def as_json(results: Conformance) -> str:
    """Return the results as a JSON document."""
    return json.dumps(
        {
            "release": str(results.release),
            "counts": {verdict: results.count()[verdict] for verdict in VERDICTS},
            "transcripts": [_as_data(each) for each in results.played],
            "left": list(results.left),
        },
        indent=1,
    )


def _as_data(played: Played) -> dict[str, object]:
    data: dict[str, object] = {
        "name": played.name,
        "subject": played.subject,
        "verdict": played.verdict,
        "reasons": list(played.reasons),
        "seconds": round(played.seconds, 3),
        "attempts": played.attempts,
    }
    if played.difference is not None:
        found = played.difference
        data["difference"] = {
            "place": found.place,
            "expected": found.expected,
            "actual": found.actual,
            "requests": list(found.requests),
        }
    return data


def as_junit(results: Conformance) -> str:
    """Return the results in JUnit's format: what differs is a failure, what is not playable is skipped."""
    total = results.count()
    suite = ElementTree.Element(
        "testsuite",
        name=f"fakebroker conform, Kafka {results.release}",
        tests=str(len(results.played)),
        failures=str(total["differs"]),
        errors="0",
        skipped=str(total["not playable"]),
    )
    for each in results.played:
        case = ElementTree.SubElement(
            suite, "testcase", name=each.name, classname=each.subject, time=f"{each.seconds:.3f}"
        )
        if each.difference is not None:
            message = f"{each.difference.place}: expected {each.difference.expected!r}, got {each.difference.actual!r}"
            failure = ElementTree.SubElement(case, "failure", message=message)
            failure.text = "\n".join(each.difference.requests)
        elif each.verdict == "not playable":
            ElementTree.SubElement(case, "skipped", message="; ".join(each.reasons))
        elif each.reasons:
            ElementTree.SubElement(case, "system-out").text = "; ".join(each.reasons)
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
