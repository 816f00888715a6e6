"""The clients, and for each the client that reads its output."""

import pytest

from tests.support.exactly_once.aio import AIO
from tests.support.exactly_once.confluent import CONFLUENT
from tests.support.exactly_once.fakebroker_client import FAKEBROKER
from tests.support.exactly_once.java import JAVA
from tests.support.exactly_once.kafka_python import KAFKA_PYTHON
from tests.support.exactly_once.kafkajs import KAFKAJS

READERS = {CONFLUENT: KAFKA_PYTHON, AIO: CONFLUENT, KAFKA_PYTHON: AIO, KAFKAJS: CONFLUENT, FAKEBROKER: AIO, JAVA: AIO}

with_each_client = pytest.mark.parametrize("client", READERS, ids=lambda client: client.name)
