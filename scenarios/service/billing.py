"""A small service: it reads orders, writes bills, and puts orders that it cannot read on a topic of dead letters."""

import json
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition

SETTINGS = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "heartbeat.interval.ms": 100}


class Billing:
    """One instance of the service.

    Args:
        servers: `bootstrap.servers`.
        instance: Names this instance: its client id, and the end of its transactional id.
        name: Returns the name of a topic, a group or a transactional id in Kafka.
    """

    def __init__(self, servers: str, instance: str = "1", name: Callable[[str], str] = str) -> None:
        self.orders, self.bills, self.dead = name("orders"), name("bills"), name("dead-letters")
        common = {"bootstrap.servers": servers, "client.id": instance}
        self.consumer = Consumer({**common, **SETTINGS, "group.id": name("billing")})
        self.producer = Producer({**common, "transactional.id": name(f"billing-{instance}")})
        self.producer.init_transactions(30)
        self.consumer.subscribe([self.orders])

    def poll(self, timeout: float = 0.1) -> list[Any]:
        """Bill the next order, if there is one. Its bill and its offset are committed together, or not at all."""
        message = self.consumer.poll(timeout)
        if message is None or message.error():
            return []
        after = [TopicPartition(message.topic(), message.partition(), message.offset() + 1)]
        self.producer.begin_transaction()
        self.producer.produce(*self._bill(message))
        self.producer.send_offsets_to_transaction(after, self.consumer.consumer_group_metadata(), 30)
        self.producer.commit_transaction(30)
        return [message]

    def _bill(self, message: Message) -> tuple[str, bytes, bytes | None]:
        """Return the topic, the value and the key of what is produced for an order."""
        value = message.value() or b""
        try:
            order = json.loads(value)
            bill = {"order": order["id"], "cents": order["cents"]}
        except (ValueError, KeyError, TypeError):
            return self.dead, value, message.key()
        return self.bills, json.dumps(bill).encode(), message.key()

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions of this instance."""
        return list(self.consumer.assignment())

    def close(self) -> None:
        """Leave the group."""
        self.consumer.close()
