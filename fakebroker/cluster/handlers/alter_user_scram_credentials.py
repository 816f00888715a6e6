"""AlterUserScramCredentials: store and delete credentials of users (ScramControlManager.alterCredentials)."""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import cluster_error, needs_cluster
from fakebroker.cluster.call import Call
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from fakebroker.security.acls import AclOperation
from fakebroker.security.mechanisms import MAX_ITERATIONS, MIN_ITERATIONS, ScramMechanism
from fakebroker.security.scram import ScramCredential

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


_Change = ScramCredentialDeletion | ScramCredentialUpsertion


def handle(cluster: "Cluster", call: Call, now_ms: float) -> AlterUserScramCredentialsResponse:
    """Apply the valid changes, and return a result per user."""
    request: AlterUserScramCredentialsRequest = call.request
    requested: list[_Change] = [*request.deletions, *request.upsertions]
    if refused := cluster_error(cluster, call, AclOperation.ALTER):
        names = sorted({each.name for each in requested})
        message = needs_cluster(AclOperation.ALTER)
        return AlterUserScramCredentialsResponse(
            results=[
                AlterUserScramCredentialsResult(user=name, error_code=refused, error_message=message) for name in names
            ]
        )
    changes: dict[str, _Change] = {}
    errors: dict[str, tuple[ErrorCode, str]] = {}
    for change in requested:
        if change.name in errors:
            continue
        if changes.pop(change.name, None) is not None:
            message = f"user {change.name!r} is changed more than once in a request: expected once"
            errors[change.name] = ErrorCode.DUPLICATE_RESOURCE, message
        elif (error := _error(cluster, change)) is not None:
            errors[change.name] = error
        else:
            changes[change.name] = change
    for change in changes.values():
        mechanism = ScramMechanism(change.mechanism)
        if isinstance(change, ScramCredentialDeletion):
            cluster.credentials.remove_scram(change.name, mechanism)
        else:
            secrets = call.peer.secrets.get((change.name, change.mechanism))
            salt, salted_password = secrets or (change.salt, change.salted_password)
            credential = ScramCredential(mechanism, salt, change.iterations, salted_password)
            cluster.credentials.set_scram(change.name, credential)
    results = [AlterUserScramCredentialsResult(user=user, error_code=0, error_message=None) for user in changes]
    results += [
        AlterUserScramCredentialsResult(user=user, error_code=error, error_message=message)
        for user, (error, message) in errors.items()
    ]
    return AlterUserScramCredentialsResponse(results=results)


def _error(cluster: "Cluster", change: _Change) -> tuple[ErrorCode, str] | None:
    """Return the error of a change and its message; None if it is valid."""
    if not change.name:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "user '': expected a name"
    if change.mechanism not in list(ScramMechanism):
        known = " or ".join(f"{each.value} ({each.sasl_name})" for each in ScramMechanism)
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"mechanism {change.mechanism}: expected {known}"
    if isinstance(change, ScramCredentialDeletion):
        if cluster.credentials.has_scram(change.name, ScramMechanism(change.mechanism)):
            return None
        message = (
            f"user {change.name!r}: expected one with a credential for {ScramMechanism(change.mechanism).sasl_name}"
        )
        return ErrorCode.RESOURCE_NOT_FOUND, message
    if not MIN_ITERATIONS <= change.iterations <= MAX_ITERATIONS:
        message = f"{change.iterations} iterations: expected {MIN_ITERATIONS} to {MAX_ITERATIONS}"
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, message
    return None
