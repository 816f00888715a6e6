"""Generation and compilation of encoders and decoders: one function per struct and version.

Compiled code does not branch on versions: present fields, their widths and compact lengths are known at compile time.
Adjacent fixed-width fields, and the length of a string after them, share one `struct` call. Each line of the code is
mapped to its fields, so that errors can name them.
"""

import struct
from typing import Any

from fakebroker.protocol.schema import Field, Struct
from fakebroker.protocol.types import (
    BYTES,
    MAX_ELEMENTS,
    MAX_STRING_BYTES,
    MAX_TAGS,
    RECORDS,
    STRING,
    UUID,
    Primitive,
    decode_string,
    read_unsigned_varint,
    unsigned_varint,
)

FieldsOfLine = tuple[tuple[str, str], ...]
"""Name and `struct` format of each field that a line decodes or encodes; no format (`""`) for variable widths."""

FIELDS_OF_LINE: dict[tuple[str, int], FieldsOfLine] = {}
"""The fields of each line of compiled code, by file name and line number."""

MIN_PART_BYTES = 16 * 1024
"""Smaller record batches are copied."""


class PartsBuffer(bytearray):
    """A buffer for an encoded message that refers to large record batches instead of copying them.

    Attributes:
        records: These record batches, with their positions in the buffer.
    """

    __slots__ = ("records",)

    def __init__(self, source: bytes = b"") -> None:
        super().__init__(source)
        self.records: list[tuple[int, bytes]] = []

    def parts(self) -> list[bytes | bytearray]:
        """Return the encoded message in parts."""
        parts: list[bytes | bytearray] = []
        start = 0
        for position, records in self.records:
            parts += (self[start:position], records)
            start = position
        parts.append(self[start:])
        return parts


def append_records(out: bytearray, records: bytes) -> None:
    """Append record batches to a buffer, or refer to them."""
    if len(records) >= MIN_PART_BYTES and isinstance(out, PartsBuffer):
        out.records.append((len(out), records))
    else:
        out += records


class Writer:
    """Generates the source of one function, line by line, and records the fields of each line.

    Fixed-width values are collected in `pending`, and `flush` emits a single `struct` call for all of them. Generated
    code must keep the variable names `buf`, `pos` and `m`, by which `codec.py` finds the position or value of an error.

    Attributes:
        function: The name of the generated function.
        lines: Its source: the fields and the code of each line.
        field: The name of the field that the next lines are about; empty for none.
        scope: The global variables of the generated function.
        pending: Name, `struct` format and expression of fixed-width values that no line decodes or encodes yet.
        limited: Whether arrays have at most `MAX_ELEMENTS`, and structs at most `MAX_TAGS`.
    """

    function: str

    def __init__(self, cls: type[Struct], version: int, flexible: bool, limited: bool = False) -> None:
        self.cls, self.version, self.flexible, self.limited = cls, version, flexible, limited
        self.lines: list[tuple[FieldsOfLine, str]] = []
        self.field = ""
        self.scope: dict[str, Any] = {"unsigned_varint": unsigned_varint, "read_unsigned_varint": read_unsigned_varint}
        self.pending: list[tuple[str, str, str]] = []

    def emit(self, code: str, indent: int = 1) -> None:
        """Append a line about the current field."""
        self.lines.append((((self.field, ""),) if self.field else (), "    " * indent + code))

    def defer(self, code: str, expression: str) -> None:
        """Add a fixed-width value of a `struct` format to the pending ones."""
        self.pending.append((self.field, code, expression))

    def emit_pending(self, code: str, indent: int) -> None:
        """Emit the line that decodes or encodes the pending values, and clear them."""
        self.lines.append((tuple((name, code) for name, code, _ in self.pending), "    " * indent + code))
        self.pending.clear()

    def constant(self, value: object) -> str:
        """Make an object available to the compiled code, and return its name there."""
        name = f"c{len(self.scope)}"
        self.scope[name] = value
        return name

    def nested_function(self, cls: type[Struct]) -> str:
        """Compile the function of a nested struct, and return its name in the compiled code."""
        return self.constant(type(self)(cls, self.version, self.flexible, self.limited).compile())

    def compile(self) -> Any:
        """Generate the function, register the fields of its lines, and return it."""
        self.write()
        kind = type(self).__name__
        filename = (
            f"<{kind} {self.cls.__module__}.{self.cls.__qualname__} v{self.version} {self.flexible} {self.limited}>"
        )
        for number, (fields, _) in enumerate(self.lines, 1):
            if fields:
                FIELDS_OF_LINE[filename, number] = fields
        exec(compile("\n".join(line for _, line in self.lines), filename, "exec"), self.scope)
        return self.scope[self.function]

    def write(self) -> None:
        """Generate the source."""
        raise NotImplementedError

    def reject_long_string(self, length: str, indent: int) -> None:
        text = f"string of {{{length}}} bytes, expected at most {MAX_STRING_BYTES}"
        self.emit(f"if {length} > {MAX_STRING_BYTES}: raise ValueError(f'{text}')", indent)

    def present(self, field: Field) -> bool:
        return self.version in field.versions

    def is_plain(self, field: Field) -> bool:
        """Return whether this version has the field as an ordinary field, not as a tagged one."""
        return self.present(field) and field.tag is None

    def is_nullable(self, field: Field) -> bool:
        return self.version in field.nullable


class DecoderWriter(Writer):
    """Generates `decode(buf, pos)`, which decodes a struct and returns it and the position after it."""

    function = "decode"

    def write(self) -> None:
        self.emit("def decode(buf, pos):", 0)
        self.emit("end = len(buf)")
        self.scope["decode_string"] = decode_string
        for field in self.cls.FIELDS:
            self.field = field.name
            if self.is_plain(field):
                self.read(field, f"_{field.name}", 1)
        self.flush(1)
        self.field = "tagged fields"
        made = f"{self.constant(self.cls)}({self.arguments()}"
        if self.flexible:
            self.read_tags(made)
        else:
            self.emit(f"return {made}), pos")

    def arguments(self) -> str:
        """Return the positional arguments that make the struct.

        They end with the last decoded field. A field before it that the version lacks gets its default.
        """
        fields = {field.name: field for field in self.cls.FIELDS}
        arguments, count = [], 0
        for name in self.cls.__struct_fields__[:-1]:  # without `unknown_tags`
            is_present = self.present(fields[name])
            arguments.append(f"_{name}, " if is_present else f"{self.default(fields[name])}, ")
            if is_present or fields[name].is_required:
                count = len(arguments)
        return "".join(arguments[:count])

    def default(self, field: Field) -> str:
        value = field.default_value()
        if isinstance(value, list):
            return "[]"
        return f"{self.constant(type(value))}()" if isinstance(value, Struct) else self.constant(value)

    def read(self, field: Field, target: str, indent: int) -> None:
        if field.is_array:
            self.read_array(field, target, indent)
        elif isinstance(field.type, Primitive) and field.type.format:
            self.defer(field.type.format, target)
        elif isinstance(field.type, Primitive):
            self.read_length("h" if field.type is STRING else "i", indent)
            self.read_bytes(field.type, target, self.is_nullable(field), indent)
        else:
            self.read_struct(field, target, indent)

    def flush(self, indent: int) -> None:
        """Emit the decoding of the pending values."""
        if not self.pending:
            return
        layout = struct.Struct(">" + "".join(code for _, code, _ in self.pending))
        targets = ", ".join(target for _, _, target in self.pending)
        unpack = self.constant(layout.unpack_from)
        self.emit_pending(f"{targets}{',' if len(self.pending) == 1 else ''} = {unpack}(buf, pos)", indent)
        self.emit(f"pos += {layout.size}", indent)

    def read_length(self, code: str, indent: int) -> None:
        """Emit the decoding of a length or count into `n`; -1 is null. `code` is its format if its width is fixed."""
        if self.flexible:
            self.flush(indent)
            self.emit("n = buf[pos] - 1", indent)
            self.emit("if n < 127: pos += 1", indent)
            self.emit("else:", indent)
            self.emit("n, pos = read_unsigned_varint(buf, pos)", indent + 1)
            self.emit("n -= 1", indent + 1)
            if code == "h":
                self.reject_long_string("n", indent + 1)
        else:
            self.defer(code, "n")
            self.flush(indent)

    def read_bytes(self, kind: Primitive, target: str, nullable: bool, indent: int) -> None:
        inner = indent
        if nullable:
            self.emit(f"if n == -1: {target} = None", indent)
            self.emit("else:", indent)
            inner += 1
        self.emit("stop = pos + n", inner)
        self.check_length("bytes", inner)
        if kind is STRING:
            # Entering `try` takes no time. A call of `decode_string` for each string would.
            self.emit(f"try: {target} = buf[pos:stop].decode()", inner)
            self.emit(f"except UnicodeDecodeError: {target} = decode_string(buf[pos:stop])", inner)
        else:
            self.emit(f"{target} = buf[pos:stop]", inner)
        self.emit("pos = stop", inner)

    def check_length(self, unit: str, indent: int) -> None:
        self.emit("if n < 0: raise ValueError(f'length {n}, expected 0 or more')", indent)
        self.emit(f"if stop > end: raise EOFError(f'{{n}} {unit} announced, {{end - pos}} bytes left')", indent)

    def reject_more(self, limit: int, unit: str, indent: int = 1) -> None:
        self.emit(f"if n > {limit}: raise ValueError(f'{{n}} {unit}, expected at most {limit}')", indent)

    def read_array(self, field: Field, target: str, indent: int) -> None:
        self.read_length("i", indent)
        if self.limited:
            self.reject_more(MAX_ELEMENTS, "elements", indent)
        inner = indent
        if self.is_nullable(field):
            self.emit(f"if n == -1: {target} = None", indent)
            self.emit("else:", indent)
            inner += 1
        primitive = isinstance(field.type, Primitive) and field.type.format
        width = struct.calcsize(f">{field.type.format}") if isinstance(field.type, Primitive) and primitive else 1
        # An element takes at least one byte. Counts that exceed the buffer are rejected before memory is allocated.
        self.emit(f"stop = pos + n * {width}", inner)
        self.check_length("elements", inner)
        if primitive:
            self.emit(f"{target} = list({self.constant(struct.unpack_from)}(f'>{{n}}{primitive}', buf, pos))", inner)
            self.emit("pos = stop", inner)
            return
        self.emit("items = []", inner)
        self.emit("for _ in range(n):", inner)
        if isinstance(field.type, Primitive):
            self.read_length("h" if field.type is STRING else "i", inner + 1)
            self.read_bytes(field.type, "item", False, inner + 1)
        else:
            self.emit(f"item, pos = {self.nested_function(field.type)}(buf, pos)", inner + 1)
        self.emit("items.append(item)", inner + 1)
        self.emit(f"{target} = items", inner)

    def read_struct(self, field: Field, target: str, indent: int) -> None:
        assert not isinstance(field.type, Primitive)
        self.flush(indent)
        read = f"{target}, pos = {self.nested_function(field.type)}(buf, pos)"
        if self.is_nullable(field):
            self.emit("n = buf[pos]", indent)
            self.emit("pos += 1", indent)
            # Kafka's generator writes 0 for null in a tagged field, and -1 elsewhere.
            self.emit(f"if n {'== 0' if field.tag is not None else '> 127'}: {target} = None", indent)
            self.emit(f"else: {read}", indent)
        else:
            self.emit(read, indent)

    def read_tags(self, made: str) -> None:
        """Emit the decoding of tagged fields, and the return of the struct. `made` makes it, without a `)`."""
        known = [field for field in self.cls.FIELDS if self.present(field) and field.tag is not None]
        for field in known:
            self.emit(f"_{field.name} = {self.default(field)}")
        self.emit("n = buf[pos]")
        self.emit(f"if n == 0: return {made}), pos + 1")
        self.emit("n, pos = read_unsigned_varint(buf, pos)")
        if self.limited:
            self.reject_more(MAX_TAGS, "tagged fields")
        self.emit("unknown = []")
        self.emit("last = -1")
        self.emit("for _ in range(n):")
        self.emit("tag, pos = read_unsigned_varint(buf, pos)", 2)
        self.emit("size, pos = read_unsigned_varint(buf, pos)", 2)
        self.emit("if tag <= last: raise ValueError(f'tag {tag} after tag {last}')", 2)
        self.emit("if pos + size > end: raise EOFError(f'{size} bytes announced, {end - pos} bytes left')", 2)
        self.emit("last, tag_end = tag, pos + size", 2)
        for field in known:
            self.field = field.name
            self.emit(f"if tag == {field.tag}:", 2)
            self.read(field, f"_{field.name}", 3)
            self.flush(3)
            text = "tag {tag} has {size} bytes, expected {size + pos - tag_end}"
            self.emit(f"if pos != tag_end: raise ValueError(f'{text}')", 3)
            self.emit("continue", 3)
        self.field = "tagged fields"
        self.emit("unknown.append((tag, buf[pos:tag_end]))", 2)
        self.emit("pos = tag_end", 2)
        self.emit(f"return {made}unknown_tags=tuple(unknown)), pos")


class EncoderWriter(Writer):
    """Generates `encode(m, out)`, which encodes the struct `m` and appends it to the bytearray `out`."""

    function = "encode"

    def __init__(self, cls: type[Struct], version: int, flexible: bool, limited: bool = False) -> None:
        super().__init__(cls, version, flexible, limited)
        self.scope["append_records"] = append_records

    def write(self) -> None:
        self.emit("def encode(m, out):", 0)
        self.emit("pass")
        for field in self.cls.FIELDS:
            self.field = field.name
            if self.is_plain(field):
                self.append(field, f"m.{field.name}", 1)
            elif not self.present(field) and not field.ignorable:
                self.reject_value(field)
        self.flush(1)
        self.field = "unknown_tags"
        if self.flexible:
            self.append_tags()
        else:
            self.emit(f"if m.unknown_tags: raise ValueError('version {self.version} has no tagged fields')")

    def reject_value(self, field: Field) -> None:
        text = f"version {self.version} does not have this field"
        self.emit(f"if {self.differs_from_default(field)}: raise ValueError('{text}')")

    def differs_from_default(self, field: Field) -> str:
        return f"m.{field.name} != {self.constant(field.default_value())}"

    def append(self, field: Field, value: str, indent: int) -> None:
        if field.is_array:
            self.append_array(field, value, indent)
        elif isinstance(field.type, Primitive) and field.type.format:
            if field.type is UUID:
                # `struct` pads or truncates bytes of another length.
                text = f"UUID of {{len({value})}} bytes, expected 16"
                self.emit(f"if len({value}) != 16: raise ValueError(f'{text}')", indent)
            self.defer(field.type.format, value)
        elif isinstance(field.type, Primitive):
            self.append_bytes(field.type, value, self.is_nullable(field), indent)
        else:
            self.append_struct(field, value, indent)

    def flush(self, indent: int) -> None:
        """Emit the encoding of the pending values."""
        if not self.pending:
            return
        layout = struct.Struct(">" + "".join(code for _, code, _ in self.pending))
        values = ", ".join(value for _, _, value in self.pending)
        self.emit_pending(f"out += {self.constant(layout.pack)}({values})", indent)

    def append_length(self, code: str, value: str, indent: int) -> None:
        if self.flexible:
            self.flush(indent)
            if code == "h":
                self.reject_long_string(value, indent)
            self.emit(f"out += unsigned_varint({value} + 1)", indent)
        else:
            self.defer(code, value)
            self.flush(indent)

    def append_null_branch(self, code: str, value: str, indent: int) -> None:
        """Emit the encoding of null, and an `else:` for other values."""
        self.flush(indent)
        null = b"\x00" if self.flexible else struct.pack(f">{code}", -1)
        self.emit(f"if {value} is None: out += {self.constant(null)}", indent)
        self.emit("else:", indent)

    def append_bytes(self, kind: Primitive, value: str, nullable: bool, indent: int) -> None:
        assert kind in (STRING, BYTES, RECORDS)
        code = "h" if kind is STRING else "i"
        if nullable:
            self.append_null_branch(code, value, indent)
            indent += 1
        if kind is STRING:
            self.emit(f"raw = {value}.encode()", indent)
            value = "raw"
        self.append_length(code, f"len({value})", indent)
        self.emit(f"append_records(out, {value})" if kind is RECORDS else f"out += {value}", indent)

    def append_array(self, field: Field, value: str, indent: int) -> None:
        if self.is_nullable(field):
            self.append_null_branch("i", value, indent)
            indent += 1
        self.append_length("i", f"len({value})", indent)
        if isinstance(field.type, Primitive) and field.type.format:
            pack = self.constant(struct.pack)
            self.emit(f"out += {pack}(f'>{{len({value})}}{field.type.format}', *{value})", indent)
            return
        self.emit(f"for item in {value}:", indent)
        if isinstance(field.type, Primitive):
            self.append_bytes(field.type, "item", False, indent + 1)
        else:
            self.emit(f"{self.nested_function(field.type)}(item, out)", indent + 1)

    def append_struct(self, field: Field, value: str, indent: int) -> None:
        assert not isinstance(field.type, Primitive)
        self.flush(indent)
        write = f"{self.nested_function(field.type)}({value}, out)"
        if self.is_nullable(field):
            self.emit(f"if {value} is None: out.append({0 if field.tag is not None else 255})", indent)
            self.emit("else:", indent)
            self.emit("out.append(1)", indent + 1)
            self.emit(write, indent + 1)
        else:
            self.emit(write, indent)

    def append_tags(self) -> None:
        known = [field for field in self.cls.FIELDS if self.present(field) and field.tag is not None]
        self.emit("tags = dict(m.unknown_tags)" if known else "tags = m.unknown_tags")
        for field in known:
            self.field = field.name
            # The default of a struct is an empty one, so Kafka writes null, too.
            writes_null = self.is_nullable(field) and not (isinstance(field.type, Primitive) or field.is_array)
            self.emit("if True:" if writes_null else f"if {self.differs_from_default(field)}:")
            self.emit("body, out = out, bytearray()", 2)
            self.append(field, f"m.{field.name}", 2)
            self.flush(2)
            self.emit(f"tags[{field.tag}], out = out, body", 2)
        self.field = "unknown_tags"
        self.emit("if not tags:")
        self.emit("out.append(0)", 2)
        self.emit("return", 2)
        self.emit(f"tags = sorted({'tags.items()' if known else 'tags'})")
        self.emit("out += unsigned_varint(len(tags))")
        self.emit("for tag, raw in tags:")
        self.emit("out += unsigned_varint(tag) + unsigned_varint(len(raw)) + raw", 2)
