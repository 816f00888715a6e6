"""Handles: what people can do to a cluster, see of it, and wait for. Each command, view and condition is declared once.

`cluster.group("billing")` is a handle (`group.py`). `definition.py` has the decorators. It derives from a method what
events, HTTP, the OpenAPI document and the reference need. The owner of a handle runs its methods: `Local`
(`local.py`) on a cluster in this process, the client of the control server over HTTP, and `fakebroker.actions` later.
`conditions.py` has conditions as values; `fakebroker.server.waits` waits for them. `environment.py` is the interface
to side effects and time, for sockets and for simulations. Depends on the rest of `fakebroker.cluster`.

How to add a command, a view or a condition:

1. A method of the class of its handle, such as `GroupHandle`, with `@command`, `@view` or `@condition()`. Its arguments
   have types with bounds (`validation.py`), and each is in `Args`.
   - A command changes the cluster within `self._local.run(...)`, or `change(...)` if something is stored. A command
     that lasts until another one undoes it has `@holding("release")`, and returns a context manager.
   - A view returns a struct whose JSON is what HTTP returns; or text, numbers, lists, dicts. A new struct is
     exported in `fakebroker/__init__.py`, and is in `VIEWS` of `tests/documents/python_api.py`.
   - A condition gets an `Instant`, and returns its finding at that moment. None: it does not hold.
2. A test of its effect: `tests/cluster/test_commands.py`, `tests/server/test_waits.py`. Required arguments are in
   `tests/support/cluster/method_arguments.py`, so that tests can call every method.
3. A command that takes answers away is a planned outage: `_outage` and `_ends` in `replay/verify/outages.py`, and the
   list in `scenarios/runs.md`. A command that needs a group that exists is in `GROUP_EVENTS` of
   `replay/simulation/rehearsal.py`. A condition is in `tests/control/test_conditions_everywhere.py`.
4. A line in `CHANGES.md`. `make rewrite` writes the reference.
"""

from fakebroker.cluster.handles.cluster import ClusterHandle, LocalCluster

__all__ = ["ClusterHandle", "LocalCluster"]
