"""Broker and topic configs: definitions, effective values and changes.

`definitions.py` defines a config: its type, default and valid values. `settings.py`, `topic_configs.py` and
`broker_configs.py` are tables of them, which depend on nothing else in `cluster`. `resolution.py` finds the effective
value of a config, and `changes.py` implements AlterConfigs; both use `Cluster`. Start with `settings.py`.
"""
