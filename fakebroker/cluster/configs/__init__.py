"""Broker and topic configs: definitions, effective values and changes.

`definitions.py` is one config's type and valid values; `settings.py`, `topic_configs.py` and `broker_configs.py` are
the tables. `resolution.py` finds the effective value of a config, `changes.py` implements AlterConfigs. The tables
depend on nothing else in `cluster`; the last two on `Cluster`.
"""
