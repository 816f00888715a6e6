"""All generated parts of documents. `python -m tests.documents.generated`, or `make rewrite`, writes them."""

from collections.abc import Callable, Mapping
from pathlib import Path

from tests.documents import (
    brokers,
    clients,
    lab,
    member_states,
    performance,
    placement,
    python_api,
    runs,
    scale_out,
    workloads,
)
from tests.documents.markdown import fill

ROOT = Path(__file__).parents[2]

GENERATED: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "scenarios/reference/apis.md": {"apis": brokers.apis, "clients": clients.clients},
    "scenarios/reference/settings.md": {
        "settings": brokers.settings,
        "topic-configs": brokers.topic_configs,
        "without-effect": brokers.topic_configs_without_effect,
    },
    "scenarios/reference/releases.md": {"releases": brokers.releases, "features": brokers.features},
    "scenarios/reference/fake_cluster.md": {"index": python_api.index, "fake-cluster": python_api.fake_cluster},
    "scenarios/reference/pytest.md": {"fixtures": python_api.fixtures, "options": python_api.options},
    "scenarios/reference/kafka.md": {"handles": python_api.on_kafka},
    "scenarios/reference/command_line.md": {"command-line": python_api.command_line},
    "scenarios/workloads/README.md": workloads.tables(),
    "scenarios/runs.md": {
        "summary": runs.summary,
        "events": runs.events,
        "violations": runs.violations,
    },
    "scenarios/performance.md": {
        "machine": performance.machine,
        "loads": performance.loads,
        "ratios": performance.ratios,
        "parts": performance.parts,
        "groups": performance.groups,
    },
    "scenarios/lab/placement.md": {
        "cost": placement.cost,
        "balance": placement.balance,
        "moves": placement.moves,
        "look-ups": placement.lookups,
    },
    "scenarios/lab/README.md": lab.tables(),
    "scenarios/lab/what-the-rewrite-should-have-chosen.md": {"study": lab.study, "results": lab.results},
    "fakebroker/client/README.md": {"states": member_states.diagram},
}
"""By document: the names of its generated parts, and the functions that generate them."""

MEASURED: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "scenarios/proposals/batch-join.md": {"scale-out": scale_out.scale_out},
}
"""The same for parts that take seconds. `tests/client/test_scale_out.py` checks them instead of `test_generated.py`."""


def generate(document: str) -> str:
    """Return the text of a document with up-to-date generated parts."""
    parts = {**GENERATED, **MEASURED}[document]
    return fill((ROOT / document).read_text(), {name: part() for name, part in parts.items()})


if __name__ == "__main__":
    for document in (*GENERATED, *MEASURED):
        (ROOT / document).write_text(generate(document))
