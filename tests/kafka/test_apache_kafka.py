"""Clusters of Apache Kafka: they start, end with their tests, and equal transcripts."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from fakebroker.conform.conformance import Conformance, conform, selected
from fakebroker.conform.report import text
from fakebroker.kafka.jars import RELEASES, KafkaError
from fakebroker.kafka.process import ApacheKafka
from fakebroker.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from fakebroker.protocol.releases import Release
from tests.support.soak import soak_only
from tests.support.wire_client import WireClient

pytestmark = pytest.mark.slow

NEWEST = "4.4"


def until(holds: Callable[[], bool], limit_s: float = 30) -> None:
    deadline = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_one_broker_with_settings_equals_transcripts() -> None:
    with ApacheKafka(NEWEST, config={"group.initial.rebalance.delay.ms": 0, "group.max.size": 7}) as kafka:
        with WireClient(kafka.brokers[1]) as client:
            resource = DescribeConfigsResource(
                resource_type=4, resource_name="1", configuration_keys=["group.max.size"]
            )
            described = client.ask(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse)
            assert [each.value for each in described.results[0].configs] == ["7"]

        async def run() -> Conformance:
            return await conform(kafka.bootstrap_servers, transcripts=selected(["matrix-sync-stable", "all-leave"]))

        found = trio.run(run)
        assert (found.release, found.count()["same"]) == (Release(4, 4), 2), text(found)
        pid = kafka.brokers[1].pid
        folder = kafka.folder
    assert pid is not None
    assert not runs(pid)
    assert not folder.exists()


@soak_only("starts three brokers")
def test_three_brokers_and_a_killed_one() -> None:
    with ApacheKafka(NEWEST, 3, {"broker.session.timeout.ms": 3_000, "broker.heartbeat.interval.ms": 500}) as kafka:
        kafka.brokers[3].kill()
        with WireClient(kafka.brokers[1]) as client:

            def alive() -> int:
                request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
                return len(client.ask(request, MetadataResponse).brokers)

            until(lambda: alive() == 2)
            kafka.brokers[3].start()
            kafka.wait_until_ready()
            assert alive() == 3


@soak_only("starts brokers to kill them")
def test_brokers_end_with_a_process_that_is_killed(tmp_path: Path) -> None:
    program = f"""
import time
from fakebroker.kafka.process import ApacheKafka
with ApacheKafka({NEWEST!r}) as kafka:
    print(kafka.brokers[1].pid, flush=True)
    time.sleep(600)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    assert runs(pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    until(lambda: not runs(pid))


def test_a_setting_that_kafka_refuses() -> None:
    with pytest.raises(KafkaError, match=r"group\.max\.size"), ApacheKafka(NEWEST, config={"group.max.size": -1}):
        pass


def test_releases_are_the_newest_patches_of_the_compared_ones() -> None:
    assert list(RELEASES) == ["4.0", "4.1", "4.2", "4.3", "4.4"]
    assert all(patch.startswith(f"{release}.") for release, patch in RELEASES.items())
