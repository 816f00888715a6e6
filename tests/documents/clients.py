"""The clients that the tests use, as a table. Their versions come from the files that install them."""

import json
import re
import tomllib
from pathlib import Path

from fakebroker.kafka.jars import RELEASES
from tests.documents.markdown import table
from tests.support.control import nodejs
from tests.support.kafka_clients import driver

_GROUPS = "groups with failovers"
_TRANSACTIONS = "transactions"

_TESTED = {
    "Python": {
        "confluent-kafka": f"{_GROUPS}, both protocols; static members; {_TRANSACTIONS}; administration; TLS and SASL",
        "aiokafka": f"{_GROUPS}; static members; {_TRANSACTIONS}; TLS and SASL",
        "kafka-python": f"{_GROUPS}; static members; {_TRANSACTIONS}; administration; TLS and SASL",
    },
    "Node.js": {
        "kafkajs": f"failover; {_TRANSACTIONS}; TLS and SASL",
        "@platformatic/kafka": "groups, consumer protocol",
    },
    "Java": {
        "kafka-clients": f"{_GROUPS}, both protocols, all assignors; static members; {_TRANSACTIONS}",
        "kafka-streams": "classic protocol; exactly once; resuming",
        "kafka-tools": "console and verifiable producer and consumer, consumer-groups, groups, topics, configs, acls, "
        "transactions",
    },
    "Go": {
        "github.com/twmb/franz-go": f"{_GROUPS}; {_TRANSACTIONS}",
        "github.com/IBM/sarama": f"{_GROUPS}; static members; {_TRANSACTIONS}",
        "github.com/segmentio/kafka-go": f"{_GROUPS}; it has no transactions",
    },
}
"""By language and package: what is tested."""


def clients() -> str:
    versions = {"Python": _python(), "Node.js": _nodejs(), "Go": _go()}
    java = RELEASES[driver.KAFKA]
    rows = [
        (language, f"`{name}`", versions[language][name] if language in versions else java, tested)
        for language, packages in _TESTED.items()
        for name, tested in packages.items()
    ]
    return table(("language", "package", "version", "tested"), rows)


def _python() -> dict[str, str]:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    dev = project["project"]["optional-dependencies"]["dev"]
    needed = [re.match(r"([\w-]+)(?:\[.*\])?>=([\d.]+)$", each) for each in dev]
    return {found[1]: f"{found[2]} or newer" for found in needed if found}


def _nodejs() -> dict[str, str]:
    found: dict[str, str] = json.loads((nodejs.FOLDER / "package.json").read_text())["dependencies"]
    return found


def _go() -> dict[str, str]:
    return dict(re.findall(r"^\t(\S+) v(\S+)$", (driver.FOLDER / "go" / "go.mod").read_text(), re.MULTILINE))
