"""Reads documents that match a query once, by sliced scroll, which both engines support.

Each slice is one queue of one number: it is read whole, in one task. A fetch of a scroll cannot be repeated safely (the
server has gone on), so where one fails the micro-batch begins again; nothing of it was delivered. Documents that change
between two attempts are read as they are at the second. Source: the scroll API of Elasticsearch 7 and OpenSearch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import quote

import msgspec
import pyarrow as pa

from millstream.model.errors import ConnectionFailed, Unreachable
from millstream.streams.connectors.elasticsearch.cluster import MakeCaller, retries_of, server_of
from millstream.streams.connectors.http.caller import Answer, HttpCaller
from millstream.streams.connectors.options import milliseconds
from millstream.streams.connectors.protocols import Offsets, SourcePartition
from millstream.streams.connectors.refused_rows import RefusedRows
from millstream.streams.connectors.table import ConnectedTable
from millstream.streams.errors import JobError

__all__ = ["SearchSource"]

_JSON: Final = {"Content-Type": "application/json"}


class _Hit(msgspec.Struct):
    index: str = msgspec.field(name="_index")
    id: str = msgspec.field(name="_id")
    source: msgspec.Raw = msgspec.field(name="_source", default=msgspec.Raw(b"{}"))


class _Hits(msgspec.Struct):
    hits: list[_Hit]


class _Shards(msgspec.Struct):
    failed: int = 0


class _Page(msgspec.Struct):
    hits: _Hits
    scroll: str = msgspec.field(name="_scroll_id", default="")
    timed_out: bool = False
    shards: _Shards = msgspec.field(name="_shards", default_factory=_Shards)


class SearchSource:
    """Reads documents. Raises JobError JOB_FAILED for an index or a query that cannot be."""

    def __init__(self, table: ConnectedTable, make: MakeCaller = HttpCaller) -> None:
        self._table = table
        self._make = make
        self._server = server_of(table)
        self._slices = table.number("scan.slices")
        self._keep_alive = f"{max(1, milliseconds(table.options['scan.keep-alive']) // 1000)}s"
        if "{" in table.options["index"]:
            words = f"The index of {table.name} is named by a column, so it can only be written."
            raise JobError("JOB_FAILED", words, remedy="Name indices, joined by commas, or a pattern: 'logs-*'.")
        try:
            self._query: Any = msgspec.json.decode(table.options["query"])
        except msgspec.MsgspecError as error:
            raise JobError("JOB_FAILED", f"The query of {table.name} is no JSON: {error}.") from None

    def first(self) -> Offsets:
        """No slice is read."""
        return {}

    def latest(self) -> Offsets:
        """Every slice."""
        return {f"slice/{number}": 1 for number in range(self._slices)}

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[SourcePartition]:
        """A task for each slice that is not read."""
        return [SourcePartition(name, 0, 1) for name, count in sorted(end.items()) if count > start.get(name, 0)]

    def read(self, partition: SourcePartition) -> Iterator[pa.RecordBatch]:
        """The documents of one slice."""
        caller = self._make(self._server, retries_of(self._table))
        scroll = ""
        try:
            path = f"/{quote(self._table.options['index'], safe=',*')}/_search?scroll={self._keep_alive}"
            page = self._page(caller.call("POST", path, self._first_request(partition), _JSON))
            while page.hits.hits:
                scroll = page.scroll
                yield self._rows(page.hits.hits)
                body = msgspec.json.encode({"scroll": self._keep_alive, "scroll_id": scroll})
                page = self._page(caller.call("POST", "/_search/scroll", body, _JSON, repeats=False))
                scroll = page.scroll or scroll
        finally:
            with contextlib.suppress(ConnectionFailed):
                self._end(caller, scroll)

    def _first_request(self, partition: SourcePartition) -> bytes:
        names = [column.name for column in self._table.columns if column.metadata is None]
        request: dict[str, Any] = {
            "size": self._table.number("scan.fetch-size"),
            "sort": ["_doc"],
            "query": self._query,
            "_source": names or False,
        }
        if self._slices > 1:
            request["slice"] = {"id": int(partition.queue.rpartition("/")[2]), "max": self._slices}
        return msgspec.json.encode(request)

    def _page(self, answer: Answer) -> _Page:
        problem = f"status {answer.status}, {answer.beginning!r}"
        if answer.is_busy:
            raise Unreachable(f"The table {self._table.name} is not served: {problem}.")
        if not answer.is_success:
            raise JobError("JOB_FAILED", f"The table {self._table.name} cannot be read: {problem}.")
        try:
            page = msgspec.json.decode(answer.body, type=_Page)
        except msgspec.MsgspecError as error:
            words = f"The server of {self._table.name} does not answer as a search engine does ({error}): "
            raise JobError("JOB_FAILED", f"{words}{answer.beginning!r}.") from None
        if page.timed_out or page.shards.failed:
            words = f"Only a part of {self._table.name} answered: {page.shards.failed} shards failed"
            raise Unreachable(f"{words}{', the search timed out' if page.timed_out else ''}.")
        return page

    def _rows(self, hits: Sequence[_Hit]) -> pa.RecordBatch:
        # The decoder knows Spark's types, so only a worker loads it.
        from millstream.streams.spark.source.formats.decoder import JsonDecoder

        fields = [column for column in self._table.columns if column.metadata is None]
        decoded = JsonDecoder([(column.name, column.type) for column in fields]).decode(
            [bytes(hit.source) for hit in hits]
        )
        if decoded.malformed and not self._table.is_set("json.ignore-parse-errors"):
            self._set_aside([(hits[bad.position], bad.reason) for bad in decoded.malformed])
        kept = list(hits) if decoded.kept is None else [hits[place] for place in decoded.kept.to_pylist()]
        columns = iter(decoded.columns)
        arrays = [
            pa.array([hit.id if column.metadata == "id" else hit.index for hit in kept], pa.string())
            if column.metadata is not None
            else next(columns)
            for column in self._table.columns
        ]
        return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in self._table.columns])

    def _set_aside(self, bad: Sequence[tuple[_Hit, str]]) -> None:
        if "sink.dead-letter.topic" not in self._table.options:
            hit, reason = bad[0]
            words = f"The document {hit.id} of the index {hit.index} does not fit {self._table.name}: {reason}."
            remedy = "Set 'json.ignore-parse-errors' or 'sink.dead-letter.topic' to go on without such documents."
            raise JobError("JOB_FAILED", words, remedy=remedy)
        refused = RefusedRows(self._table)
        for hit, reason in bad:
            refused.take([bytes(hit.source)], f"index {hit.index}, id {hit.id}: {reason}")

    def _end(self, caller: HttpCaller, scroll: str) -> None:
        """Let the server forget the scroll."""
        if scroll:
            body = msgspec.json.encode({"scroll_id": [scroll]})
            caller.call("DELETE", "/_search/scroll", body, _JSON, repeats=False)
        caller.close()
