"""AlterReplicaLogDirs: moves replicas between the log directories of a broker (KIP-113)."""

from fakebroker.protocol.schema import Message, Struct, message, struct
from fakebroker.protocol.types import Int16, Int32, String


@struct
class AlterReplicaLogDirTopic(Struct):
    name: String
    partitions: list[Int32]


@struct
class AlterReplicaLogDir(Struct):
    path: String
    topics: list[AlterReplicaLogDirTopic]


@message(api_key=34, versions="0-2", flexible="2+")
class AlterReplicaLogDirsRequest(Message):
    dirs: list[AlterReplicaLogDir]


@struct
class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: Int32
    error_code: Int16


@struct
class AlterReplicaLogDirTopicResult(Struct):
    topic_name: String
    partitions: list[AlterReplicaLogDirPartitionResult]


@message(api_key=34, versions="0-2", flexible="2+")
class AlterReplicaLogDirsResponse(Message):
    throttle_time_ms: Int32 = 0
    results: list[AlterReplicaLogDirTopicResult]
