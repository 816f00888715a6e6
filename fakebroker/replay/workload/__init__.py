"""The file format of workloads: what its tables may contain, and checks of it.

Depends on msgspec, not on Spark. Start with workload.py (a whole file) and population.py (`[[groups]]`); table.py has
what all tables share, checks.py the checks across tables. `scenarios/workloads/README.md` is generated from the
docstrings here.
"""
