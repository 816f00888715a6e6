"""Files of Kafka's client settings: the format, each mechanism, and errors, which do not show secrets."""

from pathlib import Path

import pytest

from fakebroker.client.client_config import properties_of, read_client_config, security_of
from fakebroker.client.security import ClientSecurity
from fakebroker.errors import AuthenticationError, ConfigError

PASSWORD = "horse-battery-staple"
PLAIN = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="{PASSWORD}";'
SCRAM = PLAIN.replace("plain.Plain", "scram.Scram")
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": SCRAM}


def test_properties_are_read_as_java_does() -> None:
    text = (
        "# a comment\n! another\n\n"
        "a=1\n  b : two words \r\nc three\n"
        "d\\=e=f\\:g\\\\\n"
        "long=one \\\n    two\\\n\tthree\n"
        "letter=\\u00fc\\t\\ud83d\\ude00|\n"
        "empty=\nalone\n"
        "ends = with \\\\\nnext=x=y"
    )
    assert properties_of(text) == {
        "a": "1",
        "b": "two words",
        "c": "three",
        "d=e": "f:g\\",
        "long": "one twothree",
        "letter": "ü\t\U0001f600|",
        "empty": "",
        "alone": "",
        "ends": "with \\",
        "next": "x=y",
    }


def test_settings_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\\n"
        '  username="alice" \\\n  password="with \\\\"quotes\\\\" = ;";\n'
        "ssl.truststore.location=/ca.pem\nssl.truststore.type=PEM\n"
        f"ssl.keystore.location=/client.pem\nssl.keystore.type=PEM\nssl.key.password={PASSWORD}\n"
        "ssl.endpoint.identification.algorithm=\n"
    )
    found = read_client_config(file)
    assert found == ClientSecurity(
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_plain_username="alice",
        sasl_plain_password='with "quotes" = ;',
        ssl_cafile="/ca.pem",
        ssl_certfile="/client.pem",
        ssl_password=PASSWORD,
        ssl_check_hostname=False,
    )
    assert "quotes" not in repr(found)
    assert PASSWORD not in repr(found)


def test_mechanisms() -> None:
    assert security_of({}) == ClientSecurity()
    plain = security_of({**SASL, "sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN})
    assert (plain.sasl_mechanism, plain.sasl_plain_username, plain.sasl_plain_password) == ("PLAIN", "alice", PASSWORD)
    unsecured = f'{OAUTH} unsecuredLoginStringClaim_sub="carol";'
    oauth = security_of({**SASL, "sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": unsecured})
    assert (oauth.sasl_plain_username, oauth.sasl_plain_password, oauth.sasl_oauth_token) == ("carol", None, None)


def test_a_token_is_read_from_its_file_for_each_authentication(tmp_path: Path) -> None:
    file = tmp_path / "the token"
    security = security_of(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{OAUTH} ;",
            "sasl.login.callback.handler.class": "org.apache.kafka.x.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
        }
    )
    assert callable(security.sasl_oauth_token)
    with pytest.raises(AuthenticationError, match=r"the token file .*the token cannot be read: No such file"):
        security.sasl_oauth_token()
    for text in ("a.b.", "c.d."):
        file.write_text(f"{text}\n")
        assert security.sasl_oauth_token() == text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sasl.jaas.confg": SCRAM}, "sasl.jaas.confg: unknown setting; expected .* did you mean 'sasl.jaas.config'"),
        ({"bootstrap.servers": "h:1"}, "bootstrap.servers: unknown setting"),
        ({"security.protocol": "TLS"}, "security.protocol='TLS': expected one of PLAINTEXT, SSL"),
        ({**SASL, "sasl.mechanism": "GSSAPI"}, "sasl.mechanism='GSSAPI': expected one of PLAIN"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism=None: expected one of PLAIN"),
        ({**SASL, "sasl.jaas.config": PLAIN}, "sasl.jaas.config: expected org.*ScramLoginModule required username="),
        ({**SASL, "sasl.jaas.config": SCRAM.rstrip(";")}, "sasl.jaas.config: expected org.*ScramLoginModule required"),
        ({**SASL, "sasl.jaas.config": SCRAM.replace("username", "user")}, "unknown option 'user'; expected one of"),
        ({**SASL, "sasl.jaas.config": SCRAM.replace(";", " tokenauth=true;")}, "unknown option 'tokenauth'"),
        ({**SASL, "sasl.jaas.config": SCRAM.replace('username="alice"', "")}, "expected username in it"),
        ({**SASL, "sasl.login.callback.handler.class": "x.Y"}, "class='x.Y': expected OAuthBearerLoginCallback"),
        ({**SASL, "sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": f"{OAUTH};",
          "sasl.oauthbearer.token.endpoint.url": "file://[x/"}, r"url='file://\[x/': expected file:///PATH"),
        ({**SASL, "ssl.truststore.location": "x"}, "ssl.truststore.location: expected security.protocol SSL or"),
        ({"sasl.jaas.config": PLAIN}, "sasl.jaas.config: expected security.protocol SASL_PLAINTEXT or SASL_SSL with"),
        ({"security.protocol": "SSL", "sasl.mechanism": "PLAIN"}, "sasl.mechanism: expected security.protocol SASL_P"),
        ({"security.protocol": "SSL", "ssl.truststore.type": "JKS"}, "ssl.truststore.type='JKS': expected PEM"),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "x"}, "algorithm='x': expected https"),
        ({"security.protocol": "SSL", "ssl.key.password": PASSWORD}, "ssl.key.password: expected none without ssl.k"),
    ],
)  # fmt: skip
def test_errors_name_the_setting_and_no_secrets(settings: dict[str, str], message: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    with pytest.raises(ConfigError, match=f"^{file}: .*{message}") as caught:
        read_client_config(file)
    assert PASSWORD not in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff")
    for name, why in (("none", "No such file or directory"), ("binary", "not UTF-8")):
        with pytest.raises(ConfigError, match=rf"^--client-config='.*{name}': expected a file of .*\({why}\)$"):
            read_client_config(tmp_path / name)
