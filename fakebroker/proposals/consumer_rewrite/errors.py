"""The error codes of the rewrite design, by the names of the document.

Where Kafka later gave the same meaning a number, the document's name is an alias of it. Two names have no such number
in Kafka 0.9: UnknownPartitioningStrategy has that of UNSUPPORTED_ASSIGNOR (KIP-848), with which brokers reject an
assignor that they do not know. IllegalProtocolState ("probably", as the document says) has that of INVALID_REQUEST: the
request is not legal at this time. The number differs from that of CoordinatorStartupNotComplete, as the document
demands.
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
