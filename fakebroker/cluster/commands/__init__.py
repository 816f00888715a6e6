"""Commands: everything that people can do to a cluster, such as stopping a broker or evicting a member, defined once.

`cluster_commands.py` has the class with all commands, which `FakeCluster` extends; each subject has a module, such as
`broker_commands.py`. `definition.py` derives names, types and bounds of arguments from a method, for events
(`events.py`), HTTP and documents. `environment.py` is the interface to side effects and time, and `handles.py` has what
commands return. Depends on the rest of `fakebroker.cluster`.
"""
