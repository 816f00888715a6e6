"""Client settings in Kafka's format: properties, such as the file that Kafka's tools take as `--command-config`."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args
from urllib.parse import unquote

from fakebroker.client.security import ClientSecurity, SecurityProtocol
from fakebroker.errors import AuthenticationError, ConfigError, one_of
from fakebroker.security.mechanisms import MECHANISMS, OAUTHBEARER, PLAIN

_FIELDS = {
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "ssl.truststore.location": "ssl_cafile",
    "ssl.keystore.location": "ssl_certfile",
    "ssl.key.password": "ssl_password",
}
_OTHER_KEYS = (
    *("sasl.jaas.config", "sasl.oauthbearer.token.endpoint.url", "sasl.login.callback.handler.class"),
    *("ssl.truststore.type", "ssl.keystore.type", "ssl.endpoint.identification.algorithm"),
)
_KEYS = (*_FIELDS, *_OTHER_KEYS)

_FILE_HANDLER = "OAuthBearerLoginCallbackHandler"

_PASSWORD_OPTIONS = {"username": "sasl_plain_username", "password": "sasl_plain_password"}
_MODULES = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": _PASSWORD_OPTIONS,
    "org.apache.kafka.common.security.scram.ScramLoginModule": _PASSWORD_OPTIONS,
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": {
        "unsecuredLoginStringClaim_sub": "sasl_plain_username"
    },
}
"""The login modules, and what their options are in `ClientSecurity`."""

_VALUE = r'"(?:[^"\\]|\\.)*"|[^\s";=]+'
_OPTION = re.compile(rf"\s+([\w.]+)\s*=\s*({_VALUE})")
_JAAS = re.compile(
    rf"\s*([\w.]+)\s+(?:required|requisite|sufficient|optional)((?:\s+[\w.]+\s*=\s*(?:{_VALUE}))*)\s*;\s*",
    re.IGNORECASE,
)
_LINE = re.compile(r"((?:\\.|[^\\=:\s])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.?))", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def read_client_config(path: Path) -> ClientSecurity:
    """Read the security settings in a file of properties. Errors do not show values that may be secret.

    Args:
        path: The file.

    Raises:
        ConfigError: The file cannot be read, has an unknown setting, or its settings contradict each other.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror or "") if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError.of("--client-config", str(path), f"a file of properties ({why})") from None
    try:
        return security_of(properties_of(text))
    except ConfigError as error:
        raise ConfigError.all_of(error.mistakes, where=str(path)) from None


def properties_of(text: str) -> dict[str, str]:
    """Return the settings in a text in the format of `java.util.Properties`."""
    found = {}
    # A line goes on after an odd number of backslashes at its end; white space at the start of a line does not count.
    logical = re.sub(r"(?<!\\)((?:\\\\)*)\\\r?\n[ \t\f]*", r"\1", text)
    for line in logical.splitlines():
        line = line.lstrip(" \t\f")
        if line and line[0] not in "#!":
            matched = _LINE.fullmatch(line)
            assert matched is not None
            found[_unescaped(matched[1])] = _unescaped(matched[2]).rstrip()
    return found


def _unescaped(text: str) -> str:
    def character(found: re.Match[str]) -> str:
        return chr(int(found[1], 16)) if found[1] else _LETTERS.get(found[2], found[2])

    # Two escapes for one character beyond the Basic Multilingual Plane, as Java writes it, become one.
    return _ESCAPE.sub(character, text).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def security_of(properties: Mapping[str, str]) -> ClientSecurity:
    """Return the security settings among Kafka's client settings.

    Raises:
        ConfigError: A setting is unknown, or settings contradict each other.
    """
    for key in properties:
        if key not in _KEYS:
            expected = one_of(_KEYS, key)
            raise ConfigError(f"{key}: unknown setting; expected {expected}", field=key, expected=expected)
    settings: dict[str, Any] = {name: properties[key] for key, name in _FIELDS.items() if key in properties}
    protocol = settings.setdefault("security_protocol", "PLAINTEXT")
    protocols = get_args(SecurityProtocol)
    if protocol not in protocols:
        raise ConfigError.of("security.protocol", protocol, one_of(protocols, protocol))
    if protocol.startswith("SASL_"):
        settings |= _login(properties)
    for key in properties:
        if key.startswith("sasl.") and not protocol.startswith("SASL_"):
            expected = f"security.protocol SASL_PLAINTEXT or SASL_SSL with it, not {protocol}"
            raise ConfigError(f"{key}: expected {expected}", field=key, expected=expected)
    for key in ("ssl.truststore.type", "ssl.keystore.type"):
        if properties.get(key, "PEM") != "PEM":
            raise ConfigError.of(key, properties[key], "PEM, the only format that is supported")
    algorithm = properties.get("ssl.endpoint.identification.algorithm", "https")
    if algorithm not in ("https", ""):
        raise ConfigError.of("ssl.endpoint.identification.algorithm", algorithm, "https, or nothing for no check")
    if not algorithm:
        settings["ssl_check_hostname"] = False
    try:
        return ClientSecurity(**settings)
    except ConfigError as error:
        sentence = str(error)
        for key, name in _FIELDS.items():
            sentence = sentence.replace(name, key)
        raise ConfigError(sentence, field=error.field, expected=error.expected) from None


def _login(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of SASL."""
    mechanism = properties.get("sasl.mechanism")
    if mechanism not in MECHANISMS:
        raise ConfigError.of("sasl.mechanism", mechanism, one_of(MECHANISMS, mechanism))
    names = {PLAIN: "Plain", OAUTHBEARER: "OAuthBearer"}
    module = next(each for each in _MODULES if each.endswith(f".{names.get(mechanism, 'Scram')}LoginModule"))
    options = _MODULES[module]
    given = _jaas_options(properties.get("sasl.jaas.config", ""), module, options)
    settings: dict[str, Any] = {"sasl_mechanism": mechanism}
    settings |= {options[name]: value for name, value in given.items()}
    url = properties.get("sasl.oauthbearer.token.endpoint.url")
    if mechanism == OAUTHBEARER and url is not None:
        settings["sasl_oauth_token"] = _token_file(url)
    handler = properties.get("sasl.login.callback.handler.class", _FILE_HANDLER)
    if not handler.endswith(_FILE_HANDLER):
        raise ConfigError.of("sasl.login.callback.handler.class", handler, f"{_FILE_HANDLER}, for tokens in files")
    missing = [name for name in options if options[name] not in settings]
    if missing and "sasl_oauth_token" not in settings:
        expected = f"{' and '.join(missing)} in it"
        raise ConfigError(f"sasl.jaas.config: expected {expected}", field="sasl.jaas.config", expected=expected)
    return settings


def _jaas_options(text: str, module: str, known: Mapping[str, str]) -> dict[str, str]:
    """Return the options of the login module in `sasl.jaas.config`."""
    parsed = _JAAS.fullmatch(text)
    wanted = " ".join(f'{name}="..."' for name in known)
    if parsed is None or parsed[1] != module:
        expected = f"{module} required {wanted};"
        raise ConfigError(f"sasl.jaas.config: expected {expected}", field="sasl.jaas.config", expected=expected)
    options = {
        name: re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value
        for name, value in _OPTION.findall(parsed[2])
    }
    for name in options:
        if name not in known:
            expected = one_of(known, name)
            raise ConfigError(f"sasl.jaas.config: unknown option {name!r}; expected {expected}", field=name)
    return options


def _token_file(url: str) -> Any:
    """Return a function that reads a token from a file, as Kafka's FileTokenRetriever does."""
    file = re.fullmatch(r"file:(?://(?:localhost)?)?(/(?!/)[^?#]*)", url)
    if file is None:
        expected = "file:///PATH, a file with a token; tokens are not fetched over HTTP"
        raise ConfigError.of("sasl.oauthbearer.token.endpoint.url", url, expected)
    path = Path(unquote(file[1]))

    def token() -> str:
        try:
            return path.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise AuthenticationError(f"the token file {path} cannot be read: {error.strerror}") from None

    return token
