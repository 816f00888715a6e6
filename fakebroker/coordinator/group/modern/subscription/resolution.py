"""Resolves the regular expressions of a group: which topics match, and what that changes in the group.

Kafka resolves them in another thread, between two requests. Here it is a step of its own, directly after the heartbeat
that causes it; so in both the member gets the topics with a later heartbeat.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from fakebroker.coordinator.group.modern.group import ConsumerGroup
from fakebroker.coordinator.group.modern.records import (
    ConsumerGroupRecord,
    GroupEpochRecord,
    GroupEpochValue,
    RegexRecord,
)
from fakebroker.coordinator.group.modern.subscription.subscriptions import NOT_RESOLVED, Matcher, ResolvedRegex
from fakebroker.coordinator.group.modern.subscription.topics import TopicImage, metadata_hash


def resolve(
    regexes: Collection[str],
    topics: TopicImage,
    compile_regex: Callable[[str], Matcher],
    may_describe: Matcher | None,
    now_ms: float,
) -> dict[str, ResolvedRegex]:
    """Return the topics that match each of some regular expressions (`GroupMetadataManager.refreshRegularExpressions`).

    Args:
        regexes: Regular expressions, which are valid because members could subscribe to them.
        topics: The topics of the cluster, those that are internal to Kafka included.
        compile_regex: See `ConsumerGroupConfig`.
        may_describe: Whether the member that causes this may describe a topic; None if it may describe all.
        now_ms: The time.
    """
    matchers = {regex: compile_regex(regex) for regex in regexes}
    names = list(topics.names() if may_describe is None else filter(may_describe, topics.names()))
    return {
        regex: ResolvedRegex(frozenset(filter(matches, names)), topics.version, int(now_ms))
        for regex, matches in matchers.items()
    }


def resolution_records(
    group: ConsumerGroup, resolved: Mapping[str, ResolvedRegex], topics: TopicImage
) -> list[ConsumerGroupRecord]:
    """Return the records of resolved regular expressions, and of the next group epoch if their topics have changed.

    Regular expressions that no member has any more are ignored (`handleRegularExpressionsResult`).
    """
    before = group.subscriptions
    current = {regex: found for regex, found in resolved.items() if regex in before.regexes}
    records: list[ConsumerGroupRecord] = [RegexRecord(group.group_id, regex, found) for regex, found in current.items()]
    must_bump = any(before.resolved.get(regex, NOT_RESOLVED).topics != found.topics for regex, found in current.items())
    hash_ = metadata_hash(replace(before, resolved={**before.resolved, **current}).topics(), topics)
    if must_bump or hash_ != group.metadata_hash:
        records.append(GroupEpochRecord(group.group_id, GroupEpochValue(group.group_epoch + 1, hash_)))
    return records
