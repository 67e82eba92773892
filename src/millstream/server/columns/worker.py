"""The process that copies for a broker: `python -m millstream.server.columns.worker OPTIONS`.

It obeys one order at a time and ends with its standard input. What takes the processor for long, and needs packages
that a broker does not, happens here alone.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from millstream.model.errors import ExtraMissing, MillstreamError
from millstream.server.columns.orders import (
    ORDERS,
    Answer,
    CheckColumns,
    Copied,
    CopyMessages,
    Done,
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
from millstream.tiered.objects import ObjectStore
from millstream.tiered.places import ObjectPlace

if TYPE_CHECKING:
    from millstream.tiered.columns.iceberg_tables import IcebergTables

__all__ = ["ColumnWorker", "main"]

NICENESS: Final = 5
"""How far the process stands back behind its broker where both want the processor."""


class ColumnWorker:
    """Does what orders say with one object store. `url` is its address for others; blank `catalog`: files alone."""

    def __init__(self, open_objects: Callable[[], ObjectStore], url: str, catalog: str = "") -> None:
        self._open_objects = open_objects
        self._url = url
        self._catalog = catalog
        self._opened: ObjectStore | None = None
        self._opened_tables: IcebergTables | None = None

    def obey(self, order: Order) -> Answer:
        """Do it; what came of it."""
        try:
            return self._obey(order)
        except MillstreamError as error:
            return OrderRefused(error.name, error.message, error.remedy)
        except ImportError as error:
            missing = ExtraMissing("A copy of cold topics as tables", error.name, extra="columns")
            return OrderRefused(missing.name, missing.message, missing.remedy)
        except Exception as error:  # noqa: BLE001 - told to the broker, which tries again
            return OrderRefused("COLUMN_COPY_FAILED", f"{type(error).__name__}: {error}"[:1000])

    def close(self) -> None:
        """Let go of the store and the catalogue."""
        if self._opened_tables is not None:
            self._opened_tables.close()
        if self._opened is not None:
            self._opened.close()

    def _obey(self, order: Order) -> Answer:
        match order:
            case CheckColumns(columns, body_format, accepted):
                from millstream.server.columns.column_changes import check_change, read_fields
                from millstream.server.columns.declaration import parse_columns

                declared = parse_columns(columns, body_format)
                declared.decoder()
                if accepted:
                    check_change(read_fields(accepted), declared.fields)
                return Done()
            case CopyMessages(request):
                from millstream.server.columns.conversion import copy_messages

                return Copied(copy_messages(self._objects, request))
            case KeepTable(wanted):
                from millstream.server.columns.declaration import parse_columns

                return Kept(self._tables.keep(wanted, parse_columns(wanted.columns, wanted.body_format).schema))
            case DropTable(cluster, topic):
                self._tables.drop(cluster, topic)
                return Done()
            case TidyTable(cluster, topic, before_ms):
                return Done(self._tables.tidy(cluster, topic, before_ms))
            case ListFiles(cluster, topic, after):
                return Listed(self._tables.list_files(cluster, topic, after))

    @property
    def _objects(self) -> ObjectStore:
        if self._opened is None:
            self._opened = self._open_objects()
        return self._opened

    @property
    def _tables(self) -> IcebergTables:
        if self._opened_tables is None:
            from millstream.tiered.columns.iceberg_tables import IcebergTables
            from millstream.tiered.columns.object_io import StorePlace

            self._opened_tables = IcebergTables(self._catalog, StorePlace(self._objects, self._url))
        return self._opened_tables


def main(arguments: list[str]) -> int:
    """Obey the lines of standard input until it ends."""
    options = msgspec.json.decode(arguments[0], type=WorkerOptions)
    # What libraries print must not come between answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    os.nice(NICENESS)
    place = ObjectPlace(options.url, options.endpoint, options.region)
    worker = ColumnWorker(place.open, options.url, options.catalog)
    # Rows make no circles, and looking for some takes longer than half of the work.
    gc.disable()
    for line in sys.stdin.buffer:
        answers.write(msgspec.json.encode(worker.obey(ORDERS.decode(line))) + b"\n")
        answers.flush()
        gc.collect()
    worker.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
