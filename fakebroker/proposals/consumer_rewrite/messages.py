"""JoinGroup of the proposal `rewrite`, Kafka's consumer rewrite design: the coordinator assigns the partitions.

It has the key of JoinGroup. Kafka's trunk had it as version 0 before 0.9. Kafka still has the other messages of the
document: ConsumerMetadata is version 0 of FindCoordinator, Heartbeat is version 0, and OffsetCommit is version 1.
"""

from fakebroker.proposals.consumer_rewrite import JOIN_GROUP
from fakebroker.protocol.schema import Message, Struct
from fakebroker.protocol.types import Int16, Int32, String


class RewriteJoinGroupRequest(Message, api_key=11, versions="0", flexible="none"):
    API = JOIN_GROUP
    group_id: String
    session_timeout_ms: Int32
    topics: list[String]
    consumer_id: String
    partition_assignment_strategy: String

    @property
    def named_groups(self) -> list[str]:
        return [self.group_id]

    @property
    def named_members(self) -> list[str]:
        return [self.consumer_id]


class RewriteOwnedTopic(Struct):
    topic_name: String
    partitions: list[Int32]


class RewriteJoinGroupResponse(Message, api_key=11, versions="0", flexible="none"):
    API = JOIN_GROUP
    error_code: Int16 = 0
    group_generation_id: Int32 = -1
    consumer_id: String = ""
    partitions_to_own: list[RewriteOwnedTopic]

    @property
    def named_members(self) -> list[str]:
        return [self.consumer_id]
