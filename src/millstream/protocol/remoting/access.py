"""Bodies of the requests about users and policies (codes 3001 to 3010), as RocketMQ 5.3 names their fields.

`subject` is `User:NAME`; resources, actions and decisions are texts, which `millstream.security` reads.
"""

from __future__ import annotations

from typing import Final

from millstream.protocol.remoting.bodies import CamelBody

__all__ = ["SUBJECT_PREFIX", "AclInfo", "PolicyEntryInfo", "PolicyInfo", "UserInfo"]

SUBJECT_PREFIX: Final = "User:"
"""Before a user's name where policies are about it."""


class UserInfo(CamelBody):
    """A user. Absent fields leave what is there; answers carry no password."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None


class PolicyEntryInfo(CamelBody):
    """One entry; no `source_ips` means all."""

    resource: str
    actions: list[str]
    source_ips: list[str] | None = None
    decision: str = "Allow"


class PolicyInfo(CamelBody):
    """The entries of one kind, Custom or Default."""

    entries: list[PolicyEntryInfo]
    policy_type: str | None = None


class AclInfo(CamelBody):
    """All policies about one subject."""

    policies: list[PolicyInfo]
    subject: str | None = None
