"""Prepares the cluster under test over TCP: checks that it is reachable, and creates the workload's topics."""

from collections.abc import Mapping
from contextlib import suppress

import trio

from fakebroker.client.admin.admin import Admin
from fakebroker.client.admin.descriptions import NewTopic
from fakebroker.client.errors import BrokerUnreachable
from fakebroker.client.security import PLAINTEXT, ClientSecurity
from fakebroker.client.transport_security import TransportSecurity
from fakebroker.client.trio_brokers import TrioBrokers
from fakebroker.errors import ConfigError, ErrorCode, FakebrokerError
from fakebroker.host_port import format_host_port
from fakebroker.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from fakebroker.replay.members.bootstrap import CLIENT_ID, addresses
from fakebroker.replay.members.member_loop import LoopSettings, MemberLoop
from fakebroker.replay.wording import listed
from fakebroker.replay.workload.group_names import names_of
from fakebroker.replay.workload.workload import Workload

_READY_TIMEOUT_S = 20.0
_RETRY_S = 0.1
_MAX_REPLICAS = 3
_MOST_NAMES = 3
"""Maximum number of topics, and of groups, that an error names."""
_BROKER_RESOURCE = 4
_OFFSETS_TOPIC = "__consumer_offsets"
DEFAULT_OFFSETS_PARTITIONS = 50
"""Kafka's default of `offsets.topic.num.partitions`."""


def check_answers(bootstrap: str, *, has_consumer_members: bool = False, security: ClientSecurity = PLAINTEXT) -> None:
    """Check that members can talk to a cluster.

    Args:
        bootstrap: HOST:PORT of the cluster, several separated by commas.
        has_consumer_members: Whether members use the consumer protocol (KIP-848).
        security: How connections are encrypted and authenticated.

    Raises:
        BrokerUnreachable: No broker responds, or all refuse the credentials.
        FakebrokerError: The cluster does not have the consumer protocol.
    """
    settings = LoopSettings(security=security)
    no_members = MemberLoop([], addresses(bootstrap), lambda event: None, lambda tally: None, settings)
    no_members.connect()
    is_old = has_consumer_members and not no_members.lookup.has_consumer_protocol
    no_members.transport.close()
    if is_old:
        raise FakebrokerError(
            f"cluster {bootstrap} does not have group.version=1: members of the protocol 'consumer' need Kafka 4.0 or "
            "later"
        )


async def check_unused(bootstrap: str, workload: Workload, security: ClientSecurity = PLAINTEXT) -> None:
    """Check that no topic and no group of a workload exists in a cluster.

    Args:
        bootstrap: HOST:PORT of the cluster, several separated by commas.
        workload: The workload.
        security: How connections are encrypted and authenticated.

    Raises:
        ConfigError: Some exist.
        FakebrokerError: A broker does not list its groups, within 20 s in all.
    """
    try:
        with trio.fail_after(_READY_TIMEOUT_S):
            async with Admin(bootstrap, CLIENT_ID, security=security) as admin:
                topics = workload.topics.keys() & await admin.list_topics(internal=True)
                known = [group.group_id for group in await admin.list_groups()]
    except (trio.TooSlowError, FakebrokerError) as error:
        why = f"no response after {_READY_TIMEOUT_S:g} s" if isinstance(error, trio.TooSlowError) else error
        raise FakebrokerError(
            f"cluster {bootstrap}: whether groups of the workload exist is not known ({why}); --allow-existing skips "
            "this check"
        ) from None
    groups = {name for population in workload.groups for name in names_of(population, known)}
    found = [
        f"the {noun}{'s' if len(names) > 1 else ''} {listed(sorted(names), _MOST_NAMES)}"
        for noun, names in (("topic", topics), ("group", groups))
        if names
    ]
    if found:
        expected = (
            f"a cluster without topics and groups of the workload, or --allow-existing; it has {' and '.join(found)}"
        )
        raise ConfigError.of("--bootstrap", bootstrap, expected)


async def ready_topics(
    bootstrap: str, topics: Mapping[str, int], security: ClientSecurity = PLAINTEXT
) -> dict[str, int]:
    """Create the topics that do not exist yet.

    Args:
        bootstrap: HOST:PORT of the cluster, several separated by commas.
        topics: Partition counts of topics to create; ignored for topics that exist.
        security: How connections are encrypted and authenticated.

    Returns:
        The actual partition count of each topic.

    Raises:
        FakebrokerError: The cluster cannot be reached, rejects a topic, or is not ready within 20 s.
    """
    addresses(bootstrap)
    try:
        with trio.fail_after(_READY_TIMEOUT_S):
            async with Admin(bootstrap, CLIENT_ID, security=security) as admin:
                await _create(admin, topics)
                return await _partition_counts(admin, topics)
    except trio.TooSlowError:
        names = ", ".join(topics)
        raise FakebrokerError(f"cluster {bootstrap}: topics {names} not ready after {_READY_TIMEOUT_S:g} s") from None


async def offsets_partitions(bootstrap: str, security: ClientSecurity = PLAINTEXT) -> int | None:
    """Return the partition count of `__consumer_offsets`.

    Args:
        bootstrap: HOST:PORT of the cluster, several separated by commas.
        security: How connections are encrypted and authenticated.

    Returns:
        The count; Kafka's default if the cluster does not report it; None if the cluster cannot be reached.
    """
    with trio.move_on_after(_READY_TIMEOUT_S):
        try:
            async with Admin(bootstrap, CLIENT_ID, security=security) as admin:
                known = await admin.list_topics(internal=True)
        except BrokerUnreachable:
            return None
        except FakebrokerError:
            return DEFAULT_OFFSETS_PARTITIONS
        return len(known[_OFFSETS_TOPIC].partitions) if _OFFSETS_TOPIC in known else DEFAULT_OFFSETS_PARTITIONS
    return None


async def brokers(bootstrap: str, security: ClientSecurity = PLAINTEXT) -> dict[int, str]:
    """Return the addresses of a cluster's brokers as HOST:PORT, by node id; none if it cannot be reached.

    Args:
        bootstrap: HOST:PORT of the cluster, several separated by commas.
        security: How connections are encrypted and authenticated.
    """
    with trio.move_on_after(_READY_TIMEOUT_S):
        with suppress(FakebrokerError):
            async with Admin(bootstrap, CLIENT_ID, security=security) as admin:
                nodes = (await admin.describe_cluster()).nodes
                return {node.node_id: format_host_port(node.host, node.port) for node in nodes}
    return {}


async def broker_settings(bootstrap: str, security: ClientSecurity = PLAINTEXT) -> dict[str, str]:
    """Return the settings of a broker by Kafka's names; none if it does not tell them.

    Args:
        bootstrap: HOST:PORT of the cluster, several separated by commas.
        security: How connections are encrypted and authenticated.
    """
    found: dict[str, str] = {}
    with trio.move_on_after(_READY_TIMEOUT_S):
        async with trio.open_nursery() as nursery:
            asked = TrioBrokers(bootstrap, CLIENT_ID, nursery, security=TransportSecurity(security))
            with suppress(FakebrokerError):
                metadata: MetadataResponse = await asked.request(MetadataRequest(topics=[]))
                node_id = metadata.brokers[0].node_id
                resource = DescribeConfigsResource(
                    resource_type=_BROKER_RESOURCE, resource_name=str(node_id), configuration_keys=None
                )
                response: DescribeConfigsResponse = await asked.request(
                    DescribeConfigsRequest(resources=[resource]), node_id
                )
                found = {each.name: each.value for each in response.results[0].configs if each.value is not None}
            nursery.cancel_scope.cancel()
    return found


async def unreachable_brokers(known: Mapping[int, str], security: ClientSecurity = PLAINTEXT) -> list[int]:
    """Return the node ids of brokers that do not respond.

    Args:
        known: Their addresses, as `brokers` returns them.
        security: How connections are encrypted and authenticated.
    """
    reached: set[int] = set()

    async def reach(node_id: int, address: str) -> None:
        if await brokers(address, security):
            reached.add(node_id)

    async with trio.open_nursery() as nursery:
        for node_id, address in known.items():
            nursery.start_soon(reach, node_id, address)
    return sorted(known.keys() - reached)


async def _create(admin: Admin, topics: Mapping[str, int]) -> None:
    replicas = min(_MAX_REPLICAS, len((await admin.describe_cluster()).nodes))
    created = await admin.create_topics(NewTopic(name, partitions, replicas) for name, partitions in topics.items())
    for error in created.errors.values():
        if error.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise error


async def _partition_counts(admin: Admin, topics: Mapping[str, int]) -> dict[str, int]:
    """Wait until all partitions of the topics have leaders, and return their counts."""
    while True:
        known = await admin.list_topics()
        if all(name in known and known[name].has_leaders for name in topics):
            return {name: len(known[name].partitions) for name in topics}
        await trio.sleep(_RETRY_S)
