"""The first words with a cluster, before anything is played: it answers, and the workload's topics are made.

Knows no Spark.
"""

from collections.abc import Mapping

import trio

from fakebroker.client.admin.admin import Admin
from fakebroker.client.admin.descriptions import NewTopic
from fakebroker.client.errors import BrokerUnreachable
from fakebroker.errors import ErrorCode, FakebrokerError
from fakebroker.replay.members.bootstrap import CLIENT_ID, addresses
from fakebroker.replay.members.swarm import Swarm

_READY_TIMEOUT_S = 20.0
_RETRY_S = 0.1
_MOST_REPLICAS = 3
_OFFSETS_TOPIC = "__consumer_offsets"
USUAL_OFFSETS_PARTITIONS = 50


def check_answers(bootstrap: str) -> None:
    """Look whether a cluster answers members, which one that wants TLS or authentication does not.

    Args:
        bootstrap: HOST:PORT of the cluster, or several with commas.

    Raises:
        BrokerUnreachable: It does not.
    """
    nobody = Swarm([], addresses(bootstrap), lambda event: None, lambda tally: None)
    nobody.connect()
    nobody.wire.close()


async def ready_topics(bootstrap: str, topics: Mapping[str, int]) -> dict[str, int]:
    """See to it that the topics are there.

    Args:
        bootstrap: HOST:PORT of the cluster, or several with commas.
        topics: Their partitions; a topic that is already there keeps those that it has.

    Returns:
        How many partitions each topic really has.

    Raises:
        FakebrokerError: The cluster cannot be reached, refuses to make a topic, or does not get ready with it.
    """
    addresses(bootstrap)
    try:
        with trio.fail_after(_READY_TIMEOUT_S):
            async with Admin(bootstrap, CLIENT_ID) as admin:
                await _create(admin, topics)
                return await _partition_counts(admin, topics)
    except trio.TooSlowError:
        names = ", ".join(topics)
        raise FakebrokerError(f"cluster {bootstrap}: topics {names} not ready after {_READY_TIMEOUT_S:g} s") from None


async def offsets_partitions(bootstrap: str) -> int | None:
    """How many partitions `__consumer_offsets` has, after groups were played.

    Args:
        bootstrap: HOST:PORT of the cluster, or several with commas.

    Returns:
        Kafka's default if it does not tell; None if the cluster cannot be reached any more.
    """
    with trio.move_on_after(_READY_TIMEOUT_S):
        try:
            async with Admin(bootstrap, CLIENT_ID) as admin:
                known = await admin.list_topics(internal=True)
        except BrokerUnreachable:
            return None
        except FakebrokerError:
            return USUAL_OFFSETS_PARTITIONS
        return len(known[_OFFSETS_TOPIC].partitions) if _OFFSETS_TOPIC in known else USUAL_OFFSETS_PARTITIONS
    return None


async def _create(admin: Admin, topics: Mapping[str, int]) -> None:
    replicas = min(_MOST_REPLICAS, len((await admin.describe_cluster()).nodes))
    created = await admin.create_topics(NewTopic(name, partitions, replicas) for name, partitions in topics.items())
    for error in created.errors.values():
        if error.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise error


async def _partition_counts(admin: Admin, topics: Mapping[str, int]) -> dict[str, int]:
    """Wait until all topics are known to the broker asked, with a leader for each partition."""
    while True:
        known = await admin.list_topics()
        if all(name in known and known[name].has_leaders for name in topics):
            return {name: len(known[name].partitions) for name in topics}
        await trio.sleep(_RETRY_S)
