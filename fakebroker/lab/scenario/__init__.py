"""Scenario files of the lab: their types, and the scripts that follow from a scenario and a seed.

Depends on the types of workload files (`replay.workload`) and on `lab.script`. Start with scenario.py (a file), then
groups.py (its groups and their behavior), script_builder.py (the script of a run) and scale.py (`--scale`).
"""
