"""The process that copies, as its broker sees it: started when there is work, ended when there is none."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import Final

import msgspec

from millstream.model.errors import MillstreamError
from millstream.server.columns.orders import (
    ANSWERS,
    MAX_ANSWER_BYTES,
    Answer,
    CheckColumns,
    Copied,
    CopyMessages,
    DropTable,
    KeepTable,
    Kept,
    Listed,
    ListFiles,
    Order,
    OrderRefused,
    TidyTable,
    WorkerOptions,
)
from millstream.tiered.columns.column_work import CopiedFile, CopyRequest, TableFiles, TableRequest, TableState

__all__ = ["ColumnProcess"]

IDLE_S: Final = 60.0
"""Seconds without work after which the process ends, and its memory with it."""

MAX_ORDER_S: Final = 900.0
"""Seconds that an order takes at most; then the process is killed, and the order is given again later."""


class ColumnProcess:
    """See `ColumnWork`. One order at a time; an order that is cancelled ends the process."""

    def __init__(self, options: WorkerOptions, *, idle_s: float = IDLE_S) -> None:
        self._options = options
        self._idle_s = idle_s
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._idle: asyncio.TimerHandle | None = None

    @property
    def keeps_tables(self) -> bool:
        """See `ColumnWork`."""
        return bool(self._options.catalog)

    @property
    def pid(self) -> int | None:
        """The number of the process; None while there is none."""
        return None if self._process is None else self._process.pid

    async def check(self, columns: str, body_format: str, accepted: str) -> None:
        """See `ColumnWork`."""
        await self._order(CheckColumns(columns, body_format, accepted))

    async def copy(self, request: CopyRequest) -> CopiedFile:
        """See `ColumnWork`."""
        answer = await self._order(CopyMessages(request))
        assert isinstance(answer, Copied)
        return answer.file

    async def keep_table(self, request: TableRequest) -> TableState:
        """See `ColumnWork`."""
        answer = await self._order(KeepTable(request))
        assert isinstance(answer, Kept)
        return answer.table

    async def drop_table(self, cluster: str, topic: str) -> None:
        """See `ColumnWork`."""
        await self._order(DropTable(cluster, topic))

    async def tidy_table(self, cluster: str, topic: str, before_ms: int) -> int:
        """See `ColumnWork`."""
        return getattr(await self._order(TidyTable(cluster, topic, before_ms)), "count", 0)

    async def list_files(self, cluster: str, topic: str, after: str) -> TableFiles:
        """See `ColumnWork`."""
        answer = await self._order(ListFiles(cluster, topic, after))
        assert isinstance(answer, Listed)
        return answer.files

    async def close(self) -> None:
        """End the process, with what it has under way."""
        self._keep_awake()
        await self._end()

    async def _order(self, order: Order) -> Answer:
        async with self._turn:
            self._keep_awake()
            try:
                answer = await self._ask(order)
            finally:
                self._idle = asyncio.get_running_loop().call_later(self._idle_s, self._fall_asleep)
        if isinstance(answer, OrderRefused):
            raise answer.error()
        return answer

    async def _ask(self, order: Order) -> Answer:
        try:
            process = self._process or await self._start()
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(msgspec.json.encode(order) + b"\n")
            async with asyncio.timeout(MAX_ORDER_S):
                await process.stdin.drain()
                line = await process.stdout.readline()
            return ANSWERS.decode(line)
        except (OSError, ValueError, TimeoutError) as error:
            # A line that is cut off, or none: the process has ended, or is of no use any more.
            code = await self._end()
            words = f"The process that copies ended with {code}: {type(error).__name__} {error}"
            raise MillstreamError("COLUMN_COPY_FAILED", words.strip()) from None
        except BaseException:
            await self._end()
            raise

    async def _start(self) -> asyncio.subprocess.Process:
        options = msgspec.json.encode(self._options).decode()
        # A session of its own: Ctrl-C of the terminal is for the broker.
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "millstream.server.columns.worker", options),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=MAX_ANSWER_BYTES,
        )
        return self._process

    def _keep_awake(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _fall_asleep(self) -> None:
        """Nothing is under way: the end of its input is the end of the process."""
        self._idle = None
        if self._process is not None and self._process.stdin is not None and not self._turn.locked():
            self._process.stdin.close()
            self._ending = asyncio.create_task(self._wait(self._process))
            self._process = None

    async def _wait(self, process: asyncio.subprocess.Process) -> None:
        await process.wait()

    async def _end(self) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        return await process.wait()
