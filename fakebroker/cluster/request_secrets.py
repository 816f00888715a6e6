"""Secrets of requests, which are taken out of them before the journal gets them, and given to their handlers.

The secrets of AlterUserScramCredentials are salts and salted passwords. The secrets of AlterConfigs and
IncrementalAlterConfigs are values of broker configs that DescribeConfigs does not return.
"""

from typing import Any

from fakebroker.protocol.releases import Release
from fakebroker.protocol.schema import Message

ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS, ALTER_SCRAM_CREDENTIALS = 33, 44, 51
WITH_SECRETS = (ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS, ALTER_SCRAM_CREDENTIALS)
"""The keys of the APIs whose requests can have secrets."""

_BROKER = 4
"""The type of resources that are brokers (ConfigResource.Type)."""


class Secrets(dict[tuple[str, object], Any]):
    """The secrets of a request; they are not shown.

    Salt and salted password by user and mechanism, or values by broker and name of a config.
    """

    def __repr__(self) -> str:
        return f"<{len(self)} secrets>"


NO_SECRETS = Secrets()


def withhold_secrets(api_key: int, request: Message, release: Release) -> Secrets:
    """Remove the secrets from a request of one of the APIs `WITH_SECRETS`, and return them.

    Args:
        api_key: The key of the API.
        request: The request, which is changed.
        release: The release of the broker that has received it.
    """
    fields: Any = request
    secrets = Secrets()
    if api_key == ALTER_SCRAM_CREDENTIALS:
        for each in fields.upsertions:
            secrets[each.name, each.mechanism] = each.salt, each.salted_password
            each.salt = each.salted_password = b""
        return secrets
    from fakebroker.cluster.configs.broker_configs import is_secret  # few requests need it

    for resource in fields.resources:
        for config in resource.configs if resource.resource_type == _BROKER else ():
            if config.value is not None and is_secret(release, config.name):
                secrets[resource.resource_name, config.name] = config.value
                config.value = None
    return secrets
