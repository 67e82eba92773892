"""Reading the light queue of a session while its client is here: as many messages as the client may get, and no more.

What the client has not acknowledged when it goes is made visible again at once, so the next connection gets it in the
order in which it was stored. A packet identifier comes from the offset in the light queue: a message that is sent
again, by whichever proxy, has the one that it had [MQTT-4.4.0-1].
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from millstream.model.backoff import Backoff
from millstream.model.clock import Clock
from millstream.model.errors import MillstreamError
from millstream.model.handles import ReceiptHandle
from millstream.model.light_queue import LIGHT_QUEUE_NUMBER, light_queue
from millstream.model.operations import AckRequest, ChangeInvisibleRequest, PoppedMessage, PopRequest
from millstream.proxy.backend import BrokerBackend
from millstream.proxy.mqtt.light_routes import SESSION_GROUP

__all__ = ["INVISIBLE_MS", "MAX_POP", "MAX_QUEUE_PACKET_ID", "RENEW_AFTER_S", "SessionQueue", "TakenMessage"]

_log = logging.getLogger(__name__)

INVISIBLE_MS: Final = 60_000
"""Milliseconds for which a message that was sent to a client is nobody else's; renewed while the client is here."""

RENEW_AFTER_S: Final = 20.0
"""Seconds after which that is renewed."""

MAX_QUEUE_PACKET_ID: Final = 60_000
"""Packet identifiers up to this stand for messages of the light queue; the others are free for retained ones."""

MAX_POP: Final = 32
"""Messages that are taken from the light queue at a time at most."""

_RETRY: Final = Backoff(0.1, 5.0)


@dataclass(slots=True, eq=False)
class TakenMessage:
    """One delivery of the light queue, and when its time began."""

    handle: ReceiptHandle
    taken_s: float


class SessionQueue:
    """The light queue of one session at all brokers. `room` says how many messages the client may get now, `is_free`
    whether a packet identifier stands for nothing. `take` gets each message with its packet identifier and says whether
    it is still to be acknowledged."""

    def __init__(
        self,
        backend: BrokerBackend,
        clock: Clock,
        name: str,
        brokers: Sequence[str],
        *,
        room: Callable[[], int],
        is_free: Callable[[int], bool],
        take: Callable[[PoppedMessage, TakenMessage, int], bool],
    ) -> None:
        self._backend = backend
        self._clock = clock
        self._topic = light_queue(name)
        self._brokers = tuple(brokers)
        self._room = room
        self._is_free = is_free
        self._take = take
        self._reading: asyncio.Task[None] | None = None
        self._is_wanted = False
        self._is_open = True
        self._taken: set[TakenMessage] = set()
        self._acknowledged: deque[TakenMessage] = deque()
        self._acknowledging: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """There may be messages, or room for some."""
        self._is_wanted = True
        if self._reading is None and self._is_open:
            self._reading = asyncio.create_task(self._read(), name="mqtt-session")

    def acknowledge(self, taken: TakenMessage) -> None:
        """The client has the message."""
        self._taken.discard(taken)
        self._acknowledged.append(taken)
        if self._acknowledging is None:
            self._acknowledging = asyncio.create_task(self._acknowledge_all(), name="mqtt-session-acks")

    async def renew(self) -> None:
        """Keep what the client has not acknowledged for it."""
        now_s = self._clock.monotonic_s()
        for taken in [one for one in self._taken if now_s - one.taken_s >= RENEW_AFTER_S]:
            taken.taken_s = now_s
            request = ChangeInvisibleRequest(SESSION_GROUP, self._topic, taken.handle, INVISIBLE_MS, renewal=True)
            with suppress(MillstreamError):
                taken.handle = await self._backend.change_invisible(request)

    async def close(self) -> None:
        """Read no more; what was not acknowledged is made visible again."""
        self._is_open = False
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        if self._acknowledging is not None:
            await asyncio.gather(self._acknowledging, return_exceptions=True)
        taken, self._taken = self._taken, set()
        for one in sorted(taken, key=lambda held: held.handle.queue_offset):
            await self._release(one.handle)

    async def _release(self, handle: ReceiptHandle) -> None:
        with suppress(MillstreamError):
            await self._backend.change_invisible(ChangeInvisibleRequest(SESSION_GROUP, self._topic, handle, 0))

    async def _read(self) -> None:
        attempt = 0
        try:
            while self._is_open and self._is_wanted and self._room() > 0:
                self._is_wanted = False
                try:
                    for number in range(len(self._brokers)):
                        await self._read_broker(number)
                except MillstreamError as error:
                    _log.info("the session queue %s cannot be read now: %s", self._topic, error)
                    self._is_wanted = True
                    await asyncio.sleep(_RETRY.wait_s(attempt))
                    attempt += 1
                else:
                    attempt = 0
        except Exception:  # noqa: BLE001 - the task's edge: who waits for messages must not wait for ever
            _log.exception("the session queue %s cannot be read", self._topic)
        finally:
            self._reading = None

    async def _read_broker(self, number: int) -> None:
        room = self._room()
        if room <= 0:
            self._is_wanted = True
            return
        request = PopRequest(
            SESSION_GROUP, self._topic, INVISIBLE_MS, LIGHT_QUEUE_NUMBER, max_messages=min(room, MAX_POP)
        )
        popped = await self._backend.pop(self._brokers[number], request)
        now_s = self._clock.monotonic_s()
        for position, one in enumerate(popped):
            taken = TakenMessage(one.handle, now_s)
            packet_id = self._packet_id(one.handle.queue_offset, number)
            if not self._is_open or not self._is_free(packet_id):
                # The client is gone, or has not acknowledged one that lies `MAX_QUEUE_PACKET_ID` places before it.
                for rest in popped[position:]:
                    await self._release(rest.handle)
                return
            self._taken.add(taken)
            if not self._take(one, taken, packet_id):
                self.acknowledge(taken)
        self._is_wanted = self._is_wanted or len(popped) > 0

    def _packet_id(self, queue_offset: int, broker: int) -> int:
        """Of several brokers each has identifiers of its own."""
        share = MAX_QUEUE_PACKET_ID // len(self._brokers)
        return queue_offset % share * len(self._brokers) + broker + 1

    async def _acknowledge_all(self) -> None:
        try:
            while self._acknowledged:
                taken = self._acknowledged.popleft()
                # One that was delivered to another connection meanwhile is that one's to acknowledge.
                with suppress(MillstreamError):
                    await self._backend.ack(AckRequest(SESSION_GROUP, self._topic, taken.handle))
        finally:
            self._acknowledging = None
