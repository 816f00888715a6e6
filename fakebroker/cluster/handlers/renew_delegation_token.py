"""RenewDelegationToken: refused, as without `delegation.token.secret.key` (KafkaApis.handleRenewTokenRequest)."""

from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.security import no_time, token_error
from fakebroker.protocol.messages.renew_delegation_token import RenewDelegationTokenResponse

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> RenewDelegationTokenResponse:
    error = token_error(call)
    return RenewDelegationTokenResponse(error_code=error, expiry_timestamp_ms=no_time(call, error))
