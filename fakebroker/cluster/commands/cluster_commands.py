"""All commands: changes of a cluster that tests, events, HTTP and the control client can make.

A command validates its arguments, changes the cluster, and delegates side effects to the `Environment`: listeners,
connections, network conditions, the clock. `FakeCluster` has the commands of a cluster with sockets, and the replay's
simulation runs them in virtual time. `events.py` runs them from plain data.

`scenarios/reference/commands.md` is generated from the docstrings. The OpenAPI document has their first lines.
"""

from fakebroker.cluster.commands.broker_commands import BrokerCommands
from fakebroker.cluster.commands.clock_commands import ClockCommands
from fakebroker.cluster.commands.coordinator_commands import CoordinatorCommands
from fakebroker.cluster.commands.definition import commands_of
from fakebroker.cluster.commands.fault_commands import FaultCommands
from fakebroker.cluster.commands.group_commands import GroupCommands
from fakebroker.cluster.commands.permission_commands import PermissionCommands
from fakebroker.cluster.commands.seed_commands import SeedCommands
from fakebroker.cluster.commands.snapshot_commands import SnapshotCommands
from fakebroker.cluster.commands.topic_commands import TopicCommands
from fakebroker.cluster.commands.transaction_commands import TransactionCommands


class ClusterCommands(
    TopicCommands,
    CoordinatorCommands,
    BrokerCommands,
    FaultCommands,
    PermissionCommands,
    GroupCommands,
    TransactionCommands,
    SeedCommands,
    SnapshotCommands,
    ClockCommands,
):
    """The commands of one cluster.

    A member of a group is identified by its member id, its instance id, or its client id if this is unique. A new
    command also needs a method with the same signature in `fakebroker.control.Client`; see the package's docstring.
    """


COMMANDS = commands_of(ClusterCommands)
"""Definitions by name of all commands that can be called with plain data (JSON, TOML)."""
