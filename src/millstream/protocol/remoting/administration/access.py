"""Bodies of the requests about users and policies (codes 3001 to 3010), as RocketMQ 5.3 names their fields.

`subject` is `User:NAME`; resources, actions and decisions are texts, which `millstream.security` reads. Code 9145,
ours, tells all of them at once, with the secrets.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final, Self

import msgspec

from millstream.model.errors import MessageRefused
from millstream.protocol.remoting.bodies import CamelBody, decode_body
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.fields import integer, text

__all__ = [
    "MAX_RULES_BYTES",
    "SUBJECT_PREFIX",
    "AccessRules",
    "AclInfo",
    "PolicyEntryInfo",
    "PolicyInfo",
    "RulesVersion",
    "UserInfo",
    "ask_rules",
    "pack_rules",
    "unpack_rules",
]

MAX_RULES_BYTES: Final = 64 * 1024 * 1024
"""Bytes of all users and entries at most, once they are unpacked."""

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


class AccessRules(CamelBody):
    """All users, with their secrets, and what is said about each."""

    users: list[UserInfo]
    acls: list[AclInfo]


@dataclass(frozen=True, slots=True, order=True)
class RulesVersion:
    """Which rules a broker has: how many changes made them, and a digest, since two brokers may differ in one."""

    revision: int
    digest: str

    @classmethod
    def of(cls, ext: dict[str, str]) -> Self:
        """The version that an answer tells; MESSAGE_MALFORMED."""
        return cls(integer(ext, "revision"), text(ext, "digest"))

    def fields(self) -> dict[str, str]:
        """The fields of an answer."""
        return {"revision": str(self.revision), "digest": self.digest}


def ask_rules(*, whole: bool) -> RemotingCommand:
    """Asks a broker for the version of its rules and, where `whole`, for the rules."""
    return RemotingCommand(RequestCode.GET_ACCESS_RULES, {"whole": str(whole).lower()})


def pack_rules(rules: AccessRules) -> bytes:
    """The body of an answer: a zlib stream of the JSON."""
    return zlib.compress(msgspec.json.encode(rules), 1)


def unpack_rules(body: bytes | memoryview) -> AccessRules:
    """The rules of such a body; MESSAGE_MALFORMED, also for more than `MAX_RULES_BYTES`."""
    inflater = zlib.decompressobj()
    try:
        found = inflater.decompress(body, MAX_RULES_BYTES)
    except zlib.error as error:
        raise MessageRefused("MESSAGE_MALFORMED", f"The users cannot be unpacked: {error}.") from None
    if not inflater.eof:
        raise MessageRefused(
            "MESSAGE_MALFORMED", f"The users and entries are over {MAX_RULES_BYTES} bytes, or cut off."
        )
    return decode_body(AccessRules, found)
