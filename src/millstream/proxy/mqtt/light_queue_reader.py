"""Reads a light queue for a connected client, within its receive maximum.

What the client has not acknowledged when it goes is made visible again at once: the next connection of a session gets
it in the order in which it was stored, and of a shared subscription another member.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from millstream.model.backoff import Backoff
from millstream.model.clock import Clock
from millstream.model.errors import MillstreamError
from millstream.model.handles import ReceiptHandle
from millstream.model.light_queue import LIGHT_QUEUE_NUMBER, light_queue
from millstream.model.operations import AckRequest, ChangeInvisibleRequest, PoppedMessage, PopRequest
from millstream.proxy.backend import BrokerBackend
from millstream.proxy.stored_body import is_packed, unpack

__all__ = ["INVISIBLE_MS", "RENEW_AFTER_S", "LightQueueReader", "QueueTaker", "Taken", "TakenMessage"]

_log = logging.getLogger(__name__)

INVISIBLE_MS: Final = 60_000
"""Milliseconds for which a message that was sent to a client is nobody else's; renewed while the client is here."""

RENEW_AFTER_S: Final = 20.0
"""Seconds after which that is renewed."""

_RETRY: Final = Backoff(0.1, 5.0)


class Taken(Enum):
    """What became of a message that a client was to get."""

    WAITS = "waits for its acknowledgement"
    DONE = "needs none"
    KEPT = "is its taker's to acknowledge, or to leave to its time"
    REFUSED = "cannot be taken now, nor what is behind it"


@dataclass(slots=True, eq=False)
class TakenMessage:
    """One delivery of a light queue, and when its time began."""

    reader: LightQueueReader
    handle: ReceiptHandle
    taken_s: float

    def acknowledge(self) -> None:
        """The client has it."""
        self.reader.acknowledge(self)


class QueueTaker(Protocol):
    """The client of a light queue."""

    @property
    def room(self) -> int:
        """How many messages it may get now."""
        ...

    def take(self, popped: PoppedMessage, taken: TakenMessage, broker: int) -> Taken:
        """Take a message; `broker` is the number of its broker, 0 for the first."""
        ...

    def note_drained(self) -> None:
        """There is nothing more than what it took."""
        ...


class LightQueueReader:
    """One light queue at all brokers, read by its group for one client.

    `taker` says how many messages the client may get now, and gets them. At most `max_pop` are taken at a time.
    """

    __slots__ = (
        "_acknowledged",
        "_acknowledging",
        "_backend",
        "_clock",
        "_holding",
        "_is_open",
        "_is_wanted",
        "_max_pop",
        "_reading",
        "_taken",
        "_taker",
        "_unreleased",
        "brokers",
        "group",
        "name",
    )

    def __init__(
        self,
        backend: BrokerBackend,
        clock: Clock,
        group: str,
        name: str,
        brokers: Sequence[str],
        *,
        max_pop: int,
        taker: QueueTaker,
        holding: set[LightQueueReader],
    ) -> None:
        """`holding` is the set of all readers that may have something to renew; it puts itself there."""
        self.brokers = tuple(brokers)
        self.name = name
        self._backend = backend
        self._clock = clock
        self.group = group
        self._max_pop = max_pop
        self._taker = taker
        self._holding = holding
        self._reading: asyncio.Task[None] | None = None
        self._is_wanted = False
        self._is_open = True
        # None as long as there are none, as with most.
        self._taken: dict[TakenMessage, None] | None = None
        self._acknowledged: list[TakenMessage] | None = None
        self._acknowledging: asyncio.Task[None] | None = None
        self._unreleased: set[str] | None = None

    @property
    def _topic(self) -> str:
        """The light queue's stored name."""
        return light_queue(self.name)

    def wake(self) -> None:
        """There may be messages, or room for some."""
        self._is_wanted = True
        if self._reading is None and self._is_open:
            self._reading = asyncio.create_task(self._read(), name="mqtt-session")

    @property
    def is_read(self) -> bool:
        """Whether the client has, and has acknowledged, all that was there when it was last woken."""
        waits = self._is_wanted or self._reading is not None or self._unreleased
        return not (waits or self._taken or self._acknowledged or self._acknowledging is not None)

    def pause(self) -> None:
        """Read nothing until `resume`, which then knows whether there may be messages."""
        self._is_open = False

    def resume(self) -> None:
        """Read again, if there may be messages."""
        self._is_open = True
        if self._is_wanted:
            self.wake()

    def acknowledge(self, taken: TakenMessage) -> None:
        """The client has the message."""
        if self._taken is not None:
            self._taken.pop(taken, None)
        if self._acknowledged is None:
            self._acknowledged = []
        self._acknowledged.append(taken)
        if self._acknowledging is None:
            self._acknowledging = asyncio.create_task(self._acknowledge_all(), name="mqtt-session-acks")

    def take_over(self) -> None:
        """What others took and have not acknowledged is this reader's; before the first `wake`."""
        self._unreleased = {*self.brokers}

    async def renew(self) -> None:
        """Keep what the client has not acknowledged for it."""
        if not self._taken:
            self._holding.discard(self)
            return
        now_s = self._clock.monotonic_s()
        for taken in [one for one in self._taken if now_s - one.taken_s >= RENEW_AFTER_S]:
            taken.taken_s = now_s
            request = ChangeInvisibleRequest(self.group, self._topic, taken.handle, INVISIBLE_MS, renewal=True)
            with suppress(MillstreamError):
                taken.handle = await self._backend.change_invisible(request)

    async def acknowledge_first(self, taken: TakenMessage) -> None:
        """Let nobody else have a message, before the client gets it. Raises what the broker raises."""
        await self._backend.ack(AckRequest(self.group, self._topic, taken.handle))

    async def settle(self) -> None:
        """Return when all is said that was acknowledged."""
        if self._acknowledging is not None:
            await asyncio.gather(self._acknowledging, return_exceptions=True)

    async def close(self) -> None:
        """Read no more; what was not acknowledged is made visible again."""
        self._is_open = False
        self._holding.discard(self)
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        await self.settle()
        taken, self._taken = self._taken, None
        for one in sorted(taken or (), key=lambda held: held.handle.queue_offset):
            await self._release(one.handle)
        for broker in self._unreleased or ():
            # The next reader of the session is not told that somebody else had it before.
            with suppress(MillstreamError):
                await self._backend.release_deliveries(broker, self.group, self._topic)
        self.forget()

    def forget(self) -> None:
        """Lead back to the session no more: only a look for cycles would find the two."""
        self._taker = _NOBODY

    async def _release(self, handle: ReceiptHandle, *, uncounted: bool = False) -> None:
        """Make a message visible again. `uncounted`: it was not sent."""
        with suppress(MillstreamError):
            await self._backend.change_invisible(
                ChangeInvisibleRequest(self.group, self._topic, handle, 0, suspend=uncounted)
            )

    async def _release_rest(self, popped: Sequence[PoppedMessage]) -> None:
        """Make visible what was not sent; to the end, although this task is cancelled meanwhile."""
        releasing = asyncio.gather(*[self._release(one.handle, uncounted=True) for one in popped])
        try:
            await asyncio.shield(releasing)
        except asyncio.CancelledError:
            await releasing
            raise

    async def _read(self) -> None:
        attempt = 0
        try:
            while self._is_open and self._is_wanted and self._taker.room > 0:
                self._is_wanted = False
                try:
                    for number in range(len(self.brokers)):
                        await self._read_broker(number)
                except MillstreamError as error:
                    _log.info("the light queue %s cannot be read now: %s", self._topic, error)
                    self._is_wanted = True
                    attempt += 1
                else:
                    attempt = 0
                    if not self._is_wanted:
                        self._taker.note_drained()
                if attempt:
                    # Here nothing knows the messages that could not be taken, as the error does.
                    await asyncio.sleep(_RETRY.wait_s(attempt - 1))
        except Exception:  # noqa: BLE001 - the task's edge: who waits for messages must not wait for ever
            _log.exception("the light queue %s cannot be read", self._topic)
        finally:
            self._reading = None

    async def _read_broker(self, number: int) -> None:
        room = self._taker.room
        if room <= 0:
            self._is_wanted = True
            return
        request = PopRequest(
            self.group, self._topic, INVISIBLE_MS, LIGHT_QUEUE_NUMBER, max_messages=min(room, self._max_pop)
        )
        # Once it was sent, a message comes again until it is acknowledged, whatever its time [MQTT-4.3.3-7].
        request.takes_expired = True
        broker = self.brokers[number]
        request.releases = self._unreleased is not None and broker in self._unreleased
        popped = await self._backend.pop(broker, request)
        if self._unreleased is not None:
            self._unreleased.discard(broker)
            self._unreleased = self._unreleased or None
        now_s = self._clock.monotonic_s()
        for position, one in enumerate(popped):
            if is_packed(one.message):
                # While a thread works on it those behind it wait, so that their order is kept.
                try:
                    one.message = await unpack(one.message)
                except BaseException:
                    await self._release_rest(popped[position:])
                    raise
            taken = TakenMessage(self, one.handle, now_s)
            outcome = self._taker.take(one, taken, number) if self._is_open else Taken.REFUSED
            if outcome is Taken.REFUSED:
                await self._release_rest(popped[position:])
                return
            if outcome is Taken.KEPT:
                continue
            if self._taken is None:
                self._taken = {}
            self._taken[taken] = None
            self._holding.add(self)
            if outcome is Taken.DONE:
                self.acknowledge(taken)
        self._is_wanted = self._is_wanted or len(popped) > 0

    async def _acknowledge_all(self) -> None:
        try:
            while self._acknowledged:
                acknowledged, self._acknowledged = self._acknowledged, None
                for taken in acknowledged:
                    # One that was delivered to another connection meanwhile is that one's to acknowledge.
                    with suppress(MillstreamError):
                        await self._backend.ack(AckRequest(self.group, self._topic, taken.handle))
        finally:
            self._acknowledging = None


class _Nobody:
    """A client that is gone."""

    room = 0

    def take(self, popped: PoppedMessage, taken: TakenMessage, broker: int) -> Taken:
        return Taken.REFUSED

    def note_drained(self) -> None:
        """It does not matter."""


_NOBODY: Final = _Nobody()
