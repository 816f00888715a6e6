"""The client, `top` and the page after the server process was killed."""

import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from fakebroker.control import Client
from fakebroker.control.client.http import Unreachable
from tests.support.control.browser import chromium, open_page, wait_until_live
from tests.support.control.serve_process import ServeProcess, serve_process
from tests.support.control.terminal import Terminal
from tests.support.control.top_process import top_command

pytestmark = pytest.mark.slow


@pytest.fixture(name="served")
def _served() -> Iterator[ServeProcess]:
    with serve_process("--topic", "orders:4") as served:
        yield served


def kill(served: ServeProcess) -> None:
    served.process.send_signal(signal.SIGKILL)
    served.process.wait()


def test_the_client_raises_unreachable(served: ServeProcess) -> None:
    client = Client(served.control)
    client.topic("bills").create()
    kill(served)
    with pytest.raises(Unreachable, match=f"^no response from {served.control}: "):
        client.topic("more").create()


def test_top_exits_with_an_error_and_restores_the_terminal(served: ServeProcess) -> None:
    with Terminal(top_command(served.control, "--every", "0.1"), 80, 24) as terminal:
        terminal.wait_for("3 of 3 brokers up")
        kill(served)
        assert terminal.exit_code() == 1
        assert terminal.is_restored
        assert f"fakebroker: no response from {served.control}: " in terminal.text
        assert "Traceback" not in terminal.text


def test_the_page_shows_that_it_is_disconnected(served: ServeProcess) -> None:
    allowed_errors = ("Failed to load resource",)
    with chromium() as browser, open_page(browser, served.control, allowed_errors=allowed_errors) as page:
        wait_until_live(page)
        kill(served)
        address = served.control.removeprefix("http://")
        expect(page.locator("#status")).to_have_text(
            f"No response from {address}. Is the process running? Reconnecting."
        )
