"""Random producers, failovers and holds: a committed transaction is visible whole, and an aborted one never."""

from hypothesis import settings

from tests.support.cluster.transaction_state_machine import Transactions
from tests.support.soak import examples, soak

Transactions.TestCase.settings = settings(max_examples=examples(40, soak=3_000), stateful_step_count=40)
TestTransactions = soak(Transactions.TestCase)
