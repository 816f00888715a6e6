"""DescribeClientQuotas and AlterClientQuotas, and what quotas do to the clients that exceed them."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from fakebroker.cluster import snapshot
from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.describe_client_quotas import DEFAULT, EXACT, SPECIFIED
from fakebroker.cluster.quotas import Quotas, Rate, TokenBucket, entity
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages import alter_client_quotas
from fakebroker.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from fakebroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from fakebroker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from fakebroker.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.metadata import MetadataRequest
from fakebroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fakebroker.protocol.types import ZERO_UUID
from tests.support.cluster.cluster_harness import ClusterHarness, batch, response

Names = Mapping[str, str | None]
MUTATION = "controller_mutation_rate"


def alter(
    harness: ClusterHarness, names: Names, values: Mapping[str, float | None], *, validate_only: bool = False
) -> tuple[int, str | None]:
    """Send AlterClientQuotas for one entity; None removes a quota. Returns the error and its message."""
    return alter_pairs(harness, list(names.items()), values, validate_only=validate_only)


def alter_pairs(
    harness: ClusterHarness,
    names: Sequence[tuple[str, str | None]],
    values: Mapping[str, float | None],
    *,
    validate_only: bool = False,
) -> tuple[int, str | None]:
    entry = alter_client_quotas.EntryData(
        entity=[alter_client_quotas.EntityData(entity_type=type_, entity_name=name) for type_, name in names],
        ops=[
            alter_client_quotas.OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in values.items()
        ],
    )
    request = alter_client_quotas.AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)
    (result,) = harness.ask(request, 1).entries
    assert [(each.entity_type, each.entity_name) for each in result.entity] == [*dict(names).items()]
    return result.error_code, result.error_message


def describe(harness: ClusterHarness, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    request = DescribeClientQuotasRequest(
        components=[ComponentData(entity_type=type_, match_type=how, match=name) for type_, how, name in components],
        strict=strict,
    )
    return harness.ask(request, 1)


def described(harness: ClusterHarness, *components: tuple[str, int, str | None], strict: bool = False) -> list[Any]:
    found = describe(harness, *components, strict=strict)
    assert found.error_code == ErrorCode.NONE
    return [
        ({part.entity_type: part.entity_name for part in entry.entity}, {each.key: each.value for each in entry.values})
        for entry in found.entries
    ]


# Kept and shown

ENTITIES: list[Names] = [
    {"user": "alice", "client-id": "app"},
    {"user": "alice"},
    {"user": None},
    {"client-id": "app"},
    {"client-id": None},
    {"ip": "10.0.0.1"},
    {"ip": None},
]


def with_entities() -> ClusterHarness:
    harness = ClusterHarness()
    for number, names in enumerate(ENTITIES, 1):
        key = "connection_creation_rate" if "ip" in names else "producer_byte_rate"
        assert alter(harness, names, {key: float(number)}) == (ErrorCode.NONE, None)
    return harness


def test_quotas_are_kept_and_shown() -> None:
    harness = with_entities()
    assert [names for names, _ in described(harness)] == ENTITIES
    assert described(harness)[0][1] == {"producer_byte_rate": 1.0}

    alter(harness, {"user": "alice"}, {"producer_byte_rate": 7.0, "request_percentage": 12.5})
    assert described(harness)[1] == ({"user": "alice"}, {"producer_byte_rate": 7.0, "request_percentage": 12.5})
    alter(harness, {"user": "alice"}, {"producer_byte_rate": None, "request_percentage": None, "unknown": None})
    assert [names for names, _ in described(harness)] == [each for each in ENTITIES if each != {"user": "alice"}]


def test_filters(subtests: pytest.Subtests) -> None:
    harness = with_entities()
    user, app = ("user", EXACT, "alice"), ("client-id", EXACT, "app")
    for components, strict, expected in (
        ([user], False, [0, 1]),
        ([user], True, [1]),
        ([user, app], False, [0]),
        ([app], True, [3]),
        ([("user", DEFAULT, None)], False, [2]),
        ([("client-id", DEFAULT, None)], True, [4]),
        ([("user", SPECIFIED, None)], False, [0, 1, 2]),
        ([("ip", SPECIFIED, None)], True, [5, 6]),
        ([], True, []),
    ):
        with subtests.test(components=components, strict=strict):
            found = [names for names, _ in described(harness, *components, strict=strict)]
            assert found == [ENTITIES[index] for index in expected]


def test_invalid_filters(subtests: pytest.Subtests) -> None:
    for components, error in (
        ([("", EXACT, "x")], ErrorCode.INVALID_REQUEST),
        ([("group", EXACT, "x")], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", SPECIFIED, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, "a"), ("user", EXACT, "b")], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, "a"), ("ip", EXACT, "b")], ErrorCode.INVALID_REQUEST),
    ):
        with subtests.test(components=components):
            found = describe(ClusterHarness(), *components)
            assert (found.error_code, found.entries) == (error, None)
            assert found.error_message


def test_invalid_changes(subtests: pytest.Subtests) -> None:
    harness = ClusterHarness()
    user = [("user", "alice")]
    for names, values, message in (
        ([], {"producer_byte_rate": 1.0}, "empty client quota entity"),
        ([("group", "g")], {"producer_byte_rate": 1.0}, "entity type: group"),
        ([("user", "")], {"producer_byte_rate": 1.0}, "Empty user"),
        ([("user", "a"), ("user", "")], {"producer_byte_rate": 1.0}, "Empty user"),
        ([("user", "a"), ("ip", "10.0.0.1")], {"connection_creation_rate": 1.0}, "must not be combined"),
        ([("ip", "nowhere")], {"connection_creation_rate": 1.0}, "nowhere is not a valid IP"),
        ([("ip", "::1")], {"producer_byte_rate": 1.0}, "Invalid configuration key producer_byte_rate"),
        (user, {"connection_creation_rate": 1.0}, "Invalid configuration key connection_creation_rate"),
        (user, {"producer_byte_rate": -1.0}, "greater than 0"),
        (user, {"producer_byte_rate": float("nan")}, "greater than 0"),
        (user, {"producer_byte_rate": 1.5}, "fractional"),
        (user, {"producer_byte_rate": 1e19}, "too large for a LONG"),
        ([("ip", "::1")], {"connection_creation_rate": 2.0**31}, "too large for a INT"),
    ):
        with subtests.test(names=names, values=values):
            error, text = alter_pairs(harness, names, values)
            assert error == ErrorCode.INVALID_REQUEST
            assert message in (text or "")
    assert described(harness) == []


def test_changes_are_only_validated_if_asked() -> None:
    harness = ClusterHarness()
    assert alter(harness, {"user": "a"}, {"producer_byte_rate": 1.0}, validate_only=True) == (ErrorCode.NONE, None)
    assert described(harness) == []


def test_an_entity_or_key_that_is_repeated_in_a_request_is_refused() -> None:
    name = alter_client_quotas.EntityData(entity_type="user", entity_name="a")
    limit = alter_client_quotas.OpData(key="producer_byte_rate", value=1.0, remove=False)
    once = alter_client_quotas.EntryData(entity=[name], ops=[limit])
    for entries in ([once, once], [alter_client_quotas.EntryData(entity=[name], ops=[limit, limit])]):
        harness = ClusterHarness()
        request = alter_client_quotas.AlterClientQuotasRequest(entries=entries, validate_only=False)

        results = harness.ask(request, 1).entries

        assert [(each.error_code, each.entity) for each in results] == [(ErrorCode.INVALID_REQUEST, [name])]
        assert described(harness) == []


def test_of_several_names_of_one_type_the_last_counts() -> None:
    harness = ClusterHarness()

    assert alter_pairs(harness, [("user", "a"), ("user", "b")], {"producer_byte_rate": 1.0})[0] == ErrorCode.NONE

    assert [names for names, _ in described(harness)] == [{"user": "b"}]


def test_quotas_of_the_controller_and_of_addresses_came_with_2_7(subtests: pytest.Subtests) -> None:
    for release, expected in (("2.6", ErrorCode.INVALID_REQUEST), ("2.7", ErrorCode.NONE)):
        for names, key in (({"user": "a"}, MUTATION), ({"ip": "10.0.0.1"}, "connection_creation_rate")):
            with subtests.test(release=release, key=key):
                assert alter(ClusterHarness(as_version=release), names, {key: 1.0})[0] == expected


def test_quotas_are_in_snapshots() -> None:
    harness = with_entities()
    taken = snapshot.take(harness.cluster)
    alter(harness, {"user": None}, {"producer_byte_rate": None})
    snapshot.restore(harness.cluster, taken, harness.now_ms)
    assert [names for names, _ in described(harness)] == ENTITIES


# Which quota applies


def test_the_most_specific_quota_applies(subtests: pytest.Subtests) -> None:
    # In Kafka's order, with the user and client id that share the limit.
    order: list[tuple[Names, tuple[str, str]]] = [
        ({"user": "u", "client-id": "c"}, ("u", "c")),
        ({"user": "u", "client-id": None}, ("u", "c")),
        ({"user": "u"}, ("u", "")),
        ({"user": None, "client-id": "c"}, ("u", "c")),
        ({"user": None, "client-id": None}, ("u", "c")),
        ({"user": None}, ("u", "")),
        ({"client-id": "c"}, ("", "c")),
        ({"client-id": None}, ("", "c")),
    ]
    quotas = Quotas()
    assert quotas.limit("producer_byte_rate", "u", "c") is None
    for number, (names, shared) in reversed(list(enumerate(order, 1))):
        with subtests.test(names=names):
            quotas.alter(entity(names), {"producer_byte_rate": float(number)})
            quotas.alter(entity({"user": "other"}), {"producer_byte_rate": 99.0})
            assert quotas.limit("producer_byte_rate", "u", "c") == (float(number), *shared)
    assert quotas.limit("consumer_byte_rate", "u", "c") is None


# Rates


def test_a_rate_counts_at_least_ten_seconds() -> None:
    rate = Rate()
    rate.record(10_000, 0)
    assert rate.throttle_ms(1000, 0) == 0
    rate.record(10_000, 0)
    # 2,000 bytes/s over 10 s: twice the limit, so it takes 10 s more.
    assert rate.throttle_ms(1000, 0) == 10_000
    assert rate.throttle_ms(1000, 500) == pytest.approx(9500)


def test_a_rate_forgets_samples_after_eleven_seconds() -> None:
    rate = Rate()
    rate.record(20_000, 0)
    rate.record(1, 5000)
    assert rate.throttle_ms(1000, 10_999) > 0
    assert rate.throttle_ms(1000, 11_000) == 0


def test_a_token_bucket_holds_eleven_seconds() -> None:
    bucket = TokenBucket()
    now_ms = 1e12
    bucket.record(11, 1.0, now_ms)
    assert bucket.throttle_ms(1.0, now_ms) == 0
    bucket.record(2, 1.0, now_ms)
    assert bucket.throttle_ms(1.0, now_ms) == 2000
    assert bucket.throttle_ms(1.0, now_ms + 1500) == 500
    assert bucket.throttle_ms(1.0, now_ms + 2000) == 0


# Throttling


def produce(
    harness: ClusterHarness,
    size_bytes: int,
    *,
    acks: int = 1,
    client_id: str = "client",
    broker: int = 1,
    user: str = "ANONYMOUS",
) -> Call:
    """Send a Produce whose frame has this size."""
    peer = harness.peer(broker)
    peer.principal = f"User:{user}"
    data = TopicProduceData(name="news", partition_data=[PartitionProduceData(index=0, records=batch(b"x"))])
    request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data])
    return harness.send(request, 9, client_id=client_id, size_bytes=size_bytes, peer=peer)


def test_producers_are_throttled_by_the_bytes_of_their_requests() -> None:
    harness = ClusterHarness()
    alter(harness, {"client-id": "client"}, {"producer_byte_rate": 1000.0})

    assert response(produce(harness, 10_000)).throttle_time_ms == 0
    throttled = produce(harness, 5000)
    assert response(throttled).throttle_time_ms == throttled.throttle_ms == 5000
    assert response(throttled).responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert response(produce(harness, 5000, client_id="other")).throttle_time_ms == 0

    harness.advance(11_000)
    assert response(produce(harness, 5000)).throttle_time_ms == 0


def test_users_are_throttled_by_the_name_of_their_principal() -> None:
    harness = ClusterHarness()
    alter(harness, {"user": "alice"}, {"producer_byte_rate": 1000.0})
    assert produce(harness, 20_000).throttle_ms == produce(harness, 20_000, user="bob").throttle_ms == 0
    assert produce(harness, 20_000, user="alice").throttle_ms == 10_000


def test_each_broker_measures_for_itself() -> None:
    harness = ClusterHarness(brokers=2)
    alter(harness, {"client-id": None}, {"producer_byte_rate": 1000.0})
    assert produce(harness, 20_000, broker=1).throttle_ms == 10_000
    assert produce(harness, 5000, broker=2).throttle_ms == 0


def test_a_produce_without_response_is_throttled_by_its_bytes_only() -> None:
    harness = ClusterHarness()
    alter(harness, {"client-id": "client"}, {"producer_byte_rate": 1000.0, "request_percentage": 0.001})
    call = produce(harness, 20_000, acks=0)
    assert (call.response, call.throttle_ms) == (None, 10_000)


def fetch(harness: ClusterHarness, offset: int = 0, *, session_id: int = 0, epoch: int = -1) -> Call:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000_000)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1_000_000,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic="news", partitions=[partition])] if session_id == 0 else [],
    )
    return harness.send(request, 12)


def test_consumers_are_throttled_with_an_empty_response_that_does_not_count() -> None:
    harness = ClusterHarness()
    records = batch(*[b"x" * 100] * 100)
    harness.partition().log.append(records, 0)
    alter(harness, {"user": None}, {"consumer_byte_rate": float(len(records) // 15)})

    # As in Kafka, a single batch is read even if it exceeds the quota of ten seconds.
    answer = response(fetch(harness))

    assert answer.throttle_time_ms > 0
    assert (answer.error_code, answer.responses, answer.session_id) == (ErrorCode.NONE, [], 0)
    alter(harness, {"user": None}, {"consumer_byte_rate": float(len(records))})
    answer = response(fetch(harness))
    assert answer.throttle_time_ms == 0
    assert len(answer.responses[0].partitions[0].records) == len(records)


def test_a_fetch_reads_no_more_than_ten_seconds_of_its_quota() -> None:
    harness = ClusterHarness()
    one = batch(b"x" * 1000)
    for _ in range(20):
        harness.partition().log.append(one, 0)
    alter(harness, {"user": None}, {"consumer_byte_rate": float(len(one))})

    answer = response(fetch(harness))

    assert answer.throttle_time_ms == 0
    assert len(answer.responses[0].partitions[0].records) == 10 * len(one)
    assert response(fetch(harness, 10)).throttle_time_ms == 10_000


def test_a_throttled_fetch_session_goes_on() -> None:
    harness = ClusterHarness()
    session_id = response(fetch(harness, epoch=0)).session_id
    records = batch(b"x" * 1000)
    harness.partition().log.append(records, 0)
    alter(harness, {"user": None}, {"consumer_byte_rate": 10.0})
    throttled = response(fetch(harness, session_id=session_id, epoch=1))
    assert (throttled.session_id, throttled.responses) == (session_id, [])
    assert throttled.throttle_time_ms > 0

    alter(harness, {"user": None}, {"consumer_byte_rate": None})
    answer = response(fetch(harness, session_id=session_id, epoch=2))
    assert len(answer.responses[0].partitions[0].records) == len(records)


def test_requests_count_one_millisecond_each_and_throttle_for_at_most_one_second() -> None:
    harness = ClusterHarness()
    alter(harness, {"client-id": "busy"}, {"request_percentage": 1.0})  # 10 requests per second

    times = [harness.send(MetadataRequest(topics=[]), 9, client_id="busy").throttle_ms for _ in range(200)]

    assert times[:100] == [0] * 100
    assert times[100] == 100
    assert max(times) == times[-1] == 1000


def test_shared_responses_are_not_changed() -> None:
    harness = ClusterHarness()
    alter(harness, {"client-id": "slow"}, {"request_percentage": 0.001})
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert harness.ask(heartbeat, 4, client_id="slow").throttle_time_ms == 1000
    assert harness.ask(heartbeat, 4, client_id="fast").throttle_time_ms == 0


def test_connections_have_the_quota_of_their_address_or_of_all(subtests: pytest.Subtests) -> None:
    harness = ClusterHarness()
    alter(harness, {"ip": "10.0.0.1"}, {"connection_creation_rate": 1.0})
    quotas = harness.cluster.quotas
    for address, served in (("10.0.0.1", 10), ("10.0.0.2", 30)):
        with subtests.test(address=address):
            times = [quotas.connection_throttle_ms(1, f"/{address}", harness.now_ms) for _ in range(30)]
            assert times == [0] * served + [1000] * (30 - served)
    alter(harness, {"ip": None}, {"connection_creation_rate": 2.0})
    assert [quotas.connection_throttle_ms(1, "/10.0.0.2", harness.now_ms) for _ in range(30)] == [0] * 20 + [500] * 10
    alter(harness, {"ip": "localhost"}, {"connection_creation_rate": 100.0})
    assert quotas.limits
    assert [quotas.connection_throttle_ms(1, "/127.0.0.1", harness.now_ms) for _ in range(30)] == [0] * 30


# Mutations of the controller


def create(harness: ClusterHarness, version: int, **partitions: int) -> Any:
    topics = [
        CreatableTopic(name=name, num_partitions=count, replication_factor=1, assignments=[], configs=[])
        for name, count in partitions.items()
    ]
    return harness.ask(CreateTopicsRequest(topics=topics, timeout_ms=1000), version)


def errors(answer: Any) -> list[ErrorCode]:
    return [ErrorCode(each.error_code) for each in answer]


def test_new_clients_are_refused_mutations_while_the_quota_is_exhausted() -> None:
    harness = ClusterHarness()
    alter(harness, {"user": None}, {MUTATION: 1.0})

    # The burst is 11 partitions; a mutation that exhausts it is still made.
    answer = create(harness, 6, a=10, b=3, c=1)

    assert errors(answer.topics) == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert answer.throttle_time_ms == 2000
    refused = harness.ask(DeleteTopicsRequest(topic_names=["a"], timeout_ms=1000), 5)
    assert (errors(refused.responses), refused.throttle_time_ms) == ([ErrorCode.THROTTLING_QUOTA_EXCEEDED], 2000)
    more = CreatePartitionsTopic(name="b", count=4, assignments=None)
    growth = CreatePartitionsRequest(topics=[more], timeout_ms=1000, validate_only=False)
    refused = harness.ask(growth, 3)
    assert (errors(refused.results), refused.throttle_time_ms) == ([ErrorCode.THROTTLING_QUOTA_EXCEEDED], 2000)

    harness.advance(2000)
    assert errors(harness.ask(growth, 3).results) == [ErrorCode.NONE]
    harness.advance(1000)
    by_name = DeleteTopicsRequest(topics=[DeleteTopicState(name="a", topic_id=ZERO_UUID)], timeout_ms=1000)
    assert errors(harness.ask(by_name, 6).responses) == [ErrorCode.NONE]


def test_older_clients_are_throttled_after_their_mutations() -> None:
    harness = ClusterHarness()
    alter(harness, {"user": None}, {MUTATION: 1.0})

    answer = create(harness, 5, a=10, b=3, c=1)

    assert errors(answer.topics) == [ErrorCode.NONE] * 3
    assert answer.throttle_time_ms == 3000
    deleted = harness.ask(DeleteTopicsRequest(topic_names=["a"], timeout_ms=1000), 4)
    assert (errors(deleted.responses), deleted.throttle_time_ms) == ([ErrorCode.NONE], 13_000)
