"""The admin client's requests to transaction coordinators: building them, and reading the responses."""

from collections.abc import Iterator, Sequence

from fakebroker.client.admin.descriptions import Node, ProducerIdAndEpoch, TransactionDescription
from fakebroker.client.admin.driver import AdminApiHandler
from fakebroker.client.errors import AdminError, TransactionError, error_code
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_NO_PRODUCER_ID = _NO_EPOCH = -1


def describe_transactions() -> AdminApiHandler[str, TransactionDescription]:
    """Describe transactional ids (KIP-664)."""

    def read(
        response: DescribeTransactionsResponse, _ids: Sequence[str], coordinator: Node | None
    ) -> Iterator[tuple[str, TransactionDescription | AdminError]]:
        assert coordinator is not None
        for each in response.transaction_states:
            error = error_code(each.error_code)
            if error is ErrorCode.NONE:
                yield each.transactional_id, _described(each, coordinator)
            else:
                yield each.transactional_id, TransactionError(each.transactional_id, "DescribeTransactions", error)

    return AdminApiHandler(
        api="DescribeTransactions",
        request=lambda ids: DescribeTransactionsRequest(transactional_ids=list(ids)),
        read=read,
        fails=TransactionError,
        busy=(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,),
    )


def _described(found: TransactionState, coordinator: Node) -> TransactionDescription:
    return TransactionDescription(
        transactional_id=found.transactional_id,
        state=found.transaction_state,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        timeout_ms=found.transaction_timeout_ms,
        start_ms=found.transaction_start_time_ms if found.transaction_start_time_ms >= 0 else None,
        partitions=tuple((topic.topic, index) for topic in found.topics for index in topic.partitions),
        coordinator=coordinator,
    )


def fence_producers(timeout_ms: int) -> AdminApiHandler[str, ProducerIdAndEpoch]:
    """Raise the epochs of transactional ids with InitProducerId, which also aborts their transactions (KIP-692).

    Args:
        timeout_ms: The timeout of later transactions, which InitProducerId sets, too.
    """

    def request(ids: Sequence[str]) -> InitProducerIdRequest:
        (transactional_id,) = ids
        return InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=_NO_PRODUCER_ID,
            producer_epoch=_NO_EPOCH,
        )

    def read(
        response: InitProducerIdResponse, ids: Sequence[str], _: Node | None
    ) -> Iterator[tuple[str, ProducerIdAndEpoch | AdminError]]:
        (transactional_id,) = ids
        error = error_code(response.error_code)
        if error is ErrorCode.NONE:
            yield transactional_id, ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
        else:
            yield transactional_id, TransactionError(transactional_id, "InitProducerId", error)

    return AdminApiHandler(
        api="InitProducerId",
        request=request,
        read=read,
        fails=TransactionError,
        # CONCURRENT_TRANSACTIONS until the markers of the last transaction are written; the first request may abort it.
        busy=(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS),
        max_keys=1,
    )
