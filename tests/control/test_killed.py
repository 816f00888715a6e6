"""The process is killed without a chance to say goodbye: whoever controls or watches it is told in a clear sentence."""

import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from fakebroker.control import Client
from fakebroker.control.client.http import Unreachable
from tests.control.test_top import command
from tests.support.control.browser import chromium, is_live, looking_at
from tests.support.control.serve_process import Serving, serving
from tests.support.control.terminal import Terminal


@pytest.fixture(name="served")
def _served() -> Iterator[Serving]:
    with serving("--topic", "orders:4") as served:
        yield served


def kill(served: Serving) -> None:
    served.process.send_signal(signal.SIGKILL)
    served.process.wait()


def test_the_client_says_so(served: Serving) -> None:
    client = Client(served.control)
    client.create_topic("bills")
    kill(served)
    with pytest.raises(Unreachable, match=f"^{served.control} does not answer: "):
        client.create_topic("more")


def test_top_says_so(served: Serving) -> None:
    with Terminal(command(served.control, "--every", "0.1"), 80, 24) as terminal:
        terminal.see("3 of 3 brokers up")
        kill(served)
        assert terminal.end() == 1
        assert terminal.is_as_before
        assert f"fakebroker: {served.control} does not answer: " in terminal.text
        assert "Traceback" not in terminal.text


@pytest.mark.slow
def test_the_page_says_so(served: Serving) -> None:
    may_say = ("Failed to load resource",)
    with chromium() as browser, looking_at(browser, served.control, may_say=may_say) as page:
        is_live(page)
        kill(served)
        address = served.control.removeprefix("http://")
        expect(page.locator("#status")).to_have_text(
            f"{address} does not answer. Is the process still there? Trying again."
        )
