"""Bytes from one socket to another and back, as they are."""

from __future__ import annotations

import asyncio
from typing import Final, cast

__all__ = ["Relay"]

_WRITE_HIGH_WATER_BYTES: Final = 256 * 1024
"""Unsent bytes of a direction over which nothing more is read from its source."""


class Relay(asyncio.Protocol):
    """One end. Whatever arrives is written to the other end, which is closed when this one is.

    The first end keeps what arrives before the second one is made with it.
    """

    def __init__(self, other: Relay | None = None) -> None:
        self.other = other
        self._transport: asyncio.Transport | None = None
        self._early: list[bytes] = []
        if other is not None:
            other.other = self

    @property
    def local_port(self) -> int:
        """The port of this side's own end."""
        assert self._transport is not None
        return int(self._transport.get_extra_info("sockname")[1])

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH_WATER_BYTES)
        if self.other is not None:
            early, self.other._early = self.other._early, []
            self._transport.writelines(early)

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other._transport is not None:
            self.other._transport.write(data)
        else:
            # A server of HTTP/2 speaks first, with one short frame. Not paused instead: uvloop would read all the same.
            self._early.append(data)

    def pause_writing(self) -> None:
        if self.other is not None and self.other._transport is not None:
            self.other._transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other._transport is not None:
            self.other._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self.close_other()

    def close_other(self) -> None:
        """Close the other end, after what was written to it."""
        if self.other is not None and self.other._transport is not None:
            self.other._transport.close()

    def close(self) -> None:
        """Close this end at once."""
        if self._transport is not None:
            self._transport.abort()
