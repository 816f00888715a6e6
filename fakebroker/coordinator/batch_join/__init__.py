"""Batch joins (KAFKA-8397): one JoinGroup for many members, and instances that are expected before they join.

A proposal that is not part of any Kafka release; see `scenarios/proposals/batch-join.md`. It extends the classic group
through the hook in `classic/extension.py`, and is enabled with `CoordinatorConfig(extension=BatchJoinExtension)`. No
other module of the coordinator imports this package. Start with `join_batch.py` (requests) and `expected_instances.py`
(state).
"""
