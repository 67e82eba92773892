"""The search engine sink: rows become documents by `_bulk`, with ids that a replay repeats.

With a primary key its columns are the id, so a row that changes replaces its document and one that is gone deletes it.
Without one the id names job, micro-batch, task and row. Either way a repeated micro-batch writes the same documents
again. Items that a busy server refused (429, 503) are sent again; the others, such as conflicts of a mapping, are
set aside. Source: the bulk API of Elasticsearch 7 and later, and of OpenSearch.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec
import pyarrow as pa

from millstream.model.errors import Unreachable
from millstream.streams.connectors.elasticsearch.cluster import MakeCaller, retries_of, server_of
from millstream.streams.connectors.elasticsearch.index_names import IndexNames
from millstream.streams.connectors.http.caller import Answer, HttpCaller
from millstream.streams.connectors.options import bytes_of
from millstream.streams.connectors.protocols import SinkBatch, SinkTask
from millstream.streams.connectors.refused_rows import RefusedRows
from millstream.streams.connectors.table import ConnectedTable
from millstream.streams.errors import JobError
from millstream.streams.plan.changelog import RowKind
from millstream.streams.plan.types import Schema
from millstream.streams.spark.sinks.json_rows import encode_rows

__all__ = ["SearchSink"]

_GONE = (RowKind.UPDATE_BEFORE.value, RowKind.DELETE.value)
_BUSY: Final = (429, 503)
_BULK: Final = {"Content-Type": "application/x-ndjson"}
_UNLIMITED: Final = 1 << 62

_Id = tuple[str, str]
"""Index and id of a document."""


class _Error(msgspec.Struct):
    type: str = ""
    reason: str | None = ""
    caused_by: dict[str, Any] | None = None


class _Item(msgspec.Struct):
    status: int
    error: _Error | None = None


class _BulkAnswer(msgspec.Struct):
    errors: bool
    items: list[dict[str, _Item]]


class SearchSink:
    """Writes documents. Raises JobError SINK_FAILED for an index that cannot be."""

    def __init__(self, table: ConnectedTable, make: MakeCaller = HttpCaller) -> None:
        self._table = table
        self._make = make
        self._names = IndexNames(table.options["index"], table.schema, _now)
        if self._names.is_fixed and any(mark in table.options["index"] for mark in "*,"):
            words = f"The index {table.options['index']!r} of {table.name} is a pattern, which can only be read."
            raise JobError("SINK_FAILED", words, remedy="Name one index, perhaps by a column: 'logs-{ts|yyyy-MM-dd}'.")
        self._server = server_of(table)

    def writer(self, task: SinkTask) -> SearchWriter:
        """A writer with a connection of its own."""
        return SearchWriter(self._table, task, self._names, self._make(self._server, retries_of(self._table)))

    def commit(self, batch: SinkBatch, messages: Sequence[bytes]) -> None:
        """Nothing to do: what was answered is written."""


class SearchWriter:
    """Sends the documents of one task, the last of each id alone."""

    def __init__(self, table: ConnectedTable, task: SinkTask, names: IndexNames, caller: HttpCaller) -> None:
        options = table.options
        self._table = table
        self._names = names
        self._caller = caller
        self._attempts = retries_of(table).count
        self._refused = RefusedRows(table)
        self._ignores = options["failure-handler"].lower() == "ignore" and "sink.dead-letter.topic" not in options
        self._prefix = f"{task.job_id}-{task.batch_id}-{task.partition}-"
        self._delimiter = options["document-id.key-delimiter"]
        self._max_actions = table.number("sink.bulk-flush.max-actions") or _UNLIMITED
        self._max_bytes = bytes_of(options["sink.bulk-flush.max-size"]) or _UNLIMITED
        self._iso = options["json.timestamp-format.standard"].upper() == "ISO-8601"
        self._key = Schema(tuple(field for field in table.schema.fields if field.name in table.primary_key))
        self._rows = 0
        self._waiting: dict[_Id, bytes | None] = {}
        self._waiting_bytes = 0

    def write(self, rows: pa.RecordBatch, kinds: pa.Array | None = None) -> None:
        """Take rows; a full request is sent at once."""
        numbers = [RowKind.INSERT.value] * rows.num_rows if kinds is None else kinds.to_pylist()
        documents = encode_rows(rows, self._table.schema, iso_times=self._iso)
        for kind, place, document in zip(numbers, self._places(rows), documents, strict=True):
            gone = kind in _GONE
            if gone and not self._table.primary_key:
                # EMIT says a window's row again: each one is a document, and none is taken back.
                continue
            self._take(place, None if gone else document)

    def finish(self) -> bytes:
        """Send what is left and close the connection."""
        self._send()
        self._caller.close()
        return b""

    def _take(self, place: _Id, document: bytes | None) -> None:
        size = len(place[0]) + len(place[1]) + len(document or b"")
        full = len(self._waiting) >= self._max_actions or self._waiting_bytes + size > self._max_bytes
        if full and self._waiting and place not in self._waiting:
            self._send()
        # The last one of an id goes to the end: another index may hold what stands before it.
        self._waiting.pop(place, None)
        self._waiting[place] = document
        self._waiting_bytes += size

    def _places(self, rows: pa.RecordBatch) -> Iterator[_Id]:
        indices = self._names.of(rows)
        if not self._table.primary_key:
            first, self._rows = self._rows, self._rows + rows.num_rows
            return iter([(index, f"{self._prefix}{first + number}") for number, index in enumerate(indices)])
        keys = encode_rows(rows.select(list(self._key.names)), self._key)
        return iter([(index, self._id(key)) for index, key in zip(indices, keys, strict=True)])

    def _id(self, key: bytes) -> str:
        values = msgspec.json.decode(key, type=dict[str, msgspec.Raw])
        return self._delimiter.join(_plain(bytes(values[name])) for name in self._table.primary_key)

    def _send(self) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, {}, 0
        self._deliver(waiting)

    def _deliver(self, waiting: dict[_Id, bytes | None]) -> None:
        attempt = 0
        while waiting:
            answer = self._caller.call("POST", "/_bulk", _request(waiting), _BULK)
            if answer.is_busy:
                raise Unreachable(f"The sink {self._table.name} is not served: {_describe_answer(answer)}.")
            if answer.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                self._split(waiting, f"{_describe_answer(answer)}.")
                return
            if not answer.is_success:
                # No document is to blame for that, so none is set aside.
                raise JobError("SINK_FAILED", f"The sink {self._table.name} is refused: {_describe_answer(answer)}.")
            again, reason = self._sort_answer(waiting, _decode_answer(answer))
            if again and attempt >= self._attempts:
                words = f"The sink {self._table.name} is not served: {len(again)} documents are refused, {reason}."
                raise Unreachable(words)
            if again:
                self._caller.pause(attempt)
            waiting, attempt = again, attempt + 1

    def _split(self, waiting: dict[_Id, bytes | None], reason: str) -> None:
        """Send what is too large in halves; one document that is too large alone is set aside."""
        if len(waiting) == 1:
            self._set_aside(list(waiting.values()), reason)
            return
        pairs = list(waiting.items())
        middle = len(pairs) // 2
        self._deliver(dict(pairs[:middle]))
        self._deliver(dict(pairs[middle:]))

    def _sort_answer(self, sent: dict[_Id, bytes | None], answer: _BulkAnswer) -> tuple[dict[_Id, bytes | None], str]:
        """What is to be sent again, and why; what is refused for good is set aside."""
        if len(answer.items) != len(sent):
            words = f"{self._table.name} was sent {len(sent)} documents, the server answers of {len(answer.items)}."
            raise JobError("SINK_FAILED", words)
        again: dict[_Id, bytes | None] = {}
        busy = ""
        for (place, document), named in zip(sent.items(), answer.items, strict=True):
            ((action, item),) = named.items()
            if item.error is None and (
                item.status < 300 or (action == "delete" and item.status == HTTPStatus.NOT_FOUND)
            ):
                continue
            reason = _reason(item)
            if item.status in _BUSY:
                again[place], busy = document, reason
            else:
                self._set_aside([document], f"index {place[0]}, id {place[1]}: {reason}.")
        return again, busy

    def _set_aside(self, documents: Sequence[bytes | None], reason: str) -> None:
        if not self._ignores:
            self._refused.take([document or b"" for document in documents], reason)


def _request(waiting: dict[_Id, bytes | None]) -> bytes:
    lines = []
    for (index, name), document in waiting.items():
        action = b"delete" if document is None else b"index"
        place = msgspec.json.encode({"_index": index, "_id": name})
        lines += [b'{"' + action + b'":' + place + b"}\n"]
        if document is not None:
            lines += [document, b"\n"]
    return b"".join(lines)


def _decode_answer(answer: Answer) -> _BulkAnswer:
    try:
        return msgspec.json.decode(answer.body, type=_BulkAnswer)
    except msgspec.MsgspecError as error:
        words = f"The server does not answer as a search engine does ({error}): {answer.beginning!r}."
        raise JobError("SINK_FAILED", words, remedy="Check 'hosts' and 'connection.path-prefix'.") from None


def _reason(item: _Item) -> str:
    if item.error is None:
        return f"status {item.status}"
    cause = (item.error.caused_by or {}).get("reason")
    behind = f" ({cause})" if cause else ""
    return f"status {item.status}, {item.error.type}: {item.error.reason}{behind}"


def _describe_answer(answer: Answer) -> str:
    return f"status {answer.status}, {answer.beginning!r}"


def _plain(text: bytes) -> str:
    """A JSON value as an id shows it: texts without quotes, numbers with all their digits."""
    return str(msgspec.json.decode(text)) if text[:1] == b'"' else text.decode()


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
