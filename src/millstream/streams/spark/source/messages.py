"""The messages behind rows: single records, or a table of the bulk lane."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from millstream.client.bulk.fetched import plain_body
from millstream.model import properties as names
from millstream.model.properties import decode_properties
from millstream.protocol.record import RecordParts, bodies_of, split_record

__all__ = ["METADATA_KEYS", "Messages", "RecordMessages", "TableMessages"]

_FROM_RECORD: Final[dict[str, Callable[[RecordParts], Any]]] = {
    "queue-id": lambda record: record.queue_id,
    "queue-offset": lambda record: record.queue_offset,
    "born-timestamp": lambda record: record.born_timestamp_ms,
    "store-timestamp": lambda record: record.store_timestamp_ms,
}
_FROM_PROPERTIES: Final[dict[str, Callable[[dict[str, str]], Any]]] = {
    "message-id": lambda properties: properties.get(names.UNIQUE_KEY),
    "keys": lambda properties: tuple(properties.get(names.KEYS, "").split()) or None,
    "tag": lambda properties: properties.get(names.TAGS),
    "properties": lambda properties: {name: value for name, value in properties.items() if name not in names.RESERVED},
}
_NUMBERS: Final = {
    "queue-offset": "queue_offset",
    "born-timestamp": "born_timestamp_ms",
    "store-timestamp": "store_timestamp_ms",
}

METADATA_KEYS: Final = frozenset((*_FROM_RECORD, *_FROM_PROPERTIES, "topic"))
"""The keys that METADATA FROM may name."""


class Messages(Protocol):
    """Messages of one queue, in order."""

    def __len__(self) -> int:
        """How many."""
        ...

    def bodies(self) -> Sequence[bytes | memoryview]:
        """Their bodies, unpacked."""
        ...

    def views(self) -> Sequence[bytes | memoryview]:
        """The same without copies, as far as that can be."""
        ...

    def are_texts(self) -> bool:
        """Whether all bodies are known to be UTF-8; False where nobody has looked."""
        ...

    def body(self, position: int) -> bytes | memoryview:
        """One body, unpacked."""
        ...

    def queue_offset(self, position: int) -> int:
        """Where one of them lies."""
        ...

    def keep(self, positions: pa.Array) -> Messages:
        """Those at `positions` alone."""
        ...

    def metadata(self, key: str) -> Iterable[Any]:
        """The values of a metadata key other than `topic`: numbers, texts, a tuple of keys, a dict of properties."""
        ...

    def numbers(self, key: str) -> pa.Array | None:
        """The same as int64 where they are at hand in that form, else None."""
        ...


class RecordMessages:
    """Messages that were pulled: whole records, of which only what is asked for is taken apart."""

    def __init__(self, records: Sequence[memoryview]) -> None:
        self._records = records
        self._parts: list[RecordParts] | None = None
        self._properties: list[dict[str, str]] | None = None

    def __len__(self) -> int:
        return len(self._records)

    def bodies(self) -> Sequence[bytes | memoryview]:
        """Their bodies, unpacked."""
        return [
            plain_body(split_record(record)) if body is None else body
            for record, body in zip(self._records, bodies_of(self._records), strict=True)
        ]

    def views(self) -> Sequence[bytes | memoryview]:
        """The same: a body that is not packed is a view of its record."""
        return self.bodies()

    def are_texts(self) -> bool:
        """Nobody has looked."""
        return False

    def body(self, position: int) -> bytes | memoryview:
        """One body, unpacked."""
        return plain_body(split_record(self._records[position]))

    def queue_offset(self, position: int) -> int:
        """Where one of them lies."""
        return split_record(self._records[position]).queue_offset

    def keep(self, positions: pa.Array) -> RecordMessages:
        """Those at `positions` alone."""
        return RecordMessages([self._records[position] for position in positions.to_pylist()])

    def metadata(self, key: str) -> Iterable[Any]:
        """The values of a metadata key."""
        if self._parts is None:
            self._parts = [split_record(record) for record in self._records]
        if key in _FROM_RECORD:
            return map(_FROM_RECORD[key], self._parts)
        if self._properties is None:
            self._properties = [decode_properties(record.properties) for record in self._parts]
        return map(_FROM_PROPERTIES[key], self._properties)

    def numbers(self, key: str) -> pa.Array | None:
        """Nothing is at hand."""
        return None


class TableMessages:
    """Messages that were fetched by the bulk lane: rows of `client.bulk.fetched.TABLE_SCHEMA`."""

    def __init__(self, rows: pa.Table, queue_id: int, positions: pa.Array | None = None) -> None:
        self._rows = rows
        self._queue_id = queue_id
        self._positions = positions

    def __len__(self) -> int:
        return int(self._rows.num_rows) if self._positions is None else len(self._positions)

    def bodies(self) -> Sequence[bytes | memoryview]:
        """Their bodies."""
        # Chunk by chunk: to put them together first would copy them once more.
        column = self._rows.column("body") if self._positions is None else self._column("body")
        bodies: list[bytes] = column.to_pylist()
        return bodies

    def views(self) -> Sequence[bytes | memoryview]:
        """Their bodies as parts of the table's memory."""
        column = self._rows.column("body") if self._positions is None else self._column("body")
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        return [view for chunk in chunks for view in _views(chunk)]

    def are_texts(self) -> bool:
        """Looks through all of the table's memory at once: a tenth of what a look at each body costs."""
        try:
            self._rows.column("body").cast(pa.utf8())
        except pa.ArrowInvalid:
            return False
        return True

    def body(self, position: int) -> bytes | memoryview:
        """One body."""
        body: bytes = self._rows.column("body")[self._place(position)].as_py()
        return body

    def queue_offset(self, position: int) -> int:
        """Where one of them lies."""
        return int(self._rows.column("queue_offset")[self._place(position)].as_py())

    def keep(self, positions: pa.Array) -> TableMessages:
        """Those at `positions` alone."""
        places = positions if self._positions is None else self._positions.take(positions)
        return TableMessages(self._rows, self._queue_id, places)

    def metadata(self, key: str) -> Iterable[Any]:
        """The values of a metadata key."""
        match key:
            case "queue-id":
                return [self._queue_id] * len(self)
            case "tag":
                return list(self._column("tag").to_pylist())
            case "keys":
                return [tuple((key or "").split()) or None for key in self._column("key").to_pylist()]
            case _ if key in _NUMBERS:
                return list(self._column(_NUMBERS[key]).to_pylist())
        texts = self._column("properties").to_pylist()
        take = _FROM_PROPERTIES[key]
        return [take(decode_properties((text or "").encode())) for text in texts]

    def numbers(self, key: str) -> pa.Array | None:
        """Offsets and times."""
        return self._column(_NUMBERS[key]) if key in _NUMBERS else None

    def _column(self, name: str) -> pa.Array:
        column = self._rows.column(name).combine_chunks()
        return column if self._positions is None else column.take(self._positions)

    def _place(self, position: int) -> int:
        return position if self._positions is None else int(self._positions[position].as_py())


def _views(chunk: pa.Array) -> list[memoryview]:
    """The values of a binary array, none of which is null."""
    _, offsets, data = chunk.buffers()
    ends = np.frombuffer(offsets, np.int32)[chunk.offset : chunk.offset + len(chunk) + 1].tolist()
    whole = memoryview(data or b"")
    return [whole[start:end] for start, end in pairwise(ends)]
