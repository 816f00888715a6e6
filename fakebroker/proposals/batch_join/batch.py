"""A batch in progress (KAFKA-8397): one JoinGroup for many members. It is answered when all results are known."""

from collections.abc import Callable
from dataclasses import dataclass, field

from fakebroker.coordinator.context import RequestContext
from fakebroker.proposals.batch_join.messages import BatchJoinGroupResponse, BatchJoinGroupResponseResult
from fakebroker.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from fakebroker.protocol.schema import Message

_ONE_STEP = 3
"""The version of the joins in a batch: without MEMBER_ID_REQUIRED and without `skip_assignment`."""


@dataclass(slots=True, eq=False)
class Batch:
    """A batch in progress.

    Attributes:
        context: The context of the request.
        instance_ids: The instance id of each member, or None.
        responses: The responses that are known, by the index of the member.
    """

    context: RequestContext
    instance_ids: tuple[str | None, ...]
    responses: dict[int, JoinGroupResponse] = field(default_factory=dict)

    def add(self, index: int, response: JoinGroupResponse, send: Callable[[RequestContext, Message], None]) -> None:
        """Set the response to one member. With the last one, `send` is called with the response to the batch."""
        self.responses[index] = response
        if len(self.responses) == len(self.instance_ids):
            send(self.context, self.response())

    def response(self) -> BatchJoinGroupResponse:
        """Return the response to the batch. It has the generation of the leader, else of the first joined member."""
        responses = [self.responses[index] for index in range(len(self.instance_ids))]
        joined = [each for each in responses if not each.error_code and each.generation_id >= 0]
        nothing = JoinGroupResponse(protocol_name=None, leader="", members=[])
        generation = next((each for each in joined if each.members), joined[0] if joined else nothing)
        return BatchJoinGroupResponse(
            generation_id=generation.generation_id,
            protocol_type=generation.protocol_type,
            protocol_name=generation.protocol_name,
            leader=generation.leader,
            members=generation.members,
            member_join_response_list=[
                BatchJoinGroupResponseResult(
                    member=JoinGroupResponseMember(
                        member_id=response.member_id, group_instance_id=instance_id, metadata=b""
                    ),
                    error_code=response.error_code,
                )
                for response, instance_id in zip(responses, self.instance_ids, strict=True)
            ],
        )


@dataclass(slots=True, eq=False)
class BatchContext:
    """The context of the join of one member of a batch.

    Attributes:
        index: The index of the member in the batch.
    """

    batch: Batch
    index: int

    api_version = _ONE_STEP

    @property
    def client_id(self) -> str:
        return self.batch.context.client_id

    @property
    def client_host(self) -> str:
        return self.batch.context.client_host

    @property
    def may_describe(self) -> Callable[[str], bool] | None:
        return self.batch.context.may_describe
