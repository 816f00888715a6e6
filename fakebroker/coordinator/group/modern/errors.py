"""The error of a request to a consumer group."""

from fakebroker.errors import ErrorCode


class HeartbeatError(Exception):
    """A request is rejected; no record was written.

    Attributes:
        error: The error code.
        message: Kafka's message, which clients see in the response to a ConsumerGroupHeartbeat; None if it has none.
    """

    def __init__(self, error: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or error.name)
        self.error = error
        self.message = message
