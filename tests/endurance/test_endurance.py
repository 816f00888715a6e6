"""A short endurance run, and what its report says about a long one."""

from typing import Any

import pytest

from fakebroker.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from fakebroker.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.endurance.clients import GroupOffsets
from tests.endurance.loop import Loop, Steps
from tests.endurance.run import Result, Sample, endure, report

RATE = 400.0
CHECKS = {"an acknowledged commit is not lost", "a batch is neither lost nor repeated"}


@pytest.mark.slow
def test_no_promise_is_broken_in_seconds() -> None:
    for seconds in (5.0, 60.0):
        result = endure(seconds, RATE, seed=1, processes=1)
        assert result.faults(checks_growth=False) == [], "\n".join(report(result, checks_growth=False))
        if {*result.checks} >= CHECKS and result.reads and result.disturbances:
            return
    pytest.fail(f"expected checks of {CHECKS}, reads and disturbances: {result}")


def sampled(memory_bytes: list[int], descriptors: list[int] | None = None, journal_calls: int = 10_000) -> Result:
    """Return the result of a run of 90 s with equal distances between samples."""
    count = len(memory_bytes)
    result = Result(seconds=90, seed=1, loads=[{"requests": 90, "lost": 0, "late": 0, "checks": {}, "broken": []}])
    for index, (memory, open_files) in enumerate(zip(memory_bytes, descriptors or [20] * count, strict=True)):
        result.samples.append(Sample(index * 90 / (count - 1), memory, open_files, journal_calls))
    return result


def test_growth_before_the_end_of_the_warm_up_is_allowed() -> None:
    assert sampled([10, 50, 90, 100, 100, 100, 101, 100, 100, 101]).faults() == []


def test_growth_after_the_warm_up_is_a_fault() -> None:
    assert sampled([100, 100, 100, 100, 100, 100, 102, 104, 106, 108]).faults() == [
        "memory: grows by 7.7% after the warm-up, expected at most 5%"
    ]
    steady = [100] * 10
    assert sampled(steady, [20, 20, 20, 20, 30, 40, 50, 60, 70, 80]).faults() == [
        "descriptors: 40 more after the warm-up, expected at most 10"
    ]
    assert sampled(steady, journal_calls=10_001).faults() == ["journal: 10001 calls, expected at most 10000"]


def test_what_clients_have_seen_is_a_fault() -> None:
    result = sampled([100] * 10)
    result.loads[0]["broken"] = ["an acknowledged commit is not lost: group g orders-0: offset 3"]
    result.failed_reads.append("/metrics: 500")
    result.log = "ERROR a defect"
    assert len(result.faults()) == 3
    assert "- result: failed" in [*report(result)]


def finish(steps: Steps, answer: Any) -> None:
    """Run the steps of one request, which gets this answer."""
    next(steps)
    with pytest.raises(StopIteration):
        steps.send(answer)


def commit(offsets: GroupOffsets, epoch: int, error: int | None) -> None:
    """Commit the next offset of partition 0; the response has an error, or is lost."""
    answer = None
    if error is not None:
        part = OffsetCommitResponsePartition(partition_index=0, error_code=error)
        answer = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="orders", partitions=[part])])
    finish(offsets.commit(1, "m", epoch, 0, 8), answer)


def fetch(offsets: GroupOffsets, offset: int) -> None:
    """Fetch the offset of partition 0."""
    part = OffsetFetchResponsePartitions(partition_index=0, committed_offset=offset, metadata="", error_code=0)
    topics = [OffsetFetchResponseTopics(name="orders", partitions=[part])]
    answer = OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])
    finish(offsets.fetch(1, [0]), answer)


def test_a_lost_commit_is_noticed() -> None:
    loop = Loop([("127.0.0.1", 1)], 0.0)
    offsets = GroupOffsets(loop, "g", "orders")
    commit(offsets, 1, 0)
    commit(offsets, 1, None)
    fetch(offsets, 1)
    fetch(offsets, 2)
    assert loop.broken == []
    commit(offsets, 1, 0)
    fetch(offsets, 2)
    assert loop.broken == ["an acknowledged commit is not lost: group g orders-0: offset 2, expected one of [3]"]


def test_a_commit_of_a_former_owner_is_noticed() -> None:
    loop = Loop([("127.0.0.1", 1)], 0.0)
    offsets = GroupOffsets(loop, "g", "orders")
    commit(offsets, 2, 0)
    commit(offsets, 1, 22)
    assert loop.broken == []
    commit(offsets, 1, 0)
    assert loop.broken == ["a commit of a former owner is refused: group g orders-0: commit with 1 after one with 2"]
