"""The verdict on a run: availability, promises of coordinators and expectations, checked by SQL on its events.

Works on the events of any cluster, fake or not. Depends on Spark, `replay.members.events` and `replay.workload`. Start
with verdict.py, then availability.py and promises.py; the promises themselves are in promise_queries.py and
transaction_queries.py, on views in promise_views.py.
"""
