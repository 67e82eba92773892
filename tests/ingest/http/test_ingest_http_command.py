"""`millstream ingest http` against a real broker, asked by curl."""

from __future__ import annotations

import asyncio
import gzip
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest
from gateways import GatewayProcess, bodies, messages_of, new_topic, running_gateway

from certificates import identity_in, needs_openssl
from millstream.ingest.event_batch import EventBatch
from millstream.ingest.http.input import HttpInput, HttpOptions
from millstream.ingest.topic_writer import InputStatistics, Target, TopicWriter
from servers import Servers

pytestmark = pytest.mark.process


needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl sends the posts")
JSON = ("-H", "Content-Type: application/json")


def curl(gateway: GatewayProcess, *words: str, scheme: str = "http", path: str = "/") -> tuple[int, str]:
    """Status and body of the answer."""
    url = f"{scheme}://127.0.0.1:{gateway.port('http')}{path}"
    command = ["curl", "--silent", "--show-error", "--write-out", "\n%{http_code}", *words, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    body, _, status = done.stdout.rpartition("\n")
    return int(status), body


@needs_curl
def test_what_was_answered_200_is_in_the_topic_in_every_form(servers_in_thread: Servers, tmp_path: Path) -> None:
    nameserver = servers_in_thread.nameserver
    topic = new_topic(nameserver, "posts")
    packed = tmp_path / "events.gz"
    packed.write_bytes(gzip.compress(b"by gzip\n"))
    cloud = ["-H", "ce-specversion: 1.0", "-H", "ce-id: 7", "-H", "ce-source: /s", "-H", "ce-type: t"]
    with running_gateway(nameserver, "http", topic, "--port", "0", "--key-field", "id") as gateway:
        assert curl(gateway, *JSON, "-d", '{"id": 1}') == (200, '{"stored":1}')
        assert bodies(messages_of(nameserver, topic)) == ['{"id": 1}']
        assert curl(gateway, *JSON, "-d", '[{"id": 2}, {"id": 3}]', path="/events")[0] == 200
        plain = ("-H", "Content-Type: text/plain", "--data-binary")
        assert curl(gateway, *plain, "line 1\nline 2\n") == (200, '{"stored":2}')
        assert curl(gateway, *plain, f"@{packed}", "-H", "Content-Encoding: gzip")[0] == 200
        assert curl(gateway, *JSON, *cloud, "-d", '{"id": 4}')[0] == 200
        assert curl(gateway, path="/health") == (200, "ok\n")
        code, counts, said = gateway.stop()
    found = messages_of(nameserver, topic)
    assert bodies(found) == [
        '{"id": 1}', '{"id": 2}', '{"id": 3}', "line 1", "line 2", "by gzip", '{"id": 4}',
    ]  # fmt: skip
    assert [message.keys for message in found] == [("1",), ("2",), ("3",), (), (), (), ("4",)]
    assert found[-1].user_properties["CE_type"] == "t"
    assert (code, counts["http"]["stored"], said) == (0, 7, "")


@needs_curl
def test_posts_without_the_token_or_over_the_limits_are_refused_and_store_nothing(
    servers_in_thread: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nameserver = servers_in_thread.nameserver
    topic = new_topic(nameserver, "refused")
    monkeypatch.setenv("MILLSTREAM_INGEST_TOKEN", "s3cret-token")
    large = tmp_path / "large"
    large.write_bytes(b"x" * (1024 * 1024 + 1))
    token = ("-H", "Authorization: Bearer s3cret-token")
    with running_gateway(nameserver, "http", topic, "--port", "0", "--max-post-mb", "1") as gateway:
        status, said = curl(gateway, *JSON, "-d", "{}")
        assert (status, "s3cret" in said) == (401, False)
        assert curl(gateway, *JSON, "-H", "Authorization: Bearer other", "-d", "{}")[0] == 401
        assert curl(gateway, *token, "-H", "Content-Type: text/plain", "--data-binary", f"@{large}")[0] == 413
        chunked = ("-H", "Transfer-Encoding: chunked", "-H", "Content-Type: text/plain", "--data-binary", f"@{large}")
        assert curl(gateway, *token, *chunked)[0] == 413
        status, said = curl(gateway, *token, "-H", "Content-Type: application/x-ndjson", "-d", "{}\n{]")
        assert status == 400
        assert json.loads(said)["error"].startswith("Line 2 is no JSON: ")
        assert curl(gateway, *token, "-X", "PUT", "-d", "{}")[0] == 405
        assert curl(gateway, *token, path="/other")[0] == 404
        assert messages_of(nameserver, topic) == []
        assert curl(gateway, *token, *JSON, "-d", "{}")[0] == 200
        _, counts, _ = gateway.stop()
    assert (counts["http"]["turned_away"], counts["http"]["stored"]) == (4, 1)


@needs_curl
@needs_openssl
def test_posts_by_https_and_the_pages_of_the_gateway(servers_in_thread: Servers, tmp_path: Path) -> None:
    topic = new_topic(servers_in_thread.nameserver, "https")
    _, files = identity_in(tmp_path)
    words = ["http", topic, "--port", "0", "--metrics-port", "0"]
    words += ["--tls-cert", str(files.certificate), "--tls-key", str(files.key)]
    with running_gateway(servers_in_thread.nameserver, *words) as gateway:
        trust = ("--cacert", str(files.certificate))
        assert curl(gateway, *trust, *JSON, "-d", "{}", scheme="https")[0] == 200
        page = httpx.get(f"http://127.0.0.1:{gateway.port('metrics')}/metrics").text
        health = httpx.get(f"http://127.0.0.1:{gateway.port('metrics')}/healthz")
    assert 'input="http",outcome="stored"} 1' in page
    assert (health.status_code, health.text) == (200, "ok\n")


class HeldLane:
    """Sends nothing before it is let go."""

    max_rows = 1000

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def send(self, topic: str, event_batches: Sequence[EventBatch]) -> None:
        await self.go.wait()


async def test_a_full_gateway_answers_429_with_the_time_to_wait_and_takes_posts_again_when_there_is_room() -> None:
    lane, tally = HeldLane(), InputStatistics()
    outlet = TopicWriter(lane, Target("events", waiting_bytes=100), tally, print, hold_s=0.0)
    outlet.start()
    held = HttpInput(HttpOptions(answer_s=60.0), outlet, tally, print)
    transport = httpx.ASGITransport(held.application())
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        first = asyncio.ensure_future(client.post("/", json={"text": "x" * 100}))
        for _ in range(1000):
            await asyncio.sleep(0)
        full = await client.post("/", json={})
        assert (full.status_code, full.headers["retry-after"]) == (429, "1")
        assert (await client.get("/health")).status_code == 503
        assert not first.done()
        lane.go.set()
        assert (await first).status_code == 200
        assert (await client.post("/", json={})).status_code == 200
    assert tally.turned_away == 1
    await outlet.close(10)


async def test_a_post_whose_events_are_not_acknowledged_in_time_is_answered_503() -> None:
    lane, tally = HeldLane(), InputStatistics()
    outlet = TopicWriter(lane, Target("events"), tally, print, hold_s=0.0)
    outlet.start()
    held = HttpInput(HttpOptions(answer_s=0.01), outlet, tally, print)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(held.application()), base_url="http://g") as client:
        assert (await client.post("/", json={})).status_code == 503
    lane.go.set()
    await outlet.close(10)
