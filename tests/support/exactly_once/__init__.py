"""Applications that consume, transform and produce in transactions, through several clients, and their disturbances.

`application.py` has the interface that each client implements; start reading there. `loop.py` runs an application and
checks its output. Tests use it in `tests/interop/test_exactly_once.py`.
"""
