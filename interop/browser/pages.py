"""A web server of a page's own origin, and a chromium that opens the page and says through it what it has seen."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, Self
from urllib.parse import urlencode

import pytest

from interop.driver import install, require
from interop.reference.servers import end_process

__all__ = ["Browser", "Orders"]

Orders = Mapping[str, Callable[[], object]]
"""What a page may ask the test to do, by name; the page waits until it is done."""

_PAGE_TIMEOUT_S: Final = 60.0
_HERE: Final = Path(__file__).parent
_PACKAGES: Final = _HERE.parent / "mqtt-js"
_BUNDLE: Final = _PACKAGES / "node_modules" / "mqtt" / "dist" / "mqtt.min.js"
_KINDS: Final = {".html": "text/html", ".js": "text/javascript", ".mjs": "text/javascript"}
_OPTIONS: Final = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--enable-logging=stderr",
)  # fmt: skip


class Browser:
    """Chromium, and the server that its pages come from, while it is entered. Skips where chromium or mqtt.js is
    missing."""

    def __init__(self) -> None:
        self._program = shutil.which("chromium") or ""
        if not self._program:
            pytest.skip("chromium is not installed (Debian: chromium)")
        if not _BUNDLE.exists():
            require("npm")
            install(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--no-package-lock"], _PACKAGES)
        self._server = _PageServer()
        self.origin = f"http://127.0.0.1:{self._server.server_port}"
        """That of its pages."""

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def play(
        self, scenario: str, *, orders: Orders | None = None, trusted_key: str = "", **parameters: str
    ) -> dict[str, Any]:
        """What a page found that played the scenario of `scenarios.mjs` with these parameters.

        `trusted_key` is the SHA-256 of a public key (Base64) whose certificates chromium takes.
        """
        server = self._server
        server.orders = orders or {}
        found: dict[str, Any] | None = None
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
            page = f"{self.origin}/page.html?{urlencode({'scenario': scenario, **parameters})}"
            trust = [f"--ignore-certificate-errors-spki-list={trusted_key}"] if trusted_key else []
            log = Path(profile) / "said.log"
            with log.open("wb") as sink:
                words = [self._program, *_OPTIONS, f"--user-data-dir={profile}", *trust, page]
                process = subprocess.Popen(words, stdout=sink, stderr=sink)
            try:
                with suppress(Empty):
                    found = server.found.get(timeout=_PAGE_TIMEOUT_S)
            finally:
                end_process(process)
            said = log.read_text(errors="replace")[-3000:]
        assert found is not None, f"the page said nothing in {_PAGE_TIMEOUT_S:g} s: {said}"
        assert "failed" not in found, found["failed"]
        return found


class _PageServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _PageHandler)
        self.orders: Orders = {}
        self.found: SimpleQueue[dict[str, Any]] = SimpleQueue()


class _PageHandler(BaseHTTPRequestHandler):
    """Files of this folder and the bundle of mqtt.js; POST /do/NAME and /found."""

    server: _PageServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        name = self.path.partition("?")[0].removeprefix("/")
        file = _BUNDLE if name == _BUNDLE.name else _HERE / name
        if file.suffix in _KINDS and file.is_file():
            self._answer(200, file.read_bytes(), _KINDS[file.suffix])
        else:
            self._answer(404)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        order = self.server.orders.get(self.path.removeprefix("/do/"))
        if order is not None:
            order()
        self._answer(204)
        if self.path == "/found":
            self.server.found.put(json.loads(body))

    def _answer(self, status: int, body: bytes = b"", kind: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("content-type", f"{kind}; charset=utf-8")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the test says what matters."""
