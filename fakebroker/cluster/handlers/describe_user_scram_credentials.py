"""DescribeUserScramCredentials: the mechanisms and iterations of users (ScramImage.describe)."""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import cluster_error
from fakebroker.cluster.call import Call
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from fakebroker.security.acls import AclOperation
from fakebroker.security.mechanisms import ScramMechanism

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> DescribeUserScramCredentialsResponse:
    request: DescribeUserScramCredentialsRequest = call.request
    if error := cluster_error(cluster, call, AclOperation.DESCRIBE):
        # As in Kafka, the results do not name the users.
        results = [_refused("", error, None) for _ in request.users or ()]
        return DescribeUserScramCredentialsResponse(error_code=error, error_message=None, results=results)
    requested = Counter(user.name for user in request.users or ())
    iterations = cluster.credentials.scram_iterations()
    # Null and empty request all users.
    users = requested or dict.fromkeys((user for user, _ in iterations), 1)
    results = [_described(iterations, user) if times == 1 else _duplicate(user, times) for user, times in users.items()]
    return DescribeUserScramCredentialsResponse(error_code=0, error_message="", results=results)


def _duplicate(user: str, times: int) -> DescribeUserScramCredentialsResult:
    return _refused(user, ErrorCode.DUPLICATE_RESOURCE, f"user {user!r} is requested {times} times: expected once")


def _described(iterations: Mapping[tuple[str, ScramMechanism], int], user: str) -> DescribeUserScramCredentialsResult:
    infos = [
        CredentialInfo(mechanism=mechanism, iterations=iterations[user, mechanism])
        for mechanism in ScramMechanism
        if (user, mechanism) in iterations
    ]
    if not infos:
        message = f"user {user!r}: expected one with SCRAM credentials"
        return _refused(user, ErrorCode.RESOURCE_NOT_FOUND, message)
    return DescribeUserScramCredentialsResult(user=user, error_code=0, error_message=None, credential_infos=infos)


def _refused(user: str, error: ErrorCode, message: str | None) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(user=user, error_code=error, error_message=message, credential_infos=[])
