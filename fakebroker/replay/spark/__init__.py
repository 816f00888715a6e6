"""Runs a replay in Spark: the session and its Java, the tasks over TCP and in memory, progress, and early ends.

Depends on PySpark. Start with session.py; tcp_tasks.py and simulation_tasks.py turn scripts into events, with
`replay.members` and `replay.simulation`. progress.py brings live numbers to live_view.py; query_settings.py is for the
queries of `replay.verify` and `replay.report`.
"""
