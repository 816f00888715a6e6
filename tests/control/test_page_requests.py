"""The requests of the page, as its JavaScript has them: each has a path of the API."""

import re
from collections.abc import Iterator
from importlib.resources import files

from fakebroker import FakeCluster
from fakebroker.control.clusters import Clusters
from fakebroker.control.routes.dispatch import Dispatcher

PATHS = {
    "brokers.js": "/brokers/1",
    "group.js": "/groups/g",
    "members.js": "/groups/g",
    "transaction.js": "/transactions/t",
}
"""What the variable `path` or `this.#path` of a file is."""

CALL = re.compile(r"""(?<![.\w])(get|post)\((this\.#path|path|`[^`]*`|"[^"]*")""")
ANY_CALL = re.compile(r"(?<![.\w])(?:get|post)\(")
MEMBER_COMMAND = re.compile(r"""\bact\("[^"]*", "(\w+)\"""")


def requests() -> Iterator[tuple[str, str, str]]:
    """Yield file, method and path of each request."""
    for file in (files("fakebroker.control") / "page").iterdir():
        code = file.read_text() if file.name.endswith(".js") else ""
        assert file.name == "api.js" or len(CALL.findall(code)) == len(ANY_CALL.findall(code)), file.name
        for method, written in CALL.findall(code):
            path = re.sub(r"(?:\$\{)?(?:this\.#)?path\b}?", PATHS.get(file.name, ""), written.strip('`"'))
            for command in MEMBER_COMMAND.findall(code) if "${command}" in path else [""]:
                yield file.name, method.upper(), re.sub(r"\$\{[^}]*\}", "1", path.replace("${command}", command))


def test_the_page_requests_paths_that_exist() -> None:
    found = sorted(requests())
    assert len(found) > 35
    assert ("members.js", "POST", "/groups/g/fence_instance") in found
    assert ("transaction.js", "GET", "/transactions/t") in found
    with FakeCluster(1) as cluster:
        dispatcher = Dispatcher(Clusters(cluster))
        for file, method, path in found:
            operation, _ = dispatcher._find(method, f"/v1/clusters/default{path}")
            assert operation.method == method, (file, path)
