"""The README, ARCHITECTURE.md and their links: named files exist, examples run, every document is in the index."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fakebroker import FakeCluster
from fakebroker.cluster.configs.settings import OWN_PREFIX, SETTINGS

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCUMENTS = [
    *ROOT.glob("*.md"),
    *(path for folder in ("scenarios", "fakebroker") for path in sorted((ROOT / folder).rglob("*.md"))),
]


def _links(document: Path) -> list[str]:
    text = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
    return [link for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]


def _anchors(document: Path) -> set[str]:
    """Return the anchors of a document's headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_targets_of_links_exist(subtests: pytest.Subtests) -> None:
    for document in DOCUMENTS:
        for link in _links(document):
            with subtests.test(document=document, link=link):
                path, _, anchor = link.partition("#")
                target = (document.parent / path).resolve() if path else document
                assert target.exists()
                assert not anchor or anchor in _anchors(target)


def test_the_index_lists_every_document() -> None:
    linked = {(ROOT / link.partition("#")[0]).resolve() for link in _links(README)}
    assert [str(path.relative_to(ROOT)) for path in DOCUMENTS if path not in {*linked, README}] == []


def test_user_documents_do_not_mention_private_modules() -> None:
    """Users import only from `fakebroker` and its direct subpackages, such as `fakebroker.control`."""
    for document in [README, *(ROOT / "scenarios").rglob("*.md"), *(ROOT / "fakebroker" / "client").rglob("*.md")]:
        text = document.read_text()
        for setting in (name for name in SETTINGS if name.startswith(OWN_PREFIX)):
            text = text.replace(setting, "")
        assert re.findall(r"fakebroker\.[a-z_]+\.[a-z_]+", text) == [], document


def test_files_named_in_the_architecture_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    paths = re.findall(r"`([a-z_]+(?:/[a-z_]+)*/[a-z_]*(?:\.py|\.txt)?)`", text)
    assert len(paths) > 30
    assert [path for path in paths if not any((top / path).exists() for top in (ROOT, ROOT / "fakebroker"))] == []


@pytest.mark.parametrize("document", ["README.md", "scenarios/reference/releases.md"])
def test_the_examples_run(document: str, fake_cluster_factory: Callable[..., FakeCluster]) -> None:
    examples = re.findall("```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)
    assert examples
    for example in examples:
        namespace: dict[str, Any] = {"cluster": fake_cluster_factory(topics={"orders": 6})}
        exec(compile(example, document, "exec"), namespace)
        for name, test in namespace.items():
            if name.startswith("test_"):
                (mark,) = test.pytestmark
                test(fake_cluster_factory(*mark.args, **mark.kwargs))


def test_the_number_of_transcripts() -> None:
    """Each names its source, as the README says."""
    transcripts = list((ROOT / "scenarios" / "transcripts").glob("*.txt"))
    assert f"{len(transcripts)} [transcripts]" in README.read_text()
    assert [path.name for path in transcripts if "# Source: " not in path.read_text()] == []
