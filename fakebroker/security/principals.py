"""Names in certificates: the subject, the rules that map it to a name of a principal (KIP-371), alternative names.

Follows Kafka's `SslPrincipalMapper`, and Java's `X500Principal` for the text of subjects (RFC 2253).
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from fakebroker.errors import ConfigError

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(?:,\s*|$)")
_PARSER = re.compile(_RULE)
_REFERENCE = re.compile(r"\\(.)|\$(\d+)", re.DOTALL)
"""A quoted character, or a reference to a group, in a replacement."""

_EXPECTED = "DEFAULT, or RULE:pattern/replacement/ with L or U at the end, separated by commas"


class _Rule(NamedTuple):
    """A rule; one without a pattern leaves the subject as it is."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, subject: str) -> str | None:
        """Return the name for a subject; None if the pattern does not match it."""
        if self.pattern is None:
            return subject
        if not self.pattern.fullmatch(subject):
            return None
        name = self.pattern.sub(self._expand, subject)
        return {"L": name.lower, "U": name.upper}.get(self.case, lambda: name)()

    def _expand(self, match: re.Match[str]) -> str:
        def part(found: re.Match[str]) -> str:
            if found[1] is not None:
                return found[1]
            # Of $12, the 2 is text if there are fewer than 12 groups; $2 is text if there are fewer than two.
            digits = found[2]
            while len(digits) > 1 and int(digits) > groups:
                digits = digits[:-1]
            if int(digits) > groups:
                return found[0]
            return (match[int(digits)] or "") + found[2][len(digits) :]

        groups = match.re.groups
        return _REFERENCE.sub(part, self.replacement)


class PrincipalMapper:
    """Maps subjects of certificates to names of principals: the first rule that matches applies.

    Args:
        rules: The value of `ssl.principal.mapping.rules`.

    Raises:
        ConfigError: A rule is not valid.
    """

    def __init__(self, rules: str) -> None:
        self._rules = list(_parsed(rules))

    def name_of(self, subject: str) -> str | None:
        """Return the name for a subject, such as "CN=alice,O=x"; None if no rule matches."""
        for rule in self._rules:
            name = rule.apply(subject)
            if name is not None:
                return name
        return None


def _parsed(rules: str) -> Iterator[_Rule]:
    for found in _SPLITTER.finditer(rules.strip()):
        text = found[1]
        rule = _PARSER.match(text)
        if rule is None or rule.end() != len(text):
            raise ConfigError.of("ssl.principal.mapping.rules", text, _EXPECTED)
        if rule[1] is not None:
            yield _Rule()
        elif rule[2] is not None:
            try:
                pattern = re.compile(rule[2])
            except re.error as error:
                expected = f"a regular expression: {error}"
                raise ConfigError.of("ssl.principal.mapping.rules", rule[2], expected) from None
            yield _Rule(pattern, rule[3], rule[4])


# Subjects

_VERSION = 0xA0
"""The tag of the version of a certificate, which is the first field if it is there."""
_EXTENSIONS, _ALTERNATIVE_NAMES = 0xA3, "2.5.29.17"
"""The tag of the extensions of a certificate; the extension with subject alternative names."""
_STRINGS = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1E: "utf-16-be"}
"""Encodings by the tags of strings: UTF8, Printable, T61, IA5, BMP."""

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The attributes that have names in RFC 2253. The values of others are written in hexadecimal."""

_ESCAPED = frozenset(',=+<>#;"\\')
_SPACES = " \r"
"""Characters that are escaped at the beginning and at the end of a value."""


class _Item(NamedTuple):
    """One value in DER: its tag, its content, and all bytes."""

    tag: int
    content: bytes
    encoded: bytes


def subject_of(certificate: bytes) -> str:
    """Return the subject of a certificate as Java's `X500Principal.getName`, such as "CN=alice,O=x,C=y".

    Args:
        certificate: The certificate, in DER, which was verified before.
    """
    subject = _fields(certificate)[4]  # After the serial number, the algorithm, the issuer and the validity.
    names = ["+".join(map(_attribute, _items(each.content))) for each in _items(subject.content)]
    return ",".join(reversed(names))


def alternative_names_of(certificate: bytes) -> frozenset[bytes]:
    """Return the subject alternative names of a certificate, each in DER.

    Args:
        certificate: As for `subject_of`.
    """
    for field in _fields(certificate):
        if field.tag == _EXTENSIONS:
            for extension in _items(next(_items(field.content)).content):
                kind, *_, value = _items(extension.content)
                if _object_id(kind.content) == _ALTERNATIVE_NAMES:
                    return frozenset(each.encoded for each in _items(next(_items(value.content)).content))
    return frozenset()


def _fields(certificate: bytes) -> list[_Item]:
    """Return the fields of what is signed in a certificate, without the version."""
    whole = next(_items(certificate))
    signed = next(_items(whole.content))
    return [each for each in _items(signed.content) if each.tag != _VERSION]


def _items(data: bytes) -> Iterator[_Item]:
    position = 0
    while position < len(data):
        start, tag, size = position, data[position], data[position + 1]
        position += 2
        if size & 0x80:
            length = size & 0x7F
            size = int.from_bytes(data[position : position + length])
            position += length
        yield _Item(tag, data[position : position + size], data[start : position + size])
        position += size


def _attribute(pair: _Item) -> str:
    """Return one attribute and its value (sun.security.x509.AVA.toRFC2253String)."""
    kind, value = _items(pair.content)
    identifier = _object_id(kind.content)
    name, encoding = _KEYWORDS.get(identifier), _STRINGS.get(value.tag)
    if name is None or encoding is None:
        return f"{name or identifier}=#{value.encoded.hex()}"
    return f"{name}={_escaped(value.content.decode(encoding, 'replace'))}"


def _object_id(content: bytes) -> str:
    parts, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            parts.append(number)
            number = 0
    first = min(parts[0] // 40, 2)
    return ".".join(map(str, (first, parts[0] - 40 * first, *parts[1:])))


def _escaped(text: str) -> str:
    escaped = ["\\00" if each == "\0" else f"\\{each}" if each in _ESCAPED else each for each in text]
    spaces = len(text) - len(text.lstrip(_SPACES))
    for index in (*range(spaces), *range(max(spaces, len(text.rstrip(_SPACES))), len(text))):
        escaped[index] = f"\\{text[index]}"
    return "".join(escaped)
