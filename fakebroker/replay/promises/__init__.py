"""Promises of coordinators, and availability checks of a cluster. Both observe the events of a replay.

observer.py defines what an observer sees, and in which order. rows.py converts rows of events to this form. The
promises are in generations.py, commits.py, membership.py, coordinators.py, consumer_protocol.py (KIP-848) and
transactions.py. The availability checks are in availability.py. Does not depend on Spark.

How to add a promise:

1. Add a class to the file of its subject, and an entry to `catalog.PROMISES`. The class counts its cases. A case is a
   situation in which a violation would have been seen. Each violation names the events that prove it. A correct
   coordinator must never cause a violation, even if responses are lost or coordinators move.
2. `verify/preconditions.py` and `tests/replay/test_preconditions.py`: add what a workload needs for a case.
3. `tests/replay/test_promises.py`: add a minimal violation, similar events without a violation, and numbers of cases.
4. `tests/support/replay/broken_coordinators.py`, `broken_consumer_coordinators.py` or `broken_transactions.py`: add
   a coordinator that breaks only this promise, and its entry in `tests/replay/test_promises_broken.py`.
"""
