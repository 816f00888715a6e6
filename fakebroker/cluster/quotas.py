"""Quotas: limits by user, client id and IP address, what clients have used, and for how long to throttle them.

The response to a client that exceeds a quota has the time to wait in `throttle_time_ms`; requests wait meanwhile
(KIP-13, KIP-124, KIP-219, KIP-599, KIP-612). Rates are measured over the last 10 to 11 seconds of the brokers' time, so
a new client can use ten seconds' worth at once. Quotas of bytes, requests and connections apply to each broker. The
quota of controller mutations applies to the cluster. Source: ClientQuotaManager, ClientRequestQuotaManager,
ControllerMutationQuotaManager, ConnectionQuotas.

The time that a request takes says nothing here about the time in Kafka, and would make tests depend on the machine. So
`request_percentage` counts `REQUEST_MS` for each request: a quota of 1 allows 10 requests per second.
"""

import copy
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from fakebroker.cluster.call import Call
from fakebroker.cluster.configs.definitions import ConfigType
from fakebroker.protocol.releases import Release
from fakebroker.protocol.schema import Message

USER, CLIENT_ID, IP = ENTITY_TYPES = ("user", "client-id", "ip")

PRODUCER, CONSUMER, REQUEST, MUTATION = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
CONNECTIONS = "connection_creation_rate"

KEYS: Mapping[str, ConfigType] = {
    PRODUCER: ConfigType.LONG,
    CONSUMER: ConfigType.LONG,
    REQUEST: ConfigType.DOUBLE,
    MUTATION: ConfigType.DOUBLE,
    CONNECTIONS: ConfigType.INT,
}
"""The quotas and their types; all but the last are those of users and client ids."""

KIP_599 = Release(2, 7)
"""The first release with quotas of the controller and of IP addresses (KIP-612)."""

KIP_219 = Release(2, 0)
"""The first release that responds at once and then mutes the connection; older ones delay the response."""

WINDOW_MS = 1000
SAMPLES = 11
"""Kafka's `quota.window.size.seconds` and `quota.window.num`."""

REQUEST_MS = 1.0
"""The time that each request counts for `request_percentage`, in milliseconds."""

_PERCENT_PER_MS = 100 / 1000

Entity = tuple[tuple[str, str | None], ...]
"""Types and names, in the order of `ENTITY_TYPES`. The name None is the default: all entities without own limits."""


def entity(names: Mapping[str, str | None]) -> Entity:
    """Return an entity with these names by type, whose types must be valid."""
    return tuple((type_, names[type_]) for type_ in ENTITY_TYPES if type_ in names)


class Rate:
    """A rate per second over the last samples of one second each (SampledStat, Rate)."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[list[float]] = deque(maxlen=SAMPLES + 1)  # Start and last change in ms, value.

    def record(self, value: float, now_ms: float) -> None:
        """Add a value, which may be negative to take back one that was added at the same time."""
        if not self._samples or now_ms - self._samples[-1][0] >= WINDOW_MS:
            self._samples.append([now_ms, now_ms, 0.0])
        self._samples[-1][1] = now_ms
        self._samples[-1][2] += value

    def throttle_ms(self, limit: float, now_ms: float) -> float:
        """Return how long the rate stays above a limit if nothing is added; 0 if it is not above."""
        while self._samples and now_ms - self._samples[0][1] >= SAMPLES * WINDOW_MS:
            self._samples.popleft()
        if not self._samples:
            return 0
        elapsed_ms = now_ms - self._samples[0][0]
        missing = SAMPLES - 1 - int(elapsed_ms // WINDOW_MS)
        window_ms = max(1.0, elapsed_ms + max(0, missing) * WINDOW_MS)
        rate = sum(value for _, _, value in self._samples) / window_ms * 1000
        return round((rate - limit) / limit * window_ms) if rate > limit else 0


class TokenBucket:
    """Tokens that are refilled at a limit per second, up to the tokens of all samples (TokenBucket)."""

    __slots__ = ("_tokens", "_updated_ms")

    def __init__(self) -> None:
        self._tokens = self._updated_ms = 0.0

    def record(self, value: float, limit: float, now_ms: float) -> None:
        """Take tokens; there may be fewer than 0 afterwards."""
        self._refill(limit, now_ms)
        self._tokens -= value

    def throttle_ms(self, limit: float, now_ms: float) -> float:
        """Return how long there are fewer than 0 tokens if none are taken; 0 if there are enough."""
        self._refill(limit, now_ms)
        return round(-self._tokens / limit * 1000) if self._tokens < 0 else 0

    def _refill(self, limit: float, now_ms: float) -> None:
        burst = SAMPLES * WINDOW_MS / 1000 * limit
        self._tokens = min(burst, self._tokens + limit * (now_ms - self._updated_ms) / 1000)
        self._updated_ms = now_ms


class MutationQuota:
    """The `controller_mutation_rate` of one request, which counts the partitions that it creates or deletes.

    A strict quota refuses mutations while it is exhausted; otherwise they are made, and the client is throttled.
    """

    def __init__(self, bucket: TokenBucket | None, limit: float, *, strict: bool) -> None:
        self._bucket, self._limit, self._strict = bucket, limit, strict
        self.throttle_ms = 0.0

    def allows(self, partitions: int, now_ms: float) -> bool:
        """Count the partitions of one topic; returns False if they must be refused (THROTTLING_QUOTA_EXCEEDED)."""
        if self._bucket is None:
            return True
        if self._strict:
            self.throttle_ms = max(self.throttle_ms, self._bucket.throttle_ms(self._limit, now_ms))
            if self.throttle_ms:
                return False
            self._bucket.record(partitions, self._limit, now_ms)
            return True
        self._bucket.record(partitions, self._limit, now_ms)
        self.throttle_ms = max(self.throttle_ms, self._bucket.throttle_ms(self._limit, now_ms))
        return True


_UNLIMITED = MutationQuota(None, 0.0, strict=False)


def _user(call: Call) -> str:
    """Return the name of the user whose quotas count: the name in the principal."""
    return call.peer.principal.partition(":")[2]


class Quotas:
    """The quotas of a cluster.

    Attributes:
        limits: The quotas of each entity that has some, in the order in which entities got their first one.
        throttled: Maps (node id, client id) to the end of the throttling in ms, which may have passed.
    """

    def __init__(self) -> None:
        self.limits: Mapping[Entity, Mapping[str, float]] = {}
        self.throttled: dict[tuple[int, str], float] = {}
        self._rates: dict[tuple[int, str, str, str], Rate] = {}
        self._buckets: dict[tuple[str, str], TokenBucket] = {}

    def alter(self, changed: Entity, values: Mapping[str, float | None]) -> None:
        """Set quotas of an entity, or remove those whose value is None."""
        kept = {key: value for key, value in {**self.limits.get(changed, {}), **values}.items() if value is not None}
        limits = {**self.limits, changed: kept}
        self.limits = {each: quotas for each, quotas in limits.items() if quotas}

    def restore(self, limits: Mapping[Entity, Mapping[str, float]]) -> None:
        """Restore earlier limits, and forget what clients have used."""
        self.limits = limits
        self.throttled.clear()
        self._rates.clear()
        self._buckets.clear()

    def limit(self, key: str, user: str, client_id: str) -> tuple[float, str, str] | None:
        """Return the limit of a client, and the user and client id that share it; None if there is none.

        The most specific entity counts. All client ids of a user share the user's limit. All users share the limit of a
        client id.
        """
        for found, shared_user, shared_client_id in _candidates(user, client_id):
            value = self.limits.get(found, {}).get(key)
            if value is not None:
                return value, shared_user, shared_client_id
        return None

    def max_fetch_bytes(self, call: Call) -> float:
        """Return how many bytes a client can fetch without being throttled if it has fetched none before."""
        found = self.limit(CONSUMER, _user(call), call.client_id) if self.limits else None
        return float("inf") if found is None else found[0] * (SAMPLES - 1)

    def fetch_throttle_ms(self, call: Call, size_bytes: int, now_ms: float) -> float:
        """Count a Fetch, and return how long to throttle its client. If that is not 0, the bytes do not count."""
        if not self.limits:
            return 0
        call.throttle_ms = max(
            self._record(call, REQUEST, REQUEST_MS * _PERCENT_PER_MS, now_ms, most_ms=WINDOW_MS),
            self._record(call, CONSUMER, size_bytes, now_ms),
        )
        if call.throttle_ms:
            self._record(call, CONSUMER, -size_bytes, now_ms)
        return call.throttle_ms

    def connection_throttle_ms(self, node_id: int, client_host: str, now_ms: float) -> float:
        """Count a new connection to a broker, and return after what time to close it unserved; 0 to serve it (KIP-612).

        A connection that is not served does not count. The quota of the address counts, else the default quota.
        """
        address = client_host.removeprefix("/")
        names = (address, "localhost") if address in ("127.0.0.1", "::1") else (address,)
        limits = (self.limits.get(((IP, name),), {}).get(CONNECTIONS) for name in (*names, None))
        limit = next((each for each in limits if each is not None), None)
        if limit is None:
            return 0
        rate = self._rates.setdefault((node_id, CONNECTIONS, address, ""), Rate())
        rate.record(1, now_ms)
        throttle_ms = min(WINDOW_MS, rate.throttle_ms(limit, now_ms))
        if throttle_ms:
            rate.record(-1, now_ms)
        return throttle_ms

    def mutations(self, call: Call, *, strict_since: int) -> MutationQuota:
        """Return the quota for the partitions that a request creates or deletes.

        Args:
            call: The request.
            strict_since: The first version of the API whose clients understand THROTTLING_QUOTA_EXCEEDED.
        """
        found = self.limit(MUTATION, _user(call), call.client_id) if self.limits else None
        if found is None:
            return _UNLIMITED
        limit, user, client_id = found
        bucket = self._buckets.setdefault((user, client_id), TokenBucket())
        return MutationQuota(bucket, limit, strict=call.api_version >= strict_since)

    def charge(self, call: Call, response: Message | None, now_ms: float) -> Message | None:
        """Count an answered request, set `call.throttle_ms`, and return the response with this time.

        A Fetch was counted before, and a Produce with acks=0 does not count as a request.
        """
        name = call.api.name
        if name == "Produce":
            call.throttle_ms = max(call.throttle_ms, self._record(call, PRODUCER, call.size, now_ms))
        if name != "Fetch" and response is not None:
            percent = REQUEST_MS * _PERCENT_PER_MS
            call.throttle_ms = max(call.throttle_ms, self._record(call, REQUEST, percent, now_ms, most_ms=WINDOW_MS))
        if call.throttle_ms:
            self.throttled = {client: until_ms for client, until_ms in self.throttled.items() if until_ms > now_ms}
            self.throttled[call.node_id, call.client_id] = now_ms + call.throttle_ms
        if not call.throttle_ms or response is None or not hasattr(response, "throttle_time_ms"):
            return response
        changed: Any = copy.copy(response)  # Handlers may share responses.
        changed.throttle_time_ms = int(call.throttle_ms)
        return changed  # type: ignore[no-any-return]

    def _record(self, call: Call, key: str, value: float, now_ms: float, most_ms: float = float("inf")) -> float:
        """Count a value for a client, and return how long to throttle it, at most `most_ms`."""
        found = self.limit(key, _user(call), call.client_id)
        if found is None:
            return 0
        limit, user, client_id = found
        rate = self._rates.setdefault((call.node_id, key, user, client_id), Rate())
        rate.record(value, now_ms)
        return min(most_ms, rate.throttle_ms(limit, now_ms))


def _candidates(user: str, client_id: str) -> Iterator[tuple[Entity, str, str]]:
    """Yield the entities of a client, most specific first, with the user and client id that share their limits."""
    for user_name in (user, None):
        for client_name in (client_id, None):
            yield ((USER, user_name), (CLIENT_ID, client_name)), user, client_id
        yield ((USER, user_name),), user, ""
    for client_name in (client_id, None):
        yield ((CLIENT_ID, client_name),), "", client_id
