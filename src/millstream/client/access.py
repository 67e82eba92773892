"""What the client asks about users and policies, sans-io, in the manner of `conversations`. For super users."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from millstream.client.operations import ClientOperation, ClientOperations
from millstream.model.errors import Refused
from millstream.protocol.remoting.administration.access import (
    SUBJECT_PREFIX,
    AclInfo,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
)
from millstream.protocol.remoting.bodies import decode_body, encode_body
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand

__all__ = ["AccessOperations"]


class AccessOperations:
    """The operations. A change is told every master and then every nameserver; answers are of the first master."""

    def __init__(self, conversations: ClientOperations) -> None:
        self._conversations = conversations

    def create_user(self, user: UserInfo) -> ClientOperation[None]:
        """Create a user; USER_EXISTS, ILLEGAL_USER."""
        return self._change(RequestCode.AUTH_CREATE_USER, {"username": user.username or ""}, encode_body(user))

    def update_user(self, user: UserInfo) -> ClientOperation[None]:
        """Change what is not None; USER_NOT_FOUND, LAST_SUPER_USER."""
        return self._change(RequestCode.AUTH_UPDATE_USER, {"username": user.username or ""}, encode_body(user))

    def delete_user(self, name: str) -> ClientOperation[None]:
        """Delete a user with all policies; USER_NOT_FOUND, LAST_SUPER_USER."""
        return self._change(RequestCode.AUTH_DELETE_USER, {"username": name})

    def user(self, name: str) -> ClientOperation[UserInfo]:
        """One user, without the secret; USER_NOT_FOUND."""
        body = yield from self._ask(RequestCode.AUTH_GET_USER, {"username": name})
        return decode_body(UserInfo, body)

    def users(self) -> ClientOperation[list[UserInfo]]:
        """All users, without their secrets."""
        body = yield from self._ask(RequestCode.AUTH_LIST_USER, {})
        return decode_body(list[UserInfo], body)

    def put_entries(self, name: str, kind: str, entries: Sequence[PolicyEntryInfo]) -> ClientOperation[None]:
        """Put entries in the place of the old ones of their resources; USER_NOT_FOUND, ILLEGAL_POLICY."""
        acl = AclInfo([PolicyInfo(list(entries), kind)], SUBJECT_PREFIX + name)
        ext = {"subject": SUBJECT_PREFIX + name}
        return self._change(RequestCode.AUTH_UPDATE_ACL, ext, msgspec.json.encode(acl))

    def delete_entries(self, name: str, kind: str, resource: str) -> ClientOperation[None]:
        """Delete the entries of a resource; USER_NOT_FOUND, POLICY_NOT_FOUND."""
        ext = {"subject": SUBJECT_PREFIX + name, "policyType": kind, "resource": resource}
        return self._change(RequestCode.AUTH_DELETE_ACL, ext)

    def acl(self, name: str) -> ClientOperation[AclInfo]:
        """The policies of a user; USER_NOT_FOUND."""
        body = yield from self._ask(RequestCode.AUTH_GET_ACL, {"subject": SUBJECT_PREFIX + name})
        return decode_body(AclInfo, body)

    def acls(self) -> ClientOperation[list[AclInfo]]:
        """The policies of all users who have some."""
        body = yield from self._ask(RequestCode.AUTH_LIST_ACL, {})
        return decode_body(list[AclInfo], body)

    def _change(self, code: RequestCode, ext: dict[str, str], body: bytes = b"") -> ClientOperation[None]:
        yield from self._conversations.ask_masters(RemotingCommand(code, ext, body))
        for address in self._conversations.nameservers:
            try:
                yield from self._conversations.ask(address, RemotingCommand(code, dict(ext), body))
            except Refused as refused:
                # One in the broker's own process shares the broker's users, others have some only if they are asked to.
                if refused.name not in ("REQUEST_NOT_SUPPORTED", "ACCESS_CONTROL_OFF"):
                    raise

    def _ask(self, code: RequestCode, ext: dict[str, str]) -> ClientOperation[bytes]:
        answers = yield from self._conversations.ask_masters(RemotingCommand(code, ext))
        return answers[0].body
