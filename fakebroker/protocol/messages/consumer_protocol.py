"""What the members of a `consumer` group exchange through JoinGroup and SyncGroup; brokers do not read it.

The first two are Kafka's; their version stands in front of them in two bytes. The third is what `StickyAssignor` puts
into the user data of a subscription, without a version in front.
"""

from fakebroker.protocol.schema import Message, Struct, field, message, struct
from fakebroker.protocol.types import Bytes, Int32, String


@struct
class ConsumerTopicPartitions(Struct):
    topic: String
    partitions: list[Int32]


@message(versions="0-3", flexible="none")
class ConsumerProtocolSubscription(Message):
    topics: list[String]
    user_data: Bytes | None = None
    owned_partitions: list[ConsumerTopicPartitions] = field(versions="1+", ignorable=True, default_factory=list)
    generation_id: Int32 = field(versions="2+", ignorable=True, default=-1)
    rack_id: String | None = field(versions="3+", ignorable=True, default=None)


@message(versions="0-3", flexible="none")
class ConsumerProtocolAssignment(Message):
    assigned_partitions: list[ConsumerTopicPartitions]
    user_data: Bytes | None = None


@message(versions="0-1", flexible="none")
class StickyAssignorUserData(Message):
    previous_assignment: list[ConsumerTopicPartitions]
    generation: Int32 = field(versions="1+", ignorable=True, default=-1)
