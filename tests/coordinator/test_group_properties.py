"""Properties of groups under arbitrary histories: see `GroupStateMachine` for the requests and checks."""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.support.coordinator.group_state_machine import GroupStateMachine
from tests.support.soak import examples, soak


def run_histories(count: int, steps: int) -> None:
    run_state_machine_as_test(GroupStateMachine, settings=settings(max_examples=count, stateful_step_count=steps))


def test_answers_and_log_are_consistent_in_short_histories() -> None:
    run_histories(20, steps=40)


@soak
@pytest.mark.slow
def test_answers_and_log_are_consistent_in_long_histories() -> None:
    run_histories(examples(150, soak=2_000), steps=50)
