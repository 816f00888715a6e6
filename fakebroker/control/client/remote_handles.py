"""Faults and append failures in a cluster of a control server."""

from typing import Any

from fakebroker.cluster.commands.handles import RemovedOnExit
from fakebroker.cluster.faults.rule import Fault
from fakebroker.control.client.http import Http, NotFound


class _RemoteHandle(RemovedOnExit):
    """A fault or append failure in the cluster.

    Args:
        http: Sends requests to the control server.
        cluster_path: The path of the cluster.
        kind: What it is, as the control API names it, such as "fault".
        handle_id: Its id in the control API.
    """

    def __init__(self, http: Http, cluster_path: str, kind: str, handle_id: str) -> None:
        self._http = http
        self._path = f"{cluster_path}/{kind}s/{handle_id}"
        self._kind = kind
        self._hits = 0
        self.id = handle_id

    @property
    def hits(self) -> int:
        """How often it was applied; after its removal, the last known number."""
        found = self._found("GET")
        if found is not None:
            self._hits = found["hits"]
        return self._hits

    def remove(self) -> None:
        """Remove it, if it has not been removed."""
        self._hits = self.hits
        self._found("DELETE")

    def _found(self, method: str) -> Any:
        """Send a request for it; None if it has been removed. If something else is missing, the error is raised."""
        try:
            return self._http.request_json(method, self._path)
        except NotFound as error:
            if error.field != self._kind:
                raise
            return None


class RemoteFault(_RemoteHandle):
    """A fault in the cluster. As a context manager, it is removed on exit.

    Attributes:
        id: Its id in the control API.
        fault: Its definition.
    """

    def __init__(self, http: Http, cluster_path: str, fault_id: str, fault: Fault) -> None:
        super().__init__(http, cluster_path, "fault", fault_id)
        self.fault = fault

    @property
    def errors(self) -> tuple[str, ...]:
        """The first errors of its actions, as text; after its removal, none."""
        found = self._found("GET")
        return () if found is None else tuple(found["errors"])


class RemoteAppendFailure(_RemoteHandle):
    """Appends that fail in the cluster. As a context manager, it is removed on exit.

    Attributes:
        id: Its id in the control API.
    """

    def __init__(self, http: Http, cluster_path: str, failure_id: str) -> None:
        super().__init__(http, cluster_path, "append_failure", failure_id)
