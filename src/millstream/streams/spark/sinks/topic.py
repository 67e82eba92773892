"""The topic sink: each row is one message with a JSON body. At least once: a replayed batch is sent again."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millstream.client.bulk.gathering import GatheredRows, checked_text, row_bytes
from millstream.model.message import Message
from millstream.streams.plan.tables import MetadataColumn, Table
from millstream.streams.plan.types import Schema
from millstream.streams.spark.sinks.json_rows import encode_rows
from millstream.streams.spark.sinks.sink import SinkTask, SinkWriter, Written
from millstream.streams.spark.source.topic_log import TopicLog, open_log

__all__ = ["MessageMaker", "TopicSink"]

_ROWS_PER_BULK_MESSAGE = 10_000

_MESSAGES_PER_SEND = 1_000
"""Messages handed to the client at once; it makes requests of its own size of them."""


@dataclass(frozen=True, slots=True)
class MessageMaker:
    """Makes messages of rows: physical columns are the body, metadata columns and options set tag, keys, properties."""

    topic: str
    schema: Schema
    metadata: tuple[tuple[str, str], ...] = ()
    tag: str | None = None
    key_column: str | None = None

    @classmethod
    def of(cls, table: Table) -> MessageMaker:
        """The maker that a table's declaration asks for."""
        metadata = tuple((column.name, column.key) for column in table.writable if isinstance(column, MetadataColumn))
        schema = Schema(tuple(field for field in table.schema.fields if field.name in {c.name for c in table.writable}))
        options = table.options
        return cls(options["topic"], schema, metadata, options.get("sink.tag"), options.get("sink.key-column"))

    def messages(self, rows: pa.RecordBatch) -> Iterator[Message]:
        """One message per row, in order."""
        for text, keys, tag, named in self._parts(rows):
            yield Message(self.topic, text, tag, keys, None, named)

    def bulk_rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The same messages as rows of the bulk lane; ILLEGAL_PROPERTY where one cannot be stored."""
        gathered = GatheredRows(self.topic)
        for text, keys, tag, named in self._parts(rows):
            key = " ".join(keys) or None
            stored = checked_text(key, tag, named) if key or tag or named else None
            gathered.add(text, key, tag, stored, row_bytes(text, key, tag, stored))
        return gathered.record_batch()

    def _parts(self, rows: pa.RecordBatch) -> Iterator[tuple[bytes, tuple[str, ...], str | None, dict[str, str]]]:
        """Body, keys, tag and properties of each row."""
        keys_of = dict(self.metadata)
        body = Schema(tuple(field for field in self.schema.fields if field.name not in keys_of))
        places = {name: position for position, name in enumerate(self.schema.names)}
        bodies = encode_rows(rows.select([places[name] for name in body.names]), body)
        extra = {key: rows.column(places[name]).to_pylist() for name, key in self.metadata}
        keys = extra.get("keys") or (
            rows.column(places[self.key_column]).to_pylist() if self.key_column in places else itertools.repeat(None)
        )
        tags = extra.get("tag") or itertools.repeat(self.tag)
        properties = extra.get("properties") or itertools.repeat(None)
        for text, key, tag, named in zip(bodies, keys, tags, properties, strict=False):
            yield text, _keys(key), tag or None, dict(named or ())


def _keys(value: Any) -> tuple[str, ...]:
    if value is None or value == "":
        return ()
    return tuple(map(str, value)) if isinstance(value, list) else (str(value),)


class TopicSink:
    """Sends rows to a topic while the tasks run."""

    def __init__(self, name: str, maker: MessageMaker, nameserver: str, *, timeout_s: float) -> None:
        self.name = name
        self.schema = maker.schema
        self._maker = maker
        self._nameserver = nameserver
        self._timeout_s = timeout_s

    def writer(self, task: SinkTask) -> SinkWriter:
        """A writer with a connection of its own."""
        log = open_log(self._nameserver, timeout_s=self._timeout_s)
        return _BulkSender(self._maker, log) if log.takes_bulk(self._maker.topic) else _Sender(self._maker, log)

    def commit(self, batch_id: int, written: Sequence[Written]) -> None:
        """Nothing to do: what was acknowledged is visible."""


class _Sender:
    def __init__(self, maker: MessageMaker, log: TopicLog) -> None:
        self._maker = maker
        self._log = log

    def write(self, rows: pa.RecordBatch, kinds: pa.Array | None = None) -> None:
        """Send rows; returns when they are acknowledged."""
        for start in range(0, rows.num_rows, _MESSAGES_PER_SEND):
            self._log.send(list(self._maker.messages(rows.slice(start, _MESSAGES_PER_SEND))))

    def finish(self) -> bytes:
        """Close the connection."""
        self._log.close()
        return b""


class _BulkSender:
    """Gathers the rows of a task to bulk messages of one size."""

    def __init__(self, maker: MessageMaker, log: TopicLog) -> None:
        self._maker = maker
        self._log = log
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0

    def write(self, rows: pa.RecordBatch, kinds: pa.Array | None = None) -> None:
        """Take rows; a full bulk message is sent at once."""
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        if self._waiting_rows >= _ROWS_PER_BULK_MESSAGE:
            self._send()

    def finish(self) -> bytes:
        """Send what is left and close the connection."""
        self._send()
        self._log.close()
        return b""

    def _send(self) -> None:
        waiting, self._waiting, self._waiting_rows = self._waiting, [], 0
        if waiting:
            self._log.send_bulk(self._maker.topic, self._maker.bulk_rows(pa.concat_batches(waiting)))
