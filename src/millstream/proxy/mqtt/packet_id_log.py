"""The in-flight QoS 2 packet identifiers of a session, stored to survive crashes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from millstream.model.errors import MillstreamError, Unreachable
from millstream.proxy.mqtt.session_records import StoredDelivery, StoredPacketIds
from millstream.proxy.mqtt.session_store import SessionStore

__all__ = ["Noted", "PacketIdLog"]

_log = logging.getLogger(__name__)

Noted = Callable[[MillstreamError | None], None]
"""Called when something is stored, or with why it is not."""

_NONE: Final[frozenset[int]] = frozenset()


class PacketIdLog:
    """Of one session. One record has what many packets of a turn changed."""

    __slots__ = (
        "_claim",
        "_client_id",
        "_offset",
        "_store",
        "_waiting",
        "_writing",
        "left",
        "received",
        "released",
        "shared",
    )

    def __init__(self, store: SessionStore, client_id: str, claim: str, stored: StoredPacketIds) -> None:
        self._store = store
        self._client_id = client_id
        self._claim = claim
        self._offset = -1
        self.received = dict(stored.received)
        """Messages that came from the client and were not released, with the time at which that was noted."""
        self.released = dict.fromkeys(stored.released)
        """Messages that the client has, and whose PUBREL it has not answered."""
        self.shared = {one.packet_id: one for one in stored.shared if one.packet_id not in self.released}
        """Messages of shared subscriptions that go on with this client alone, which has not said that it has them."""
        self.left = frozenset(self.received) if self.received else _NONE
        """Those of `received` that an earlier connection left: whether their messages were stored is not known."""
        self._waiting: list[Noted] | None = None
        self._writing: asyncio.Task[None] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing of QoS 2 is under way, as is stored."""
        return not (self.received or self.released or self.shared or self.left) and self._writing is None

    def note(self, noted: Noted) -> None:
        """Store what there is now, and call `noted` then. A future for each of many packets would cost more than all
        else that is done for it here."""
        if self._waiting is None:
            self._waiting = []
        self._waiting.append(noted)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="mqtt-packet-ids")

    def write(self) -> asyncio.Future[None]:
        """Store what there is now; done when it is stored, or fails as that does."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.note(partial(_settle, written))
        return written

    async def hold(self, deliveries: Sequence[StoredDelivery]) -> bool:
        """Store that these are the client's alone; False where another connection has the session by now, and may have
        read that or not. Raises what storing raises: then they are not this connection's to send."""
        self.shared |= {one.packet_id: one for one in deliveries}
        try:
            await self.write()
        except MillstreamError:
            for one in deliveries:
                self.shared.pop(one.packet_id, None)
            raise
        return await self._store.has_since(self._client_id, self._claim, self._offset)

    async def settle(self) -> None:
        """Return when all is stored."""
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)

    def forget_left(self, packet_id: int) -> None:
        """What an earlier connection left of the identifier is clear now."""
        if packet_id in self.left:
            self.left -= {packet_id}

    async def _write(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, None
                # Encoded before anything else can change them.
                said = StoredPacketIds(self.received, sorted(self.released), list(self.shared.values()), self._claim)
                failure: MillstreamError | None = None
                try:
                    self._offset = await self._store.put_packet_ids(self._client_id, said)
                except MillstreamError as error:
                    failure = error
                except BaseException:
                    _tell(waiting, Unreachable("The proxy closes; it is not known whether the packets were stored."))
                    raise
                _tell(waiting, failure)
        finally:
            self._writing = None


def _tell(waiting: Sequence[Noted], failure: MillstreamError | None) -> None:
    for noted in waiting:
        try:
            noted(failure)
        except Exception:  # noqa: BLE001 - the others wait for their packets, whatever went wrong with one
            _log.exception("a packet of QoS 2 could not be answered")


def _settle(written: asyncio.Future[None], failure: MillstreamError | None) -> None:
    if written.done():
        return
    if failure is None:
        written.set_result(None)
        return
    written.set_exception(failure)
    # Not everybody who writes waits.
    written.exception()
