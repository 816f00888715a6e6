"""Names of principals from certificates. Expected subjects were computed with Java 25: X500Principal.getName."""

from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type as StringType
from cryptography.x509.oid import NameOID

from fakebroker.errors import ConfigError
from fakebroker.security.principals import PrincipalMapper, subject_of
from tests.support.security.certificates import EXPIRED, LONG_AGO

RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, "
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L , "
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U"
)
COMMON, UNIT, ORGANIZATION, COUNTRY = (
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.COUNTRY_NAME,
)
Parts = list[tuple[x509.ObjectIdentifier, str]]


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("DEFAULT", "CN=a,O=b", "CN=a,O=b"),
        (RULES, "CN=Anna,OU=ServiceUsers,O=Org,C=DE", "anna"),
        (RULES, "CN=Anna,OU=Ops,O=Org,L=Ulm,ST=BW,C=DE", "anna@ops"),
        (RULES, "cn=anna,ou=ops,dc=org,dc=de", "ANNA@OPS"),
        (RULES, "cN=anna,OU=x,O=y z", "ANNA"),
        (RULES, "OU=x,O=y", None),
        (RULES + ",DEFAULT", "OU=x,O=y", "OU=x,O=y"),
        ("", "CN=a", None),
        (" , ,, ", "CN=a", None),
        (",,DEFAULT,,", "CN=a", "CN=a"),
        (r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/,DEFAULT", r"CN=Curie\, Marie,O=x", r"Curie\, Marie"),
        ("RULE:CN=(.*)/$1@$4/", "CN=a", "a@$4"),
        ("RULE:CN=(.*)/$12/", "CN=a", "a2"),
        ("RULE:CN=(.*)/$0/", "CN=a", "CN=a"),
        (r"RULE:CN=(.*)/\$1\/$1/", "CN=a", "$1/a"),
        ("RULE:CN=(x)?(.*)/<$1>$2/", "CN=a", "<>a"),
        ("RULE:CN=a/b/", "CN=a,O=x", None),
        ("RULE://,DEFAULT", "CN=a", "CN=a"),
        ("RULE:^CN=([^,DEFAULT,]+)(,.*|$)/$1/", "CN=bob,O=x", "bob"),
        ("RULE:RULE:,/,RULE:,/,DEFAULT", "CN=a", "CN=a"),
    ],
)
def test_the_first_rule_that_matches_applies(rules: str, subject: str, name: str | None) -> None:
    assert PrincipalMapper(rules).name_of(subject) == name


@pytest.mark.parametrize(
    "rules",
    [
        *("default", "DEFAUL", "DEFAULT/L", "DEFAULT/U", "RULE:CN=(.*?),OU=x.*/$1", "rule:^CN=(.*?)$/$1/"),
        *("RULE:^CN=(.*?)$/$1/L/U", "RULE:^CN=(.*?)$/L", "RULE:^CN=(.*?)$/LU", "RULE:(/x/"),
    ],
)
def test_rules_that_are_not_valid_are_refused(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"^ssl\.principal\.mapping\.rules="):
        PrincipalMapper(rules)


@pytest.mark.parametrize(
    ("parts", "subject"),
    [
        ([(COUNTRY, "US"), (ORGANIZATION, "Org"), (UNIT, "Users"), (COMMON, "Anna")], "CN=Anna,OU=Users,O=Org,C=US"),
        ([(COMMON, 'a,b+c"d\\e<f>g;h=i#j')], r"CN=a\,b\+c\"d\\e\<f\>g\;h\=i\#j"),
        ([(COMMON, "  #x  y  ")], r"CN=\ \ \#x  y\ \ "),
        ([(COMMON, " ")], r"CN=\ "),
        ([(COMMON, "\rcr \r")], "CN=\\\rcr\\ \\\r"),
        ([(COMMON, "a\0b\r\nc\td")], "CN=a\\00b\r\nc\td"),
        (
            [(NameOID.EMAIL_ADDRESS, "a@b.c"), (COMMON, "é ü 漢 😀")],
            "CN=é ü 漢 😀,1.2.840.113549.1.9.1=#16056140622e63",
        ),
        (
            [
                *((NameOID.DOMAIN_COMPONENT, "com"), (NameOID.DOMAIN_COMPONENT, "sme"), (NameOID.USER_ID, "u1")),
                *((NameOID.STREET_ADDRESS, "s"), (NameOID.LOCALITY_NAME, "L"), (NameOID.STATE_OR_PROVINCE_NAME, "S")),
            ],
            "ST=S,L=L,STREET=s,UID=u1,DC=sme,DC=com",
        ),
        ([(NameOID.SERIAL_NUMBER, "12"), (NameOID.TITLE, "t")], "2.5.4.12=#0c0174,2.5.4.5=#13023132"),
        ([], ""),
    ],
)
def test_subjects_are_written_as_java_does(parts: Parts, subject: str) -> None:
    names = [x509.RelativeDistinguishedName([x509.NameAttribute(kind, text)]) for kind, text in parts]
    assert subject_of(certificate(x509.Name(names))) == subject


@pytest.mark.parametrize(
    ("kind", "subject"),
    [
        (StringType.BMPString, "CN=x ü"),
        (StringType.UTF8String, "CN=x ü"),
        (StringType.UniversalString, "CN=#1c0c0000007800000020000000fc"),
    ],
)
def test_encodings_of_strings(kind: StringType, subject: str) -> None:
    attribute = x509.NameAttribute(COMMON, "x ü", _type=kind)
    assert subject_of(certificate(x509.Name([attribute]))) == subject


def test_a_part_with_several_attributes() -> None:
    attributes = [x509.NameAttribute(kind, text) for kind, text in ((COMMON, "a"), (NameOID.USER_ID, "u"))]
    assert subject_of(certificate(x509.Name([x509.RelativeDistinguishedName(attributes)]))) == "CN=a+UID=u"


def certificate(subject: x509.Name) -> bytes:
    """Return a certificate with a subject, in DER. The name of its issuer is longer than 127 bytes."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(UNIT, "x" * 60) for _ in range(5)])
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(7).not_valid_before(LONG_AGO).not_valid_after(EXPIRED + timedelta(days=1))
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)
