"""Tests of `fakebroker.conform`, with fake clusters over TCP. Those with Apache Kafka are in `tests/kafka`."""
