"""Stores users and policies in one document that only its owner can read, because it holds secrets.

At a broker they are part of its state; elsewhere the document alone keeps them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from millstream.broker.data_directory import document
from millstream.broker.state.document import Document, SavedDocument
from millstream.broker.state.state_table import StateTable
from millstream.protocol.remoting.administration.access import (
    SUBJECT_PREFIX,
    AccessRules,
    AclInfo,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
)
from millstream.security.policy import PolicyEntry, PolicyKind
from millstream.security.users import AccessBook, User, UserKind
from millstream.store.snapshot import Snapshot

__all__ = ["AccessState", "access_rules", "acl_info", "entries_of", "open_access_book", "read_rules", "user_info"]

_VERSION = 1
_ENABLED, _DISABLED = "enable", "disable"


class _Document(Document):
    users: list[UserInfo]
    acls: list[AclInfo]
    revision: int = 0


class AccessState:
    """The users and policies of a broker as part of its state; `book` is what others use."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.book = AccessBook(self._save)
        self.table = StateTable("access", _open_document(snapshot), _Document, self)
        """Their saved form, with one key."""

    def make_document(self) -> _Document:
        """All users and policies."""
        users = self.book.users()
        return _document(users, {user.name: self.book.entries(user.name) for user in users}, self.book.revision)

    def load_document(self, document: _Document) -> None:
        """Take up what was saved."""
        _load(self.book, document)

    def apply_change(self, key: str, value: _Document | None) -> None:
        """Have these users and policies."""
        if value is not None:
            _load(self.book, value)

    def _save(self, users: Iterable[User], entries: Mapping[str, tuple[PolicyEntry, ...]], revision: int) -> None:
        self.table.write("", _document(users, entries, revision))


def open_access_book(directory: Path) -> AccessBook:
    """The users and policies of a data directory without a broker, in `config/access.json`. Raises STORE_FORMAT."""
    saved = _open_document(document(directory, "config/access.json"))

    def save(users: Iterable[User], entries: Mapping[str, tuple[PolicyEntry, ...]], revision: int) -> None:
        saved.save(_document(users, entries, revision))

    book = AccessBook(save)
    found = saved.load()
    if found is not None:
        _load(book, found)
    return book


def _open_document(snapshot: Snapshot) -> SavedDocument[_Document]:
    return SavedDocument(snapshot, _Document, noun="users and policies", version=_VERSION)


def _document(users: Iterable[User], entries: Mapping[str, tuple[PolicyEntry, ...]], revision: int) -> _Document:
    rules = access_rules(users, entries)
    return _Document(version=_VERSION, users=rules.users, acls=rules.acls, revision=revision)


def _load(book: AccessBook, document: _Document) -> None:
    book.load(*read_rules(AccessRules(document.users, document.acls)), document.revision)


def access_rules(users: Iterable[User], entries: Mapping[str, tuple[PolicyEntry, ...]]) -> AccessRules:
    """Users with their secrets, and the entries of each, as their body."""
    infos = [user_info(user, with_secret=True) for user in users]
    return AccessRules(infos, [acl_info(name, found) for name, found in entries.items()])


def read_rules(rules: AccessRules) -> tuple[list[User], dict[str, list[PolicyEntry]]]:
    """The users of a body, and the entries of each; ILLEGAL_POLICY."""
    entries = {(acl.subject or "").removeprefix(SUBJECT_PREFIX): entries_of(acl) for acl in rules.acls}
    return [_user(info) for info in rules.users], entries


def user_info(user: User, *, with_secret: bool = False) -> UserInfo:
    """The user as its body; the secret stays here unless it is to be kept."""
    status = _ENABLED if user.enabled else _DISABLED
    return UserInfo(user.name, user.secret if with_secret else None, user.kind.value, status)


def acl_info(name: str, entries: Iterable[PolicyEntry]) -> AclInfo:
    """A user's entries as their body, by kind."""
    policies = []
    found = list(entries)
    for kind in PolicyKind:
        infos = [
            PolicyEntryInfo(
                str(entry.pattern),
                sorted(action.value for action in entry.actions),
                list(entry.sources),
                entry.decision.value,
            )
            for entry in found
            if entry.kind is kind
        ]
        if infos:
            policies.append(PolicyInfo(infos, kind.value))
    return AclInfo(policies, SUBJECT_PREFIX + name)


def entries_of(acl: AclInfo) -> list[PolicyEntry]:
    """The entries of a body; ILLEGAL_POLICY."""
    return [
        PolicyEntry.read(
            info.resource, info.actions, info.source_ips or (), info.decision, policy.policy_type or "Custom"
        )
        for policy in acl.policies
        for info in policy.entries
    ]


def _user(info: UserInfo) -> User:
    return User(info.username or "", info.password or "", UserKind(info.user_type), info.user_status == _ENABLED)
