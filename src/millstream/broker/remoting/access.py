"""Requests about users and policies, as in RocketMQ; only super users may send them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import TypeVar

import msgspec

from millstream.broker.access_file import access_rules, acl_info, entries_of, user_info
from millstream.model.errors import AccessRefused
from millstream.protocol.remoting.administration.access import (
    SUBJECT_PREFIX,
    AclInfo,
    RulesVersion,
    UserInfo,
    pack_rules,
)
from millstream.protocol.remoting.administration.broker_requests import (
    AccessChange,
    AclDeletion,
    AclFilter,
    RulesQuery,
    SubjectQuery,
    UserFilter,
    UserQuery,
)
from millstream.protocol.remoting.bodies import decode_body, encode_body
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.security.guard import Guard
from millstream.security.policy import PolicyKind
from millstream.security.resource import ResourcePattern
from millstream.security.signature import ACCESS_KEY
from millstream.security.users import User, UserKind
from millstream.transport.gate import action_name
from millstream.transport.remoting_connection import Connection, Handler

__all__ = ["access_handlers"]

_T = TypeVar("_T")


def access_handlers(guard: Guard | None) -> dict[int, Handler]:
    """The handlers of codes 3001 to 3010 and 9145; without a guard they say that access control is off."""
    if guard is None:
        return dict.fromkeys((*_HANDLERS, RequestCode.GET_ACCESS_RULES), _off)
    handlers = {code: _bind(guard, act) for code, act in _HANDLERS.items()}
    return {**handlers, RequestCode.GET_ACCESS_RULES: _RulesHandler(guard).tell}


Act = Callable[[Guard, RemotingCommand], bytes | None]
"""Carries out one request: the body of an answer, or None for a change."""


def _bind(guard: Guard, act: Act) -> Handler:
    def answer(command: RemotingCommand, connection: Connection) -> RemotingCommand:
        body = act(guard, command)
        if body is None:
            change = AccessChange.decode(command.ext)
            guard.audit.note_change(
                peer=connection.peer.host,
                user=command.ext.get(ACCESS_KEY, ""),
                action=action_name(command.code),
                subject=change.subject or change.username,
            )
        return command.response(body=body or b"")

    return answer


class _RulesHandler:
    """Tells proxies all users and entries; packed once for each change."""

    def __init__(self, guard: Guard) -> None:
        self._book = guard.book
        self._packed: tuple[RulesVersion, bytes] | None = None
        guard.book.on_change.append(self._note_change)

    def tell(self, command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        version, packed = self._packed or self._pack()
        query = RulesQuery.decode(command.ext)
        return command.response(ext=version.fields(), body=packed if query.is_whole else b"")

    def _pack(self) -> tuple[RulesVersion, bytes]:
        book, users = self._book, self._book.users()
        packed = pack_rules(access_rules(users, {user.name: book.entries(user.name) for user in users}))
        self._packed = RulesVersion(book.revision, blake2b(packed, digest_size=8).hexdigest()), packed
        return self._packed

    def _note_change(self) -> None:
        self._packed = None


def _off(_command: RemotingCommand, _connection: Connection) -> RemotingCommand:
    raise AccessRefused("ACCESS_CONTROL_OFF", "There are no users and no policies here.")


def _create_user(guard: Guard, command: RemotingCommand) -> None:
    info = decode_body(UserInfo, command.body)
    kind = _choose(info.user_type, _KINDS, UserKind.NORMAL)
    enabled = _choose(info.user_status, _STATUSES, True)
    guard.book.create_user(User(UserQuery.decode(command.ext).username, info.password or "", kind, enabled))


def _update_user(guard: Guard, command: RemotingCommand) -> None:
    info = decode_body(UserInfo, command.body)
    guard.book.update_user(
        UserQuery.decode(command.ext).username,
        secret=info.password or None,
        kind=_choose(info.user_type, _KINDS, None),
        enabled=_choose(info.user_status, _STATUSES, None),
    )


def _delete_user(guard: Guard, command: RemotingCommand) -> None:
    guard.book.delete_user(UserQuery.decode(command.ext).username)


def _get_user(guard: Guard, command: RemotingCommand) -> bytes:
    return encode_body(user_info(guard.book.get(UserQuery.decode(command.ext).username)))


def _list_users(guard: Guard, command: RemotingCommand) -> bytes:
    wanted = UserFilter.decode(command.ext).text
    return msgspec.json.encode([user_info(user) for user in guard.book.users() if wanted in user.name])


def _put_acl(guard: Guard, command: RemotingCommand) -> None:
    guard.book.put_entries(_subject(command), entries_of(decode_body(AclInfo, command.body)))


def _delete_acl(guard: Guard, command: RemotingCommand) -> None:
    call = AclDeletion.decode(command.ext)
    guard.book.delete_entries(
        _subject(command),
        kind=_choose(call.kind, {kind.value.lower(): kind for kind in PolicyKind}, None),
        pattern=ResourcePattern.parse(call.resource) if call.resource else None,
    )


def _get_acl(guard: Guard, command: RemotingCommand) -> bytes:
    name = _subject(command)
    guard.book.get(name)
    return encode_body(acl_info(name, guard.book.entries(name)))


def _list_acls(guard: Guard, command: RemotingCommand) -> bytes:
    wanted = AclFilter.decode(command.ext)
    found = []
    for user in guard.book.users():
        entries = [entry for entry in guard.book.entries(user.name) if wanted.resource in str(entry.pattern)]
        if entries and wanted.subject in SUBJECT_PREFIX + user.name:
            found.append(acl_info(user.name, entries))
    return msgspec.json.encode(found)


_KINDS = {kind.value.lower(): kind for kind in UserKind}
_STATUSES = {"enable": True, "disable": False}
_HANDLERS: dict[int, Act] = {
    RequestCode.AUTH_CREATE_USER: _create_user,
    RequestCode.AUTH_UPDATE_USER: _update_user,
    RequestCode.AUTH_DELETE_USER: _delete_user,
    RequestCode.AUTH_GET_USER: _get_user,
    RequestCode.AUTH_LIST_USER: _list_users,
    RequestCode.AUTH_CREATE_ACL: _put_acl,
    RequestCode.AUTH_UPDATE_ACL: _put_acl,
    RequestCode.AUTH_DELETE_ACL: _delete_acl,
    RequestCode.AUTH_GET_ACL: _get_acl,
    RequestCode.AUTH_LIST_ACL: _list_acls,
}


def _subject(command: RemotingCommand) -> str:
    return SubjectQuery.decode(command.ext).subject.removeprefix(SUBJECT_PREFIX)


def _choose(value: str | None, known: Mapping[str, _T], default: _T) -> _T:
    """The value of a word, case aside; the default where there is none."""
    if not value:
        return default
    found = known.get(value.lower())
    if found is None:
        raise AccessRefused("ILLEGAL_POLICY", f"{value[:80]!r} is none of {', '.join(known)}.")
    return found
