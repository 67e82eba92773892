"""The work of copying cold topics, done in the process of the test, with a place for a crash around each order."""

from __future__ import annotations

from collections.abc import Callable

from millstream.server.columns.orders import (
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
)
from millstream.server.columns.worker import ColumnWorker
from millstream.tiered.columns.column_work import CopiedFile, CopyRequest, TableFiles, TableRequest, TableState


class Crash(BaseException):
    """The process ends here: nothing may go on behind it, as behind an error."""


class InlineWork:
    """`ColumnWork` in this process. `hook` hears each order before it is obeyed and behind it, and may raise."""

    def __init__(self, worker: ColumnWorker, hook: Callable[[str, Order], None], *, tables: bool = True) -> None:
        self.worker, self.hook, self.keeps_tables = worker, hook, tables

    def _obey(self, order: Order) -> Answer:
        self.hook("before", order)
        answer = self.worker.obey(order)
        self.hook("after", order)
        if isinstance(answer, OrderRefused):
            raise answer.error()
        return answer

    async def check(self, columns: str, body_format: str, accepted: str) -> None:
        self._obey(CheckColumns(columns, body_format, accepted))

    async def copy(self, request: CopyRequest) -> CopiedFile:
        answer = self._obey(CopyMessages(request))
        assert isinstance(answer, Copied)
        return answer.file

    async def keep_table(self, request: TableRequest) -> TableState:
        answer = self._obey(KeepTable(request))
        assert isinstance(answer, Kept)
        return answer.table

    async def drop_table(self, cluster: str, topic: str) -> None:
        self._obey(DropTable(cluster, topic))

    async def tidy_table(self, cluster: str, topic: str, before_ms: int) -> int:
        self._obey(TidyTable(cluster, topic, before_ms))
        return 0

    async def list_files(self, cluster: str, topic: str, after: str) -> TableFiles:
        answer = self._obey(ListFiles(cluster, topic, after))
        assert isinstance(answer, Listed)
        return answer.files

    async def close(self) -> None:
        self.worker.close()
