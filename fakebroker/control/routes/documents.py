"""Operations that are not about one cluster: health, Prometheus metrics, the OpenAPI document, and the pages."""

from importlib.resources import files
from typing import Literal, TypedDict

import trio

from fakebroker.control.clusters import Clusters
from fakebroker.control.problems import Problem
from fakebroker.control.routes.openapi import document
from fakebroker.control.routes.operations import Content, operation
from fakebroker.control.stats.metrics import METRICS_TYPE, exposition

_CONTROL = files("fakebroker.control")
_PAGE = {each.name: each for each in (_CONTROL / "page").iterdir() if each.is_file()}
_HTML = "text/html; charset=utf-8"
_KINDS = {
    "html": _HTML,
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}


class Health(TypedDict):
    """The brokers' loop runs."""

    status: Literal["ok"]


@operation("GET", "/healthz")
async def get_health(clusters: Clusters) -> Health:
    """Check whether the process serves its brokers; if there is no response, it does not."""
    return {"status": "ok"}


@operation("GET", "/metrics")
async def get_metrics(clusters: Clusters) -> Content:
    """Get the metrics of all clusters in Prometheus' text format."""
    return Content(await exposition(clusters), METRICS_TYPE)


@operation("GET", "/openapi.json")
async def get_document(clusters: Clusters) -> Content:
    """Get this document."""
    # Generating it is slow, and happens once.
    return Content((await trio.to_thread.run_sync(document)).encode(), "application/json")


@operation("GET", "/docs", is_documented=False)
async def get_docs(clusters: Clusters) -> Content:
    """Get the page that shows the OpenAPI document."""
    return Content((_CONTROL / "docs.html").read_bytes(), _HTML)


@operation("GET", "/", is_documented=False)
async def get_page(clusters: Clusters) -> Content:
    """Get the page that shows clusters."""
    return await get_page_file(clusters, "index.html")


@operation("GET", "/page/{name}", is_documented=False)
async def get_page_file(clusters: Clusters, name: str) -> Content:
    """Get a file of the page."""
    if name not in _PAGE:
        raise Problem(404, f"page={name!r}: expected one of {', '.join(_PAGE)}", field="page", value=name)
    kind = _KINDS.get(name.rpartition(".")[2], "application/octet-stream")
    return Content(_PAGE[name].read_bytes(), kind, {"cache-control": "no-cache"})
