"""The documents in `scenarios/reference/` are up to date and complete."""

import re

import pytest

from fakebroker import FakeCluster
from fakebroker.protocol.releases import RELEASES, release
from tests.documents.reference import DOCUMENTS, FOLDER


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_document_is_up_to_date(name: str) -> None:
    assert (FOLDER / name).read_text() == DOCUMENTS[name](), "run `make rewrite`"


def test_there_are_no_other_documents() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(DOCUMENTS)


def test_every_public_name_of_fake_cluster_is_documented() -> None:
    text = (FOLDER / "fake_cluster.md").read_text()
    names = [name for name in dir(FakeCluster) if not name.startswith("_")]
    assert [name for name in names if not re.search(rf"^### `(?:await )?{name}\b", text, re.MULTILINE)] == []


def test_versions_in_the_release_notes_are_those_of_the_release() -> None:
    """`JoinGroup 5` in the row of 2.3 means that 2.3 is the first release with that version."""
    rows = re.findall(r"^\| ([0-9.]+) \| (.*) \|$", (FOLDER / "releases.md").read_text().split("## New and")[0], re.M)
    checked = 0
    for name, notes in rows:
        for api, version in re.findall(r"\b([A-Z][A-Za-z]+) ([0-9]+)\b", notes):
            first = next(known for known, apis in RELEASES.items() if api in apis and apis[api].last >= int(version))
            assert first == release(name), f"{api} {version}"
            checked += 1
    assert checked >= 15
