"""Validation of plain data: each error names field, value and expectation."""

import gc
import math
import pickle
import weakref
from decimal import Decimal
from fractions import Fraction
from typing import Literal

import msgspec
import numpy
import pytest

from fakebroker.errors import MAX_MISTAKES, ConfigError, nearest, one_of, shown
from fakebroker.validation import Count, Positive, Share, convert, expectation, plain, read_json, write_json


class Row(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: str
    count: Positive = 1
    mode: Literal["real", "manual"] | None = None
    sizes: tuple[Count, ...] = ()
    span: float | tuple[float, float] | None = None
    limits: dict[str, int] = {}
    share: Share = 0

    def __post_init__(self) -> None:
        if self.count == 7:
            raise ConfigError.of("count", self.count, "any number but 7")
        if self.name == "none":
            raise ValueError("name: expected another one")


class File(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    rows: list[Row] = []
    size: int | list[Row | str] = 0


class Start(msgspec.Struct, forbid_unknown_fields=True, tag_field="do", tag="start"):
    node_id: int


class Stop(msgspec.Struct, forbid_unknown_fields=True, tag_field="do", tag="stop"):
    node_id: int
    elect: bool = True


MISTAKES: list[tuple[dict[str, object], str]] = [
    ({"name": 1}, "rows[0].name=1: expected a string"),
    ({}, "rows[0].name is missing: expected a string"),
    ({"name": "a", "count": 0}, "rows[0].count=0: expected an integer >= 1"),
    ({"name": "a", "share": 1.5}, "rows[0].share=1.5: expected a number from 0 to 1"),
    ({"name": "a", "mode": "rael"}, "rows[0].mode='rael': expected one of real, manual or none; did you mean 'real'?"),
    ({"name": "a", "mode": 3}, "rows[0].mode=3: expected one of real, manual or none"),
    ({"name": "a", "sizes": [1, -1]}, "rows[0].sizes[1]=-1: expected an integer >= 0"),
    ({"name": "a", "sizes": 1}, "rows[0].sizes=1: expected a list"),
    ({"name": "a", "sizes": "\ud800"}, r"rows[0].sizes='\ud800': expected a list"),
    ({"name": "a", "limits": {3: 1}}, "rows[0].limits: key 3: expected a string"),
    ({"name": "a", "span": [1, 2, 3]}, "rows[0].span=[1, 2, 3]: expected a number or a list of 2 or none"),
    ({"name": "a", "limits": {"b": "c"}}, "rows[0].limits.b='c': expected an integer"),
    ({"name": "a", "span": math.nan}, "rows[0].span=nan: expected a finite number"),
    ({"name": "a", "span": [0.0, math.inf]}, "rows[0].span[1]=inf: expected a finite number"),
    ({"name": "a", "count": 7}, "rows[0].count=7: expected any number but 7"),
    ({"name": "none"}, "rows[0]: name: expected another one"),
    (
        {"nmae": 1, "name": "a"},
        "rows[0].nmae=1: unknown field; expected one of name, count, mode, sizes, span, limits, share; "
        "did you mean 'name'?",
    ),
]


def test_errors_name_field_value_and_expectation(subtests: pytest.Subtests) -> None:
    for row, sentence in MISTAKES:
        with subtests.test(sentence):
            with pytest.raises(ConfigError) as caught:
                convert({"rows": [row]}, File)
            assert str(caught.value) == sentence
            assert caught.value.field is not None
            assert caught.value.field.startswith("rows[0]")


def test_attributes_of_an_error() -> None:
    with pytest.raises(ConfigError) as caught:
        convert({"size": [{"name": "a"}, {"name": "b", "count": -2}]}, File)
    error = caught.value
    assert (error.field, error.value, error.expected) == ("size[1].count", -2, "an integer >= 1")
    assert [mistake.field for mistake in error.mistakes] == ["size[1].count"]


def test_all_errors_of_a_file_are_reported_at_once() -> None:
    rows = [{"name": "a", "count": -number} for number in range(20)]
    with pytest.raises(ConfigError) as caught:
        convert({"rows": rows, "sze": 3}, File, where="a.toml")
    first, *rest = str(caught.value).split("\n")
    assert first == f"a.toml: the first {MAX_MISTAKES} errors of 21"
    assert rest == [f"  rows[{number}].count={-number}: expected an integer >= 1" for number in range(MAX_MISTAKES)]
    assert len(caught.value.mistakes) == MAX_MISTAKES
    with pytest.raises(ConfigError, match=r"^the first 10 errors of 100 or more\n"):
        convert({"rows": rows * 6}, File)


def test_tagged_unions() -> None:
    kind = Start | Stop
    assert convert({"do": "stop", "node_id": 1}, kind) == Stop(1)  # type: ignore[arg-type]  # mypy does not accept unions as types
    wrong: list[tuple[dict[str, object], str]] = [
        ({"node_id": 1}, "do is missing: expected one of start, stop"),
        ({"do": "sotp", "node_id": 1}, "do='sotp': expected one of start, stop; did you mean 'stop'?"),
        ({"do": "stop", "node_id": 1, "elect": 1}, "elect=1: expected true or false"),
    ]
    for event, sentence in wrong:
        with pytest.raises(ConfigError) as caught:
            convert(event, kind)  # type: ignore[arg-type]  # mypy does not accept unions as types
        assert str(caught.value) == sentence


def test_json_is_decoded_and_validated() -> None:
    assert read_json(b'{"size": 3}', File) == File(size=3)
    with pytest.raises(ConfigError, match=r"^size='x': expected an integer or a list$"):
        read_json(b'{"size": "x"}', File)
    with pytest.raises(ConfigError, match=r"^body: expected JSON: "):
        read_json(b"{", File, name="body")
    with pytest.raises(ConfigError, match=r"^body: expected JSON: "):
        read_json(b"\xff", File, name="body")


def test_malformed_json_is_one_error() -> None:
    for text in (
        b"[1",
        b"5 x",
        b'{"rows": 5, "size"',
        "[" * 2000,
        '{"size": "\ud800"}',
        "9" * 5000,
    ):
        with pytest.raises(ConfigError) as caught:
            read_json(text, File, name="body")
        assert str(caught.value).startswith("body"), text


def test_numbers_that_json_cannot_represent_are_named(subtests: pytest.Subtests) -> None:
    wrong: list[tuple[bytes | str, str]] = [
        (b'{"size": 1e999}', "size=inf: expected a finite number"),
        (b'{"size": [1, NaN]}', "size[1]=nan: expected a finite number"),
        ('{"rows": [{"name": -Infinity}]}', "rows[0].name=-inf: expected a finite number"),
    ]
    for text, error in wrong:
        with subtests.test(error):
            with pytest.raises(ConfigError) as caught:
                read_json(text, File, name="body")
            assert str(caught.value) == error


def test_values_that_json_cannot_represent_are_errors() -> None:
    assert write_json({"rows": [Row(name="a")]}).startswith(b'{"rows":[{"name":"a"')
    wrong: list[object] = [{"size": math.inf}, {"size": [0.5, math.nan]}, {"name": "\ud800"}, {"size": object()}]
    for value in wrong:
        with pytest.raises(ConfigError):
            write_json(value)


def test_numbers_and_sequences_of_other_libraries_are_converted() -> None:
    row = {"name": "a", "count": numpy.int64(3), "share": numpy.float64(0.5), "span": numpy.float32(2)}
    found = convert(plain({"rows": (each for each in [row]), "size": numpy.array([])}), File)
    assert (found.rows[0].count, found.rows[0].share, found.rows[0].span) == (3, 0.5, 2.0)
    assert convert(plain({"size": {"a": 1}.keys()}), File).size == ["a"]
    assert convert(plain({"rows": [{"name": "a", "share": Decimal("0.5")}]}), File).rows[0].share == 0.5
    others = [Decimal("NaN"), Decimal("sNaN"), Decimal("-Infinity"), Decimal("1e999"), Fraction(10**400)]
    for value in (*others, numpy.bool_(True), object(), b"1", {1}, 10**400, 10**5000, Row(name="a", count=-1)):
        with pytest.raises(ConfigError):
            convert(plain({"rows": [{"name": "a", "share": value}]}), File)


def test_errors_form_no_reference_cycle_and_can_be_pickled() -> None:
    error = ConfigError.of("count", 0, "an integer >= 1")
    seen = weakref.ref(error)
    gc.disable()
    try:
        del error
        assert seen() is None
    finally:
        gc.enable()
    copied = pickle.loads(pickle.dumps(ConfigError.of("count", 0, "an integer >= 1")))
    assert (copied.field, copied.value, copied.expected) == ("count", 0, "an integer >= 1")


def test_expectations_of_types() -> None:
    assert expectation(Positive | None) == "an integer >= 1 or none"
    assert expectation(bool) == "true or false"
    assert expectation(dict[str, int]) == "a table"
    assert expectation(Row) == "a table"


def test_nearest_names() -> None:
    assert nearest("stop_brokr", ["stop_broker", "start_broker"]) == "stop_broker"
    assert nearest("OFFSETCOMMIT", ["OffsetCommit", "OffsetFetch"]) == "OffsetCommit"
    assert nearest("boil", ["stop_broker"]) is None
    assert nearest(3, ["3"]) is None
    assert one_of(["a"], "b") == "one of a"
    assert one_of([]) == "none: there are none"
    assert one_of([1, 2]) == "one of 1, 2"


def test_long_values_are_shortened() -> None:
    assert shown("a") == "'a'"
    assert len(shown("a" * 1000)) == 200


def test_errors_can_be_prefixed_with_a_path() -> None:
    error = ConfigError.of("count", 0, "an integer >= 1").within("groups[1]")
    assert str(error) == "groups[1].count=0: expected an integer >= 1"
    assert error.field == "groups[1].count"
    assert str(ConfigError("expected more").within("groups")) == "groups: expected more"
