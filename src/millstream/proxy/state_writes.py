"""Records that several write at the same time, stored together and in the order in which they came."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from millstream.model.errors import ConnectionFailed, ConsumeRefused
from millstream.model.message import OutgoingMessage
from millstream.model.operations import SendReceipt

__all__ = ["MAX_PUT_BYTES", "MAX_PUT_RECORDS", "MAX_WAITING_PUTS", "StateWrites"]

MAX_WAITING_PUTS: Final = 20_000
"""Puts of one topic that wait to be stored at most; a further one is refused."""

MAX_PUT_RECORDS: Final = 1000
"""Records of one topic that are stored together at most; a single put may have more."""

MAX_PUT_BYTES: Final = 1024 * 1024
"""Bytes of values that are stored together at most; a single put may have more."""


class _Put(NamedTuple):
    messages: Sequence[OutgoingMessage]
    size_bytes: int
    stored: asyncio.Future[Sequence[SendReceipt]]


class StateWrites:
    """The writes of one topic, one request at a time; all from one event loop. `store` stores messages, all or none."""

    def __init__(
        self, topic: str, store: Callable[[Sequence[OutgoingMessage]], Awaitable[Sequence[SendReceipt]]]
    ) -> None:
        self._topic = topic
        self._store = store
        self._waiting: deque[_Put] = deque()
        self._writing: asyncio.Task[None] | None = None
        self._is_closed = False

    async def put(self, messages: Sequence[OutgoingMessage]) -> Sequence[SendReceipt]:
        """Where the messages were stored, which they are together or not at all. Raises TOO_MANY_REQUESTS, Unreachable
        once it is closed, and what storing raises."""
        if self._is_closed:
            raise self._closed_error()
        if len(self._waiting) >= MAX_WAITING_PUTS:
            raise ConsumeRefused(
                "TOO_MANY_REQUESTS",
                f"{MAX_WAITING_PUTS} records wait to be stored in {self._topic}, which is the limit.",
            )
        stored: asyncio.Future[Sequence[SendReceipt]] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Put(messages, sum(len(message.body) for message in messages), stored))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write(), name=f"state-writes-{self._topic}")
        return await stored

    async def close(self) -> None:
        """Write no more; what waits to be stored fails as Unreachable."""
        self._is_closed = True
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)
        for put in self._waiting:
            _fail(put, self._closed_error())
        self._waiting.clear()

    def _closed_error(self) -> ConnectionFailed:
        return ConnectionFailed("UNREACHABLE", f"The proxy closes; {self._topic} is no longer followed.")

    async def _write(self) -> None:
        """One request at a time, so that records are stored in the order of their puts."""
        while self._waiting:
            puts = self._next_puts()
            try:
                receipts = await self._store([message for put in puts for message in put.messages])
            except asyncio.CancelledError:
                for put in puts:
                    put.stored.cancel()
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the writers' answer
                if len(puts) > 1 and not isinstance(error, ConnectionFailed):
                    # One that is refused must not fail the others, which only came at the same time.
                    await self._write_each(puts)
                    continue
                for put in puts:
                    _fail(put, error)
                continue
            position = 0
            for put in puts:
                end = position + len(put.messages)
                _succeed(put, receipts[position:end])
                position = end

    async def _write_each(self, puts: list[_Put]) -> None:
        for put in puts:
            try:
                receipts = await self._store(put.messages)
            except Exception as error:  # noqa: BLE001 - as above
                _fail(put, error)
            else:
                _succeed(put, receipts)

    def _next_puts(self) -> list[_Put]:
        puts = [self._waiting.popleft()]
        count, size_bytes = len(puts[0].messages), puts[0].size_bytes
        while self._waiting:
            count += len(self._waiting[0].messages)
            size_bytes += self._waiting[0].size_bytes
            if count > MAX_PUT_RECORDS or size_bytes > MAX_PUT_BYTES:
                break
            puts.append(self._waiting.popleft())
        return puts


def _succeed(put: _Put, receipts: Sequence[SendReceipt]) -> None:
    if not put.stored.done():
        put.stored.set_result(receipts)


def _fail(put: _Put, error: Exception) -> None:
    if not put.stored.done():
        put.stored.set_exception(error)
