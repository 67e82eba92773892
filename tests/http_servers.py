"""Servers of HTTP on free ports: one that answers as it is told, and one that keeps the contract of a search engine."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass
class Asked:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Told:
    """An answer."""

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)


Reply = Callable[[Asked], Told]


@dataclass
class HttpServer:
    """What was asked so far, and where."""

    address: str
    requests: list[Asked] = field(default_factory=list)


@contextmanager
def serving(reply: Reply, tls: ssl.SSLContext | None = None) -> Iterator[HttpServer]:
    """A server that answers with `reply`, one request at a time."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            asked = Asked(self.command, self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            with lock:
                server.requests.append(asked)
                told = reply(asked)
            self.send_response(told.status)
            for name, value in {"Content-Length": str(len(told.body)), **told.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(told.body)

        do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815 - the handler's names

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running.daemon_threads = True
    if tls is not None:
        running.socket = tls.wrap_socket(running.socket, server_side=True)
    server = HttpServer(f"http{'' if tls is None else 's'}://127.0.0.1:{running.server_port}")
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        running.shutdown()
        thread.join()
        running.server_close()


class SearchEngine:
    """Documents by index and id, by `_bulk` and scroll as Elasticsearch's reference of version 7 describes them.

    No server of that kind can be installed here, so this one takes its place. It refuses what the reference says is
    refused: a body that is not NDJSON with a last line break, actions without an id, names in capital letters.
    `busy` items are answered with 429 once each; a `whole` field named in `numbers` refuses texts.
    """

    def __init__(self, *, busy: frozenset[str] = frozenset(), numbers: frozenset[str] = frozenset()) -> None:
        self.indices: dict[str, dict[str, dict[str, Any]]] = {}
        self.writes: list[tuple[str, str]] = []
        self._busy = set(busy)
        self._numbers = numbers
        self.scrolls: dict[str, list[dict[str, Any]]] = {}
        self._made = 0
        self._size = 0

    def documents(self) -> list[dict[str, Any]]:
        return [document for index in sorted(self.indices) for document in self.indices[index].values()]

    def reply(self, asked: Asked) -> Told:
        where = urlsplit(asked.path)
        if asked.method == "POST" and where.path == "/_bulk":
            return self._bulk(asked)
        if where.path == "/_search/scroll":
            return self._scroll(asked)
        if asked.method == "POST" and where.path.endswith("/_search"):
            return self._search(asked, where.path.split("/")[1], parse_qs(where.query))
        return Told(400, b'{"error":"no handler found"}')

    def _bulk(self, asked: Asked) -> Told:
        if asked.headers["content-type"] != "application/x-ndjson":
            return Told(406, b'{"error":"Content-Type header is not supported"}')
        if not asked.body.endswith(b"\n"):
            return Told(400, b'{"error":"The bulk request must be terminated by a newline [\\n]"}')
        lines = iter(asked.body.split(b"\n")[:-1])
        items = []
        for line in lines:
            ((action, place),) = json.loads(line).items()
            document = json.loads(next(lines)) if action == "index" else None
            items.append({action: self._item(place["_index"], place["_id"], document)})
        failed = any("error" in item for named in items for item in named.values())
        return Told(200, json.dumps({"took": 3, "errors": failed, "items": items}).encode())

    def _item(self, index: str, name: str, document: dict[str, Any] | None) -> dict[str, Any]:
        said: dict[str, Any] = {"_index": index, "_id": name}
        if name in self._busy:
            self._busy.discard(name)
            reason = "rejected execution of coordinating operation"
            return {**said, "status": 429, "error": {"type": "es_rejected_execution_exception", "reason": reason}}
        if index != index.lower():
            reason = f"Invalid index name [{index}], must be lowercase"
            return {**said, "status": 400, "error": {"type": "invalid_index_name_exception", "reason": reason}}
        held = self.indices.setdefault(index, {})
        self.writes.append((index, name))
        if document is None:
            found = held.pop(name, None) is not None
            return {**said, "status": 200 if found else 404, "result": "deleted" if found else "not_found"}
        for field_name in self._numbers & set(document):
            if isinstance(document[field_name], str):
                cause = {"type": "illegal_argument_exception", "reason": f'For input string: "{document[field_name]}"'}
                reason = f"failed to parse field [{field_name}] of type [long]"
                error = {"type": "mapper_parsing_exception", "reason": reason, "caused_by": cause}
                return {**said, "status": 400, "error": error}
        created = name not in held
        held[name] = document
        return {**said, "status": 201 if created else 200, "result": "created" if created else "updated"}

    def _search(self, asked: Asked, index: str, query: dict[str, list[str]]) -> Told:
        request = json.loads(asked.body)
        assert request["sort"] == ["_doc"]
        assert query["scroll"]
        hits = [
            {
                "_index": index,
                "_id": name,
                "_source": {key: document[key] for key in request["_source"] if key in document},
            }
            for name, document in self.indices.get(index, {}).items()
            if _fits(document, request["query"])
        ]
        if "slice" in request:
            hits = hits[request["slice"]["id"] :: request["slice"]["max"]]
        self._made += 1
        self._size = request["size"]
        name = f"scroll-{self._made}"
        self.scrolls[name] = hits
        return self._page(name)

    def _scroll(self, asked: Asked) -> Told:
        request = json.loads(asked.body)
        if asked.method == "DELETE":
            for name in request["scroll_id"]:
                self.scrolls.pop(name, None)
            return Told(200, b'{"succeeded":true,"num_freed":1}')
        if request["scroll_id"] not in self.scrolls:
            return Told(404, b'{"error":{"type":"search_context_missing_exception"}}')
        return self._page(request["scroll_id"])

    def _page(self, name: str) -> Told:
        page, self.scrolls[name] = self.scrolls[name][: self._size], self.scrolls[name][self._size :]
        shards = {"total": 1, "successful": 1, "skipped": 0, "failed": 0}
        answer = {"_scroll_id": name, "took": 1, "timed_out": False, "_shards": shards, "hits": {"hits": page}}
        return Told(200, json.dumps(answer).encode())


def _fits(document: dict[str, Any], query: dict[str, Any]) -> bool:
    ((kind, what),) = query.items()
    return kind == "match_all" or all(document.get(name) == value for name, value in what.items())
