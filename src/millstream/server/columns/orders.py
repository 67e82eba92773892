"""What a broker and the process that copies for it say to each other: lines of JSON, an answer to each order."""

from __future__ import annotations

from typing import Final

import msgspec

from millstream.model.errors import MillstreamError
from millstream.tiered.columns.column_work import CopiedFile, CopyRequest, TableFiles, TableRequest, TableState

__all__ = [
    "ANSWERS",
    "MAX_ANSWER_BYTES",
    "ORDERS",
    "Answer",
    "CheckColumns",
    "Copied",
    "CopyMessages",
    "Done",
    "DropTable",
    "KeepTable",
    "Kept",
    "ListFiles",
    "Listed",
    "Order",
    "OrderRefused",
    "TidyTable",
    "WorkerOptions",
]

MAX_ANSWER_BYTES: Final = 1024 * 1024
"""Bytes of one answer at most; a file has a number for each queue."""


class WorkerOptions(msgspec.Struct, frozen=True):
    """The object store as `ObjectPlace` has it, and the catalogue of tables; blank: there are files alone."""

    url: str
    endpoint: str = ""
    region: str = ""
    catalog: str = ""


class CheckColumns(msgspec.Struct, frozen=True, tag="check"):
    """See `ColumnWork.check`; so with the others."""

    columns: str
    body_format: str
    accepted: str


class CopyMessages(msgspec.Struct, frozen=True, tag="copy"):
    """Put a file."""

    request: CopyRequest


class KeepTable(msgspec.Struct, frozen=True, tag="keep"):
    """Bring a table to hold files."""

    request: TableRequest


class DropTable(msgspec.Struct, frozen=True, tag="drop"):
    """Forget a table."""

    cluster: str
    topic: str


class TidyTable(msgspec.Struct, frozen=True, tag="tidy"):
    """Forget old snapshots of a table."""

    cluster: str
    topic: str
    before_ms: int


class ListFiles(msgspec.Struct, frozen=True, tag="list"):
    """Tell the files of a table."""

    cluster: str
    topic: str
    after: str


Order = CheckColumns | CopyMessages | KeepTable | DropTable | TidyTable | ListFiles


class Done(msgspec.Struct, frozen=True, tag="done"):
    """It is done; `count` objects were deleted by it."""

    count: int = 0


class Copied(msgspec.Struct, frozen=True, tag="copied"):
    """A file is there."""

    file: CopiedFile


class Kept(msgspec.Struct, frozen=True, tag="kept"):
    """A table is as it should be."""

    table: TableState


class Listed(msgspec.Struct, frozen=True, tag="listed"):
    """What a table names."""

    files: TableFiles


class OrderRefused(msgspec.Struct, frozen=True, tag="refused"):
    """The order failed, as a row of the catalogue of errors."""

    name: str
    message: str
    remedy: str | None = None

    def error(self) -> MillstreamError:
        """The error that it tells of."""
        return MillstreamError(self.name, self.message, remedy=self.remedy)


Answer = Done | Copied | Kept | Listed | OrderRefused

ORDERS: Final[msgspec.json.Decoder[Order]] = msgspec.json.Decoder(Order)
ANSWERS: Final[msgspec.json.Decoder[Answer]] = msgspec.json.Decoder(Answer)
