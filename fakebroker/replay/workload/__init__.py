"""The format of workload files: a type for each TOML table, and checks.

Depends on msgspec, not on Spark. Start with workload.py (the whole file) and population.py (`[[groups]]`). table.py has
the base class of all tables, checks.py the checks across tables. The tables in `scenarios/workloads/README.md` are
generated from these types and their docstrings.
"""
