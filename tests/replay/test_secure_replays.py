"""Replays against listeners that ask for authentication: members over TCP, sessions that end, and secrets."""

from dataclasses import replace
from pathlib import Path

import pytest

from fakebroker.client.authentication import ClientAuthentication
from fakebroker.client.errors import BrokerUnreachable
from fakebroker.client.security import ClientSecurity
from fakebroker.client.transport_security import TransportSecurity
from fakebroker.replay.commands import replay
from fakebroker.replay.members.member_loop import LoopSettings
from fakebroker.replay.options import BAD_INPUT, COULD_NOT_RUN, PASSED, ReplayOptions
from fakebroker.replay.script.script import Act, Script
from fakebroker.server.fake_cluster import FakeCluster
from tests.support.replay.loop_player import LoopPlayer
from tests.support.replay.secrets import PASSWORD, check_no_secrets, client_config, processes_at_the_first_heartbeat
from tests.support.soak import soak_only

LOGIN = ClientSecurity(
    security_protocol="SASL_PLAINTEXT",
    sasl_mechanism="SCRAM-SHA-256",
    sasl_plain_username="alice",
    sasl_plain_password=PASSWORD,
)
LEAVE_S = 60.0
MEMBERS = 30
WORKLOAD = """
duration_s = 1
topics = { orders = 4 }

[[groups]]
name = "g"
count = 4
members = 3
heartbeat_interval_ms = 300
"""


def scripts() -> list[Script]:
    acts = (Act(0, "start"), Act(LEAVE_S * 1000, "leave"))
    return [
        Script("all", f"g-{index % 5}", f"m-{index}", None, ("orders",), "range", 300_000, 300_000, 20, 30, 50.0, acts)
        for index in range(MEMBERS)
    ]


def cluster_of(*, tls: bool = False, **config: int) -> FakeCluster:
    settings = {"connection.failed.authentication.delay.ms": 0, **config}
    return FakeCluster(brokers=2, topics={"orders": 8}, users={"alice": PASSWORD}, tls=tls, config=settings)


@pytest.mark.usefixtures("frequent_reports")
@pytest.mark.parametrize("lanes", [None, 2], ids=["a connection each", "shared connections"])
def test_members_authenticate_also_again(monkeypatch: pytest.MonkeyPatch, lanes: int | None) -> None:
    """A minute passes by the clock of their sessions, so that all have ended, before the next requests are sent."""
    now_ms, repeated = [0.0], set[ClientAuthentication]()
    begin = ClientAuthentication.begin

    def recording_begin(authentication: ClientAuthentication) -> None:
        if authentication.is_complete:
            repeated.add(authentication)
        begin(authentication)

    monkeypatch.setattr(ClientAuthentication, "begin", recording_begin)
    monkeypatch.setattr(TransportSecurity, "_now_ms", lambda _: now_ms[0])
    with cluster_of(tls=True, **{"connections.max.reauth.ms": 60_000}) as cluster:
        login = replace(LOGIN, security_protocol="SASL_SSL", ssl_cafile=cluster.tls.ca_file)
        player = LoopPlayer()

        def pass_a_minute() -> None:
            now_ms[0] += 60_000
            player.events.clear()

        player.when(player.is_settled, pass_a_minute)
        player.when(player.is_settled, lambda: player.skip(LEAVE_S))
        player.play(cluster.bootstrap_servers, scripts(), LoopSettings(lanes=lanes, security=login))
        assert {call.principal for call in cluster.journal.requests()} == {"User:alice"}
    assert not [event for event in player.requests() if event.missing]
    assert len(repeated) >= (MEMBERS if lanes is None else lanes)


def test_members_with_a_wrong_password_do_not_start() -> None:
    wrong = ClientSecurity(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username="alice",
        sasl_plain_password="wrong-secret",
    )
    with cluster_of() as cluster, pytest.raises(BrokerUnreachable) as caught:
        LoopPlayer().play(cluster.bootstrap_servers, scripts(), LoopSettings(security=wrong))
    assert "authentication failed: Authentication failed: Invalid username or password" in str(caught.value)
    assert "wrong-secret" not in str(caught.value)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A workload, and client settings."""
    workload = tmp_path / "small.toml"
    workload.write_text(WORKLOAD)
    return workload, client_config(tmp_path)


def test_errors_before_anything_starts(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    workload, config = files
    out = workload.parent / "out"
    assert replay(ReplayOptions(file=workload, client_config=config, out=out)) == BAD_INPUT
    assert capsys.readouterr().err.startswith(
        f"fakebroker: --client-config='{config}': expected none without --bootstr"
    )
    with cluster_of() as cluster:
        servers = cluster.bootstrap_servers
        config.write_text(config.read_text().replace(PASSWORD, "wrong-secret"))
        options = ReplayOptions(file=workload, bootstrap=servers, client_config=config, out=out)
        assert replay(options) == COULD_NOT_RUN
        message = capsys.readouterr().err
        assert "authentication failed: " in message
        assert "SASL_PLAINTEXT, SCRAM-SHA-256, user 'alice'" in message
        assert "wrong-secret" not in message
        config.write_text("sasl.mechanizm=PLAIN\n")
        assert replay(options) == BAD_INPUT
        assert "sasl.mechanizm: unknown setting; expected one of" in capsys.readouterr().err


@pytest.mark.slow
@soak_only("the parts with secrets are in the tests before")
@pytest.mark.usefixtures("replays_on_spark")
def test_a_replay_with_a_password_leaves_it_nowhere(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    workload, config = files
    out = workload.parent / "out"
    with cluster_of() as cluster, processes_at_the_first_heartbeat(cluster) as processes:
        options = ReplayOptions(
            file=workload,
            bootstrap=cluster.bootstrap_servers,
            allow_existing=True,
            client_config=config,
            master="local[2]",
            out=out,
            lanes=1,
            tasks=2,
        )
        status = replay(options)
    shown = capsys.readouterr()
    assert status == PASSED, shown.out
    assert PASSWORD not in shown.out + shown.err
    check_no_secrets(processes, out)
