"""A real Kafka for tests: its jars, its processes, and handles on it."""
