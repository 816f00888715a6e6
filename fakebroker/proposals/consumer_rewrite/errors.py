"""The error codes of the consumer rewrite design, under the names in its document.

Each name is an alias of the error of Kafka with the same meaning. For example, UnknownConsumer is UNKNOWN_MEMBER_ID.
Kafka 0.9 has no error with the meaning of two names:

- UnknownPartitioningStrategy is UNSUPPORTED_ASSIGNOR (KIP-848): the coordinator does not know the assignor.
- IllegalProtocolState is INVALID_REQUEST: the request is not allowed in this state. The document says only that the
  name is "probably" IllegalProtocolState, and that its number differs from CoordinatorStartupNotComplete. It does:
  CoordinatorStartupNotComplete is COORDINATOR_LOAD_IN_PROGRESS.
"""

from fakebroker.errors import ErrorCode

NONE = ErrorCode.NONE
COORDINATOR_STARTUP_NOT_COMPLETE = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
NOT_COORDINATOR_FOR_GROUP = ErrorCode.NOT_COORDINATOR
ILLEGAL_GENERATION = ErrorCode.ILLEGAL_GENERATION
INCONSISTENT_PARTITIONING_STRATEGY = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
UNKNOWN_CONSUMER = ErrorCode.UNKNOWN_MEMBER_ID
SESSION_TIMEOUT_TOO_HIGH = ErrorCode.INVALID_SESSION_TIMEOUT
UNKNOWN_PARTITIONING_STRATEGY = ErrorCode.UNSUPPORTED_ASSIGNOR
ILLEGAL_PROTOCOL_STATE = ErrorCode.INVALID_REQUEST

NAMES: dict[ErrorCode, str] = {
    COORDINATOR_STARTUP_NOT_COMPLETE: "CoordinatorStartupNotComplete",
    NOT_COORDINATOR_FOR_GROUP: "NotCoordinatorForGroup",
    ILLEGAL_GENERATION: "IllegalGeneration",
    INCONSISTENT_PARTITIONING_STRATEGY: "InconsistentPartitioningStrategy",
    UNKNOWN_CONSUMER: "UnknownConsumer",
    SESSION_TIMEOUT_TOO_HIGH: "SessionTimeoutTooHigh",
    UNKNOWN_PARTITIONING_STRATEGY: "UnknownPartitioningStrategy",
    ILLEGAL_PROTOCOL_STATE: "IllegalProtocolState",
}
"""The document's names, by error code."""
