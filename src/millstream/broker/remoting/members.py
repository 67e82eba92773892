"""Clients by group and client id, each with the connection on which it was last heard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from millstream.model.errors import ConsumeRefused
from millstream.protocol.remoting.administration.consumption import ConnectionData
from millstream.transport.remoting_connection import Connection

__all__ = ["MAX_CLIENT_ID_CHARACTERS", "MEMBER_LIMIT_S", "Member", "MemberTable", "member_data"]

MEMBER_LIMIT_S: Final = 120.0
"""Seconds without a heartbeat after which a client does not count any more."""

MAX_CLIENT_ID_CHARACTERS: Final = 512
"""Characters of a client's id and of a producer group's name at most."""

_EXPIRY_INTERVAL_S: Final = 10.0


@dataclass(slots=True)
class Member:
    """One client of one group. `origin` is its language and version."""

    connection: Connection
    seen_s: float
    origin: tuple[str, int] = ("OTHER", 0)
    is_proxied: bool = False
    """Whether the connection is a proxy's, which may end while the client lives on."""


_M = TypeVar("_M", bound=Member)


class MemberTable(Generic[_M]):
    """The members of all groups, `limit` at most; `noun` says in refusals what they are."""

    def __init__(self, limit: int, noun: str) -> None:
        self._limit = limit
        self._noun = noun
        self._groups: dict[str, dict[str, _M]] = {}
        self._places: dict[Connection, set[tuple[str, str]]] = {}
        self._groups_of: dict[str, set[str]] = {}
        self._count = 0
        self._next_expiry_s = 0.0

    def of(self, group: str) -> Mapping[str, _M]:
        """The group's members by client id."""
        return self._groups.get(group, {})

    def all(self) -> Iterator[tuple[str, str, _M]]:
        """Group, client id and member, group by group."""
        for group, members in self._groups.items():
            for client_id, member in members.items():
                yield group, client_id, member

    def of_client(self, client_id: str) -> list[_M]:
        """The client as a member of each of its groups, sorted by group."""
        return [self._groups[group][client_id] for group in sorted(self._groups_of.get(client_id, ()))]

    def put(self, group: str, client_id: str, member: _M) -> _M | None:
        """Add or replace a member; what was there before. Raises TOO_MANY_REQUESTS over the limit."""
        known = self._groups.get(group, {}).get(client_id)
        if known is None:
            if self._count >= self._limit:
                words = f"The broker has {self._limit} {self._noun}, which is its limit."
                raise ConsumeRefused("TOO_MANY_REQUESTS", words)
            self._count += 1
        elif known.connection is not member.connection:
            self._unlink(group, client_id, known)
        self._groups.setdefault(group, {})[client_id] = member
        self._groups_of.setdefault(client_id, set()).add(group)
        self._places.setdefault(member.connection, set()).add((group, client_id))
        return known

    def drop(self, group: str, client_id: str) -> bool:
        """Remove a member; False if it was not there."""
        members = self._groups.get(group, {})
        member = members.pop(client_id, None)
        if member is None:
            return False
        self._count -= 1
        if not members:
            del self._groups[group]
        groups = self._groups_of[client_id]
        groups.discard(group)
        if not groups:
            del self._groups_of[client_id]
        self._unlink(group, client_id, member)
        return True

    def on(self, connection: Connection) -> list[tuple[str, str]]:
        """Group and client id of those on a connection, sorted."""
        return sorted(self._places.get(connection, ()))

    def is_on(self, group: str, client_id: str, connection: Connection) -> bool:
        """Whether a member was last heard on that connection."""
        member = self._groups.get(group, {}).get(client_id)
        return member is not None and member.connection is connection

    def silent(self, now_s: float) -> list[tuple[str, str]]:
        """Group and client id of those not heard of for `MEMBER_LIMIT_S`; looks every 10 s, however often asked."""
        if now_s < self._next_expiry_s:
            return []
        self._next_expiry_s = now_s + _EXPIRY_INTERVAL_S
        return [(group, name) for group, name, member in self.all() if member.seen_s < now_s - MEMBER_LIMIT_S]

    def _unlink(self, group: str, client_id: str, member: _M) -> None:
        places = self._places[member.connection]
        places.discard((group, client_id))
        if not places:
            del self._places[member.connection]


def member_data(client_id: str, member: Member) -> ConnectionData:
    """The member as lists of connections show it."""
    peer = member.connection.peer
    return ConnectionData(client_id, f"{peer.host}:{peer.port}", *member.origin)
