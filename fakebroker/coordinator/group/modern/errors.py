"""The error of a ConsumerGroupHeartbeat."""

from fakebroker.errors import ErrorCode


class HeartbeatError(Exception):
    """A heartbeat is rejected; nothing has changed.

    Attributes:
        error: The error code.
        message: Kafka's message for the client.
    """

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message
