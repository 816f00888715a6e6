"""The README tells the truth: its tables are what the code says, its examples run."""

import re
from pathlib import Path

import pytest

from fakebroker import FakeCluster
from fakebroker.cluster.configs.settings import SETTINGS
from fakebroker.protocol.registry import APIS

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"


def table(*rows: tuple[object, ...]) -> str:
    lines = [f"| {' | '.join(map(str, row))} |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def api_table() -> str:
    rows = [(api.key, api.name, api.versions) for api in APIS]
    return table(("key", "API", "versions"), *rows)


def settings_table() -> str:
    rows = [(f"`{name}`", str(setting.default).lower(), setting.about) for name, setting in SETTINGS.items()]
    return table(("setting", "default", "what it does"), *rows)


def rewritten(text: str) -> str:
    """The README with its tables as they should be."""
    for name, rows in (("apis", api_table()), ("settings", settings_table())):
        text, count = re.subn(f"(<!-- {name} -->\n).*(<!-- /{name} -->)", rf"\g<1>{rows}\n\2", text, flags=re.DOTALL)
        assert count == 1, f"the README has no table of {name}"
    return text


def test_tables() -> None:
    assert README.read_text() == rewritten(README.read_text()), "run `make rewrite`"


def test_documents_for_users_name_no_inner_modules() -> None:
    """What users import is exported from `fakebroker` or `fakebroker.control`."""
    for document in [README, *(ROOT / "scenarios").rglob("*.md"), *(ROOT / "fakebroker" / "client").rglob("*.md")]:
        assert re.findall(r"fakebroker\.[a-z_]+\.[a-z_]+", document.read_text()) == [], document


def test_files_named_in_the_architecture_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    paths = re.findall(r"`([a-z_]+(?:/[a-z_]+)*/[a-z_]*(?:\.py|\.txt)?)`", text)
    assert len(paths) > 40
    assert [path for path in paths if not any((top / path).exists() for top in (ROOT, ROOT / "fakebroker"))] == []


@pytest.mark.fake_cluster(brokers=3)
def test_the_examples(fake_cluster: FakeCluster) -> None:
    namespace: dict[str, object] = {}
    for example in re.findall("```python\n(.*?)```", README.read_text(), re.DOTALL):
        exec(compile(example, "README.md", "exec"), namespace)
    namespace["test_orders_are_read"](fake_cluster)  # type: ignore[operator]  # it is a function


if __name__ == "__main__":
    README.write_text(rewritten(README.read_text()))
