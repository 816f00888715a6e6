"""Applications that consume, transform and produce in transactions lose, double and tear no record.

They crash, continue as zombies, lose connections, and their coordinators and brokers move and stop; all of it is drawn
from a seed, see `tests/support/exactly_once/loop.py`. The output is read by another client than the one that wrote it.
"""

import re
from collections import Counter

import pytest

from fakebroker import FakeCluster
from tests.support.exactly_once.aio import AIO
from tests.support.exactly_once.application import Client
from tests.support.exactly_once.clients import READERS, with_each_client
from tests.support.exactly_once.confluent import CONFLUENT
from tests.support.exactly_once.fakebroker_client import FAKEBROKER
from tests.support.exactly_once.java import JAVA
from tests.support.exactly_once.kafka_python import KAFKA_PYTHON
from tests.support.exactly_once.kafkajs import KAFKAJS
from tests.support.exactly_once.loop import OUTPUTS, RECORDS, STEPS, Loop
from tests.support.exactly_once.without_fencing import CONFIG, disable_fencing
from tests.support.soak import IS_SOAK, cases, soak

pytestmark = pytest.mark.slow

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")

KINDS = (
    "aborted by the cluster",
    "crashes",
    "ends after errors",
    "lost answers",
    "stopped brokers",
    "zombies",
    "zombies of coordinators",
    *(f"{what} moved in {state}" for what in ("groups", "transactions") for state in STATES),
)
"""What happens in the first 200 runs of a client; see `Failures.seen`."""


SAMPLES = {CONFLUENT: 1, AIO: 3, KAFKA_PYTHON: 3, KAFKAJS: 2, FAKEBROKER: 8, JAVA: 1}
"""Number of runs in `make test`. Runs of confluent-kafka take seconds: it waits half a second for coordinators."""


@soak
@with_each_client
def test_no_record_is_lost_doubled_or_torn(client: Client) -> None:
    seen: Counter[str] = Counter()
    for seed in cases(SAMPLES[client], soak=200):
        as_version = "4.2" if seed % 2 else None
        with FakeCluster(seed=seed, api_versions=client.api_versions, as_version=as_version) as cluster:
            loop = Loop(cluster, client, seed)
            with loop.described():
                loop.run()
                loop.check(READERS[client])
        seen += loop.seen
    if IS_SOAK:
        assert [kind for kind in KINDS if not seen[kind]] == []


@with_each_client
def test_without_fencing_a_zombie_doubles_records(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    disable_fencing(monkeypatch)
    with FakeCluster(config=CONFIG, seed=0) as cluster:
        loop = Loop(cluster, client, 0)
        zombie, other = loop.start(), loop.start()
        steps = loop.steps(zombie, 0, RECORDS, commits=True)
        assert (next(steps), next(steps)) == (None, None)  # It has read its input, and begun a transaction.
        assert len(list(loop.steps(other, 0, RECORDS, commits=True))) == STEPS
        assert len(list(steps)) == STEPS - 2
        zombie.crash()
        other.crash()
        with pytest.raises(AssertionError, match=re.escape(f"{[2 * loop.input] * OUTPUTS}")):
            loop.check(READERS[client])


def test_without_fencing_a_random_run_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    disable_fencing(monkeypatch)
    for seed in range(20):
        with FakeCluster(config=CONFIG, seed=seed) as cluster:
            loop = Loop(cluster, AIO, seed)
            loop.run()
            try:
                loop.check(READERS[AIO])
            except AssertionError:
                return
    pytest.fail("expected doubled records")
