"""Operations that are not about one cluster: health, Prometheus metrics, the OpenAPI document, and the pages."""

from collections.abc import AsyncGenerator, Iterable
from importlib.resources import files
from pathlib import Path
from typing import Literal, TypedDict

import msgspec
import trio

from fakebroker.control.clusters import DEFAULT, Clusters
from fakebroker.control.dependencies import swagger_ui_folder
from fakebroker.control.problems import Problem, not_found
from fakebroker.control.routes.openapi import document
from fakebroker.control.routes.operations import Content, operation
from fakebroker.control.stats.metrics import exposition
from fakebroker.errors import one_of

_PAGE = {each.name: each for each in (files("fakebroker.control") / "page").iterdir() if each.is_file()}
_SWAGGER_UI = ("swagger-ui-bundle.js", "swagger-ui.css")
_PIECE_BYTES = 64 * 1024
_KINDS = {
    "html": "text/html; charset=utf-8",
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
async def get_metrics(clusters: Clusters, accept: str) -> Content:
    """Get the metrics of all clusters in Prometheus' text format, or in OpenMetrics' if `Accept` has it."""
    text, media_type = await exposition(clusters, accept)
    return Content(text, media_type)


@operation("GET", "/openapi.json")
async def get_document(clusters: Clusters) -> Content:
    """Get this document."""
    # Generating it is slow, and happens once.
    return Content((await trio.to_thread.run_sync(document)).encode(), "application/json")


@operation("GET", "/docs", is_documented=False)
async def get_docs(clusters: Clusters) -> Content:
    """Get the page that shows the OpenAPI document."""
    return _page_file("docs.html")


@operation("GET", "/docs/{name}", is_documented=False)
async def get_docs_file(clusters: Clusters, name: str) -> Content:
    """Get a file of Swagger UI, from the package swagger-ui-py."""
    if name not in _SWAGGER_UI:
        raise _no_file(name, _SWAGGER_UI)
    path = swagger_ui_folder() / name
    return Content(_in_pieces(path), _kind(name), {"cache-control": "no-cache"})


async def _in_pieces(path: Path) -> AsyncGenerator[bytes, None]:
    """Yield a large file in pieces, between which the brokers handle requests."""
    content = await trio.to_thread.run_sync(path.read_bytes)
    for start in range(0, len(content), _PIECE_BYTES):
        yield content[start : start + _PIECE_BYTES]


class PageQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The cluster that the page shows; the page itself reads it from its URL."""

    cluster: str = DEFAULT


@operation("GET", "/", is_documented=False)
async def get_page(clusters: Clusters, query: PageQuery) -> Content:
    """Get the page that shows clusters."""
    return _page_file("index.html")


@operation("GET", "/page/{name}", is_documented=False)
async def get_page_file(clusters: Clusters, name: str) -> Content:
    """Get a file of the pages."""
    if name not in _PAGE:
        raise _no_file(name, _PAGE)
    return _page_file(name)


def _page_file(name: str) -> Content:
    return Content(_PAGE[name].read_bytes(), _kind(name), {"cache-control": "no-cache"})


def _kind(name: str) -> str:
    return _KINDS.get(name.rpartition(".")[2], "application/octet-stream")


def _no_file(name: str, names: Iterable[str]) -> Problem:
    return not_found("file", name, one_of(names, name))
