"""Fixtures of the tests of the page: a browser per module, a cluster and the URL of its page per test."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from fakebroker import FakeCluster
from fakebroker.control.server import ControlServer
from tests.support.control.browser import chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(topics={"orders": 6}) as cluster:
        yield cluster


@pytest.fixture
def url(cluster: FakeCluster) -> Iterator[str]:
    with ControlServer(cluster) as server:
        yield f"{server.url}/"
