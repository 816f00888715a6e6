"""The format of workload files: a type for each TOML table, and checks.

Depends on msgspec, not on Spark. Start with workload.py (the whole file) and population.py (`[[groups]]`). table.py has
the base class of all tables, checks.py the checks across tables. The tables in `scenarios/workloads/README.md` are
generated from these types and their docstrings.

How to add a key:

1. A field with a default in the type of its table, named with its unit (`_s`, `_ms`, `_per_s`). The annotation is the
   check of the value, its description stands under `Attributes`.
2. Rules between keys: `broken_rules` of the type; between tables: `checks.py`.
3. Its use: `replay/script/acts.py` for actions of members; `replay/script/script.py` and
   `replay/members/scripted_member.py` for their settings; `plan_for` in `replay/runner.py` for the run;
   `replay/embedded_cluster.py` and `replay/simulation/virtual_cluster.py` for the cluster.
4. `tests/support/replay/workload_files.py`: the key in `ALL_KEYS`, and each error in `INVALID`; a test of its effect in
   `tests/replay/test_script_generator.py` or `test_scripted_member.py`.
5. If it is a number of groups, members or requests: `scale.py`. If a shipped workload shows its effect: `EFFECTS` in
   `tests/replay/test_shipped_workloads.py`.
"""
