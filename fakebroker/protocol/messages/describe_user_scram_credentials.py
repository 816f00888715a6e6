"""DescribeUserScramCredentials: lists the SCRAM mechanisms and iterations of users (KIP-554)."""

from fakebroker.protocol.schema import Message, Struct, message, struct
from fakebroker.protocol.types import Int8, Int16, Int32, String


@struct
class UserName(Struct):
    name: String


@message(api_key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest(Message):
    users: list[UserName] | None


@struct
class CredentialInfo(Struct):
    mechanism: Int8
    iterations: Int32


@struct
class DescribeUserScramCredentialsResult(Struct):
    user: String
    error_code: Int16
    error_message: String | None
    credential_infos: list[CredentialInfo]


@message(api_key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: String | None
    results: list[DescribeUserScramCredentialsResult]
