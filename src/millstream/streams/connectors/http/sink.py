"""The HTTP sink: rows as JSON, one or many per request, with an idempotency key that a replay repeats.

The key is the header Idempotency-Key (draft-ietf-httpapi-idempotency-key-header): job and output, micro-batch, task,
and the request's number in it. A request is sent at least once; a server that keeps the keys takes it once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa

from millstream.model.backoff import Backoff
from millstream.model.errors import Unreachable
from millstream.streams.connectors.http.caller import (
    MAX_WAIT_S,
    Answer,
    CallRetries,
    HttpCaller,
    HttpServer,
    authorization,
)
from millstream.streams.connectors.http.options import HEADER
from millstream.streams.connectors.options import bytes_of, milliseconds
from millstream.streams.connectors.protocols import SinkBatch, SinkTask
from millstream.streams.connectors.refused_rows import RefusedRows
from millstream.streams.connectors.table import ConnectedTable
from millstream.streams.errors import JobError
from millstream.streams.plan.changelog import RowKind
from millstream.streams.spark.sinks.json_rows import encode_rows

__all__ = ["IDEMPOTENCY_KEY", "HttpSink"]

IDEMPOTENCY_KEY: Final = "Idempotency-Key"

_GONE = (RowKind.UPDATE_BEFORE.value, RowKind.DELETE.value)
_TYPES = {"lines": "application/x-ndjson"}


class HttpSink:
    """Sends rows to a URL. Raises JobError SINK_FAILED for options that contradict each other."""

    def __init__(
        self, table: ConnectedTable, make: Callable[[HttpServer, CallRetries], HttpCaller] = HttpCaller
    ) -> None:
        self._table = table
        self._make = make
        self._server = _server(table)
        first_s = milliseconds(table.options["sink.retry.delay"]) / 1000
        self._retries = CallRetries(table.number("sink.max-retries"), Backoff(first_s, MAX_WAIT_S))

    def writer(self, task: SinkTask) -> HttpWriter:
        """A writer with a connection of its own."""
        return HttpWriter(self._table, task, self._make(self._server, self._retries))

    def commit(self, batch: SinkBatch, messages: Sequence[bytes]) -> None:
        """Nothing to do: what was answered is sent."""


class HttpWriter:
    """Sends the rows of one task in requests of one size, whatever batches they come in."""

    def __init__(self, table: ConnectedTable, task: SinkTask, caller: HttpCaller) -> None:
        options = table.options
        self._table = table
        self._caller = caller
        self._refused = RefusedRows(table)
        self._key = f"{task.job_id}-{task.batch_id}-{task.partition}"
        self._method = options["method"].upper()
        self._body = options["body"].lower()
        self._max_rows = 1 if self._body == "row" else table.number("sink.request.max-rows")
        self._max_bytes = bytes_of(options["sink.request.max-size"])
        self._iso = options["json.timestamp-format.standard"].upper() == "ISO-8601"
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._sent = 0

    def write(self, rows: pa.RecordBatch, kinds: pa.Array | None = None) -> None:
        """Take rows; a full request is sent at once. Rows that are taken back (EMIT) say nothing."""
        if kinds is not None:
            present = [place for place, kind in enumerate(kinds.to_pylist()) if kind not in _GONE]
            rows = rows.take(pa.array(present, pa.int32()))
        for row in encode_rows(rows, self._table.schema, iso_times=self._iso):
            if self._waiting and self._waiting_bytes + len(row) > self._max_bytes:
                self._send()
            self._waiting.append(row)
            self._waiting_bytes += len(row)
            if len(self._waiting) >= self._max_rows:
                self._send()

    def finish(self) -> bytes:
        """Send what is left and close the connection."""
        self._send()
        self._caller.close()
        return b""

    def _send(self) -> None:
        rows, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if not rows:
            return
        headers = {
            "Content-Type": _TYPES.get(self._body, "application/json"),
            IDEMPOTENCY_KEY: f"{self._key}-{self._sent}",
        }
        self._sent += 1
        answer = self._caller.call(self._method, "", self._request(rows), headers)
        if answer.is_busy:
            raise Unreachable(f"The sink {self._table.name} is not served: {_describe_answer(answer)}.")
        if not answer.is_success:
            self._refused.take(rows, f"{_describe_answer(answer)}.")

    def _request(self, rows: Sequence[bytes]) -> bytes:
        match self._body:
            case "array":
                return b"[" + b",".join(rows) + b"]"
            case "lines":
                return b"".join(row + b"\n" for row in rows)
            case _:
                return rows[0]


def _describe_answer(answer: Answer) -> str:
    return f"status {answer.status}, {answer.beginning!r}"


def _server(table: ConnectedTable) -> HttpServer:
    options = table.options
    headers = {name.removeprefix(HEADER): value for name, value in options.items() if name.startswith(HEADER)}
    given = [name for name in ("username", "token") if name in options]
    if len(given) > 1 or (given and any(name.lower() == "authorization" for name in headers)):
        words = f"The table {table.name} says in two ways who sends."
        raise JobError("SINK_FAILED", words, remedy="Keep one of 'username', 'token' and 'header.Authorization'.")
    if "username" in options:
        headers["Authorization"] = authorization(options["username"], options.get("password", ""))
    elif "token" in options:
        headers["Authorization"] = f"Bearer {options['token']}"
    timeout_s = milliseconds(options["sink.request.timeout"]) / 1000
    return HttpServer((options["url"],), headers, timeout_s, options.get("tls.ca-file", ""))
