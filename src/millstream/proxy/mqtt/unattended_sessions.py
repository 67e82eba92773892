"""Sessions that nobody has: they are over, their wills are due, or the proxies of their connections are gone."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from millstream.model.errors import ConsumeRefused, MillstreamError
from millstream.model.light_queue import light_queue
from millstream.proxy.mqtt.light_routes import SESSION_GROUP, session_queue_name
from millstream.proxy.mqtt.services import MqttServices
from millstream.proxy.mqtt.session_records import StoredPacketIds, StoredSession
from millstream.proxy.mqtt.session_store import SessionStore
from millstream.proxy.mqtt.shared_deliveries import acknowledge_shared
from millstream.proxy.mqtt.wills import WillPublisher

__all__ = [
    "MAX_ENDED",
    "PROXY_INTERVAL_MS",
    "PROXY_LIFE_MS",
    "SWEEP_MS",
    "WILL_GRACE_MS",
    "UnattendedSessions",
]

_log = logging.getLogger(__name__)

PROXY_INTERVAL_MS: Final = 10_000
"""Milliseconds after which a proxy says again that it is there."""

PROXY_LIFE_MS: Final = 45_000
"""Milliseconds after which a proxy that has not said so is taken for gone: others look after its sessions."""

SWEEP_MS: Final = 5_000
"""Milliseconds between two looks at all sessions for some that nobody has."""

WILL_GRACE_MS: Final = 5_000
"""Milliseconds for which a will that is due is left to the proxy that its client left."""

MAX_ENDED: Final = 200
"""Sessions that nobody has that are ended in one turn at most."""


class UnattendedSessions:
    """Looked after by one proxy of all, the first that is there. `proxy` is the name of this one, and `new_claim` makes
    claims of it."""

    def __init__(
        self,
        services: MqttServices,
        store: SessionStore,
        wills: WillPublisher,
        proxy: str,
        new_claim: Callable[[], str],
    ) -> None:
        self._backend, self._routes, self._clock = services.backend, services.routes, services.clock
        self._store = store
        self._wills = wills
        self._proxy = proxy
        self._new_claim = new_claim
        self._said_ms = self._swept_ms = 0

    async def end(self, key: str) -> None:
        """Take over a session that no connection has: it is over, or left a will, or its proxy is gone. Then do what
        its proxy would have done. Nothing is done where a client came meanwhile."""
        found = await self._store.load_key(key)
        if found is None or not self._is_unattended(found):
            return
        claim = self._new_claim()

        def make(before: StoredSession | None) -> StoredSession:
            if before is None or not self._is_unattended(before):
                raise ConsumeRefused("SESSION_CLAIMED", "A client has the session again.")
            return msgspec.structs.replace(before, claim=claim, proxy=self._proxy)

        before = (await self._store.claim(found.client_id, make)).before
        assert before is not None
        if before.claim:
            await self._release_deliveries(before)
            await acknowledge_shared(self._backend, (await self._store.load_packet_ids(before.client_id)).shared)
        now_ms = self._clock.now_ms()
        away_ms = now_ms if before.claim else before.away_ms
        after = msgspec.structs.replace(before, claim="", proxy="", away_ms=away_ms)
        will = after.will if after.will_ms is not None and after.will_ms <= now_ms else None
        if will is not None:
            after.will = None
            self._wills.publish(after.client_id, after.user, will.will())
        await self.keep(after)

    async def keep(self, session: StoredSession) -> None:
        """Store a session that nobody has, or end it where its time is over."""
        expires_ms = session.expires_ms
        if expires_ms is None or expires_ms > self._clock.now_ms():
            await self._store.put(session)
            return
        await self.discard(session)
        await self._store.delete(session.client_id)

    async def _release_deliveries(self, session: StoredSession) -> None:
        """Make visible what a proxy that is gone took for a session: the next connection has to see all of it."""
        if session.has_queue:
            queue = light_queue(session_queue_name(session.client_id))
            for broker in await self._routes.brokers():
                await self._backend.release_deliveries(broker, SESSION_GROUP, queue)

    def _is_unattended(self, session: StoredSession) -> bool:
        if session.claim:
            return session.proxy not in self.live_proxies()
        now_ms, will_ms = self._clock.now_ms(), session.will_ms
        is_over = session.expires_ms is not None and session.expires_ms <= now_ms
        return is_over or (will_ms is not None and will_ms + WILL_GRACE_MS <= now_ms)

    def live_proxies(self) -> set[str]:
        """The proxies that have said of late that they are there, and this one."""
        oldest_ms = self._clock.now_ms() - PROXY_LIFE_MS
        return {self._proxy, *(proxy for proxy, said_ms in self._store.proxies.items() if said_ms >= oldest_ms)}

    async def look_after(self) -> None:
        """Say that this proxy is there; the first of all live ones ends the sessions that nobody has."""
        now_ms = self._clock.now_ms()
        if now_ms - self._said_ms >= PROXY_INTERVAL_MS:
            self._said_ms = now_ms
            await self._store.put_proxy(self._proxy, now_ms)
        live = self.live_proxies()
        self._wills.publish_doubtful(self._store.proxies, live)
        if self._proxy != min(live) or now_ms - self._swept_ms < SWEEP_MS:
            return
        self._swept_ms = now_ms
        keys = [*self._store.find_unattended(live, now_ms, now_ms - WILL_GRACE_MS)]
        for key in keys[:MAX_ENDED]:
            try:
                await self.end(key)
            except MillstreamError as error:
                _log.info("the session %s is left for later: %s", key[:80], error)

    async def discard(self, session: StoredSession) -> None:
        """Have nothing of a session any more but its record."""
        if session.has_queue:
            await self._routes.remove(session_queue_name(session.client_id))
        await self._store.put_packet_ids(session.client_id, StoredPacketIds())
