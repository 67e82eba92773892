"""Stores all sessions and the connection that owns each; of two claims the later record wins.

Every proxy follows the records. In memory are the keys, the offsets of their records, and what the small ones say.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from typing import Final

from millstream.model.clock import Clock
from millstream.model.errors import ConsumeRefused, MillstreamError
from millstream.model.state_topics import MQTT_SESSIONS_TOPIC
from millstream.proxy.backend import BrokerBackend
from millstream.proxy.mqtt.session_entries import SessionEntries
from millstream.proxy.mqtt.session_records import (
    StoredPacketIds,
    StoredSession,
    decode_claim,
    decode_packet_ids,
    decode_session,
    encode_record,
    packet_ids_key,
    session_key,
)
from millstream.proxy.state_topics import StateTopic

__all__ = ["MAX_CLAIM_TRIES", "MAX_KEPT_BYTES", "MAX_SUPERSEDED", "Claimed", "SessionStore"]

_log = logging.getLogger(__name__)

_PROXY_PREFIX: Final = "|proxy-"
"""What the keys of proxies begin with, which no escaped client id does."""

MAX_CLAIM_TRIES: Final = 8
"""Attempts to claim a session that others claim at the same time."""

MAX_KEPT_BYTES: Final = 512
"""Bytes of a session's record up to which what it says stays in memory, where a client that comes back has it at once;
most have some 150. A larger one, as with a large will or many subscriptions, is read from the store."""

MAX_SUPERSEDED: Final = 10_000
"""Claims of connections that lost their sessions to others of late, of which further records do not count."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A session that was claimed: as it was before, None where it is new, and as it is now."""

    before: StoredSession | None
    session: StoredSession


class SessionStore:
    """From `start` to `close`; all from one event loop. `on_change` is called with the key of a session and the claim
    that it has now, blank for none, at every record that counts.

    A record that a connection stored when it had lost the session does not count: all proxies see the two in one order.
    `on_late` is called with the same for it: it is the last one of its key, which a compaction would keep.
    """

    def __init__(
        self,
        backend: BrokerBackend,
        clock: Clock,
        on_change: Callable[[str, str], None],
        on_late: Callable[[str, str], None],
    ) -> None:
        self._topic = StateTopic(backend, MQTT_SESSIONS_TOPIC, clock=clock)
        self._topic.listen(self._apply, self._forget)
        self._clock = clock
        self._on_change = on_change
        self._on_late = on_late
        self._superseded: dict[str, None] = {}
        self._entries = SessionEntries()
        self._confirming: asyncio.Task[None] | None = None
        self._next_confirming: asyncio.Task[None] | None = None
        self.proxies: dict[str, int] = {}
        """The proxies that serve MQTT, and when each said so last, in milliseconds since 1970."""

    async def start(self) -> None:
        """Begin to follow the records."""
        await self._topic.start()

    async def close(self) -> None:
        """Follow them no more."""
        await self._topic.close()
        confirming = [one for one in (self._confirming, self._next_confirming) if one is not None]
        await asyncio.gather(*confirming, return_exceptions=True)

    async def ready(self) -> None:
        """Return when all records are known that were there at the start."""
        await self._topic.ready()

    async def load(self, client_id: str) -> StoredSession | None:
        """The session of a client id as the last record has it; None where there is none."""
        await self._topic.ready()
        return await self.load_key(session_key(client_id))

    async def load_packet_ids(self, client_id: str) -> StoredPacketIds:
        """The packet identifiers of QoS 2 that a client's session left."""
        data = await self._read(packet_ids_key(session_key(client_id)))
        return StoredPacketIds() if data is None else decode_packet_ids(data)

    async def claim(self, client_id: str, make: Callable[[StoredSession | None], StoredSession]) -> Claimed:
        """Have the session that `make` makes of the one before, whose `claim` is new. Raises what `make` raises, and
        SESSION_CLAIMED where other connections claim it all the time."""
        await self._topic.ready()
        key = session_key(client_id)
        held = self._entries.get(key)
        before = None if held is None else await self.load(client_id)
        for _ in range(MAX_CLAIM_TRIES):
            expected = None if held is None else held.offset
            mine = make(before)
            offset = await self._topic.put(key, encode_record(mine))
            await self._topic.reach(offset)
            held = self._entries.get(key)
            if held is None or not held.claim:
                # The proxy that the client left said so too late to see this claim.
                before = None if held is None else await self.load(client_id)
                continue
            if held.claim != mine.claim:
                break
            if held.before == expected:
                return Claimed(before, mine)
            # Another proxy changed it meanwhile: that is what it was before.
            data = None if held.before is None else await self._topic.read(held.before)
            before = None if data is None else decode_session(data)
        raise ConsumeRefused("SESSION_CLAIMED", f"Another connection claimed the session of {client_id[:80]!r}.")

    def has(self, client_id: str, claim: str) -> bool:
        """Whether that claim is the last one of the client id."""
        held = self._entries.get(session_key(client_id))
        return held is not None and held.claim == claim

    def says(self, session: StoredSession) -> bool:
        """Whether the last record of a session is this one, as far as is known without a look into the store."""
        held = self._entries.get(session_key(session.client_id))
        return held is not None and held.session == session

    async def confirm(self, proxy: str) -> None:
        """Return once all is known here that was stored before this call: by one record of the proxy, that it is there,
        for all who ask meanwhile. Raises what storing raises."""
        if self._next_confirming is None:
            confirming = self._confirm_after(self._confirming, proxy)
            self._next_confirming = asyncio.create_task(confirming, name="mqtt-confirm")
        await asyncio.shield(self._next_confirming)

    async def _confirm_after(self, earlier: asyncio.Task[None] | None, proxy: str) -> None:
        if earlier is not None:
            await asyncio.wait((earlier,))
        # Who asks from now on may ask for what is stored later than this record.
        self._confirming, self._next_confirming = self._next_confirming, None
        await self._topic.reach(await self.put_proxy(proxy, self._clock.now_ms()))

    async def put(self, session: StoredSession) -> None:
        """Store what a session is now."""
        await self._topic.put(session_key(session.client_id), encode_record(session))

    async def put_packet_ids(self, client_id: str, packet_ids: StoredPacketIds) -> int:
        """Store the packet identifiers of a session, nothing of none; the offset of the record, -1 without one."""
        key = packet_ids_key(session_key(client_id))
        if packet_ids.received or packet_ids.released or packet_ids.shared:
            return await self._topic.put(key, encode_record(packet_ids))
        return await self._topic.delete(key) if key in self._entries else -1

    async def has_since(self, client_id: str, claim: str, offset: int) -> bool:
        """Whether that claim is the last one of the client id, with all known that was stored up to the offset."""
        await self._topic.reach(offset)
        return self.has(client_id, claim)

    async def delete(self, client_id: str) -> None:
        """Have the session no more."""
        key = session_key(client_id)
        for one in (packet_ids_key(key), key):
            if one in self._entries:
                await self._topic.delete(one)

    async def put_proxy(self, proxy: str, now_ms: int) -> int:
        """Say that a proxy is there; the offset of the record."""
        return await self._topic.put(_PROXY_PREFIX + proxy, str(now_ms).encode())

    async def delete_proxy(self, proxy: str) -> None:
        """Say that it is not any more."""
        await self._topic.delete(_PROXY_PREFIX + proxy)

    def find_unattended(self, proxies: Container[str], now_ms: int, wills_ms: int) -> Iterator[str]:
        """See `SessionEntries`."""
        return self._entries.find_unattended(proxies, now_ms, wills_ms)

    async def load_key(self, key: str) -> StoredSession | None:
        """As `load`, by its key."""
        entry = self._entries.get(key)
        if entry is not None and entry.session is not None:
            return entry.session
        data = await self._read(key)
        return None if data is None else decode_session(data)

    async def _read(self, key: str) -> bytes | None:
        while (entry := self._entries.get(key)) is not None:
            data = await self._topic.read(entry.offset)
            held = self._entries.get(key)
            if data is not None or held is None or held.offset == entry.offset:
                return data
        return None

    def _apply(self, key: str, value: bytes | None, offset: int) -> None:
        if key.startswith(_PROXY_PREFIX):
            self._apply_proxy(key.removeprefix(_PROXY_PREFIX), value)
            return
        if value is None:
            self._entries.remove(key)
            self._on_change(key, "")
            return
        if "/" in key:
            if not self._is_late(key, value):
                self._entries.put(key, offset, None, keeps=False)
            return
        try:
            said = decode_session(value)
        except MillstreamError as error:
            _log.error("%s", error)
            return
        held = self._entries.get(key) if said.claim else None
        if held is not None and said.claim in self._superseded:
            self._on_late(key, held.claim)
            return
        if held is not None and held.claim and held.claim != said.claim:
            self._superseded[held.claim] = None
            if len(self._superseded) > MAX_SUPERSEDED:
                del self._superseded[next(iter(self._superseded))]
        self._entries.put(key, offset, said, keeps=len(value) <= MAX_KEPT_BYTES)
        self._on_change(key, said.claim)

    def _is_late(self, key: str, value: bytes) -> bool:
        """Whether packet identifiers were stored by a connection that had lost the session: all proxies see the two
        records in one order, so for none of them do they count."""
        session = self._entries.get(key.partition("/")[0])
        if session is None or not session.claim:
            return False
        try:
            claim = decode_claim(value)
        except MillstreamError as error:
            _log.error("%s", error)
            return True
        return bool(claim) and claim != session.claim

    def _apply_proxy(self, proxy: str, value: bytes | None) -> None:
        if value is None or not value.isdigit():
            self.proxies.pop(proxy, None)
        else:
            self.proxies[proxy] = int(value)

    def _forget(self) -> None:
        self._entries.clear()
        self._superseded.clear()
        self.proxies.clear()
