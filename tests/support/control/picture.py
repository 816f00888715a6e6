"""Makes the picture of the page, scenarios/control/page.png: `python -m tests.support.control.picture [FILE]`.

The page shows a cluster with eight groups, one of them rebalancing. The window has 1280 x 760 pixels and the
light theme.
"""

import re
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import expect

from fakebroker import FakeCluster, GroupSeed
from fakebroker.control.server import ControlServer
from tests.support.control.browser import StallableConsumer, chromium, open_page, wait_until_live, wait_until_stable

PICTURE = Path(__file__).parents[3] / "scenarios" / "control" / "page.png"
SIZE = (1280, 760)

TOPICS = {"orders": 12, "payments": 6, "shipments": 6, "clicks": 24}
SEEDED = [  # Group, members, topic, generation.
    ("fraud-detection", 6, "payments", 14),
    ("stock-levels", 3, "shipments", 9),
    ("clickstream-archive", 8, "clicks", 31),
    ("recommendations", 4, "clicks", 12),
    ("invoicing", 0, "orders", 5),
]
CONSUMED = {"email-notifications": "orders", "order-tracking": "shipments"}
"""Groups with one consumer of KIP-848 each, so that there are requests of several APIs, and both types of groups."""

REBALANCING = "order-processing"


def save_picture(path: Path) -> None:
    """Start the cluster, wait until a group rebalances, and save a screenshot of the page with 256 colors."""
    with (
        FakeCluster(3, TOPICS, seed=7) as cluster,
        ControlServer(cluster) as server,
        chromium() as browser,
        open_page(browser, f"{server.url}/", size=SIZE) as page,
        ExitStack() as consumers,
    ):

        def consume(
            group_id: str, client_id: str, topic: str = "orders", protocol: Literal["classic", "consumer"] = "classic"
        ) -> StallableConsumer:
            return consumers.enter_context(StallableConsumer(cluster, group_id, client_id, topic, protocol))

        cluster.seed_groups(
            GroupSeed(group_id=group_id, members=members, topics=[topic], generation=generation, lag=0)
            for group_id, members, topic, generation in SEEDED
        )
        for group_id, topic in CONSUMED.items():
            consume(group_id, f"{group_id}-1", topic, "consumer")
        waiting_for = [consume(REBALANCING, f"orders-{number}") for number in (1, 2, 3)][1]
        wait_until_stable(cluster, REBALANCING, 3)
        waiting_for.stall()
        consume(REBALANCING, "orders-4")
        wait_until_live(page)
        rebalancing = page.get_by_role("list", name="Groups that are rebalancing")
        expect(rebalancing).to_contain_text("waiting for orders-2; 3 of 4 have joined")
        expect(rebalancing.locator("time")).to_have_text(re.compile(r"^4\.\d s$"))
        page.screenshot(path=path)
        waiting_for.resume()
    Image.open(path).quantize(256).save(path, optimize=True)


if __name__ == "__main__":
    save_picture(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
