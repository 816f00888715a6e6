"""The guide to workloads: every key is documented and in a workload of the tests, and the examples are valid."""

import inspect
import re
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from fakebroker.replay.workload.workload import Workload, load_workload
from tests.documents.markdown import entries
from tests.documents.workloads import TABLES, WORKLOADS
from tests.support.replay.workload_files import ALL_KEYS, INVALID

GUIDE = WORKLOADS / "README.md"


def test_the_examples_are_valid_workloads(tmp_path: Path) -> None:
    text = GUIDE.read_text()
    (minimal,) = re.findall("```toml\n(.*?)```", text, re.DOTALL)
    examples = re.findall(r"`((?:members|arrival) = [^`]+)`", text)
    assert len(examples) == 8
    for example in ["", *examples]:
        (file := tmp_path / "example.toml").write_text(minimal.replace("members = 4\n", f"{example}\n"))
        assert load_workload(file).group_count == 100


def test_the_docstring_of_a_table_describes_each_key_in_order(subtests: pytest.Subtests) -> None:
    for name, struct in TABLES.items():
        with subtests.test(table=name):
            assert list(entries(struct, "Attributes")) == [field.name for field in msgspec.structs.fields(struct)]


def test_every_key_is_in_a_test_workload() -> None:
    texts = ALL_KEYS + "".join(text for cases in INVALID.values() for text in cases)
    keys = {field.name for struct in TABLES.values() for field in msgspec.structs.fields(struct)}
    assert [key for key in sorted(keys) if not re.search(rf"\b{key}\b", texts)] == [], "expected in ALL_KEYS"


def test_every_table_of_the_format_is_in_the_guide() -> None:
    found: list[Any] = [Workload]
    for struct in found:  # the loop appends to the list
        parts = [part for hint in get_type_hints(struct).values() for part in (hint, *get_args(hint))]
        found += [part for part in parts if inspect.isclass(part) and msgspec.Struct in part.__mro__[1:]]
    assert set(found) == set(TABLES.values())
