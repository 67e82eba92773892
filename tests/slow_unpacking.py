"""An unpacking of bodies that takes as long as a test wants, and packed bodies for it."""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from millstream.model.message import OutgoingMessage, StoredMessage, SystemFlag
from millstream.proxy import stored_body
from millstream.proxy.grpc.message_encoder import plain_body
from millstream.transport.heavy_work import HEAVY_BYTES
from patience import PATIENCE_S

__all__ = ["HEAVY_BODY", "SlowUnpacking", "packed", "slow_unpacking"]

HEAVY_BODY = os.urandom(HEAVY_BYTES + 1)
"""A body that a thread has to unpack."""


class SlowUnpacking:
    """`begun` is set with the first body, and none is ready before `go_on`."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.threads: set[str] = set()
        """Who unpacked."""
        self.count = 0

    def unpack(self, message: StoredMessage) -> bytes:
        if not int(message.system_flag) & int(SystemFlag.COMPRESSED):
            return message.body
        self.threads.add(threading.current_thread().name.partition("_")[0])
        self.count += 1
        self.begun.set()
        assert self.go_on.wait(PATIENCE_S), "nobody let the unpacking go on: it holds the event loop"
        return plain_body(message)


@contextmanager
def slow_unpacking() -> Iterator[SlowUnpacking]:
    """Packed bodies are unpacked slowly within the block."""
    slow = SlowUnpacking()
    with mock.patch.object(stored_body, "plain_body", slow.unpack):
        try:
            yield slow
        finally:
            slow.go_on.set()


def packed(topic: str, body: bytes, **held: str) -> OutgoingMessage:
    """A message whose producer packed the body."""
    return OutgoingMessage(topic, zlib.compress(body, 1), dict(held), system_flag=SystemFlag.COMPRESSED)
