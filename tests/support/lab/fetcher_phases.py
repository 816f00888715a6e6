"""Drives a coordinator of the options 1.b and 1.c through the two phases of rebalances."""

from fakebroker.lab.designs.options.messages import (
    StartFetcherRequest,
    StartFetcherResponse,
    StopFetcherRequest,
    StopFetcherResponse,
    from_wire,
    to_wire,
)
from tests.support.lab.option_coordinators import Offsets, OptionCoordinator

ALL = [("t", 0), ("t", 1), ("t", 2), ("t", 3)]


class FetcherLab(OptionCoordinator):
    """See `OptionCoordinator`. Responses have the correlation id of the request that was sent last to a consumer."""

    def _request(self, kind: type[StopFetcherRequest | StartFetcherRequest], consumer_id: str) -> int:
        """Take the only request of a kind to a consumer, and return its correlation id."""
        found = [
            each
            for each in self.port.sent
            if isinstance(each[1], kind) and each[1].consumer_id == consumer_id and each[0] == self.links[consumer_id]
        ]
        assert len(found) == 1, self.port.sent
        self.port.sent.remove(found[0])
        self._last = found[0][1]
        correlation_id: int = found[0][1].correlation_id  # type: ignore[attr-defined]  # both kinds have one
        return correlation_id

    def stopped(self, consumer_id: str, consumed: Offsets | None = None, error: int = 0) -> StopFetcherResponse:
        """Answer StopFetcher, and complete what follows; return the response."""
        response = StopFetcherResponse(
            correlation_id=self._request(StopFetcherRequest, consumer_id),
            error_code=error,
            consumer_id=consumer_id,
            consumed_so_far=to_wire(consumed or {}),
        )
        self.receive(self.links[consumer_id], response)
        self.port.settle()
        return response

    def started(self, consumer_id: str, error: int = 0) -> StartFetcherRequest:
        """Answer StartFetcher, and complete what follows; return the request."""
        correlation_id = self._request(StartFetcherRequest, consumer_id)
        request = self._last
        assert isinstance(request, StartFetcherRequest)
        response = StartFetcherResponse(correlation_id=correlation_id, error_code=error, consumer_id=consumer_id)
        self.receive(self.links[consumer_id], response)
        self.port.settle()
        return request

    def rebalance(self, consumed: dict[str, Offsets] | None = None) -> dict[str, Offsets]:
        """Play a rebalance that waits to begin; return what each consumer is started with.

        Args:
            consumed: The offsets with which consumers answer StopFetcher.
        """
        self.port.settle()
        stopping = [link for link, message in self.port.sent if isinstance(message, StopFetcherRequest)]
        by_link = {link: consumer_id for consumer_id, link in self.links.items()}
        consumer_ids = [next(id_ for link, id_ in by_link.items() if link == each) for each in stopping]
        for consumer_id in consumer_ids:
            self.stopped(consumer_id, (consumed or {}).get(consumer_id))
        return {consumer_id: from_wire(self.started(consumer_id).partitions_to_own) for consumer_id in consumer_ids}

    def join(self, *consumer_ids: str, group_id: str = "g") -> dict[str, Offsets]:
        """Make a group of these consumers; return what they own."""
        for consumer_id in consumer_ids:
            self.register(consumer_id, group_id=group_id, version=0)
        self.port.sent.clear()
        owned = self.rebalance()
        assert self.port.sent == []
        return owned
