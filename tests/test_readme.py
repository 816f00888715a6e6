"""The README tells the truth: its tables are what the code says, its examples run."""

import re
from pathlib import Path

import pytest

from fakebroker import FakeCluster
from fakebroker.cluster.config import SETTINGS
from fakebroker.protocol.registry import APIS

README = Path(__file__).parent.parent / "README.md"


def table(*rows: tuple[object, ...]) -> str:
    lines = [f"| {' | '.join(map(str, row))} |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def api_table() -> str:
    rows = [(api.key, api.name, api.versions) for api in APIS]
    return table(("key", "API", "versions"), *rows)


def settings_table() -> str:
    rows = [(f"`{name}`", str(setting.default).lower(), setting.about) for name, setting in SETTINGS.items()]
    return table(("setting", "default", "what it does"), *rows)


@pytest.mark.parametrize(("name", "expected"), [("apis", api_table()), ("settings", settings_table())])
def test_tables(name: str, expected: str) -> None:
    section = re.search(f"<!-- {name} -->\n(.*)<!-- /{name} -->", README.read_text(), re.DOTALL)
    assert section is not None
    assert section.group(1).strip() == expected, f"the README's table of {name} should be:\n{expected}"


@pytest.mark.fake_cluster(brokers=3)
def test_the_fixture_example(fake_cluster: FakeCluster) -> None:
    (example,) = re.findall("```python\n(.*?)```", README.read_text(), re.DOTALL)
    namespace: dict[str, object] = {}
    exec(compile(example, "README.md", "exec"), namespace)
    namespace["test_orders_are_read"](fake_cluster)  # type: ignore[operator]  # it is a function
