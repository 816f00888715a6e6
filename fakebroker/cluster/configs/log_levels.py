"""The log levels of a broker (resources of the type BROKER_LOGGER, KIP-412): kept until the broker stops, and shown.

Brokers of the fake cluster do not write Kafka's logs, so the levels have no effect. A real broker has hundreds of
loggers. The fake cluster has the loggers of Kafka's default logging configuration, and some classes whose level is
often changed.
Source: RuntimeLoggerManager, LoggingController.
"""

from collections.abc import Mapping, Sequence

from fakebroker.errors import ErrorCode
from fakebroker.protocol.releases import Release

KIP_412 = Release(2, 4)
"""The first release with log levels as configs."""

ROOT = "root"

LEVELS = ("DEBUG", "ERROR", "FATAL", "INFO", "TRACE", "WARN")

CONFIGURED_LEVELS: Mapping[str, str] = {
    ROOT: "INFO",
    "kafka": "INFO",
    "kafka.authorizer.logger": "INFO",
    "kafka.network.RequestChannel$": "WARN",
    "kafka.request.logger": "WARN",
    "org.apache.kafka": "INFO",
    "org.apache.kafka.controller": "INFO",
    "state.change.logger": "INFO",
}
"""The levels of Kafka's default logging configuration, by logger."""

LOGGERS = (
    *CONFIGURED_LEVELS,
    "kafka.coordinator.group.GroupCoordinator",
    "kafka.coordinator.transaction.TransactionCoordinator",
    "kafka.log.LogCleaner",
    "kafka.log.LogManager",
    "kafka.network.Acceptor",
    "kafka.network.Processor",
    "kafka.server.ClientQuotaManager",
    "kafka.server.KafkaApis",
    "kafka.server.KafkaConfig",
    "kafka.server.ReplicaFetcherThread",
    "kafka.server.ReplicaManager",
    "org.apache.kafka.clients.NetworkClient",
    "org.apache.kafka.coordinator.group.GroupMetadataManager",
)

_SET, _DELETE = 0, 1


def level(logger: str, changed: Mapping[str, str | None]) -> str:
    """Return the level of a logger: its own level, or else the level of the nearest logger above it that has a level.

    Args:
        logger: The name of the logger.
        changed: The levels that differ from `CONFIGURED_LEVELS`; None for a logger whose level was removed.
    """
    levels = {**CONFIGURED_LEVELS, **changed}
    while logger:
        own = levels.get(logger)
        if own is not None:
            return own
        logger = logger.rpartition(".")[0]
    return levels[ROOT] or ""


def change_error(changes: Sequence[tuple[str, str | None, int]]) -> tuple[ErrorCode, str] | None:
    """Return the error of the first change that is not valid, or None.

    Args:
        changes: The name of a logger, its new level, and the operation of IncrementalAlterConfigs.
    """
    for logger, value, operation in changes:
        if operation not in range(4):
            return ErrorCode.UNKNOWN_SERVER_ERROR, ""  # as in Kafka, which fails here
        if operation not in (_SET, _DELETE):
            return ErrorCode.INVALID_REQUEST, f"operation {operation} is not allowed for a BROKER_LOGGER resource"
        if logger not in LOGGERS:
            return ErrorCode.INVALID_CONFIG, f"Logger {logger} does not exist!"
        if operation == _SET and value not in LEVELS:
            expected = ", ".join(LEVELS)
            return ErrorCode.INVALID_CONFIG, f"log level {value} of {logger}: expected one of {expected}"
        if operation == _DELETE and logger == ROOT:
            return ErrorCode.INVALID_REQUEST, f"Removing the log level of the {ROOT} logger is not allowed"
    return None


def changed_levels(
    current: Mapping[str, str | None], changes: Sequence[tuple[str, str | None, int]]
) -> dict[str, str | None]:
    """Return the changed levels of a broker after valid changes."""
    return {**current, **{logger: value if operation == _SET else None for logger, value, operation in changes}}
