"""Keys and values of the records in `__consumer_offsets`, which group coordinators write.

Each key and value follows its version, an int16. The version of a key is the type of the record: 0 and 1 are offset
commits, 2 is the metadata of a classic group. The records of consumer groups are in `consumer_group_records.py`.
"""

from fakebroker.protocol.schema import Message, Struct, field
from fakebroker.protocol.types import ZERO_UUID, Bytes, Int32, Int64, String, Uuid


class OffsetCommitKey(Message, versions="0-1", flexible="none"):
    group: String
    topic: String
    partition: Int32


class OffsetCommitValue(Message, versions="0-4", flexible="4+"):
    offset: Int64
    leader_epoch: Int32 = field(versions="3+", ignorable=True, default=-1)
    metadata: String
    commit_timestamp: Int64
    expire_timestamp: Int64 = field(versions="1", ignorable=True, default=-1)
    topic_id: Uuid = field(versions="4+", tag=0, ignorable=True, default=ZERO_UUID)


class GroupMetadataKey(Message, versions="2", flexible="none"):
    group: String


class MemberMetadata(Struct):
    member_id: String
    group_instance_id: String | None = field(versions="3+", ignorable=True, default=None)
    client_id: String
    client_host: String
    rebalance_timeout: Int32 = field(versions="1+", ignorable=True, default=-1)
    session_timeout: Int32
    subscription: Bytes
    assignment: Bytes


class GroupMetadataValue(Message, versions="0-4", flexible="4+"):
    protocol_type: String
    generation: Int32
    protocol: String | None
    leader: String | None
    current_state_timestamp: Int64 = field(versions="2+", ignorable=True, default=-1)
    members: list[MemberMetadata]
