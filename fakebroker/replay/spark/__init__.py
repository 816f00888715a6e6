"""Runs a replay in Spark: the session and its Java, tasks over TCP and in memory, progress, and interruption.

Depends on PySpark. Start with session.py. tcp_tasks.py and simulation_tasks.py turn scripts into events, with
`replay.members` and `replay.simulation`. progress.py sends the tasks' numbers to the driver, where live_view.py shows
them. query_settings.py has Spark settings for few rows and for many.
"""
