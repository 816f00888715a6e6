"""DescribeDelegationToken: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as on each plaintext listener (KafkaApis)."""

from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.describe_delegation_token import DescribeDelegationTokenResponse

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, tokens=[])
