"""The in-flight QoS 2 packet identifiers of a session, stored to survive crashes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from millstream.model.errors import MillstreamError
from millstream.proxy.mqtt.session_records import StoredDelivery, StoredPacketIds
from millstream.proxy.mqtt.session_store import SessionStore

__all__ = ["PacketIdLog"]


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
        self.received = {int(number): noted_ms for number, noted_ms in stored.received.items()}
        """Messages that came from the client and were not released, with the time at which that was noted."""
        self.released = dict.fromkeys(stored.released)
        """Messages that the client has, and whose PUBREL it has not answered."""
        self.shared = {one.packet_id: one for one in stored.shared if one.packet_id not in self.released}
        """Messages of shared subscriptions that go on with this client alone, which has not said that it has them."""
        self.left = frozenset(self.received) if self.received else _NONE
        """Those of `received` that an earlier connection left: whether their messages were stored is not known."""
        self._waiting: list[asyncio.Future[None]] | None = None
        self._writing: asyncio.Task[None] | None = None

    def write(self) -> asyncio.Future[None]:
        """Store what there is now; done when it is stored, or fails as that does."""
        written = asyncio.get_running_loop().create_future()
        if self._waiting is None:
            self._waiting = []
        self._waiting.append(written)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="mqtt-packet-ids")
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
        self.left -= {packet_id}

    async def _write(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, None
                said = StoredPacketIds(
                    {str(number): noted_ms for number, noted_ms in self.received.items()},
                    sorted(self.released),
                    list(self.shared.values()),
                    self._claim,
                )
                failure: MillstreamError | None = None
                try:
                    self._offset = await self._store.put_packet_ids(self._client_id, said)
                except MillstreamError as error:
                    failure = error
                for one in waiting:
                    if one.done():
                        continue
                    if failure is None:
                        one.set_result(None)
                    else:
                        one.set_exception(failure)
                        # Not everybody who writes waits.
                        one.exception()
        finally:
            self._writing = None
