"""AlterUserScramCredentials: stores and deletes SCRAM credentials of users (KIP-554)."""

from fakebroker.protocol.schema import Message, Struct, message, struct
from fakebroker.protocol.types import Bytes, Int8, Int16, Int32, String


@struct
class ScramCredentialDeletion(Struct):
    name: String
    mechanism: Int8


@struct
class ScramCredentialUpsertion(Struct):
    name: String
    mechanism: Int8
    iterations: Int32
    salt: Bytes
    salted_password: Bytes


@message(api_key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest(Message):
    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]


@struct
class AlterUserScramCredentialsResult(Struct):
    user: String
    error_code: Int16
    error_message: String | None


@message(api_key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsResponse(Message):
    throttle_time_ms: Int32 = 0
    results: list[AlterUserScramCredentialsResult]
