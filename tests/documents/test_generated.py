"""Generated parts of documents are up to date and complete."""

import re

import pytest

import fakebroker
from fakebroker import FakeCluster
from fakebroker.cluster.handles.definition import DEFINITIONS
from fakebroker.protocol.releases import RELEASES, release
from tests.documents.generated import GENERATED, ROOT, generate
from tests.documents.markdown import entries, fill
from tests.documents.python_api import STRUCTS, VIEWS

REFERENCE = ROOT / "scenarios" / "reference"


def test_documents_are_up_to_date(subtests: pytest.Subtests) -> None:
    for document in GENERATED:
        with subtests.test(document=document):
            assert (ROOT / document).read_text() == generate(document), "run `make rewrite`"


@pytest.mark.parametrize("text", ["", "<!-- a -->\n", "<!-- a -->\n<!-- /a -->\n<!-- a -->\n<!-- /a -->\n"])
def test_a_part_must_appear_exactly_once(text: str) -> None:
    with pytest.raises(ValueError, match="expected one part between <!-- a --> and"):
        fill(text, {"a": "content"})


def test_entries_of_several_lines_are_complete() -> None:
    def one_entry() -> None:
        """Do nothing.

        Raises:
            ConfigError: There is no such topic,
                or it is internal.
        """

    def two_entries() -> None:
        """Do nothing.

        Raises:
            ConfigError: There is no such topic,
                or it is internal.
            ListenError: No port
                is available.
        """

    expected = {"ConfigError": "There is no such topic, or it is internal.", "ListenError": "No port is available."}
    assert entries(one_entry, "Raises") == {"ConfigError": expected["ConfigError"]}
    assert entries(two_entries, "Raises") == expected


def test_every_public_name_is_documented() -> None:
    text = (REFERENCE / "fake_cluster.md").read_text()
    names = [name for name in dir(FakeCluster) if name[0] != "_"]
    names += [name for name, each in DEFINITIONS.items() if each.kind != "condition" or "." in name]
    assert [name for name in names if not re.search(rf"^### `(?:await )?{re.escape(name)}\b", text, re.MULTILINE)] == []


def test_exported_views_are_documented() -> None:
    exported = {getattr(fakebroker, name) for name in fakebroker.__all__ if name != "__version__"}
    assert [view.__name__ for view in VIEWS if view not in exported] == []


def test_versions_in_the_release_notes_are_those_of_the_release() -> None:
    """`JoinGroup 5` in the row of release 2.3 means that 2.3 is the first release with JoinGroup version 5."""
    notes_of_all = (REFERENCE / "releases.md").read_text().partition("<!-- releases -->")[0]
    checked = 0
    for name, notes in re.findall(r"^\| ([0-9.]+) \| (.*) \|$", notes_of_all, re.MULTILINE):
        for api, version in re.findall(r"\b([A-Z][A-Za-z]+) ([0-9]+)\b", notes):
            first = next(known for known, apis in RELEASES.items() if api in apis and apis[api].last >= int(version))
            assert first == release(name), f"{api} {version}"
            checked += 1
    assert checked >= 15


def test_all_arguments_and_options_are_documented() -> None:
    for name, definition in DEFINITIONS.items():
        _, *names = definition.signature.parameters
        assert list(entries(definition.method, "Args")) == names, name
    for struct in STRUCTS:
        assert list(entries(struct, "Attributes")) == list(struct.__struct_fields__)
