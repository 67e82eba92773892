"""Users and their policy entries in memory; every change is saved before it takes effect."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, Protocol

from millstream.model.errors import AccessRefused
from millstream.security.policy import PolicyEntry, PolicyKind
from millstream.security.resource import ResourcePattern

__all__ = [
    "MAX_ENTRIES",
    "MAX_NAME_CHARACTERS",
    "MAX_SECRET_CHARACTERS",
    "MAX_USERS",
    "AccessBook",
    "SaveAccess",
    "User",
    "UserKind",
    "check_user",
    "new_secret",
]


MAX_NAME_CHARACTERS: Final = 64
"""Characters of a user's name at most."""

MIN_SECRET_CHARACTERS: Final = 8
"""Characters of a secret at least: RocketMQ's own examples use eight."""

MAX_SECRET_CHARACTERS: Final = 256
"""Characters of a secret at most."""

_NEW_SECRET_BYTES = 24
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9_.@-]+")
_LEGAL_SECRET = re.compile(r"[!-~]+")


class UserKind(Enum):
    """Whether policies hold: a super user may do everything."""

    SUPER = "Super"
    NORMAL = "Normal"


@dataclass(frozen=True, slots=True)
class User:
    """One user. The secret is kept as it is, because an HMAC can only be checked with it; it is never shown."""

    name: str
    secret: str = field(repr=False)
    kind: UserKind = UserKind.NORMAL
    enabled: bool = True

    @property
    def is_super(self) -> bool:
        """Whether everything is allowed without a look at the policies."""
        return self.kind is UserKind.SUPER


def check_user(user: User) -> None:
    """Refuse a name or a secret that no client could send: ILLEGAL_USER."""
    if len(user.name) > MAX_NAME_CHARACTERS or not _LEGAL_NAME.fullmatch(user.name):
        raise AccessRefused("ILLEGAL_USER", f"{user.name[:200]!r} is not a legal name of a user.")
    length = len(user.secret)
    if not MIN_SECRET_CHARACTERS <= length <= MAX_SECRET_CHARACTERS or not _LEGAL_SECRET.fullmatch(user.secret):
        raise AccessRefused("ILLEGAL_USER", f"The secret of {user.name!r}, of {length} characters, is not legal.")


def new_secret() -> str:
    """A random secret of 32 characters."""
    return secrets.token_urlsafe(_NEW_SECRET_BYTES)


MAX_USERS: Final = 1_000
"""Users of one cluster at most: every change writes all of them."""

MAX_ENTRIES: Final = 500
"""Entries of one user at most: a decision may read all of them."""


class SaveAccess(Protocol):
    """Keeps users, the entries of each, and the number of changes so far; durable when it returns."""

    def __call__(
        self, users: Iterable[User], entries: Mapping[str, tuple[PolicyEntry, ...]], revision: int
    ) -> None: ...


class AccessBook:
    """Who there is and what each may do. `on_change` is called after every change.

    Refusals: USER_NOT_FOUND, USER_EXISTS, ILLEGAL_USER, POLICY_NOT_FOUND, ILLEGAL_POLICY (over `MAX_ENTRIES`),
    LAST_SUPER_USER, TOO_MANY_REQUESTS (over `MAX_USERS`), and what saving raises.
    """

    def __init__(self, save: SaveAccess) -> None:
        self._save = save
        self._users: dict[str, User] = {}
        self._entries: dict[str, tuple[PolicyEntry, ...]] = {}
        self.revision = 0
        """How many changes made it what it is."""
        self.awaits_rules = False
        """Whether the users are those of others who have not told them yet, so that a name may only be unknown here."""
        self.on_change: list[Callable[[], None]] = []

    def load(self, users: Iterable[User], entries: Mapping[str, Iterable[PolicyEntry]], revision: int = 0) -> None:
        """Take what was saved before."""
        self._users = {user.name: user for user in users}
        self._entries = {name: _sort_by_rank(found) for name, found in entries.items() if name in self._users}
        self.revision = revision

    def follow(self, users: Iterable[User], entries: Mapping[str, Iterable[PolicyEntry]], revision: int) -> None:
        """Be a copy of another book from now on; it is saved nowhere."""
        self.load(users, entries, revision)
        self.awaits_rules = False
        self._tell_listeners()

    @property
    def has_super_user(self) -> bool:
        """Whether there is somebody who can administer access."""
        return any(user.is_super and user.enabled for user in self._users.values())

    def find(self, name: str) -> User | None:
        """The user, or None."""
        return self._users.get(name)

    def get(self, name: str) -> User:
        """The user; USER_NOT_FOUND."""
        user = self._users.get(name)
        if user is None:
            raise AccessRefused("USER_NOT_FOUND", f"The user {name[:80]!r} does not exist.")
        return user

    def users(self) -> list[User]:
        """All users, by name."""
        return [self._users[name] for name in sorted(self._users)]

    def entries(self, name: str) -> tuple[PolicyEntry, ...]:
        """The user's entries by rank: the first that matches decides."""
        return self._entries.get(name, ())

    def create_user(self, user: User) -> None:
        """Add a user."""
        check_user(user)
        if user.name in self._users:
            raise AccessRefused("USER_EXISTS", f"The user {user.name!r} exists.")
        if len(self._users) >= MAX_USERS:
            raise AccessRefused("TOO_MANY_REQUESTS", f"There are {MAX_USERS} users, which is the limit.")
        self._replace({**self._users, user.name: user}, self._entries)

    def update_user(
        self, name: str, *, secret: str | None = None, kind: UserKind | None = None, enabled: bool | None = None
    ) -> None:
        """Change what is not None."""
        old = self.get(name)
        new = replace(
            old,
            secret=old.secret if secret is None else secret,
            kind=old.kind if kind is None else kind,
            enabled=old.enabled if enabled is None else enabled,
        )
        check_user(new)
        self._replace({**self._users, name: new}, self._entries)

    def delete_user(self, name: str) -> None:
        """Remove a user and the entries."""
        self.get(name)
        users = {other: user for other, user in self._users.items() if other != name}
        self._replace(users, {other: found for other, found in self._entries.items() if other != name})

    def put_entries(self, name: str, entries: Iterable[PolicyEntry]) -> None:
        """Put these entries in the place of the user's old ones of the same kind and resources."""
        new = tuple(dict.fromkeys(entries))
        self.get(name)
        if not new:
            raise AccessRefused("ILLEGAL_POLICY", "The request has no entry.")
        named = {(entry.kind, entry.pattern) for entry in new}
        kept = [entry for entry in self.entries(name) if (entry.kind, entry.pattern) not in named]
        if len(kept) + len(new) > MAX_ENTRIES:
            raise AccessRefused(
                "ILLEGAL_POLICY",
                f"The user {name!r} would have {len(kept) + len(new)} entries; {MAX_ENTRIES} is the limit.",
                remedy="Name several resources by one pattern, as in Topic:orders*.",
            )
        self._replace(self._users, {**self._entries, name: _sort_by_rank([*kept, *new])})

    def delete_entries(
        self, name: str, *, kind: PolicyKind | None = None, pattern: ResourcePattern | None = None
    ) -> None:
        """Remove the user's entries of that kind and resource; None stands for all. POLICY_NOT_FOUND for none."""
        self.get(name)
        kept = [
            entry
            for entry in self.entries(name)
            if kind not in (None, entry.kind) or pattern not in (None, entry.pattern)
        ]
        if len(kept) == len(self.entries(name)):
            where = "" if pattern is None else f" on {pattern}"
            raise AccessRefused("POLICY_NOT_FOUND", f"The user {name!r} has no such entry{where}.")
        self._replace(self._users, {**self._entries, name: tuple(kept)})

    def _replace(self, users: dict[str, User], entries: dict[str, tuple[PolicyEntry, ...]]) -> None:
        if self.has_super_user and not any(user.is_super and user.enabled for user in users.values()):
            raise AccessRefused("LAST_SUPER_USER", "This is the last super user who is enabled.")
        self._save(users.values(), entries, self.revision + 1)
        self._users, self._entries, self.revision = users, entries, self.revision + 1
        self._tell_listeners()

    def _tell_listeners(self) -> None:
        for listener in self.on_change:
            listener()


def _sort_by_rank(entries: Iterable[PolicyEntry]) -> tuple[PolicyEntry, ...]:
    return tuple(sorted(entries, key=lambda entry: entry.rank))
