"""What coordinators promise, and whether a cluster was available, as observers of the events of a replay.

observer.py has what an observer sees, and in which order; rows.py makes that from rows of events. The promises are in
generations.py, commits.py, membership.py, coordinators.py, consumer_protocol.py (KIP-848) and transactions.py, and the
availability checks in availability.py. Does not depend on Spark.

How to add a promise:

1. A class in the file of its subject, and its entry in `catalog.PROMISES`. It counts its cases, the situations in which
   a violation would have been seen, and points at the events that show a violation. A correct coordinator never causes
   a violation, also when responses are lost or coordinators move.
2. `verify/preconditions.py` and `tests/replay/test_preconditions.py`: what a workload needs for a case.
3. `tests/replay/test_promises.py`: a minimal violation, similar events that are none, and numbers of cases.
4. `tests/support/replay/broken_coordinators.py`, `broken_consumer_coordinators.py` or `broken_transactions.py`: a
   coordinator that breaks this promise only, and its entry in `tests/replay/test_promises_broken.py`.
"""
