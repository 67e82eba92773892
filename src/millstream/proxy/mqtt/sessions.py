"""The sessions of connected clients, loaded from and saved to the store."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, Final

import msgspec

from millstream.model.errors import MillstreamError
from millstream.model.message import Address
from millstream.model.routing.routes import LightQueueConfig
from millstream.protocol.mqtt.packets import Connect, Will
from millstream.protocol.mqtt.reason_codes import ReasonCode
from millstream.protocol.mqtt.topics import parse_shared_filter
from millstream.protocol.mqtt.windows import IncomingWindow
from millstream.proxy.mqtt.client_link import ClientLink
from millstream.proxy.mqtt.connection import MAX_RECEIVE, MqttConnection
from millstream.proxy.mqtt.light_queue_reader import LightQueueReader
from millstream.proxy.mqtt.light_routes import SESSION_GROUP, session_queue_name
from millstream.proxy.mqtt.packet_id_log import PacketIdLog
from millstream.proxy.mqtt.parked_sessions import ParkedSessions, can_go_on, can_park
from millstream.proxy.mqtt.refusal_reasons import ConnectRefused
from millstream.proxy.mqtt.services import MqttServices
from millstream.proxy.mqtt.session import MqttSession, session_expiry_s
from millstream.proxy.mqtt.session_records import (
    StoredPacketIds,
    StoredSession,
    StoredSubscription,
    StoredWill,
    session_key,
)
from millstream.proxy.mqtt.session_store import SessionStore
from millstream.proxy.mqtt.shared_deliveries import acknowledge_shared
from millstream.proxy.mqtt.shares import ShareTable
from millstream.proxy.mqtt.subscriptions import SessionSubscription
from millstream.proxy.mqtt.unattended_sessions import UnattendedSessions
from millstream.proxy.mqtt.wills import WillPublisher

__all__ = [
    "MAX_CLAIMING",
    "MAX_POP",
    "SessionTable",
]

_log = logging.getLogger(__name__)

MAX_POP: Final = 32
"""Messages that are taken from the light queue of a session at a time at most."""

MAX_CLAIMING: Final = 256
"""Clients of a port whose sessions are claimed and restored at a time; further ones wait for them. What thousands have
half done would only be looked at for garbage again and again, and be out of the processor's caches."""

_SESSIONS_A_TURN: Final = 200

_QUEUE_GRACE_MS: Final = 60_000
"""How much longer than its session a light queue lives, so that a session never lacks it."""


@dataclass(slots=True)
class _Turn:
    """Connections of one client id that want its session, one after the other."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    coming: int = 0
    is_overlaid: bool = False
    """Whether a late record of another connection came since."""


class SessionTable:
    """One session for each client id. `start` before use, `close` after the connections are closed."""

    def __init__(self, services: MqttServices, shares: ShareTable, wills: WillPublisher) -> None:
        self._services = services
        self._shares = shares
        self._wills = wills
        self._backend = services.backend
        self._proxy = uuid.uuid4().hex[:12]
        self._numbers = count(1)
        self._known_gaps = 0
        self._sessions: dict[str, MqttSession] = {}
        """By the keys of their records."""
        self._parked = ParkedSessions()
        self._turns: dict[str, _Turn] = {}
        """By the same keys."""
        self._claiming = asyncio.Semaphore(MAX_CLAIMING)
        self._leaving: dict[str, set[asyncio.Task[None]]] = {}
        """What is still done of a client that left, by its client id."""
        self._routes = services.routes
        self.store = SessionStore(services.backend, services.clock, self._note_claim, self._note_late)
        self.unattended = UnattendedSessions(services, self.store, wills, self._proxy, self._new_claim)
        wills.on_published = self.note_will_published

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def parked(self) -> int:
        """Those of them that wait for clients whose connections were cut."""
        return len(self._parked)

    async def start(self) -> None:
        """Begin to follow the store."""
        await self.store.start()

    async def settle(self) -> None:
        """Return when what the connections left is in the store."""
        while self._leaving:
            tasks = [task for some in self._leaving.values() for task in some]
            await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        """Follow the store no more."""
        await self.settle()
        with suppress(MillstreamError):
            await self.store.delete_proxy(self._proxy)
        await self.store.close()

    # A client comes

    async def claim(self, connect: Connect, user: str, connection: MqttConnection) -> tuple[MqttSession, bool]:
        """The session of a client, and whether it was there before. An older connection of the client id is closed
        [MQTT-3.1.4-3]. NOT_AUTHORIZED where it is another user's."""
        key = session_key(connect.client_id)
        turn = self._turns.setdefault(key, _Turn())
        turn.coming += 1
        try:
            async with turn.lock, self._claiming:
                session, is_present = await self._claim(connect, user, connection)
                if turn.is_overlaid:
                    turn.is_overlaid = False
                    self._run(self.save(session), session.client_id)
                return session, is_present
        finally:
            turn.coming -= 1
            if not turn.coming:
                del self._turns[key]

    async def _claim(self, connect: Connect, user: str, connection: MqttConnection) -> tuple[MqttSession, bool]:
        await self._end_here(connect.client_id, user)
        parked = await self._unpark(connect, connection)
        if parked is not None:
            return parked, True
        claim = self._new_claim()
        try:
            return await self._claim_as(claim, connect, user, connection)
        except ConnectRefused:
            raise
        except BaseException:
            # Nobody else would end what a client has that is not let in.
            session = self._sessions.get(session_key(connect.client_id))
            if session is not None:
                self._take_out(session)
            self._run(self._give_back(connect.client_id, claim, session), connect.client_id)
            raise

    async def _claim_as(
        self, claim: str, connect: Connect, user: str, connection: MqttConnection
    ) -> tuple[MqttSession, bool]:
        services, client_id, expiry_s = self._services, connect.client_id, session_expiry_s(connect)

        def make(before: StoredSession | None) -> StoredSession:
            if before is not None and before.user != user:
                raise ConnectRefused(ReasonCode.NOT_AUTHORIZED, "The client id is another user's.")
            kept = before if before is not None and self._goes_on(before, connect) else None
            return StoredSession(
                client_id,
                user,
                claim,
                self._proxy,
                expiry_s,
                has_queue=kept is not None and kept.has_queue,
                subscriptions=[] if kept is None else kept.subscriptions,
                unfinished=[] if kept is None else kept.unfinished,
                will=None if connect.will is None else StoredWill.of(connect.will),
            )

        claimed = await self.store.claim(client_id, make)
        before = claimed.before
        self._wills.recall(client_id)
        goes_on = before is not None and self._goes_on(before, connect)
        if before is not None:
            self._note_doubtful_will(before, goes_on=goes_on)
        if before is not None and not goes_on:
            await self.unattended.discard(before)
        stored_ids = await self.store.load_packet_ids(client_id) if goes_on else StoredPacketIds()
        packet_ids = PacketIdLog(self.store, client_id, claim, stored_ids) if expiry_s or goes_on else None
        session = MqttSession(
            client_id,
            user,
            claim,
            connection,
            services.traffic,
            expiry_s=expiry_s,
            will=connect.will,
            packet_ids=packet_ids,
        )
        session.is_claimed = True
        session.is_new = before is None
        self._sessions[session_key(client_id)] = session
        self._count()
        connection.incoming = IncomingWindow(MAX_RECEIVE, () if packet_ids is None else packet_ids.received)
        if goes_on and before is not None:
            # Where a connection had the session, whoever served it may be gone with what was not acknowledged.
            await self._restore(session, claimed.session, connection.peer, releases=bool(before.claim))
        return session, goes_on

    def _note_doubtful_will(self, before: StoredSession, *, goes_on: bool) -> None:
        """A connection that another proxy served had a will: that proxy may be gone without publishing it."""
        will = before.will
        if will is None or not before.claim or before.proxy == self._proxy:
            return
        if goes_on and will.delay_s(before.expiry_s):
            # The client is back before it is due.
            return
        self._wills.doubt(before)

    def _goes_on(self, before: StoredSession, connect: Connect) -> bool:
        """Whether the client gets the session that was there."""
        expires_ms = before.expires_ms
        is_over = expires_ms is not None and expires_ms <= self._services.clock.now_ms()
        # One whose connection never said its end is over where it would have ended with it.
        return not connect.clean_start and not is_over and (before.expiry_s > 0 or expires_ms is not None)

    async def _restore(self, session: MqttSession, stored: StoredSession, peer: Address, *, releases: bool) -> None:
        if stored.has_queue:
            await self._open_queue(session)
            await self._declare(session, expires_ms=None)
            if releases and session.queue is not None:
                session.queue.take_over()
        ids = session.packet_ids
        if ids is not None:
            ids.shared |= {one.packet_id: one for one in stored.unfinished if one.packet_id not in ids.released}
            if stored.unfinished:
                await ids.write()
            if releases:
                await acknowledge_shared(self._backend, ids.shared.values())
        is_less = False
        for one in stored.subscriptions:
            shared = parse_shared_filter(one.topic_filter)
            topic_filter = one.topic_filter if shared is None else shared.topic_filter
            if not self._services.access.may_receive(session.client, topic_filter, peer):
                # The rules changed while the client was away.
                _log.warning("%r may not have %r any more.", session.client_id[:80], one.topic_filter[:200])
                is_less = True
                if shared is None and one.qos:
                    await self.unbind(session, topic_filter)
                continue
            made = SessionSubscription(
                session,
                topic_filter,
                one.qos,
                one.no_local,
                one.retain_as_published,
                one.subscription_id,
            )
            # Before the rest: what does not come to its end is taken out with it.
            session.subscriptions[one.topic_filter] = made
            if shared is not None:
                await self._shares.join(session, made, shared.group)
            await self._services.subscriptions.add(made)
        if is_less:
            await self.save(session)

    async def _end_here(self, client_id: str, user: str) -> None:
        """Let an older connection of this proxy go, and all that it left be in the store."""
        held = self._sessions.get(session_key(client_id))
        if held is not None and held.user != user:
            raise ConnectRefused(ReasonCode.NOT_AUTHORIZED, "The client id is another user's.")
        connection = None if held is None else held.connection
        if held is not None and connection is not None:
            self._services.statistics.takeovers += 1
            connection.refuse(ReasonCode.SESSION_TAKEN_OVER, "Another connection has the client id now.")
            self._begin_leaving(held, connection)
        await self._await_leaving(client_id)

    async def _unpark(self, connect: Connect, connection: MqttConnection) -> MqttSession | None:
        """The session that waits here for the client, if it is what the client asks for and nobody claimed it
        meanwhile; one that is not goes into the store."""
        key = session_key(connect.client_id)
        away_ms = self._parked.pop(key)
        if away_ms is None:
            return None
        session = self._sessions[key]
        if can_go_on(session, connect) and self._may_receive_all(session, connection):
            try:
                # What another proxy stored before this CONNECT came is known then, and what comes later ends this one.
                await self.store.confirm(self._proxy)
            except BaseException:
                # The client did not come in.
                if self._parked.has_room:
                    self._parked.add(key, self._services.clock.monotonic_s(), away_ms)
                else:
                    self._end_connection(session, None, away_ms)
                raise
            if self.store.has(session.client_id, session.claim):
                connection.incoming = IncomingWindow(MAX_RECEIVE)
                session.unpark(connection)
                self._count()
                return session
        self._end_connection(session, None, away_ms)
        await self._await_leaving(session.client_id)
        return None

    def end_parking(self) -> None:
        """Store that those clients are away that did not come back soon."""
        for key, away_ms in self._parked.pop_due(self._services.clock.monotonic_s()).items():
            self._end_connection(self._sessions[key], None, away_ms)

    def stop_parking(self) -> None:
        """Store that all are away, and let no session wait for its client from now on."""
        for key, away_ms in self._parked.close().items():
            self._end_connection(self._sessions[key], None, away_ms)

    def _new_claim(self) -> str:
        return f"{self._proxy}-{next(self._numbers)}"

    def _count(self) -> None:
        self._services.traffic.sessions = len(self._sessions) - len(self._parked)

    async def _await_leaving(self, client_id: str) -> None:
        if client_id in self._leaving:
            await asyncio.gather(*self._leaving[client_id], return_exceptions=True)

    # Its subscriptions change

    async def bind(self, session: MqttSession, topic_filter: str) -> None:
        """Let the light queue of a lasting session have what the filter matches; it is made with the first one."""
        name = session_queue_name(session.client_id)
        topics = self._services.rules.topics_for(topic_filter)
        if session.queue is None:
            await self._open_queue(session)
            bindings = [(topic, topic_filter) for topic in topics]
            await self._routes.declare(name, LightQueueConfig("mqtt", SESSION_GROUP), bindings)
            if session.is_new:
                # Nothing is there yet, and of what comes from now on the feed tells.
                return
        else:
            await self._routes.bind(name, topics, topic_filter)
        if session.queue is not None:
            session.queue.wake()

    async def unbind(self, session: MqttSession, topic_filter: str) -> None:
        """Let it have that no more."""
        name = session_queue_name(session.client_id)
        await self._routes.unbind(name, self._services.rules.topics_for(topic_filter), topic_filter)

    async def save(self, session: MqttSession) -> None:
        """Store what the session is now, if it is still this connection's."""
        if session.is_lasting and self.store.has(session.client_id, session.claim):
            await self.store.put(self._record_of(session, session.claim))

    async def _open_queue(self, session: MqttSession) -> None:
        brokers = await self._routes.brokers()
        session.queue = LightQueueReader(
            self._backend,
            self._services.clock,
            SESSION_GROUP,
            session_queue_name(session.client_id),
            brokers,
            max_pop=MAX_POP,
            taker=session,
            holding=self._services.holding,
        )

    async def _declare(self, session: MqttSession, *, expires_ms: int | None) -> None:
        config = LightQueueConfig("mqtt", SESSION_GROUP, expires_ms)
        await self._routes.declare(session_queue_name(session.client_id), config)

    # A client goes

    def leave(self, connection: MqttConnection) -> None:
        """The connection is gone."""
        session = connection.session
        if session is not None and session.connection is connection:
            self._begin_leaving(session, connection)

    def abandon(self, session: MqttSession) -> None:
        """The client of a session was gone before it was let in."""
        if session.connection is not None:
            self._end_connection(session, None)

    def note_will_published(self, client_id: str) -> None:
        """The will of a client that is away was published."""
        self._run(self._forget_will(client_id), client_id)

    def _begin_leaving(self, session: MqttSession, connection: ClientLink) -> None:
        can_wait = self._parked.has_room and can_park(session, connection)
        if can_wait and self.store.says(self._record_of(session, session.claim)):
            session.park()
            clock = self._services.clock
            self._parked.add(session_key(session.client_id), clock.monotonic_s(), clock.now_ms())
            self._count()
            return
        self._end_connection(session, session.will if connection.will_is_due else None)

    def _end_connection(self, session: MqttSession, will: Will | None, away_ms: int | None = None) -> None:
        """Take a session out of all tables, and store what it is without a client, who is away since `away_ms`."""
        self._take_out(session)
        self._run(self._leave(session, will, away_ms), session.client_id)

    def _take_out(self, session: MqttSession) -> None:
        """Hand a session nothing any more."""
        session.connection = None
        session.is_claimed = False
        for subscription in session.subscriptions.values():
            self._services.subscriptions.remove(subscription)
            if subscription.share is not None:
                self._shares.forget(subscription)

    def _run(self, work: Coroutine[Any, Any, None], client_id: str) -> None:
        task = asyncio.create_task(work, name="mqtt-leave")
        self._leaving.setdefault(client_id, set()).add(task)
        task.add_done_callback(partial(self._note_left, client_id))

    def _note_left(self, client_id: str, task: asyncio.Task[None]) -> None:
        tasks = self._leaving[client_id]
        tasks.discard(task)
        if not tasks:
            del self._leaving[client_id]
        error = None if task.cancelled() else task.exception()
        if isinstance(error, MillstreamError):
            _log.warning("The session of %r could not be stored: %s", client_id[:80], error)
        elif error is not None:
            _log.error("The session of %r could not be stored", client_id[:80], exc_info=error)

    async def _leave(self, session: MqttSession, will: Will | None, away_ms: int | None) -> None:
        """Bring a session into the store, or end it; then its will is due."""
        client_id = session.client_id
        delay_s = 0 if will is None else StoredWill.of(will).delay_s(session.expiry_s)
        try:
            await self._release(session)
            if self.store.has(client_id, session.claim):
                if session.expiry_s:
                    session.will = will if delay_s else None
                    stored = self._record_of(session, "", away_ms)
                    await self.store.put(stored)
                    if session.queue is not None and stored.expires_ms is not None:
                        await self._declare(session, expires_ms=stored.expires_ms + _QUEUE_GRACE_MS)
                else:
                    await self.unattended.discard(self._record_of(session, ""))
                    await self.store.delete(client_id)
            else:
                # Another connection has the session: only what is published at once is still due.
                will = will if not delay_s else None
        except MillstreamError as error:
            _log.warning("The session of %r could not be stored: %s", client_id[:80], error)
        finally:
            self._forget(session)
        if will is not None:
            self._wills.publish_later(client_id, session.user, will, delay_s)

    async def _release(self, session: MqttSession) -> None:
        """Give back what was taken for a session, and have its packet identifiers in the store."""
        await session.close_readers()
        for one in session.subscriptions.values() if session.has_shares else ():
            if one.share is not None:
                self._shares.wake(one.share.name)
        if session.packet_ids is not None:
            await session.packet_ids.settle()

    def _forget(self, session: MqttSession) -> None:
        key = session_key(session.client_id)
        if self._sessions.get(key) is session:
            del self._sessions[key]
            self._count()
        # They lead back to the session: only a look for cycles would find the two.
        session.subscriptions = {}

    async def _give_back(self, client_id: str, claim: str, session: MqttSession | None) -> None:
        """End a claim that may have been stored, of a client that was not let in. The session is what was stored with
        the claim: not all of it may be here."""
        if session is not None:
            try:
                await self._release(session)
            except MillstreamError as error:
                _log.warning("The session of %r could not be given back whole: %s", client_id[:80], error)
            finally:
                self._forget(session)
        await self.store.confirm(self._proxy)
        stored = await self.store.load(client_id)
        if stored is not None and stored.claim == claim:
            now_ms = self._services.clock.now_ms()
            left = msgspec.structs.replace(stored, claim="", proxy="", away_ms=now_ms, will=None)
            await self.unattended.keep(left)

    async def _forget_will(self, client_id: str) -> None:
        stored = await self.store.load(client_id)
        if stored is not None and not stored.claim and stored.will is not None:
            stored.will = None
            await self.store.put(stored)

    def _record_of(self, session: MqttSession, claim: str, away_ms: int | None = None) -> StoredSession:
        return StoredSession(
            session.client_id,
            session.user,
            claim,
            self._proxy if claim else "",
            session.expiry_s,
            0 if claim else away_ms or self._services.clock.now_ms(),
            session.queue is not None,
            [
                StoredSubscription(name, one.qos, one.no_local, one.retain_as_published, one.subscription_id)
                for name, one in session.subscriptions.items()
            ],
            None if session.will is None else StoredWill.of(session.will),
        )

    async def _rescue(self, session: MqttSession) -> None:
        """Bring a session that was deleted back into the store."""
        await self.store.put(self._record_of(session, session.claim))
        if session.queue is not None:
            for one in session.subscriptions.values():
                if one.qos and one.share is None:
                    await self._declare(session, expires_ms=None)
                    await self.bind(session, one.topic_filter)

    # What is done from time to time

    async def wake_behind_gaps(self) -> None:
        """Have the light queues read for all sessions where the feed passed over records: it told of none of them."""
        gaps = self._services.subscriptions.gaps
        if gaps == self._known_gaps:
            return
        self._known_gaps = gaps
        for number, session in enumerate(list(self._sessions.values())):
            if session.queue is not None:
                session.queue.wake()
            if not number % _SESSIONS_A_TURN:
                await asyncio.sleep(0)

    async def renew(self) -> None:
        """Keep what clients have not acknowledged for them."""
        for number, reader in enumerate(list(self._services.holding)):
            await reader.renew()
            if not number % _SESSIONS_A_TURN:
                await asyncio.sleep(0)

    async def check_access(self) -> None:
        """Close the connections of clients that may not have their subscriptions any more."""
        for number, session in enumerate(list(self._sessions.values())):
            connection = session.connection
            if connection is not None and not self._may_receive_all(session, connection):
                connection.refuse(ReasonCode.NOT_AUTHORIZED, "The user may not have its subscriptions any more.")
            if not number % _SESSIONS_A_TURN:
                await asyncio.sleep(0)

    def _may_receive_all(self, session: MqttSession, connection: ClientLink) -> bool:
        may_receive = self._services.access.may_receive
        subscriptions = session.subscriptions.values()
        return all(may_receive(session.client, one.topic_filter, connection.peer) for one in subscriptions)

    # What other proxies do

    def _note_claim(self, key: str, claim: str) -> None:
        """A record of a session came: where another connection has it now, the one here gives way."""
        session = self._sessions.get(key)
        if not claim:
            if session is not None and session.connection is not None and session.is_claimed:
                # Somebody who took the session for one that is over came too late to see its claim.
                self._run(self._rescue(session), session.client_id)
            return
        if claim.startswith(self._proxy):
            return
        if session is None or session.claim == claim:
            return
        if self._parked.pop(key) is not None:
            # All of it is in the store, and somebody else's.
            for subscription in session.subscriptions.values():
                self._services.subscriptions.remove(subscription)
            session.drop()
            del self._sessions[key]
        elif session.connection is not None:
            self._services.statistics.takeovers += 1
            session.connection.refuse(ReasonCode.SESSION_TAKEN_OVER, "Another connection has the client id now.")

    def _note_late(self, key: str, claim: str) -> None:
        """A record that does not count lies over that of the session: who has it stores it again."""
        if not claim.startswith(self._proxy):
            return
        session, turn = self._sessions.get(key), self._turns.get(key)
        if turn is not None:
            # Once all of the session is here.
            turn.is_overlaid = True
        elif session is not None and session.claim == claim:
            self._run(self.save(session), session.client_id)
