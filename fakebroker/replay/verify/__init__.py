"""Verification of a run: availability, promises as SQL over the recorded events, expectations, and the verdict.

Works for the events of any cluster. Depends on Spark, on `replay.members.events` and on the workload. Start with
promises.py (the check), then promise_views.py, promise_queries.py and verdict.py.
"""
