"""The handles of a broker, and of all brokers: their views, commands and conditions."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, overload

from msgspec.structs import replace

from fakebroker.cluster.emulation import Broker, BrokerSettings, EmulatedRelease, ReleaseName, VersionCap
from fakebroker.cluster.handles.conditions import condition
from fakebroker.cluster.handles.definition import Handle, Owner, command, view
from fakebroker.cluster.handles.environment import Accept
from fakebroker.cluster.handles.local import Instant
from fakebroker.cluster.inspect.views import BrokerView
from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.cluster.topics import NO_LEADER
from fakebroker.errors import ConfigError, FakebrokerError, check_integer, one_of
from fakebroker.validation import Seconds


class BrokerHandle(Handle):
    """A broker, which need not exist yet: `cluster.broker(1)`.

    Attributes:
        node_id: The node id of the broker.
    """

    _kind = "broker"
    _keys = ("node_id",)
    _path = "brokers"

    def __init__(self, owner: Owner, node_id: int) -> None:
        super().__init__(owner)
        check_integer("node_id", node_id)
        self.node_id = node_id

    @view
    def describe(self) -> BrokerView:
        """Return the broker: its address, whether it is up, and its rack.

        Raises:
            ConfigError: There is no such broker.
        """
        local = self._local
        return local.run(lambda: BrokerView.of(local.broker(self.node_id)))

    @condition()
    def up(self, at: Instant) -> BrokerView | None:
        """The broker is up."""
        broker = at.cluster.brokers.get(self.node_id)
        return BrokerView.of(broker) if broker is not None and broker.up else None

    def _state_text(self, at: Instant) -> str:
        states = {each.node_id: "up" if each.up else "down" for each in at.cluster.brokers.values()}
        if self.node_id in states:
            return f"broker {self.node_id} is {states[self.node_id]}"
        return f"no broker {self.node_id}; expected {one_of(states)}"

    @command
    def stop(self, /, *, elect: bool = True, **how: Annotated[Any, Failover]) -> None:
        """Stop a broker: close its connections, and refuse connections to its port.

        Args:
            elect: Whether the partitions that it leads elect new leaders. If false, they have no leader until this
                broker starts again; the start of another broker does not give them a leader. They also get a leader if
                they are moved, if an ElectLeaders request names them, or if this broker is removed.
            how: Options of the failover to other brokers; see `GroupHandle.move_coordinator`.

        Raises:
            ConfigError: The broker does not exist or is down already, or an option is out of range or without effect.
        """
        options, local = Failover(**how), self._local

        def stop() -> None:
            broker = local.broker(self.node_id, up=True)
            local.check_failover(options, local.cluster.topics.led_by(self.node_id), stops=True, has_successor=elect)
            local.environment.close_listener(broker, keep_port=True)
            local.cluster.controller.stop_broker(broker, local.now_ms(), options, elect=elect)

        local.change(stop)

    @command
    def start(self, /, **how: Annotated[Any, Failover]) -> None:
        """Start a stopped broker, on its previous port.

        It has the same replicas as before, which are in sync at once. It becomes the leader of those partitions that
        have no leader, unless they await another one as their last leader (see `stop`). Reassignments that have
        waited for it are completed.

        Nothing else moves back: partitions that have elected another leader keep it, and so do the groups that have
        moved to another coordinator, and network conditions (`set_network`) are normal. `brokers.elect_preferred`
        moves leaders and coordinators back. So does time, if the broker setting `auto.leader.rebalance.enable` is true
        (false by default, unlike in Kafka): `leader.imbalance.check.interval.seconds` (300) of the brokers' clock after
        a partition got another leader than its first replica.

        Args:
            how: Options of the failover of coordinators; see `GroupHandle.move_coordinator`.

        Raises:
            ConfigError: The broker does not exist or is up already, or an option is out of range or without effect.
        """
        options, local = Failover(**how), self._local

        def start() -> None:
            broker = local.broker(self.node_id, up=False)
            leaderless = local.cluster.topics.led_by(NO_LEADER)
            local.check_failover(options, [each for each in leaderless if self.node_id in each.replicas])
            local.environment.open_listener(broker)
            local.cluster.controller.start_broker(broker, local.now_ms(), options)

        local.change(start)

    @command
    def restart(self, /, **how: Annotated[Any, Failover]) -> None:
        """Stop a broker, with elections of new leaders for its partitions, and start it again.

        Leaders and coordinators do not move back; see `start`.

        Args:
            how: Options of both failovers, at the stop and at the start; see `GroupHandle.move_coordinator`.

        Raises:
            ConfigError: The broker does not exist or is down, or an option is out of range or without effect.
        """
        self.stop(**how)
        self.start(**how)

    @command
    def upgrade(
        self,
        /,
        as_version: ReleaseName | None,
        api_versions: Mapping[str, VersionCap] | None = None,
        **how: Annotated[Any, Failover],
    ) -> None:
        """Restart a broker as another release of Kafka, newer or older.

        A broker that is down changes its release and stays down.

        Args:
            as_version: The release, such as "3.9". None: the newest behavior, with all versions that are implemented.
            api_versions: Maps the name of an API to its first and last supported version, or to None if the API is not
                supported. APIs that are not named have the versions of the release.
            how: Options of both failovers, at the stop and at the start; see `GroupHandle.move_coordinator`.

        Raises:
            ConfigError: The broker, release, API or version does not exist, or an option is out of range or without
                effect.
        """
        local = self._local
        emulated = EmulatedRelease.of(Broker(as_version=as_version, api_versions=api_versions or {}), local.proposals)
        broker = local.run(lambda: local.broker(self.node_id))
        if not broker.up:
            for name, value in how.items():
                raise ConfigError.of(
                    name, value, f"no such option, because broker {self.node_id} is down and stays down"
                )
        if was_up := broker.up:
            self.stop(**how)
        local.change(lambda: local.cluster.upgrade_broker(broker, emulated))
        if was_up:
            self.start(**how)

    @command
    def remove(self, /, **how: Annotated[Any, Failover]) -> None:
        """Remove a broker permanently, and move its replicas to other brokers.

        Args:
            how: Options of the failover to other brokers; see `GroupHandle.move_coordinator`.

        Raises:
            ConfigError: The broker does not exist or is the only one, or an option is out of range or without effect.
        """
        options, local = Failover(**how), self._local

        def remove() -> None:
            broker = local.broker(self.node_id)
            if len(local.cluster.brokers) == 1:
                raise ConfigError.of("node_id", self.node_id, "a broker that is not the last one")
            local.check_failover(options, local.cluster.topics.led_by(self.node_id), stops=True)
            local.environment.close_listener(broker, keep_port=False)
            local.cluster.remove_broker(broker, local.now_ms(), options)

        local.change(remove)

    @command
    def set_network(
        self,
        *,
        accept: Accept | None = None,
        accept_delay_s: Seconds | None = None,
        round_trip_s: Seconds | None = None,
    ) -> None:
        """Change the network conditions of a broker, until it is stopped.

        Conditions whose arguments are not given do not change. All times are wall-clock seconds.

        Args:
            accept: How the broker accepts new connections; existing ones are not affected. "normal": immediately.
                "slow": requests are read after `accept_delay_s`. "half_open": requests on connections accepted in this
                state are never answered, even if `accept` is "normal" later. "refuse": connections are refused.
            accept_delay_s: Delay of new connections, more than 0; required with "slow", not allowed otherwise.
            round_trip_s: Latency added to each response, 0 or more. Responses stay in order.

        Raises:
            ConfigError: The broker does not exist or is down, or a value is out of range.
        """
        delay_s, local = accept_delay_s or 0.0, self._local
        if (accept == "slow") != (delay_s > 0):
            expected = "a number > 0 with accept='slow', and none otherwise"
            raise ConfigError.of("accept_delay_s", accept_delay_s, expected)

        def change() -> None:
            broker = local.broker(self.node_id, up=True)
            conditions = local.environment.network_conditions(broker)
            if accept is not None:
                conditions = replace(conditions, accept=accept, accept_delay_ms=delay_s * 1000)
            if round_trip_s is not None:
                conditions = replace(conditions, round_trip_ms=round_trip_s * 1000)
            local.environment.set_network_conditions(broker, conditions)

        local.run(change)


class BrokersHandle(Handle, Sequence[BrokerView]):
    """All brokers, ordered by node id: `cluster.brokers`. A sequence of `BrokerView`, with commands for all brokers.

    Brokers have ports from the start of the cluster on, also after its end.
    """

    _kind = "brokers"
    _path = "brokers"

    @view
    def describe(self) -> list[BrokerView]:
        """Return all brokers, ordered by node id."""
        local = self._local
        return local.run(lambda: [BrokerView.of(broker) for broker in local.cluster.brokers.values()])

    def __len__(self) -> int:
        return len(self.describe())

    @overload
    def __getitem__(self, index: int) -> BrokerView: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[BrokerView]: ...

    def __getitem__(self, index: int | slice) -> BrokerView | Sequence[BrokerView]:
        return self.describe()[index]

    def __iter__(self) -> Iterator[BrokerView]:
        return iter(self.describe())

    def _state_text(self, at: Instant) -> str:
        return ", ".join(
            f"broker {each.node_id} is {'up' if each.up else 'down'}" for each in at.cluster.brokers.values()
        )

    @command
    def finish_loading(self) -> None:
        """Finish loading in all coordinators that are loading, even if their `load_ms` has not passed."""
        local = self._local
        local.run(lambda: local.cluster.controller.finish_loading(local.now_ms()))

    @command
    def stop_zombies(self) -> None:
        """Make all zombies resign: coordinators that continue to answer after a failover with `zombie`."""
        local = self._local
        local.run(lambda: local.cluster.controller.stop_zombies(local.now_ms()))

    @command
    def elect_preferred(self, /, **how: Annotated[Any, Failover]) -> None:
        """Run a preferred leader election for all partitions.

        The first replica of each partition becomes its leader, if the broker is up. Coordinators of groups move with
        their partitions of __consumer_offsets. Use it after `BrokerHandle.start` to move leaders back; with the broker
        setting `auto.leader.rebalance.enable` the brokers do so themselves, after a time.

        Args:
            how: Options of the failover of coordinators; see `GroupHandle.move_coordinator`.

        Raises:
            ConfigError: An option is out of range or without effect.
        """
        options, local = Failover(**how), self._local

        def elect() -> None:
            controller = local.cluster.controller
            partitions = (partition for topic in local.cluster.topics.all() for partition in topic.partitions)
            local.check_failover(options, filter(controller.can_lead_again, partitions))
            controller.elect_preferred(local.now_ms(), options)

        local.change(elect)

    @command
    def rolling_restart(self, /, **how: Annotated[Any, Failover]) -> None:
        """Restart all brokers that are up, one after the other.

        Leaders and coordinators do not move back; see `BrokerHandle.start`.

        Args:
            how: Options of all failovers; see `GroupHandle.move_coordinator`.

        Raises:
            ConfigError: An option is out of range or without effect.
        """
        options, local = Failover(**how), self._local
        # Before the first restart: a later broker may lead the partitions of an earlier one by then.
        partitions = (partition for topic in local.cluster.topics.all() for partition in topic.partitions)
        local.run(lambda: local.check_failover(options, partitions, stops=True))
        for node_id in [broker.node_id for broker in local.cluster.brokers.values() if broker.up]:
            BrokerHandle(local, node_id).restart(**how)

    @command
    def renew_certificates(self, *, expired: bool = False) -> None:
        """Give the brokers new certificates, which new connections get; those that are open go on.

        With `tls=True`, the authority of the cluster signs them, so that clients need not trust another one. Otherwise
        the files of `ssl.keystore.location` and `ssl.truststore.location` are read again. As in Kafka, they are also
        read again when configs of a broker are altered, such as `listener.name.ssl.ssl.keystore.location`. A new
        certificate needs the subject and the alternative names of the old one, unless `ssl.allow.dn.changes` and
        `ssl.allow.san.changes` are true (KIP-978).

        Args:
            expired: Whether the new certificates have expired already, so that clients have to refuse them.

        Raises:
            ConfigError: No listener has TLS; a file cannot be used or has other names, and nothing has changed; or
                `expired` is true without `tls=True`.
        """
        local = self._local
        local.run(lambda: local.environment.renew_certificates(expired=expired))

    @command
    def add(self, like: BrokerSettings | None = None) -> BrokerView:
        """Add a broker, on a free port.

        It has no replicas until partitions are created or moved.

        Args:
            like: Release, API versions and rack of the broker. None: the cluster's release and versions, and no rack.

        Returns:
            The broker, with its node id and port.

        Raises:
            ConfigError: The release, API or version does not exist.
            ListenError: No port is available.
        """
        local = self._local
        emulated = EmulatedRelease.of(like or local.default_broker, local.proposals)

        def add() -> BrokerView:
            broker = local.cluster.add_broker(emulated, (like or local.default_broker).rack)
            try:
                local.environment.open_listener(broker)
            except FakebrokerError:  # It has no port, so it cannot stay.
                del local.cluster.brokers[broker.node_id]
                raise
            return BrokerView.of(broker)

        return local.change(add)
