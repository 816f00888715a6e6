"""Tests that use Apache Kafka itself. They need Java 17 and Maven, and are skipped without them."""
