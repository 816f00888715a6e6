"""Administrators: topics, configs, ACLs, SCRAM credentials, groups without members. Errors have to be usual ones."""

from random import Random
from typing import Any

from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from fakebroker.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from fakebroker.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from fakebroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from fakebroker.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from fakebroker.protocol.messages.delete_groups import DeleteGroupsRequest
from fakebroker.protocol.messages.delete_topics import DeleteTopicsRequest
from fakebroker.protocol.messages.describe_groups import DescribeGroupsRequest
from fakebroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from fakebroker.protocol.messages.list_groups import ListGroupsRequest
from fakebroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fakebroker.protocol.schema import Message
from tests.endurance.loop import Ask, Client, Loop

_PAUSE_S = 0.2
_USUAL = {
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.TOPIC_ALREADY_EXISTS,
    ErrorCode.INVALID_PARTITIONS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,  # another client has added an ACL of the group
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.NON_EMPTY_GROUP,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.RESOURCE_NOT_FOUND,
    ErrorCode.INVALID_REPLICATION_FACTOR,
}
_TOPIC, _GROUP, _LITERAL, _READ, _ALLOW, _ANY = 2, 3, 3, 3, 3, 1
_GROUP_CONFIG = 32


def _errors(value: Any) -> set[int]:
    """Return the error codes in a response."""
    found: set[int] = set()
    for field in type(value).FIELDS:
        content = getattr(value, field.name)
        if field.name == "error_code":
            found.add(content)
        for each in content if isinstance(content, list) else ():
            if hasattr(type(each), "FIELDS"):
                found |= _errors(each)
    return found


def administrator(loop: Loop, name: str, seed: str) -> Client:
    """A client that changes and lists resources of its own."""
    random = Random(seed)
    while True:
        request, version = _request(random, name)
        answer = yield Ask(random.choice(loop.node_ids), request, version)
        if answer is not None:
            unusual = _errors(answer) - _USUAL
            text = f"{type(request).__name__}: {[ErrorCode(each).name for each in unusual]}"
            loop.check("administration has usual results", not unusual, text)
        yield _PAUSE_S


def _request(random: Random, name: str) -> tuple[Message, int]:
    """Return a random request and its version."""
    topic, group, user = (
        f"{name}-{random.randrange(4)}",
        f"{name}-{random.randrange(50)}",
        f"user-{random.randrange(9)}",
    )
    match random.randrange(11):
        case 0:
            created = CreatableTopic(name=topic, num_partitions=2, replication_factor=2, assignments=[], configs=[])
            return CreateTopicsRequest(topics=[created]), 5
        case 1:
            return DeleteTopicsRequest(topic_names=[topic], timeout_ms=1_000), 5
        case 2:
            more = CreatePartitionsTopic(name=topic, count=random.randint(2, 5), assignments=None)
            return CreatePartitionsRequest(topics=[more], timeout_ms=1_000, validate_only=False), 3
        case 3:
            value = AlterableConfig(name="retention.ms", config_operation=0, value=str(random.randint(1_000, 9_000)))
            return _alter(_TOPIC, topic, value), 1
        case 4:
            value = AlterableConfig(name="consumer.session.timeout.ms", config_operation=0, value="50000")
            return _alter(_GROUP_CONFIG, group, value), 1
        case 5:
            acl = AclCreation(
                resource_type=_GROUP,
                resource_name=group,
                resource_pattern_type=_LITERAL,
                principal=f"User:{user}",
                host="*",
                operation=_READ,
                permission_type=_ALLOW,
            )
            return CreateAclsRequest(creations=[acl]), 3
        case 6:
            wanted = DeleteAclsFilter(
                resource_type_filter=_GROUP,
                resource_name_filter=group,
                pattern_type_filter=_LITERAL,
                principal_filter=None,
                host_filter=None,
                operation=_ANY,
                permission_type=_ANY,
            )
            return DeleteAclsRequest(filters=[wanted]), 3
        case 7:
            upsertion = ScramCredentialUpsertion(
                name=user, mechanism=1, iterations=4096, salt=random.randbytes(16), salted_password=random.randbytes(32)
            )
            deletions = [ScramCredentialDeletion(name=f"{user}-2", mechanism=1)]
            return AlterUserScramCredentialsRequest(deletions=deletions, upsertions=[upsertion]), 0
        case 8:
            committed = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
            topics = [OffsetCommitRequestTopic(name="log", partitions=[committed])]
            return OffsetCommitRequest(group_id=group, topics=topics), 8
        case 9:
            return DeleteGroupsRequest(groups_names=[group]), 2
        case _:
            if random.random() < 0.5:
                return ListGroupsRequest(), 5
            return DescribeGroupsRequest(groups=[group]), 5


def _alter(resource_type: int, name: str, value: AlterableConfig) -> IncrementalAlterConfigsRequest:
    resource = AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=[value])
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
