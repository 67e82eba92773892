"""What a proxy keeps in memory of the last record of each session: all proxies keep that of all sessions, so it is one
short string of bytes for each. Pure.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from struct import Struct
from typing import Final, NamedTuple

import msgspec

from millstream.proxy.mqtt.session_records import StoredSession, StoredSubscription, StoredWill

__all__ = ["SessionEntries", "SessionEntry"]

_HEAD: Final = Struct("<IQQQQ")
"""The number of the proxy whose connection has the session, the record's offset, that of the one before it, and when
the session ends by itself and its will is due: each 0 for none, offsets one more than they are."""

_OFFSET: Final = Struct("<4xQ")
"""The second of them."""

_PROXY_BYTES: Final = 4
_NOBODY: Final = bytes(_PROXY_BYTES)


class _Tail(msgspec.Struct, array_like=True):
    """The rest of a session. `client_id` is blank where it is the key, `claim` leaves out the proxy that it begins with
    where `is_short`, and `subscriptions` is None of a session that is not kept as a whole."""

    client_id: str
    claim: str
    is_short: bool
    user: str = ""
    expiry_s: int = 0
    away_ms: int = 0
    has_queue: bool = False
    subscriptions: list[StoredSubscription] | None = None
    will: StoredWill | None = None


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Tail).decode


class SessionEntry(NamedTuple):
    """The last record of a key; `before` is the offset of the one before it, None where there was none. `claim` is
    blank where nobody has the session, and `session` None where it is not kept."""

    offset: int
    before: int | None
    claim: str
    session: StoredSession | None


class SessionEntries:
    """The entries by their keys."""

    def __init__(self) -> None:
        self._entries: dict[str, bytes] = {}
        self._proxies: list[str] = []
        """Names of proxies; their numbers begin with 1."""
        self._numbers: dict[str, int] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def get(self, key: str) -> SessionEntry | None:
        """The entry of a key; None where there is none."""
        data = self._entries.get(key)
        if data is None:
            return None
        number, offset, before, _, _ = _HEAD.unpack_from(data)
        before_offset = before - 1 if before else None
        if len(data) == _HEAD.size:
            return SessionEntry(offset - 1, before_offset, "", None)
        tail = _decode(memoryview(data)[_HEAD.size :])
        proxy = self._proxies[number - 1] if number else ""
        claim = proxy + tail.claim if tail.is_short else tail.claim
        if tail.subscriptions is None:
            return SessionEntry(offset - 1, before_offset, claim, None)
        session = StoredSession(
            tail.client_id or key,
            tail.user,
            claim,
            proxy,
            tail.expiry_s,
            tail.away_ms,
            tail.has_queue,
            tail.subscriptions,
            tail.will,
        )
        return SessionEntry(offset - 1, before_offset, claim, session)

    def put(self, key: str, offset: int, session: StoredSession | None, *, keeps: bool) -> None:
        """A record of the key came: of a session, which is kept as a whole where `keeps`, or of something else."""
        held = self._entries.get(key)
        before: int = 0 if held is None else _OFFSET.unpack_from(held)[0]
        if session is None:
            self._entries[key] = _HEAD.pack(0, offset + 1, before, 0, 0)
            return
        claim, proxy = session.claim, session.proxy
        is_short = bool(proxy) and claim.startswith(proxy)
        keeps = keeps and not session.unfinished
        tail = _Tail(
            "" if session.client_id == key or not keeps else session.client_id,
            claim[len(proxy) :] if is_short else claim,
            is_short,
            session.user if keeps else "",
            session.expiry_s,
            session.away_ms,
            session.has_queue,
            session.subscriptions if keeps else None,
            session.will if keeps else None,
        )
        if claim:
            head = _HEAD.pack(self._number_of(proxy), offset + 1, before, 0, 0)
        else:
            head = _HEAD.pack(0, offset + 1, before, session.expires_ms or 0, session.will_ms or 0)
        self._entries[key] = head + _encode(tail)

    def remove(self, key: str) -> None:
        """The key is gone."""
        self._entries.pop(key, None)

    def clear(self) -> None:
        """All keys are gone."""
        self._entries.clear()

    def find_unattended(self, proxies: Container[str], now_ms: int, wills_ms: int) -> Iterator[str]:
        """The keys of sessions that are over at `now_ms`, of those that connections of other proxies than these have,
        and of those whose client is away and whose will was due at `wills_ms`."""
        live = {number.to_bytes(_PROXY_BYTES, "little") for name, number in self._numbers.items() if name in proxies}
        for key, data in self._entries.items():
            number = data[:_PROXY_BYTES]
            if number != _NOBODY:
                if number not in live:
                    yield key
                continue
            _, _, _, expires_ms, will_ms = _HEAD.unpack_from(data)
            if 0 < expires_ms <= now_ms or 0 < will_ms <= wills_ms:
                yield key

    def _number_of(self, proxy: str) -> int:
        number = self._numbers.get(proxy)
        if number is None:
            self._proxies.append(proxy)
            number = self._numbers[proxy] = len(self._proxies)
        return number
