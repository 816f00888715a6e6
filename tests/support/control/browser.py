"""A headless Chromium that looks at the page, and members of groups that do what a test says."""

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Literal, Self

import confluent_kafka
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from fakebroker import FakeCluster

PATIENCE_MS = 20_000
"""How long a test waits for what must come; only a broken page or cluster makes it wait so long."""

REFUSED = "Failed to load resource: the server responded with a status of"
"""What Chromium itself says of a request that the server refuses."""

_ARGUMENTS = [
    "--no-sandbox",  # It does not work for root, who containers run as.
    # It is to ask nobody but the page's server.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]

Theme = Literal["light", "dark"]

expect.set_options(timeout=PATIENCE_MS)


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser that the machine has."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert path, "expected the command chromium; Debian's package has this name"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=_ARGUMENTS)
        yield browser
        browser.close()


@contextmanager
def looking_at(
    browser: Browser, url: str, theme: Theme = "light", may_say: tuple[str, ...] = (), height: int = 1000
) -> Iterator[Page]:
    """The page in a browser of its own. Afterwards: no error was in its console, and it asked no one but its server.

    Args:
        browser: Where.
        url: The control server's, with what is to follow.
        theme: What the system prefers.
        may_say: What console errors may begin with.
        height: Of the window, in pixels.
    """
    errors: list[str] = []
    strangers: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(may_say or ("\0",)):
            errors.append(message.text)

    server = "/".join(url.split("/")[:3])
    with browser.new_context(color_scheme=theme, viewport={"width": 1440, "height": height}) as context:
        page = context.new_page()
        page.on("console", hear)
        page.on("pageerror", lambda error: errors.append(f"{error.name}: {error.message}\n{error.stack}"))
        page.on("dialog", lambda dialog: errors.append(f"dialog {dialog.message}"))
        page.on("request", lambda request: strangers.append(request.url) if not _is_of(request.url, server) else None)
        page.set_default_timeout(PATIENCE_MS)
        page.goto(url)
        yield page
    assert not errors, errors
    assert not strangers, strangers


def _is_of(url: str, server: str) -> bool:
    return url.startswith((f"{server}/", "data:"))


def is_live(page: Page) -> None:
    """Wait until the page has its stream and its first overview."""
    expect(page.locator("#status")).to_have_text("Live")
    expect(page.locator("#totals")).not_to_be_empty()


def faint_texts(page: Page) -> list[str]:
    """Texts to be seen whose color is too near to what is behind them (WCAG 2.1, 1.4.3), but for those of pictures."""
    texts: list[str] = page.evaluate(_FAINT_TEXTS)
    return texts


_FAINT_TEXTS = """() => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const rgba = (color) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = color;
        canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const over = (below, above) => below.map((each, at) => each + (above[at] - each) * above[3] / 255);
    const behind = (element) => {
        const layers = [];
        for (let at = element; at; at = at.parentElement) layers.push(rgba(getComputedStyle(at).backgroundColor));
        return layers.reverse().reduce(over, [255, 255, 255]);
    };
    const linear = (each) => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4;
    const luminance = ([red, green, blue]) =>
        0.2126 * linear(red / 255) + 0.7152 * linear(green / 255) + 0.0722 * linear(blue / 255);
    const contrast = (element) => {
        const text = luminance(rgba(getComputedStyle(element).color));
        const back = luminance(behind(element));
        return (Math.max(text, back) + 0.05) / (Math.min(text, back) + 0.05);
    };
    const words = (element) => [...element.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE)
        .map((node) => node.data.trim()).join("");
    return [...document.querySelectorAll("body *:not(svg *)")]
        .filter((element) => words(element) && element.checkVisibility() && contrast(element) < 4.5)
        .map((element) => `${element.tagName} ${words(element)} ${contrast(element).toFixed(1)}`);
}"""


class Member:
    """A consumer of confluent-kafka. It sends heartbeats by itself; it joins, and joins again, only while it polls.

    Args:
        cluster: Where.
        group_id: Its group.
        client_id: What it calls itself.
    """

    def __init__(self, cluster: FakeCluster, group_id: str, client_id: str) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": group_id,
                "client.id": client_id,
                "session.timeout.ms": 45_000,
                "heartbeat.interval.ms": 200,
                "enable.auto.commit": False,
            }
        )
        self._consumer.subscribe(["orders"])
        self._may_poll, self._rests = threading.Event(), threading.Event()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name=client_id, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._may_poll.set()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        self._may_poll.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._is_over:
            if not self._may_poll.is_set():
                self._rests.set()
                self._may_poll.wait()
                self._rests.clear()
            self._consumer.poll(0.05)

    def stall(self) -> None:
        """Poll no more: it goes on with heartbeats, and does not join again."""
        self._may_poll.clear()
        self._rests.wait()

    def go_on(self) -> None:
        """Poll again."""
        self._may_poll.set()


def settled(cluster: FakeCluster, group_id: str, members: int) -> None:
    """Wait until a group is stable with so many members."""
    cluster.wait_for_state(group_id, "Stable", members=members, timeout_s=PATIENCE_MS / 1000)
