"""Proposed changes of Kafka's protocol that no release has, a folder each, and `PROPOSALS`, which attaches them.

A broker of the newest release supports the proposals that its cluster names. The other packages ask the proposals of a
broker through the hooks of `Proposal`, and name none of them. A folder is imported when its proposal is used. Messages
depend on `protocol`, coordinators on `coordinator`, handlers and the rest on `cluster`. Start with `batch_join`.
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
    """One proposal. Its folder has it as `PROPOSAL`.

    Attributes:
        name: The name with which users choose it.
        versions: The versions of APIs that its brokers support, if they differ from Kafka's; None: not supported.
        apis: The APIs that its brokers have in place of Kafka's, in the versions of these APIs.
        errors: The errors that its messages can have, by name of the API: their names, and the arrays in the request
            and in the response that have them, as in `fakebroker.cluster.faults.error_catalog`. APIs that are not named
            have the errors of Kafka's.
        is_stored: Whether a data directory has its groups.
    """

    name: str
    versions: Mapping[str, Versions | None]
    apis: tuple[Api, ...]
    errors: Mapping[str, tuple[str, str, str]]
    is_stored: bool = True

    def extension(self) -> Callable[[Any], GroupExtension]:
        """Return what creates the extension of a classic group (`CoordinatorConfig.extension`)."""
        return no_extension

    def new_groups(
        self,
        brokers: "Mapping[int, BrokerNode]",
        topics: "Topics",
        now_ms: Callable[[], float],
        new_id: Callable[[], str],
        disconnect: Callable[[Hashable], None],
    ) -> "ProposedGroups | None":
        """Return the groups of a cluster if the proposal has coordinators of its own, else None.

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
    """Return an API that a proposal has in place of Kafka's.

    Args:
        proposal: The name of the proposal.
        name: The name of Kafka's API.
        versions: The versions that the proposal replaces or adds.
        messages: As `Api.messages`, in the folder of the proposal; "": Kafka's messages.
        handler: The module of the handler in this folder.
    """
    folder, served = f"{__name__}.{_FOLDERS[proposal]}", Versions.parse(versions)
    messages = messages and f"{folder}.{messages}"
    return Api(API_BY_NAME[name].key, name, served, served, f"{folder}.{handler}", messages, proposal)


def api_of_version(api: Api, version: int) -> Api:
    """Return the API that has a version: one of Kafka's, or if Kafka lacks the version, that of a proposal."""
    if version in api.request.VERSIONS:
        return api
    proposed = (each for proposal in PROPOSALS.values() for each in proposal.apis if each.key == api.key)
    return next((each for each in proposed if version in each.versions), api)
