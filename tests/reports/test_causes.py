"""The report on a failed test shows the cause: fourteen bugs of a service, and the lines that give each away."""

import re

import pytest

from tests.reports.service import BUGS, report

pytestmark = pytest.mark.slow

CAUSES: dict[str, tuple[str, ...]] = {
    # The first commit is before any Produce, and the next member begins after it.
    "commit before processing": (r"'billing-1' from 0 to 2; 'billing-2' from 1 to 2", r"invoices-0 +1 +1"),
    "no commit on revoke": (r"orders-0 .*billing +nothing .*'billing-1' from 0 to 2; 'billing-2' from 0 to 2",),
    "lost headers": (r"orders-0 @1 .*trace=b'7'\n  invoices-0 @0 .*no headers",),
    "authorization error ignored": (r"1 x  Produce  TOPIC_AUTHORIZATION_FAILED  'billing-1'  invoices-0",),
    "dead letter without permission": (r"1 x  Produce  TOPIC_AUTHORIZATION_FAILED  'billing-1'  orders-dlq-0",),
    "offset one too low": (r"orders-0 +2 +2 +billing +1 +1 .*'billing-2' from 1 to 2",),
    "offsets outside of the transaction": (r"OffsetCommit +- +billing orders-0=1\n", r"1 x invoices-1 committed"),
    "no rewind after an abort": (r"transactions ended: 1 x invoices-1 aborted, 1 x", r"'billing-1' from 0 to 2\n"),
    "poison record retried for ever": (r"0 to 3, then 2\b.* times\)",),
    "polled too late": (
        r"orders-0 +2 +2 +billing +nothing",
        r"\n +[2-9]\.\d+ +P◂──S .*-billing-1 +LeaveGroup of billing-1",
    ),
    "wrong group id": (r"\nbiling: ",),
    "same instance id": (r"FENCED_INSTANCE_ID",),
    "never flushed": (r"orders-0 +2 +2 +billing +2 +0", r"invoices-0 +0 +0"),
    "auto.offset.reset=latest": (r"'billing-1' from 2\n", r"orders-0 latest=2"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_report_shows_the_cause(bug: str) -> None:
    found = report(bug)
    for line in CAUSES[bug]:
        assert re.search(line, found), found
    assert len(found.splitlines()) < 75
