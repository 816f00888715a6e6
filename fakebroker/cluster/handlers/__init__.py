"""The handlers of requests: one module for each API, with the differences of its versions and its error codes.

A handler is a function `handle(cluster, call, now_ms)`, with the brokers' time in milliseconds. It returns the
response, or None if the response is pending or the request has none. Handlers depend on `Cluster`, whose creator
passes `BY_NAME` to it. Start with `heartbeat.py`. Shared checks are in `lookup.py` (partitions and their leaders),
`controller_requests.py` (topics and replicas) and `transaction_verification.py` (partitions of transactions).
`README.md` describes how to add an API.
"""

from importlib import import_module

from fakebroker.cluster.request_path import Handler
from fakebroker.protocol.registry import module_name


class _Handlers(dict[str, Handler]):
    """The handlers by `Api.handler`. A module is imported when its handler is first used."""

    def __missing__(self, api_name: str) -> Handler:
        module = api_name if "." in api_name else f"{__name__}.{module_name(api_name)}"
        handler: Handler = import_module(module).handle
        self[api_name] = handler
        return handler


BY_NAME = _Handlers()
"""The handler of each API in the registry."""
