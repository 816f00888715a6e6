"""DescribeLogDirs: the sizes of the replicas on a broker (KIP-113)."""

from fakebroker.protocol.schema import Message, Struct, field
from fakebroker.protocol.types import Boolean, Int16, Int32, Int64, String


class DescribableLogDirTopic(Struct):
    topic: String
    partitions: list[Int32]


class DescribeLogDirsRequest(Message, api_key=35, versions="0-5", flexible="2+"):
    topics: list[DescribableLogDirTopic] | None


class DescribeLogDirsPartition(Struct):
    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: Boolean


class DescribeLogDirsTopic(Struct):
    name: String
    partitions: list[DescribeLogDirsPartition]


class DescribeLogDirsResult(Struct):
    error_code: Int16
    log_dir: String
    topics: list[DescribeLogDirsTopic]
    total_bytes: Int64 = field(versions="4+", ignorable=True, default=-1)
    usable_bytes: Int64 = field(versions="4+", ignorable=True, default=-1)
    is_cordoned: Boolean = field(versions="5+", ignorable=True, default=False)


class DescribeLogDirsResponse(Message, api_key=35, versions="0-5", flexible="2+"):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = field(versions="3+", ignorable=True, default=0)
    results: list[DescribeLogDirsResult]
