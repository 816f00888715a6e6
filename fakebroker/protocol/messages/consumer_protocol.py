"""Messages that consumers exchange as metadata and assignments of JoinGroup and SyncGroup; opaque to brokers.

Subscriptions and assignments follow their version, an int16. `StickyAssignorUserData`, which Kafka's `StickyAssignor`
puts into the user data of a subscription, has no version before it.
"""

from fakebroker.protocol.schema import Message, Struct, field
from fakebroker.protocol.types import Bytes, Int32, String


class ConsumerTopicPartitions(Struct):
    topic: String
    partitions: list[Int32]


class ConsumerProtocolSubscription(Message, versions="0-3", flexible="none"):
    topics: list[String]
    user_data: Bytes | None = None
    owned_partitions: list[ConsumerTopicPartitions] = field(versions="1+", ignorable=True, default_factory=list)
    generation_id: Int32 = field(versions="2+", ignorable=True, default=-1)
    rack_id: String | None = field(versions="3+", ignorable=True, default=None)


class ConsumerProtocolAssignment(Message, versions="0-3", flexible="none"):
    assigned_partitions: list[ConsumerTopicPartitions]
    user_data: Bytes | None = None


class StickyAssignorUserData(Message, versions="0-1", flexible="none"):
    previous_assignment: list[ConsumerTopicPartitions]
    generation: Int32 = field(versions="1+", ignorable=True, default=-1)
