"""The command `fakebroker lab`: invalid input is an error with one message, and a missing extra one sentence."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from fakebroker.cli.main import app
from fakebroker.replay.options import BAD_INPUT, COULD_NOT_RUN
from tests.support.lab.studies import SMALL, written


def run(*arguments: str) -> tuple[int, str]:
    """Return the exit status and the output. Studies do not start in these tests."""
    result = CliRunner().invoke(app, ["lab", *arguments], standalone_mode=False)
    assert result.exception is None, result.exception
    return int(result.return_value), result.output


def test_an_invalid_scenario(tmp_path: Path) -> None:
    file = written(tmp_path, "small.toml", SMALL.replace("members", "member"))
    status, output = run(str(file))
    assert status == BAD_INPUT
    assert output.startswith(f"fakebroker: {file}: groups[0].member=3: unknown field")
    assert "did you mean 'members'?" in output
    assert "Traceback" not in output


def test_a_missing_scenario() -> None:
    assert run("missing.toml") == (
        BAD_INPUT,
        "fakebroker: file='missing.toml': expected a file that can be read: No such file or directory\n",
    )


def test_an_unknown_design(tmp_path: Path) -> None:
    status, output = run(str(written(tmp_path, "small.toml", SMALL)), "--designs", "classic, rewrit")
    assert status == BAD_INPUT
    assert "--designs='rewrit': expected one of classic, consumer, rewrite" in output
    assert "did you mean 'rewrite'?" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("small.toml --groups 10", "--groups has no effect with FILES"),
        ("--placement --designs classic", "--designs has no effect with --placement"),
        ("--histories 1 --seeds 2", "--seeds has no effect with --histories"),
        ("small.toml --placement", "expected FILES, --placement or --histories"),
    ],
)
def test_options_that_have_no_effect_are_rejected(arguments: str, message: str) -> None:
    result = CliRunner().invoke(app, ["lab", *arguments.split()])
    assert result.exit_code == BAD_INPUT
    assert message in result.output


def test_a_directory_with_results_is_not_overwritten(tmp_path: Path) -> None:
    file, out = written(tmp_path, "small.toml", SMALL), tmp_path / "out"
    written(out, "summary.json", "{}")
    status, output = run(str(file), "--out", str(out))
    assert status == BAD_INPUT
    assert "expected a directory without a run; this one contains summary.json" in output


def test_a_missing_extra_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fakebroker.replay.commands.find_spec", lambda name: None)
    assert run(str(written(tmp_path, "small.toml", SMALL))) == (
        COULD_NOT_RUN,
        "fakebroker: this command requires the extra 'spark': pip install 'fakebroker[spark]'\n",
    )
