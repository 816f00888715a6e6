"""Validation of plain data against types, with msgspec. Errors name each invalid field, its value and expectation.

Files, events, HTTP bodies and the arguments of commands are validated here. Types are msgspec structs, typed
dictionaries, lists, unions and literals; bounds are `msgspec.Meta` annotations. msgspec reports only the first error,
so invalid data is checked a second time here, to report up to `MAX_MISTAKES` and to count the others.
"""

import json
import math
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import islice
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, inspect

from fakebroker.errors import MOST_COUNTED, ConfigError, bounds, nearest, one_of, shown

T = TypeVar("T")

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, le=1)]
Seconds = Annotated[float, Meta(ge=0)]
PositiveSeconds = Annotated[float, Meta(gt=0)]
Rate = Annotated[float, Meta(gt=0)]

_UNCONVERTIBLE = (OverflowError, AttributeError, UnicodeError)
"""Errors that msgspec raises for integers too large for a float, objects that look like tables, and surrogates."""


class Base64(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes in plain data: `{"base64": "/w=="}` in JSON."""

    base64: bytes

    def __repr__(self) -> str:
        return repr(self.base64)


if TYPE_CHECKING:
    Data = str | bytes | None
else:
    Data = str | Base64 | None
"""The key or value of a record: text, which stands for its UTF-8 bytes; other bytes; or None.

In JSON, bytes that are not UTF-8 are `{"base64": "..."}`, in arguments as in results.
"""


def data_bytes(data: Data | Base64) -> bytes | None:
    """Return the bytes of a `Data` argument.

    Raises:
        UnicodeEncodeError: The text has no UTF-8 encoding, because it contains surrogates.
    """
    if isinstance(data, Base64):
        return data.base64
    return data.encode() if isinstance(data, str) else data


def json_data(data: bytes | None) -> str | Base64 | None:
    """Return bytes for JSON: text if they are UTF-8, else in base64."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return Base64(data)


def convert(value: Any, kind: type[T], *, where: str = "", strict: bool = True) -> T:
    """Convert plain data, such as decoded JSON or TOML, to a type.

    Args:
        value: The data.
        kind: The type. Structs have to forbid unknown fields.
        where: A prefix of the error message, such as the name of a file.
        strict: If False, strings are converted to numbers and booleans.

    Raises:
        ConfigError: The data is not of the type, or a number is not finite. `mistakes` has up to `MAX_MISTAKES` errors.
    """
    try:
        found = msgspec.convert(value, kind, strict=strict)
    except (msgspec.ValidationError, ConfigError, *_UNCONVERTIBLE) as error:
        raise _combined_error(value, kind, where, error, strict) from None
    # A string such as "nan" becomes a number only in the result.
    infinite = list(_non_finite_numbers(value if strict else plain(found), ""))
    if infinite:
        raise ConfigError.all_of(infinite, where=where)
    return found


def read_json(text: bytes | str, kind: type[T], *, where: str = "", name: str = "line") -> T:
    """Decode JSON and convert it to a type.

    Args:
        text: The JSON.
        kind: The type.
        where: A prefix of the error message.
        name: The name of the text in errors about the whole text, if `where` is empty.

    Raises:
        ConfigError: The text is not JSON, or its value is not of the type.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except _MALFORMED as error:
        cause = error
    try:
        value = msgspec.json.decode(text)  # without the type, to find all invalid values
    except _MALFORMED as error:
        if infinite := _non_finite_in_json(text):
            raise ConfigError.all_of(infinite, where=where) from None
        raise ConfigError(f"{where or name}: expected JSON: {error}", field=name, expected="JSON") from None
    raise _combined_error(value, kind, where, cause, name=name)


_MALFORMED = (msgspec.MsgspecError, ConfigError, UnicodeError, RecursionError)


def write_json(value: Any) -> bytes:
    """Encode a value as JSON.

    Raises:
        ConfigError: JSON cannot represent the value, for example because a number is not finite.
    """
    infinite = list(_non_finite_numbers(value, ""))
    if infinite:
        raise ConfigError.all_of(infinite)
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise ConfigError(f"expected values that JSON can represent: {error}", expected="JSON") from None


def plain(value: Any) -> Any:
    """Convert a value to plain data for `convert`: structs to dictionaries, iterables to lists.

    Numbers of numpy, pandas and `decimal` become Python numbers, bytes become `Base64`. Other objects are returned
    unchanged.
    """
    if value is None or isinstance(value, bool | str | int | Base64):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return Base64(bytes(value))
    if isinstance(value, msgspec.Struct):
        return {name: plain(item) for name, item in msgspec.structs.asdict(value).items()}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real | Decimal):  # msgspec does not check whether a Decimal is finite.
        try:
            return float(value)
        except (OverflowError, ValueError):  # above the largest float, or a signaling NaN
            return str(value)
    return [plain(item) for item in value] if isinstance(value, Iterable) else value


def accepts_data(kind: Any) -> bool:
    """Return whether a type includes `Data`."""
    return Base64 in _union_members(kind)


def accepts_none(kind: Any) -> bool:
    """Return whether a type includes None."""
    return NoneType in _union_members(kind)


def _combined_error(
    value: Any, kind: Any, where: str, cause: Exception, strict: bool = True, name: str = "value"
) -> ConfigError:
    """Return one error that combines all mistakes in a value; `cause` is the error that msgspec raised."""
    found = list(islice(_mistakes(value, kind, "", strict), MOST_COUNTED))
    if found and found[0].field is None and not where:  # the value as a whole
        found = [ConfigError.of(name, value, found[0].expected or "")]
    if not found:  # a rule of a struct (`__post_init__`)
        found = list(cause.mistakes) if isinstance(cause, ConfigError) else [ConfigError(str(cause))]
    return ConfigError.all_of(found, where=where)


def _mistakes(value: Any, kind: Any, path: str, strict: bool) -> Iterator[ConfigError]:
    """Yield an error for each invalid part of a value, with the path of the part. Yield nothing for a valid value."""
    options = _union_members(kind)
    structs = [option for option in options if _is_struct(option)]
    if isinstance(value, Mapping) and structs:
        yield from _mistakes_in_struct(value, structs, path, strict)
        return
    parts: Iterator[ConfigError] = iter(())
    if isinstance(value, Mapping) and (table := _type_arguments(options, Mapping)):
        parts = _mistakes_in_mapping(value, table, path, strict)
    elif isinstance(value, list | tuple) and (items := _type_arguments(options, Sequence)):
        kinds = items[:1] * len(value) if items[1:] in ((), (Ellipsis,)) else items
        numbered = enumerate(zip(value, kinds, strict=False))
        parts = (each for index, (item, of) in numbered for each in _mistakes(item, of, f"{path}[{index}]", strict))
    found = next(parts, None)
    if found is not None:
        yield found
        yield from parts
    elif isinstance(value, float) and not math.isfinite(value):
        yield ConfigError.of(path, value, "a finite number")
    elif not _is_valid(value, kind, strict):
        yield ConfigError.of(path, value, expectation(kind, value))


def _mistakes_in_mapping(
    value: Mapping[Any, Any], kinds: tuple[Any, ...], path: str, strict: bool
) -> Iterator[ConfigError]:
    """Yield the errors of the keys and values of a mapping."""
    for key, item in value.items():
        if _is_valid(key, kinds[0], strict):
            yield from _mistakes(item, kinds[1], join(path, str(key)), strict)
        else:
            expected = expectation(kinds[0], key)
            yield ConfigError(
                f"{path or 'table'}: key {shown(key)}: expected {expected}", field=path, value=key, expected=expected
            )


def _non_finite_numbers(value: Any, path: str) -> Iterator[ConfigError]:
    """Yield an error for each number that is NaN or infinite."""
    if isinstance(value, float) and not math.isfinite(value):
        yield ConfigError.of(path, value, "a finite number")
    for key, item in value.items() if isinstance(value, Mapping) else ():
        yield from _non_finite_numbers(item, join(path, str(key)))
    for index, item in enumerate(value if isinstance(value, list | tuple) else ()):
        yield from _non_finite_numbers(item, f"{path}[{index}]")


def _non_finite_in_json(text: bytes | str) -> list[ConfigError]:
    """Return errors for numbers that are not JSON, but that some programs write: NaN, Infinity, and above 1.8e308."""
    try:
        return list(_non_finite_numbers(json.loads(text), ""))
    except (ValueError, RecursionError):
        return []


def _mistakes_in_struct(
    value: Mapping[str, Any], structs: Sequence[Any], path: str, strict: bool
) -> Iterator[ConfigError]:
    """Yield the errors of a table. Rules of the struct (`__post_init__`) are evaluated only if all fields are valid."""
    struct, tag = structs[0], structs[0].__struct_config__.tag_field
    if tag is not None:
        tags = {each.__struct_config__.tag: each for each in structs}
        if tag not in value:
            yield ConfigError.missing(join(path, tag), one_of(tags))
            return
        if not isinstance(value[tag], str) or value[tag] not in tags:
            yield ConfigError.of(join(path, tag), value[tag], one_of(tags, value[tag]))
            return
        struct = tags[value[tag]]
    fields = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    found = [
        mistake
        for name, item in value.items()
        if name != tag
        for mistake in (
            _mistakes(item, fields[name].type, join(path, name), strict)
            if name in fields
            else [ConfigError.unknown(join(path, str(name)), item, one_of(fields, name, none="none"))]
        )
    ]
    missing = [field for name, field in fields.items() if field.required and name not in value]
    found += [ConfigError.missing(join(path, field.encode_name), expectation(field.type)) for field in missing]
    yield from found or _rule_mistakes(value, struct, path, strict)


def _rule_mistakes(value: Mapping[str, Any], struct: Any, path: str, strict: bool) -> Iterator[ConfigError]:
    """Yield the errors of the rules (`__post_init__`) of a struct. All fields of the value must be valid."""
    try:
        msgspec.convert(value, struct, strict=strict)
    except ConfigError as error:
        yield from (each.within(path) if path else each for each in error.mistakes)
    except msgspec.ValidationError as error:  # a rule that raised a ValueError
        yield ConfigError(f"{path}: {error}" if path else str(error), field=path or None)


def join(path: str, name: str) -> str:
    """Append a name to the path of a table, as in "groups[1].count"."""
    return f"{path}.{name}" if path else name


def _union_members(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the type itself, without annotations."""
    if typing.get_origin(kind) is Annotated:
        return _union_members(typing.get_args(kind)[0])
    if typing.get_origin(kind) in (typing.Union, UnionType):
        return tuple(option for each in typing.get_args(kind) for option in _union_members(each))
    return (kind,)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _type_arguments(options: Sequence[Any], kind: type) -> tuple[Any, ...] | None:
    """Return the type arguments of the first option that is a subclass of `kind`, a mapping or sequence."""
    for option in options:
        origin = typing.get_origin(option)
        if isinstance(origin, type) and issubclass(origin, kind) and typing.get_args(option):
            return typing.get_args(option)
    return None


def _is_valid(value: Any, kind: Any, strict: bool) -> bool:
    try:
        msgspec.convert(value, kind, strict=strict)
    except (msgspec.ValidationError, *_UNCONVERTIBLE):
        return False
    return True


def expectation(kind: Any, given: object = None) -> str:
    """Describe the values of a type, such as "an integer >= 1 or none".

    Args:
        kind: The type.
        given: The invalid value; a name that it resembles is suggested.
    """
    options = _annotated_union_members(kind)
    names = [str(value) for each in options for value in _literal_values(each)]
    parts = [one_of(names)] if names else []
    parts += [_description(each) for each in options if not _literal_values(each)]
    near = nearest(given, names)
    return " or ".join(dict.fromkeys(parts)) + (f"; did you mean {near!r}?" if near else "")


def _annotated_union_members(kind: Any) -> list[Any]:
    """Return the members of a union, or the type itself, with annotations."""
    if typing.get_origin(kind) in (typing.Union, UnionType):
        return [option for each in typing.get_args(kind) for option in _annotated_union_members(each)]
    return [] if kind is msgspec.UnsetType else [kind]


def _literal_values(kind: Any) -> Sequence[Any]:
    """Return the values of a `Literal` type; an empty sequence for other types."""
    return typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ()


def _description(kind: Any) -> str:
    """Describe a type that is not a union. Examples in its `Meta` are shown as Python values."""
    info = inspect.type_info(kind)
    if isinstance(info, inspect.Metadata):
        examples = (info.extra_json_schema or {}).get("examples", ())
        return _description_of(info.type) + "".join(f" (such as {example!r})" for example in examples[:1])
    return _description_of(info)


def _description_of(info: inspect.Type) -> str:
    if isinstance(info, inspect.IntType | inspect.FloatType):
        noun = "an integer" if isinstance(info, inspect.IntType) else "a number"
        return noun + bounds(info.ge, info.gt, info.le, info.lt)
    if isinstance(info, inspect.StrType) and info.min_length:
        return f"a string of {info.min_length} or more characters"
    if isinstance(info, inspect.ListType | inspect.VarTupleType):
        return f"a list of {info.min_length} or more" if info.min_length else "a list"
    if isinstance(info, inspect.TupleType):
        return f"a list of {len(info.item_types)}"
    if isinstance(info, inspect.EnumType):
        return info.cls.__name__
    if isinstance(info, inspect.StructType) and info.cls is Base64:
        return "bytes"
    return _DESCRIPTIONS.get(type(info), "a table")


_DESCRIPTIONS: dict[type, str] = {
    inspect.BoolType: "true or false",
    inspect.StrType: "a string",
    inspect.BytesType: "bytes in base64",
    inspect.NoneType: "none",
    inspect.DateTimeType: "a date and time",
    inspect.AnyType: "a value",
}
