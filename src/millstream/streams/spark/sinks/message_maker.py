"""Rows to messages of a topic: the body by its format, key, tag and properties by the table's options and columns."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from millstream.client.bulk.encoding import GatheredRows, encode_user_properties, row_bytes
from millstream.model.message import Message
from millstream.model.properties import encode_properties
from millstream.streams.errors import JobError
from millstream.streams.plan.changelog import RowKind
from millstream.streams.plan.tables import MetadataColumn, Table
from millstream.streams.plan.types import Field, Schema
from millstream.streams.spark.sinks.bodies import BodyEncoder, body_encoder
from millstream.streams.spark.source.formats.body_format import BodyFormat, KeyFormat, formats_of

__all__ = ["ORIGIN", "MessageMaker"]

ORIGIN = "sql_origin"
"""The property that names job, sink and micro-batch of a message, by which a repeated attempt knows it."""

_SPACE = (" ", "\\u0020")
"""A space parts keys from each other; within JSON it can be written so."""

_Parts = tuple[bytes, tuple[str, ...], str | None, dict[str, str]]


@dataclass(frozen=True)
class MessageMaker:
    """Makes messages of rows: physical columns are the body, metadata columns and options set tag, keys, properties.

    With a `key` its columns are the message's key. `origin` is a property of every message, blank for none.
    """

    topic: str
    schema: Schema
    metadata: tuple[tuple[str, str], ...] = ()
    tag: str | None = None
    key_column: str | None = None
    body: BodyFormat = field(default_factory=BodyFormat)
    key: KeyFormat | None = None
    origin: str = ""

    @classmethod
    def of(cls, table: Table) -> MessageMaker:
        """The maker that a table's declaration asks for; JobError SINK_FAILED where two parts of it set the key."""
        metadata = tuple((column.name, column.key) for column in table.writable if isinstance(column, MetadataColumn))
        schema = Schema(tuple(field for field in table.schema.fields if field.name in {c.name for c in table.writable}))
        options = table.options
        body, key = formats_of(table)
        named = next((name for name, of in metadata if of == "keys"), None)
        if named is not None and (key is not None or "sink.key-column" in options):
            by = "'key.fields'" if key is not None else "'sink.key-column'"
            message = f"The table {table.name} sets the key of its messages twice: by {by} and by the column {named}."
            raise JobError("SINK_FAILED", message, remedy="Make that column VIRTUAL, or leave the option out.")
        return cls(
            options["topic"], schema, metadata, options.get("sink.tag"), options.get("sink.key-column"), body, key
        )

    def with_origin(self, origin: str) -> MessageMaker:
        """The same with an origin."""
        return replace(self, origin=origin)

    def messages(self, rows: pa.RecordBatch, kinds: Sequence[int] | None = None) -> Iterator[Message]:
        """One message per row, in order; `kinds` None: all rows are inserts."""
        mark = {ORIGIN: self.origin} if self.origin else {}
        for text, keys, tag, named in self._parts(rows, kinds):
            yield Message(self.topic, text, tag, keys, None, named | mark)

    def keys(self, rows: pa.RecordBatch) -> list[tuple[str, ...]]:
        """The key of each row."""
        return [_keys(key) for key in self._key_texts(rows)]

    def bulk_rows(self, messages: Sequence[Message]) -> pa.RecordBatch:
        """Messages as rows of the bulk lane; ILLEGAL_PROPERTY where one cannot be stored."""
        gathered = GatheredRows(self.topic)
        mark = encode_properties({ORIGIN: self.origin}).decode() if self.origin else None
        for message in messages:
            key, tag = " ".join(message.keys) or None, message.tag
            own = message.user_properties
            plain = len(own) == bool(mark)
            stored = mark if plain else encode_user_properties(key, tag, own)
            if plain and (key or tag):
                encode_user_properties(key, tag, None)
            gathered.add(message.body, key, tag, stored, row_bytes(message.body, key, tag, stored))
        return gathered.record_batch()

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self.schema.names)}

    @cached_property
    def _body(self) -> tuple[list[int], BodyEncoder]:
        beside = {name for name, _ in self.metadata}
        if self.key is not None and not self.key.in_body:
            beside.update(self.key.names)
        schema = Schema(tuple(field for field in self.schema.fields if field.name not in beside))
        return [self._places[name] for name in schema.names], body_encoder(self.body, schema)

    @cached_property
    def _key(self) -> tuple[list[int], BodyEncoder]:
        assert self.key is not None
        columns = self.key.text.columns
        schema = Schema(tuple(Field(column.name, column.type) for column in columns))
        return [self._places[name] for name in self.key.names], body_encoder(self.key.text, schema)

    def _parts(self, rows: pa.RecordBatch, kinds: Sequence[int] | None) -> Iterator[_Parts]:
        """Body, keys, tag and properties of each row."""
        places, encode = self._body
        bodies = encode(rows.select(places), kinds or [RowKind.INSERT.value] * rows.num_rows)
        extra = {key: rows.column(self._places[name]).to_pylist() for name, key in self.metadata}
        tags = extra.get("tag") or itertools.repeat(self.tag)
        properties = extra.get("properties") or itertools.repeat(None)
        for text, key, tag, named in zip(bodies, self._key_texts(rows), tags, properties, strict=False):
            # A property is a text, so one that is NULL is none.
            held = {name: value for name, value in named or () if value is not None}
            yield text, _keys(key), tag or None, held

    def _key_texts(self, rows: pa.RecordBatch) -> list[Any]:
        if self.key is not None:
            places, encode = self._key
            texts = [text.decode() for text in encode(rows.select(places), [RowKind.INSERT.value] * rows.num_rows)]
            return [text.replace(*_SPACE) for text in texts] if self.key.text.name == "json" else texts
        named = [name for name, key in self.metadata if key == "keys"]
        column = named[0] if named else self.key_column
        return list(rows.column(self._places[column]).to_pylist()) if column in self._places else [None] * rows.num_rows


def _keys(value: Any) -> tuple[str, ...]:
    if value is None or value == "":
        return ()
    return tuple(map(str, value)) if isinstance(value, list) else (str(value),)
