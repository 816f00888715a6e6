"""A headless Chromium for the page, and consumers that tests can stall."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Literal, Self

import confluent_kafka
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from fakebroker import FakeCluster, predicate
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.inspect.views import find_group
from fakebroker.server.fake_cluster import internals
from tests.support import programs

TIMEOUT_MS = 20_000
"""Timeout of expectations; only reached if the page or the cluster is broken."""

HTTP_ERROR = "Failed to load resource: the server responded with a status of"
"""What Chromium logs for a response with an error status."""

_ARGUMENTS = [
    "--no-sandbox",  # The sandbox does not work for root, the user of containers.
    # Prevent Chromium's own requests to servers other than the page's.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]

Theme = Literal["light", "dark"]

expect.set_options(timeout=TIMEOUT_MS)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the installed browser."""
    programs.require("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=programs.find("chromium"), args=_ARGUMENTS)
        yield browser
        browser.close()


@contextmanager
def open_page(
    browser: Browser,
    url: str,
    theme: Theme = "light",
    allowed_errors: tuple[str, ...] = (),
    size: tuple[int, int] = (1440, 1000),
) -> Iterator[Page]:
    """Open a page in a new browser context. Fail at the end if it logged errors or sent requests to other servers.

    Args:
        browser: The browser.
        url: The URL of the page.
        theme: The color scheme that the system prefers.
        allowed_errors: Prefixes of console messages that are expected.
        size: Width and height of the window, in pixels.
    """
    errors: list[str] = []
    foreign_urls: list[str] = []

    def record(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(allowed_errors or ("\0",)):
            errors.append(message.text)

    server = "/".join(url.split("/")[:3])
    with browser.new_context(color_scheme=theme, viewport={"width": size[0], "height": size[1]}) as context:
        page = context.new_page()
        page.on("console", record)
        page.on("pageerror", lambda error: errors.append(f"{error.name}: {error.message}\n{error.stack}"))
        page.on("dialog", lambda dialog: errors.append(f"dialog {dialog.message}"))
        page.on("request", lambda each: None if _is_on(server, each.url) else foreign_urls.append(each.url))
        page.set_default_timeout(TIMEOUT_MS)
        page.goto(url)
        yield page
    assert not errors, errors
    assert not foreign_urls, foreign_urls


def _is_on(server: str, url: str) -> bool:
    return url.startswith((f"{server}/", "data:"))


def wait_until_live(page: Page) -> None:
    """Wait until the page has the event stream and the first overview."""
    expect(page.locator("#status")).to_have_text("Live")
    expect(page.locator("#totals")).not_to_be_empty()


def low_contrast_texts(page: Page) -> list[str]:
    """Return visible texts with a contrast below 4.5 (WCAG 2.1, 1.4.3), except those in SVG."""
    texts: list[str] = page.evaluate(_LOW_CONTRAST_TEXTS)
    return texts


_LOW_CONTRAST_TEXTS = """() => {
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
        const front = luminance(rgba(getComputedStyle(element).color));
        const back = luminance(behind(element));
        return (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
    };
    const text = (element) => [...element.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE)
        .map((node) => node.data.trim()).join("");
    return [...document.querySelectorAll("body *:not(svg *)")]
        .filter((element) => text(element) && element.checkVisibility() && contrast(element) < 4.5)
        .map((element) => `${element.tagName} ${text(element)} ${contrast(element).toFixed(1)}`);
}"""


class StallableConsumer:
    """A confluent-kafka consumer that polls in a thread while the context is active.

    librdkafka sends heartbeats in the background, but joins and rejoins only from `poll`.

    Args:
        cluster: The cluster to connect to.
        group_id: The group to join.
        client_id: The client id, which is also the prefix of the member id.
        topic: The topic to subscribe to.
        protocol: The rebalance protocol, "classic" or "consumer" (KIP-848).
    """

    def __init__(
        self,
        cluster: FakeCluster,
        group_id: str,
        client_id: str,
        topic: str = "orders",
        protocol: Literal["classic", "consumer"] = "classic",
    ) -> None:
        # With the protocol of KIP-848 the brokers set the timeouts.
        timeouts = {"session.timeout.ms": 45_000, "heartbeat.interval.ms": 200} if protocol == "classic" else {}
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": group_id,
                "client.id": client_id,
                "group.protocol": protocol,
                "enable.auto.commit": False,
                **timeouts,
            }
        )
        self._consumer.subscribe([topic])
        self._may_poll, self._is_stalled = threading.Event(), threading.Event()
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
                self._is_stalled.set()
                self._may_poll.wait()
                self._is_stalled.clear()
            self._consumer.poll(0.05)

    def stall(self) -> None:
        """Stop polling: the consumer sends heartbeats, but does not rejoin."""
        self._may_poll.clear()
        self._is_stalled.wait()

    def resume(self) -> None:
        """Poll again."""
        self._may_poll.set()


@contextmanager
def rebalance_waiting_for_slow(
    cluster: FakeCluster, group_id: str, topic: str = "orders", quick: int = 1
) -> Iterator[StallableConsumer]:
    """Keep a group of `quick`, `slow` and `new` in PreparingRebalance: `slow` has not rejoined since `new` joined.

    With more than one quick member, they are `quick-1`, `quick-2` and so on.
    """
    names = [f"quick-{number}" for number in range(1, quick + 1)] if quick > 1 else ["quick"]
    with ExitStack() as quick_members, StallableConsumer(cluster, group_id, "slow", topic) as slow:
        for name in names:
            quick_members.enter_context(StallableConsumer(cluster, group_id, name, topic))
        wait_until_stable(cluster, group_id, quick + 1)
        slow.stall()
        with StallableConsumer(cluster, group_id, "new", topic):
            cluster.wait(cluster.group(group_id).state("PreparingRebalance", members=quick + 2))
            cluster.wait(
                predicate(
                    "all members but slow rejoin", lambda: joined(internals(cluster).cluster, group_id) == quick + 1
                )
            )
            yield slow


def joined(cluster: Cluster, group_id: str) -> int:
    """Return the number of members whose JoinGroup is parked."""
    group = find_group(cluster, group_id)
    return 0 if group is None else len(group.parked_joins)


def wait_until_stable(cluster: FakeCluster, group_id: str, members: int) -> None:
    """Wait until a group is stable with this number of members."""
    cluster.wait(cluster.group(group_id).stable(members=members), timeout_s=TIMEOUT_MS / 1000)
