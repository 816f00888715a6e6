"""The file format of workloads: what the tables may say, and checks of it.

Depends on msgspec, not on Spark. Start with workload.py (a whole file) and population.py (`[[groups]]`); table.py has
what all tables share, checks.py what tables must not say together. `scenarios/workloads/README.md` is generated from
the docstrings here.
"""
