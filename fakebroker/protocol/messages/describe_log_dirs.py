"""DescribeLogDirs: the sizes of the replicas on a broker (KIP-113)."""

from fakebroker.protocol.schema import Message, Struct, field, message, struct
from fakebroker.protocol.types import Boolean, Int16, Int32, Int64, String


@struct
class DescribableLogDirTopic(Struct):
    topic: String
    partitions: list[Int32]


@message(api_key=35, versions="0-5", flexible="2+")
class DescribeLogDirsRequest(Message):
    topics: list[DescribableLogDirTopic] | None


@struct
class DescribeLogDirsPartition(Struct):
    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: Boolean


@struct
class DescribeLogDirsTopic(Struct):
    name: String
    partitions: list[DescribeLogDirsPartition]


@struct
class DescribeLogDirsResult(Struct):
    error_code: Int16
    log_dir: String
    topics: list[DescribeLogDirsTopic]
    total_bytes: Int64 = field(versions="4+", ignorable=True, default=-1)
    usable_bytes: Int64 = field(versions="4+", ignorable=True, default=-1)
    is_cordoned: Boolean = field(versions="5+", ignorable=True, default=False)


@message(api_key=35, versions="0-5", flexible="2+")
class DescribeLogDirsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = field(versions="3+", ignorable=True, default=0)
    results: list[DescribeLogDirsResult]
