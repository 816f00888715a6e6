"""The TLS sides of all listeners of a cluster, and their renewal when files or configs of brokers change.

Source: SslFactory.reconfigure, DynamicBrokerConfig.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.configs.listener_settings import SSL_SETTINGS, listener_prefix
from fakebroker.cluster.configs.settings import Config
from fakebroker.cluster.listeners import Listener
from fakebroker.errors import ConfigError
from fakebroker.server.tls.tls_listener import TlsListener

if TYPE_CHECKING:  # Needs an extra.
    from fakebroker.server.tls.certificates import CertificateAuthority

logger = logging.getLogger("fakebroker")


class TlsListeners:
    """The certificates and settings with which new connections are encrypted, by broker and listener.

    Args:
        config: The settings of the cluster.
        listeners: The listeners that have TLS.
        authority: Signs the certificates of the brokers; None if the certificates come from the user's files.

    Raises:
        ConfigError: A setting is missing, or a file or certificate cannot be used.
    """

    def __init__(
        self, config: Config, listeners: Sequence[Listener], authority: "CertificateAuthority | None" = None
    ) -> None:
        self._config, self._listeners, self._authority = config, listeners, authority
        self._shared = {each.name: TlsListener(config, each) for each in listeners}
        self._own: dict[tuple[int, str], TlsListener] = {}

    def of(self, broker: BrokerNode, listener: Listener) -> TlsListener:
        """Return the TLS side of a listener of a broker."""
        return self._own.get((broker.node_id, listener.name)) or self._shared[listener.name]

    def check(self, broker: BrokerNode, configs: Mapping[str, str]) -> None:
        """Check the dynamic configs that a broker would have.

        Raises:
            ConfigError: A file or certificate cannot be used, or a certificate has other names than its predecessor.
        """
        for listener in self._listeners:
            made = self._made(listener, configs) or TlsListener(self._config, listener)
            made.require_names_of(self.of(broker, listener), broker.release)

    def renew(self, brokers: Iterable[BrokerNode], *, expired: bool) -> None:
        """Issue a new certificate if the cluster has an authority, and `load` all files.

        Raises:
            ConfigError: A file cannot be used or has other names; the certificates in use stay. Or `expired` is true,
                and there is no authority.
        """
        if self._authority is not None:
            self._authority.renew(expired=expired)
        elif expired:
            raise ConfigError.of("expired", expired, "false, because the certificates are files; or tls=True")
        self.load(brokers)

    def load(self, brokers: Iterable[BrokerNode]) -> None:
        """Read all files again, and apply the dynamic configs of brokers.

        If the settings of a listener are unchanged, the names in its new certificate are compared with the old ones. If
        the settings have changed, the names are not compared: `check` has compared the names of altered configs, and a
        start, a reset or a restored snapshot may change names.

        Raises:
            ConfigError: A file or certificate cannot be used, or has other names. Nothing has changed.
        """
        brokers = list(brokers)
        shared = {each.name: TlsListener(self._config, each) for each in self._listeners}
        own = {
            (broker.node_id, listener.name): made
            for broker in brokers
            for listener in self._listeners
            if (made := self._made(listener, broker.configs)) is not None
        }
        for broker in brokers:
            for listener in self._listeners:
                made, old = own.get((broker.node_id, listener.name)) or shared[listener.name], self.of(broker, listener)
                if made.settings == old.settings:
                    made.require_names_of(old, broker.release)
        self._shared, self._own = shared, own

    def reload(self, brokers: Iterable[BrokerNode]) -> None:
        """Like `load`, but keep what is in use, and log the error, if it cannot be replaced."""
        try:
            self.load(brokers)
        except ConfigError as error:
            logger.error("certificates are not renewed: %s", error)  # noqa: TRY400  # not a bug

    def _made(self, listener: Listener, configs: Mapping[str, str]) -> TlsListener | None:
        """Return the TLS side of a listener with the dynamic configs of a broker; None if it has none for it."""
        prefix = listener_prefix(listener.name)
        own = {name: value for setting in SSL_SETTINGS if (value := configs.get(name := prefix + setting)) is not None}
        return TlsListener(Config({**self._config.overrides, **own}), listener) if own else None
