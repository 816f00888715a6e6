"""Batch joins (KAFKA-8397): one JoinGroup for many members, and instances that are expected before they join.

A proposal that no Kafka release has; see `scenarios/proposals/batch-join.md`. Plugs into the classic group through
`classic/extension.py`: a coordinator has it if its `CoordinatorConfig.extension` is `BatchJoinExtension`. No other
module of the coordinator imports this package. Start with `join_batch.py` (requests) and `expected_instances.py`
(state).
"""
