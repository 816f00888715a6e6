"""The README, ARCHITECTURE.md and their links: named files exist, examples run, every document is in the index."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fakebroker import FakeCluster
from fakebroker.cluster.configs.settings import OWN_PREFIX, SETTINGS
from tests.support import programs

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
    cluster = fake_cluster_factory(topics={"orders": 6})
    handles = {"cluster": cluster, "billing": cluster.group("billing")}
    lines = re.findall(r"^\| (`(?:billing|cluster)\..*`) \|", (ROOT / document).read_text(), re.MULTILINE)
    assert len(lines) == (6 if document == "README.md" else 0)
    for code in re.findall("`([^`]*)`", " ".join(lines)):
        if "wait(" not in code:  # Nothing joins the group.
            eval(code, dict(handles))


@pytest.mark.slow
def test_the_silent_member_over_http(tmp_path: Path) -> None:
    """The block of the README, with free ports."""
    programs.require("bash", "curl")
    text = README.read_text()
    block = text[text.index("    fakebroker serve --topic orders:6") :].split("\n\n")[0]
    start, url, *calls = (line.strip() for line in block.splitlines())
    command = start.removesuffix(" &").replace("127.0.0.1:9644", "127.0.0.1:0").split()
    serve = [sys.executable, "-m", *command, "--port", "0"]
    with subprocess.Popen(serve, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            control = next(line.removeprefix("control=").strip() for line in process.stdout if "control=" in line)
            script = "\n".join([url.replace("http://127.0.0.1:9644", control), *calls]).replace("curl", "curl -s")
            output = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, timeout=60)
        finally:
            process.terminate()
    assert json.loads(output.stdout)["found"]["state"] == "Empty"
    assert process.returncode == 0


@pytest.mark.slow
def test_the_shown_report_is_that_of_the_first_test(fake_cluster_factory: Callable[..., FakeCluster]) -> None:
    """The README shows what a failing test shows."""
    text = README.read_text()
    (example, *_), (output, *_) = (re.findall(f"```{kind}\n(.*?)```", text, re.DOTALL) for kind in ("python", "text"))
    namespace: dict[str, Any] = {}
    failing = example.replace("earliest", "latest").replace("timeout=5", "timeout=1")
    exec(compile(failing, "README.md", "exec"), namespace)
    test = namespace["test_both_orders_arrive"]
    (mark,) = test.pytestmark
    cluster = fake_cluster_factory(**mark.kwargs, seed=1179060146)
    with pytest.raises(AssertionError):
        test(cluster)
    assert cluster.report().startswith(output)


def test_the_number_of_transcripts() -> None:
    """Each names its source, as the README says."""
    transcripts = list((ROOT / "scenarios" / "transcripts").glob("*.txt"))
    assert f"{len(transcripts)} [transcripts]" in README.read_text()
    assert [path.name for path in transcripts if "# Source: " not in path.read_text()] == []
