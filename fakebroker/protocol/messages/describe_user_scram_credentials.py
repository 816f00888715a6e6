"""DescribeUserScramCredentials: lists the SCRAM mechanisms and iterations of users (KIP-554)."""

from fakebroker.protocol.schema import Message, Struct
from fakebroker.protocol.types import Int8, Int16, Int32, String


class UserName(Struct):
    name: String


class DescribeUserScramCredentialsRequest(Message, api_key=50, versions="0", flexible="0+"):
    users: list[UserName] | None


class CredentialInfo(Struct):
    mechanism: Int8
    iterations: Int32


class DescribeUserScramCredentialsResult(Struct):
    user: String
    error_code: Int16
    error_message: String | None
    credential_infos: list[CredentialInfo]


class DescribeUserScramCredentialsResponse(Message, api_key=50, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: String | None
    results: list[DescribeUserScramCredentialsResult]
