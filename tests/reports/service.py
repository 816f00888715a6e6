"""A service with bugs, for reports on failed tests.

It reads orders, writes an invoice for each, and a dead letter for each order that it cannot read. Each bug is one that
people make. `run` plays the service with one of them until the result is wrong.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from fakebroker import FakeCluster
from fakebroker.errors import PollError

ORDERS, INVOICES, DEAD_LETTERS = "orders", "invoices", "orders-dlq"
GROUP, POISON = "billing", b"poison"
TIMEOUT_S = 20.0


class Order:
    """An order that was received."""

    def __init__(self, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self.partition, self.offset = partition, offset
        self.key, self.value, self.headers = message.key(), message.value(), message.headers() or []


class Service:
    """The service.

    Args:
        cluster: The cluster that it connects to.
        bug: Its bug; "" for none.
        client_id: Its client id.
        more: Further configuration of its consumer.
    """

    def __init__(self, cluster: FakeCluster, bug: str = "", client_id: str = "billing-1", **more: Any) -> None:
        self.bug = bug
        servers = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": client_id}
        consumer = {
            "group.id": "biling" if bug == "wrong group id" else GROUP,
            "auto.offset.reset": "latest" if bug == "auto.offset.reset=latest" else "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        self.consumer = Consumer({**servers, **consumer, "error_cb": lambda _: None})
        producer: dict[str, Any] = {"linger.ms": 60_000 if bug == "never flushed" else 0}
        if bug in TRANSACTIONAL:
            producer["transactional.id"] = "invoices-1"
        self.producer = Producer({**servers, **producer, "error_cb": lambda _: None})
        if bug in TRANSACTIONAL:
            self.producer.init_transactions(TIMEOUT_S)
        self.consumer.subscribe([ORDERS])

    def poll(self, timeout_s: float = TIMEOUT_S) -> Order | None:
        """Return the next order."""
        message = self.consumer.poll(timeout_s)
        return Order(message) if message is not None and not message.error() else None

    def handle(self, order: Order) -> None:
        """Write the invoice or the dead letter of an order, and commit the offset after it."""
        if self.bug == "commit before processing":
            self.commit(order)
            raise RuntimeError("the service crashes while it processes the order")
        if order.value == POISON:
            if self.bug == "poison record retried for ever":
                self.consumer.seek(TopicPartition(ORDERS, order.partition, order.offset))
                return
            self.write(DEAD_LETTERS, order)
        else:
            self.write(INVOICES, order)
        if self.bug != "no commit on revoke":  # It commits each hundredth order.
            self.commit(order)

    def write(self, topic: str, order: Order) -> None:
        headers = [] if self.bug == "lost headers" else order.headers
        with suppress(KafkaException):  # Nobody looks at the errors, here and of the delivery.
            self.producer.produce(topic, order.value, order.key, headers=headers)
        if self.bug != "never flushed":
            self.producer.flush(TIMEOUT_S)

    def commit(self, order: Order) -> None:
        after = order.offset + (0 if self.bug == "offset one too low" else 1)
        self.consumer.commit(offsets=[TopicPartition(ORDERS, order.partition, after)], asynchronous=False)

    def handle_in_transaction(self, order: Order, *, fails: bool) -> None:
        """Write the invoice in a transaction, which is aborted if the processing fails."""
        self.producer.begin_transaction()
        self.producer.produce(INVOICES, order.value, order.key, headers=order.headers)
        after = [TopicPartition(ORDERS, order.partition, order.offset + 1)]
        if self.bug == "offsets outside of the transaction":
            self.consumer.commit(offsets=after, asynchronous=False)
        else:
            metadata = self.consumer.consumer_group_metadata()
            self.producer.send_offsets_to_transaction(after, metadata, TIMEOUT_S)
        if fails:
            self.producer.abort_transaction(TIMEOUT_S)  # and the next order is read, without a seek back
        else:
            self.producer.commit_transaction(TIMEOUT_S)

    def close(self) -> None:
        """Leave the group."""
        self.consumer.close()


TRANSACTIONAL = ("offsets outside of the transaction", "no rewind after an abort")


@contextmanager
def running(cluster: FakeCluster, *arguments: Any, **more: Any) -> Iterator[Service]:
    service = Service(cluster, *arguments, **more)
    try:
        yield service
    finally:
        service.close()


def _handle(service: Service, count: int) -> None:
    for _ in range(count):
        order = service.poll()
        assert order is not None
        service.handle(order)


def _two_orders(cluster: FakeCluster, bug: str) -> None:
    with running(cluster, bug) as service:
        _handle(service, 2)


def _restarted(cluster: FakeCluster, bug: str) -> None:
    """The service handles orders, and is started again."""
    with running(cluster, bug) as service, suppress(RuntimeError):
        _handle(service, 2)
    with running(cluster, "" if bug == "commit before processing" else bug, "billing-2") as service:
        _handle(service, 1)


def _joined(cluster: FakeCluster, bug: str) -> None:
    """Another member takes the partition over."""
    with running(cluster, bug) as service:
        _handle(service, 2)
    with running(cluster, bug, "billing-2") as service:
        _handle(service, 2)


def _waits(cluster: FakeCluster, bug: str) -> None:
    """No order arrives at the service."""
    with running(cluster, bug) as service:
        assert service.poll(1.0) is None or bug == "wrong group id"


def _denied(topic: str) -> Callable[[FakeCluster, str], None]:
    def play(cluster: FakeCluster, bug: str) -> None:
        cluster.acls.deny("ANONYMOUS", "WRITE", topic=topic)
        if topic == DEAD_LETTERS:
            cluster.topic(ORDERS).produce([POISON])
        with running(cluster, bug) as service:
            _handle(service, 3 if topic == DEAD_LETTERS else 2)

    return play


def _poisoned(cluster: FakeCluster, bug: str) -> None:
    cluster.topic(ORDERS).produce([POISON])
    with running(cluster, bug) as service:
        _handle(service, 12)


def _aborted(cluster: FakeCluster, bug: str) -> None:
    with running(cluster, bug) as service:
        for fails in (True, False):
            order = service.poll()
            assert order is not None
            service.handle_in_transaction(order, fails=fails)


def _slow(cluster: FakeCluster, bug: str) -> None:
    """The service needs longer for an order than `max.poll.interval.ms`."""
    with running(
        cluster, bug, session_timeout_ms=2_000, max_poll_interval_ms=2_000, heartbeat_interval_ms=500
    ) as service:
        order = service.poll()
        assert order is not None
        cluster.wait(cluster.group(GROUP).state("Empty"), timeout_s=TIMEOUT_S)
        with suppress(KafkaException):
            service.handle(order)


def _two_static(cluster: FakeCluster, bug: str) -> None:
    """Two processes are started with the same configuration."""
    with running(cluster, bug, group_instance_id="billing-0") as first:
        assert first.poll() is not None
        with running(cluster, bug, "billing-2", group_instance_id="billing-0") as second:
            second.poll(2.0)
            with suppress(PollError):  # The first one ends with a fatal error.
                cluster.wait(cluster.requested(error="FENCED_INSTANCE_ID"), polling=[first.consumer, second.consumer])


BUGS: dict[str, Callable[[FakeCluster, str], None]] = {
    "commit before processing": _restarted,
    "no commit on revoke": _joined,
    "lost headers": _two_orders,
    "authorization error ignored": _denied(INVOICES),
    "dead letter without permission": _denied(DEAD_LETTERS),
    "offset one too low": _restarted,
    "offsets outside of the transaction": _aborted,
    "no rewind after an abort": _aborted,
    "poison record retried for ever": _poisoned,
    "polled too late": _slow,
    "wrong group id": _waits,
    "same instance id": _two_static,
    "never flushed": _two_orders,
    "auto.offset.reset=latest": _waits,
}
"""The bugs, and how the service is played until the result is wrong."""


def report(bug: str) -> str:
    """Return the report on a cluster with which the service was played."""
    config = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 100}
    with FakeCluster(1, {ORDERS: 1, INVOICES: 1, DEAD_LETTERS: 1}, config=config) as cluster:
        cluster.topic(ORDERS).produce(["first", "second"], headers=[("trace", "7")])
        BUGS[bug](cluster, bug)
        return cluster.report()


if __name__ == "__main__":
    import sys

    for each in sys.argv[1:] or BUGS:
        print(f"=== {each}\n{report(each)}\n")
