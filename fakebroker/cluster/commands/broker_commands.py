"""Commands for brokers: stop, start, upgrade, add and remove them, and change their network conditions."""

from collections.abc import Mapping
from typing import Unpack

from msgspec.structs import replace

from fakebroker.cluster.commands.base import CommandsBase
from fakebroker.cluster.commands.definition import (
    command,
)
from fakebroker.cluster.commands.environment import Accept
from fakebroker.cluster.emulation import Broker, BrokerSettings, EmulatedRelease, ReleaseName, VersionCap
from fakebroker.cluster.inspect.views import BrokerView
from fakebroker.cluster.replication.coordinator_moves import Failover, FailoverOptions
from fakebroker.cluster.topics import NO_LEADER
from fakebroker.errors import ConfigError, FakebrokerError
from fakebroker.validation import Seconds


class BrokerCommands(CommandsBase):
    """Commands for brokers."""

    @command
    def stop_broker(self, node_id: int, *, elect: bool = True, **how: Unpack[FailoverOptions]) -> None:
        """Stop a broker: close its connections, and refuse connections to its port.

        Args:
            node_id: Node id of the broker.
            elect: Whether the partitions that it leads elect new leaders. If false, they have no leader until this
                broker starts again; the start of another broker does not give them a leader. They also get a leader if
                they are moved, if an ElectLeaders request names them, or if this broker is removed.
            how: Options of the failover to other brokers; see `move_coordinator`.

        Raises:
            ConfigError: The broker does not exist or is down already, or an option is out of range or without effect.
        """
        options = Failover(**how)

        def stop() -> None:
            broker = self._broker(node_id, up=True)
            self._check_failover(options, self._cluster.topics.led_by(node_id), stops=True, has_successor=elect)
            self._environment.close_listener(broker, keep_port=True)
            self._cluster.controller.stop_broker(broker, self._now_ms(), options, elect=elect)

        self._change(stop)

    @command
    def start_broker(self, node_id: int, **how: Unpack[FailoverOptions]) -> None:
        """Start a stopped broker, on its previous port.

        It has the same replicas as before, which are in sync at once. It becomes the leader of those partitions that
        have no leader, unless they await another one as their last leader (see `stop_broker`). Reassignments that have
        waited for it are completed.

        Nothing else moves back: partitions that have elected another leader keep it, and so do the groups that have
        moved to another coordinator, and network conditions (`set_broker`) are normal. `elect_preferred` moves leaders
        and coordinators back. So does time, if the broker setting `auto.leader.rebalance.enable` is true (false by
        default, unlike in Kafka): `leader.imbalance.check.interval.seconds` (300) of the brokers' clock after a
        partition got another leader than its first replica.

        Args:
            node_id: Node id of the broker.
            how: Options of the failover of coordinators; see `move_coordinator`.

        Raises:
            ConfigError: The broker does not exist or is up already, or an option is out of range or without effect.
        """
        options = Failover(**how)

        def start() -> None:
            broker = self._broker(node_id, up=False)
            leaderless = self._cluster.topics.led_by(NO_LEADER)
            self._check_failover(options, [each for each in leaderless if node_id in each.replicas])
            self._environment.open_listener(broker)
            self._cluster.controller.start_broker(broker, self._now_ms(), options)

        self._change(start)

    @command
    def restart_broker(self, node_id: int, **how: Unpack[FailoverOptions]) -> None:
        """Stop a broker, with elections of new leaders for its partitions, and start it again.

        Leaders and coordinators do not move back; see `start_broker`.

        Args:
            node_id: Node id of the broker.
            how: Options of both failovers, at the stop and at the start; see `move_coordinator`.

        Raises:
            ConfigError: The broker does not exist or is down, or an option is out of range or without effect.
        """
        self.stop_broker(node_id, **how)
        self.start_broker(node_id, **how)

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
        self._run(lambda: self._environment.renew_certificates(expired=expired))

    @command
    def rolling_restart(self, **how: Unpack[FailoverOptions]) -> None:
        """Restart all brokers that are up, one after the other.

        Leaders and coordinators do not move back; see `start_broker`.

        Args:
            how: Options of all failovers; see `move_coordinator`.

        Raises:
            ConfigError: An option is out of range or without effect.
        """
        options = Failover(**how)
        # Before the first restart: a later broker may lead the partitions of an earlier one by then.
        partitions = (partition for topic in self._cluster.topics.all() for partition in topic.partitions)
        self._run(lambda: self._check_failover(options, partitions, stops=True))
        for node_id in [broker.node_id for broker in self._cluster.brokers.values() if broker.up]:
            self.restart_broker(node_id, **how)

    @command
    def upgrade_broker(
        self,
        node_id: int,
        as_version: ReleaseName | None,
        api_versions: Mapping[str, VersionCap] | None = None,
        **how: Unpack[FailoverOptions],
    ) -> None:
        """Restart a broker as another release of Kafka, newer or older.

        A broker that is down changes its release and stays down.

        Args:
            node_id: Node id of the broker.
            as_version: The release, such as "3.9". None: the newest behavior, with all versions that are implemented.
            api_versions: Maps the name of an API to its first and last supported version, or to None if the API is not
                supported. APIs that are not named have the versions of the release.
            how: Options of both failovers, at the stop and at the start; see `move_coordinator`.

        Raises:
            ConfigError: The broker, release, API or version does not exist, or an option is out of range or without
                effect.
        """
        emulated = EmulatedRelease.of(Broker(as_version=as_version, api_versions=api_versions or {}), self._proposals)
        broker = self._run(lambda: self._broker(node_id))
        if not broker.up:
            for name, value in how.items():
                raise ConfigError.of(name, value, f"no such option, because broker {node_id} is down and stays down")
        if was_up := broker.up:
            self.stop_broker(node_id, **how)
        self._change(lambda: self._cluster.upgrade_broker(broker, emulated))
        if was_up:
            self.start_broker(node_id, **how)

    @command
    def add_broker(self, like: BrokerSettings | None = None) -> BrokerView:
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
        emulated = EmulatedRelease.of(like or self._default_broker, self._proposals)

        def add() -> BrokerView:
            broker = self._cluster.add_broker(emulated, (like or self._default_broker).rack)
            try:
                self._environment.open_listener(broker)
            except FakebrokerError:  # It has no port, so it cannot stay.
                del self._cluster.brokers[broker.node_id]
                raise
            return BrokerView.of(broker)

        return self._change(add)

    @command
    def remove_broker(self, node_id: int, **how: Unpack[FailoverOptions]) -> None:
        """Remove a broker permanently, and move its replicas to other brokers.

        Args:
            node_id: Node id of the broker.
            how: Options of the failover to other brokers; see `move_coordinator`.

        Raises:
            ConfigError: The broker does not exist or is the only one, or an option is out of range or without effect.
        """
        options = Failover(**how)

        def remove() -> None:
            broker = self._broker(node_id)
            if len(self._cluster.brokers) == 1:
                raise ConfigError.of("node_id", node_id, "a broker that is not the last one")
            self._check_failover(options, self._cluster.topics.led_by(node_id), stops=True)
            self._environment.close_listener(broker, keep_port=False)
            self._cluster.remove_broker(broker, self._now_ms(), options)

        self._change(remove)

    @command
    def set_broker(
        self,
        node_id: int,
        *,
        accept: Accept | None = None,
        accept_delay_s: Seconds | None = None,
        round_trip_s: Seconds | None = None,
    ) -> None:
        """Change the network conditions of a broker, until it is stopped.

        Conditions whose arguments are not given do not change. All times are wall-clock seconds.

        Args:
            node_id: Node id of the broker.
            accept: How the broker accepts new connections; existing ones are not affected. "normal": immediately.
                "slow": requests are read after `accept_delay_s`. "half_open": requests on connections accepted in this
                state are never answered, even if `accept` is "normal" later. "refuse": connections are refused.
            accept_delay_s: Delay of new connections, more than 0; required with "slow", not allowed otherwise.
            round_trip_s: Latency added to each response, 0 or more. Responses stay in order.

        Raises:
            ConfigError: The broker does not exist or is down, or a value is out of range.
        """
        delay_s = accept_delay_s or 0.0
        if (accept == "slow") != (delay_s > 0):
            expected = "a number > 0 with accept='slow', and none otherwise"
            raise ConfigError.of("accept_delay_s", accept_delay_s, expected)

        def change() -> None:
            broker = self._broker(node_id, up=True)
            conditions = self._environment.network_conditions(broker)
            if accept is not None:
                conditions = replace(conditions, accept=accept, accept_delay_ms=delay_s * 1000)
            if round_trip_s is not None:
                conditions = replace(conditions, round_trip_ms=round_trip_s * 1000)
            self._environment.set_network_conditions(broker, conditions)

        self._run(change)
