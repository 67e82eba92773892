"""Buckets that take little in a second: a large object has more time than other requests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from millstream.tiered import bucket_objects
from millstream.tiered.bucket_objects import LARGE_PUT_BYTES, BucketObjects, open_bucket
from millstream.tiered.objects import ObjectStoreAway

pytest.importorskip("obstore", reason="the extra tiered is not installed")


class SlowStore:
    """Takes objects, and says so only once it may."""

    def __init__(self) -> None:
        self.came = threading.Semaphore(0)
        self.may_answer = threading.Event()
        store = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                store.came.release()
                store.may_answer.wait()
                self.send_response(200)
                self.send_header("etag", '"x"')
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def open(self) -> BucketObjects:
        options = {
            "endpoint": f"http://127.0.0.1:{self.server.server_port}", "region": "here",
            "access_key_id": "a", "secret_access_key": "b",
        }  # fmt: skip
        return open_bucket("s3://bucket/", options)


@pytest.fixture
def store() -> Iterator[SlowStore]:
    slow = SlowStore()
    yield slow
    slow.may_answer.set()
    slow.server.shutdown()
    slow.server.server_close()


def test_a_large_object_is_put_though_it_takes_longer_than_other_requests_may(
    store: SlowStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_objects, "TIMEOUT_S", 0.2)
    monkeypatch.setattr(bucket_objects, "MAX_RETRIES", 0)
    objects = store.open()
    with ThreadPoolExecutor(1) as threads:
        large = threads.submit(objects.put, "large", bytes(LARGE_PUT_BYTES + 1))
        assert store.came.acquire(timeout=30)
        # It came later and is given up, while the large one goes on.
        with pytest.raises(ObjectStoreAway):
            objects.put("small", b"x")
        store.may_answer.set()
        large.result(30)
