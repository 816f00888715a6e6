"""Messages that consumers exchange as metadata and assignments of JoinGroup and SyncGroup; opaque to brokers.

Subscriptions and assignments follow their version, an int16. `StickyAssignorUserData`, which Kafka's `StickyAssignor`
puts into the user data of a subscription, has no version before it.
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
