"""DescribeDelegationToken: refused, as without `delegation.token.secret.key` (KafkaApis)."""

from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.security import token_error
from fakebroker.protocol.messages.describe_delegation_token import DescribeDelegationTokenResponse

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=token_error(call), tokens=[])
