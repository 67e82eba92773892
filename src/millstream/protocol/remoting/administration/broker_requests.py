"""Requests about a broker as a whole, and about users and policies.

Source of the names: RocketMQ 5.3 (facts only); 9131, 9132, 9144, 9145 and 9151 are our own.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.protocol.remoting.fields import Request, choice_field, flag_field, number_field, text_field

__all__ = [
    "AccessChange",
    "AclDeletion",
    "AclFilter",
    "DeliveriesRelease",
    "LeavingClient",
    "PermissionChange",
    "ReadAheadMode",
    "ReportQuery",
    "RulesQuery",
    "StatisticQuery",
    "SubjectQuery",
    "UserFilter",
    "UserQuery",
]


@dataclass(frozen=True, slots=True)
class StatisticQuery(Request):
    """Code 315: one statistic, by its name and its key (`topic`, or `topic@group`)."""

    name: str = text_field("statsName")
    key: str = text_field("statsKey")


@dataclass(frozen=True, slots=True)
class ReadAheadMode(Request):
    """Code 2004: how the log's files are read ahead; "0" is the only way."""

    mode: str = text_field("READ_AHEAD_MODE", "")


@dataclass(frozen=True, slots=True)
class ReportQuery(Request):
    """Code 9131."""

    probes_disk: bool = flag_field("probe")
    """Whether the disk's sync is timed as well."""
    tells_readers: bool = flag_field("readers")
    """Whether the groups of topics are named."""


@dataclass(frozen=True, slots=True)
class PermissionChange(Request):
    """Code 9132: 4 (read) drains the broker, 6 (read and write) ends that."""

    permission: int = number_field("permission")


@dataclass(frozen=True, slots=True)
class LeavingClient(Request):
    """Code 9144: a client that reads no lite topic any more."""

    client_id: str = text_field("clientId")


@dataclass(frozen=True, slots=True)
class DeliveriesRelease(Request):
    """Code 9151: the deliveries of a light queue that are in flight are visible from now on."""

    group: str = text_field("consumerGroup")
    topic: str = text_field("topic")


@dataclass(frozen=True, slots=True)
class UserQuery(Request):
    """Codes 3001 to 3004: one user."""

    username: str = text_field("username")


@dataclass(frozen=True, slots=True)
class UserFilter(Request):
    """Code 3005: the users whose names hold a text."""

    text: str = text_field("filter", "")


@dataclass(frozen=True, slots=True)
class SubjectQuery(Request):
    """Codes 3006, 3007 and 3009: whose policies are meant."""

    subject: str = text_field("subject")


@dataclass(frozen=True, slots=True)
class AclDeletion(Request):
    """Code 3008, beside the subject: which of its policies go; both None: all."""

    resource: str | None = choice_field("resource")
    kind: str | None = choice_field("policyType")


@dataclass(frozen=True, slots=True)
class AclFilter(Request):
    """Code 3010: the policies whose subjects and resources hold these texts."""

    subject: str = text_field("subjectFilter", "")
    resource: str = text_field("resourceFilter", "")


@dataclass(frozen=True, slots=True)
class AccessChange(Request):
    """Any change of users or policies, as the audit log names what it changed."""

    subject: str = text_field("subject", "")
    username: str = text_field("username", "")


@dataclass(frozen=True, slots=True)
class RulesQuery(Request):
    """Code 9145: all users and policies, or what changed since a version."""

    is_whole: bool = flag_field("whole")
