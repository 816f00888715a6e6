"""The contents of a cluster as comparable values, to show that a refused command has changed nothing."""

from dataclasses import fields
from typing import Any

from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.inspect.views import view_groups
from fakebroker.cluster.logs.partition_log import PartitionLog
from fakebroker.cluster.snapshot import Snapshot, take


def contents(cluster: Cluster) -> dict[str, Any]:
    """Return everything that a snapshot contains, and groups, history, controls, clock and pending answers."""
    snapshot = take(cluster)
    found = {field.name: getattr(snapshot, field.name) for field in fields(Snapshot)}
    found["brokers"] = {
        node_id: {each.name: getattr(broker, each.name) for each in fields(broker) if each.name not in _SERVICES}
        for node_id, broker in snapshot.brokers.items()
    }
    found["topics"] = [
        (topic.name, topic.topic_id, dict(topic.configs), topic.next_partition, [*map(_partition, topic.partitions)])
        for topic in snapshot.topics
    ]
    found["credentials"] = snapshot.credentials.scram_iterations()
    found["groups"] = [(str(view), view, view.history.moments) for view in view_groups(cluster, cluster.now_ms)]
    found["offsets"] = {
        group.group_id: broker.coordinator.offsets.fetch(group.group_id, None)
        for broker in cluster.brokers.values()
        for group in broker.coordinator.groups.classic.values()
    }
    found["history"] = {group_id: cluster.history.of(group_id) for group_id in cluster.history.newest(1_000)}
    found["controls"] = dict(cluster.group_controls)
    found["answered"] = list(cluster.requests.answered)
    found["deadline"] = cluster.next_deadline()
    return found


_SERVICES = ("coordinator", "fetch_sessions")


def _partition(partition: Any) -> dict[str, Any]:
    found = {
        each.name: getattr(partition, each.name) for each in fields(partition) if each.name not in ("topic", "log")
    }
    return found | {"log": _log(partition.log)}


def _log(log: PartitionLog) -> tuple[Any, ...]:
    data = log.read(log.log_start_offset, 2**31)
    return log.log_start_offset, log.log_end_offset, log.size_bytes, data
