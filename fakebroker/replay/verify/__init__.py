"""The verdict on a run: availability, promises of coordinators and expectations, checked by SQL on its events.

Works on the events of any cluster, fake or not. Depends on Spark, `replay.members.events` and `replay.workload`. Start
with verdict.py, then availability.py and promises.py; the promises themselves are in promise_queries.py and
transaction_queries.py, on views in promise_views.py.

How to add a promise:

1. `promise_queries.py` (`consumer_queries.py` for members of the consumer protocol): an SQL query that returns one row
   for each violation (`group`, `generation`, `members`, `at_us`, `until_us`, `what`) from the views in
   `promise_views.py`; a query that counts its cases, situations in which a violation would have been seen; and an entry
   in `PROMISES` with both, name, sentence and what a case is. A correct coordinator never causes a row, also when
   responses are lost or coordinators move.
2. `preconditions.py` and `tests/replay/test_preconditions.py`: what a workload needs so that there can be a case.
3. `tests/replay/test_promises.py`: a minimal violation, similar events that are none, and numbers of cases.
4. `tests/support/replay/broken_coordinators.py`, `broken_consumer_coordinators.py` or `broken_transactions.py`: a
   coordinator that breaks this promise only, and its entry in `tests/replay/test_promises_broken.py`.
5. Its entry in `EVIDENCE` of the same test: the APIs of the events that show each violation.
"""
