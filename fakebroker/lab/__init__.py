"""The design lab: designs of group coordination, run with the same workload, network and failures in virtual time.

Compares today's protocols with the consumer rewrite design's (Kafka 0.9). Depends on the pure coordinators and
members, and on the simulation, the Spark session and the reports of `replay`. Start with design.py (what a design is),
then designs/classic.py (one design), script.py (what happens in a run), world/ (a run), scenario/ (scenario files),
measures.py (what is measured), study/ (many runs), runner.py (`fakebroker lab`).

The names below are those that a design in a file of its own needs.
"""

from fakebroker.client.member.member_settings import MemberSettings
from fakebroker.lab.design import (
    Beat,
    Coordinator,
    CoordinatorPort,
    CoordinatorSettings,
    Design,
    Idle,
    Link,
    Member,
    MemberPort,
)
from fakebroker.protocol.schema import Message, Struct
from fakebroker.protocol.types import Boolean, Int16, Int32, Int64, String

__all__ = [
    "Beat",
    "Boolean",
    "Coordinator",
    "CoordinatorPort",
    "CoordinatorSettings",
    "Design",
    "Idle",
    "Int16",
    "Int32",
    "Int64",
    "Link",
    "Member",
    "MemberPort",
    "MemberSettings",
    "Message",
    "String",
    "Struct",
]
