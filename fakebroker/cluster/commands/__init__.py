"""Commands: everything that people can do to a cluster, such as stopping a broker or evicting a member, defined once.

`cluster_commands.py` has the class with all commands, which `FakeCluster` extends; each subject has a module, such as
`broker_commands.py`. `definition.py` derives names, types and bounds of arguments from a method, for events
(`events.py`), HTTP and documents. `environment.py` is the interface to side effects and time, and `handles.py` has what
commands return. Depends on the rest of `fakebroker.cluster`.

How to add a command:

1. A method with `@command` in the class of its subject, such as `BrokerCommands`: types with bounds
   (`Annotated[float, Meta(ge=0)]`; shared ones are in `validation.py`) and a docstring with `Args`. It changes the
   `Cluster` within `self._run(...)`, and what is not pure through the `Environment`. `FakeCluster` and the simulation
   inherit it; events, HTTP and documents have it from its definition.
2. A method with `@_command` and the same signature in `control/client/client.py`.
3. A test of its effect in `tests/cluster/test_commands.py`; required arguments in
   `tests/support/cluster/method_arguments.py`, with which two tests call every method.
4. A path of its own, such as `/brokers/1/stop`, is a line in `control/routes/`. A command that takes answers away is a
   planned outage in `replay/verify/outages.py` (`_outage`).
"""
