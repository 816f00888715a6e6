"""Proposed changes of Kafka's protocol that no release has: one folder for each, and `PROPOSALS`, their registry.

Brokers of the newest release support the proposals of their cluster, such as `FakeCluster(proposals=["batch-join"])`.
`cluster` and `server` use the registry and the hooks of `Proposal`; they do not depend on any proposal. A folder is
imported when its proposal is used. Messages depend on `protocol`, coordinators on `coordinator`, handlers and the rest
on `cluster`. Start with `batch_join`.

How to add a proposal:

1. Describe it in `scenarios/proposals/`.
2. Create a folder here, and add its name to `_FOLDERS`.
3. Declare its messages. Create an API with `new_api` for each of Kafka's APIs that it changes; the classes of its
   messages have the API as `API`.
4. Write a handler for each of these APIs, a function `handle(cluster, call, now_ms)` (`cluster/handlers/README.md`).
5. If it changes classic groups, implement `GroupExtension` and return it from `Proposal.extension`. If it has
   coordinators of its own, implement `ProposedGroups` and return it from `Proposal.new_groups`.
6. Define `PROPOSAL` in the `__init__.py` of the folder.
7. Add tests in `tests/proposals/`, and transcripts in `scenarios/transcripts/`.

`Proposal.versions` decides which versions a broker accepts. `Proposal.apis` decides which of these versions use the
messages and handlers of the proposal; the others use Kafka's. For example, `batch-join` has
`versions={"JoinGroup": Versions(0, 10)}` and one API, JoinGroup version 10. So versions 0 to 9 stay Kafka's. A version
in `apis` that a broker does not accept has no effect. If a broker accepts no version in `apis`, it does not support the
proposal, and the hooks of the proposal are not called.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec

from fakebroker.coordinator.classic.extension import GroupExtension, no_extension
from fakebroker.protocol.registry import API_BY_NAME, Api
from fakebroker.protocol.schema import Versions

if TYPE_CHECKING:
    from fakebroker.cluster.broker import BrokerNode
    from fakebroker.cluster.proposed_groups import ProposedGroups
    from fakebroker.cluster.topics import Topics


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """One proposal. Its folder defines it as `PROPOSAL`.

    Attributes:
        name: The name with which users choose it, such as "batch-join".
        versions: The versions that brokers accept instead of Kafka's, by name of the API. None: brokers do not support
            the API. A cluster cannot have two proposals that name the same API here.
        apis: The APIs that replace Kafka's, each for its own versions. Other versions have Kafka's messages and
            handler.
        errors: The errors that its messages can have, by name of the API. Fault injection checks them. Each entry has
            three texts: the names of the errors, separated by spaces; the path in the request to the arrays that the
            errors are about; the path in the response to the structs with the error codes. Paths are dotted; "" is the
            request or response itself (`fakebroker.cluster.faults.error_catalog`). APIs of the proposal without an
            entry have the errors of Kafka's API. In a version that Kafka has, too, faults are limited to errors of
            Kafka's API.
        is_stored: Whether a data directory stores its groups. If not, a cluster with a data directory rejects it.
    """

    name: str
    versions: Mapping[str, Versions | None]
    apis: tuple[Api, ...]
    errors: Mapping[str, tuple[str, str, str]]
    is_stored: bool = True

    def extension(self) -> Callable[[Any], GroupExtension]:
        """Return a function that creates the extension of a classic group (`CoordinatorConfig.extension`)."""
        return no_extension

    def new_groups(
        self,
        brokers: "Mapping[int, BrokerNode]",
        topics: "Topics",
        now_ms: Callable[[], float],
        new_id: Callable[[], str],
        disconnect: Callable[[Hashable], None],
    ) -> "ProposedGroups | None":
        """Return the groups of a cluster. None: the proposal has no coordinators of its own.

        Args:
            brokers: The brokers of the cluster, by node id.
            topics: The topics, for partition counts and for the placement of groups.
            now_ms: Returns the brokers' time of the current request or tick.
            new_id: Returns a new UUID as text.
            disconnect: Closes a connection, by its peer.
        """
        return None


class _Proposals(Mapping[str, Proposal]):
    def __getitem__(self, name: str) -> Proposal:
        proposal: Proposal = import_module(f"{__name__}.{_FOLDERS[name]}").PROPOSAL
        return proposal

    def __iter__(self) -> Iterator[str]:
        return iter(_FOLDERS)

    def __len__(self) -> int:
        return len(_FOLDERS)


_FOLDERS = {"batch-join": "batch_join", "rewrite": "consumer_rewrite"}

PROPOSALS: Mapping[str, Proposal] = _Proposals()
"""The proposals by name."""


def new_api(proposal: str, name: str, versions: str, *, messages: str = "", handler: str) -> Api:
    """Return an API of a proposal, which replaces an API of Kafka in some versions.

    Args:
        proposal: The name of the proposal.
        name: The name of Kafka's API.
        versions: The versions that the proposal replaces or adds, in Kafka's notation, such as "10".
        messages: The module of the messages in the proposal's folder, and the first part of their class names. For
            example, "messages.BatchJoinGroup" is `BatchJoinGroupRequest` and `BatchJoinGroupResponse` in `messages.py`.
            "": Kafka's messages.
        handler: The module of the handler in the proposal's folder, such as "handlers.join_group".
    """
    folder, served = f"{__name__}.{_FOLDERS[proposal]}", Versions.parse(versions)
    messages = messages and f"{folder}.{messages}"
    return Api(API_BY_NAME[name].key, name, served, served, f"{folder}.{handler}", messages, proposal)


def api_of_version(api: Api, version: int) -> Api:
    """Return an API of Kafka, or the API of a proposal if only a proposal has the version.

    For example, JoinGroup version 0 is Kafka's API. Kafka lacks JoinGroup version 10, so that is the API of
    `batch-join`. If no proposal has the version either, this returns Kafka's API.
    """
    if version in api.request.VERSIONS:
        return api
    proposed = (each for proposal in PROPOSALS.values() for each in proposal.apis if each.key == api.key)
    return next((each for each in proposed if version in each.versions), api)
