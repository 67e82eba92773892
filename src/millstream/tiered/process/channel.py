"""Sends and receives frames over a socket; calls block."""

from __future__ import annotations

import socket
import threading

from millstream.tiered.process.frames import PREFIX_BYTES, ColdFrame, FramePlan, encode_frame

__all__ = ["Channel"]


class Channel:
    """One end. Any thread sends, one receives. Raises OSError, BrokenFrame."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._sending = threading.Lock()

    def send(self, number: int, head: bytes, *body: bytes | memoryview) -> None:
        """Send a frame whole. ValueError for one that is too long."""
        pieces = [memoryview(piece) for piece in encode_frame(number, head, *body)]
        with self._sending:
            while pieces:
                sent = self._socket.sendmsg(pieces)
                while pieces and sent >= len(pieces[0]):
                    sent -= len(pieces.pop(0))
                if sent:
                    pieces[0] = pieces[0][sent:]

    def receive(self) -> ColdFrame | None:
        """The next frame; None where the other end has gone."""
        prefix = self._receive(PREFIX_BYTES)
        if not prefix:
            return None
        plan = FramePlan.of(prefix)
        return plan.frame(self._receive(plan.head_bytes), self._receive(plan.body_bytes))

    def fileno(self) -> int:
        """The descriptor, to be asked whether something came."""
        return self._socket.fileno()

    def hang_up(self) -> None:
        """Let both ends find that this one has gone."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def close(self) -> None:
        """Give the descriptor back."""
        self._socket.close()

    def _receive(self, size_bytes: int) -> bytes:
        """So many bytes, fewer where the other end has gone: one call of the system for all of them."""
        return self._socket.recv(size_bytes, socket.MSG_WAITALL) if size_bytes else b""
