"""Explanations of a group of the proposal `rewrite` in English: its state, and which consumers it waits for."""

from collections.abc import Collection, Iterator

from fakebroker.proposals.consumer_rewrite.group import Consumer, RewriteGroup
from fakebroker.proposals.consumer_rewrite.states import PREPARE_FOR_REBALANCE, READY, REBALANCING

_MAX_NAMES = 8


def explain_rewrite(group: RewriteGroup, node_id: int, now_ms: float) -> Iterator[str]:
    """Yield sentences on a group.

    Args:
        group: The group, which its coordinator serves.
        node_id: The broker that coordinates it.
        now_ms: The time by the brokers' clock, in milliseconds since the Unix epoch.
    """
    yield f"{group.group_id} is in state {group.state.value!r} at broker {node_id}, generation {group.generation_id}."
    if group.consumers:
        yield f"Its consumers are {_names(group.consumers)}."
    if group.state is READY:
        missing = [each for each in group.consumers.values() if not each.is_heard]
        yield f"It has been loaded, and waits for the first heartbeat of {_names(_ids(missing))}."
    elif group.state is PREPARE_FOR_REBALANCE:
        yield from _preparation(group, now_ms)
    elif group.state is REBALANCING:
        yield "The next generation is being written to the registry."


def _preparation(group: RewriteGroup, now_ms: float) -> Iterator[str]:
    if group.expired:
        yield f"The sessions of {_names(group.expired)} have expired."
        if group.is_cancelable:
            yield "A late heartbeat cancels the rebalance, unless another consumer sends one before."
    for consumer in [each for each in group.consumers.values() if each.join is None][:_MAX_NAMES]:
        left_s = (max(consumer.deadline_ms, group.wait_until_ms) - now_ms) / 1000
        yield f"The rebalance waits for the JoinGroup of {consumer.consumer_id}, whose session expires in {left_s:g} s."
    if not group.has_joins and not group.consumers:
        yield "It waits for a consumer."
    if group.new_joins:
        yield f"JoinGroups without a consumer id that wait: {len(group.new_joins)}."


def _ids(consumers: list[Consumer]) -> list[str]:
    return [each.consumer_id for each in consumers]


def _names(names: Collection[str]) -> str:
    shown = list(names)[:_MAX_NAMES]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return ", ".join(shown) + more
