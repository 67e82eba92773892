"""A job on Spark's own cluster, as a user starts it: a master, two workers with their own directories, job run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from millstream.client.blocking import BlockingClient
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from servers import running_servers_in_thread

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.kill, pytest.mark.timeout(1200)]

SECRET = {"MILLSTREAM_SPARK_SECRET": "a-secret-of-this-test"}
SCRIPT = """
CREATE TABLE t (k STRING, v INT, at STRING, ts AS TO_TIMESTAMP(at), WATERMARK FOR ts AS ts)
  WITH ('connector' = 'rocketmq', 'topic' = 't');
CREATE TABLE sums (k STRING, at STRING, total INT) WITH ('connector' = 'rocketmq', 'topic' = 'sums');
INSERT INTO sums SELECT k, DATE_FORMAT(window_start, 'HH:mm'), SUM(v)
  FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY k, window_start, window_end;
"""
ROWS = [(f"k{number % 17}", number % 10, number) for number in range(2_000)]
LIMIT_S = 400


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "millstream", *words]


@contextmanager
def daemon(directory: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A master or a worker that is ready, with the address that it prints."""
    process = subprocess.Popen(
        command("start", *words, "--dir", str(directory)),
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **SECRET},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("spark "), (line, *directory.rglob("*.log"))
        yield process, line.split()[-1]
    finally:
        process.terminate()
        process.wait(60)


def run_job(directory: Path, master: str, nameserver: str, tasks: int, *, is_last: bool) -> str:
    script = directory / "job.sql"
    script.write_text(SCRIPT)
    settings: Mapping[str, str] = {
        "parallelism.default": str(tasks),
        "millstream.bounded.close-windows": str(is_last).lower(),
    }
    done = subprocess.run(
        [
            *command("job", "run", str(script), "--master", master, "--bounded", "--nameserver", nameserver),
            *("--checkpoint-dir", str(directory / "checkpoint")),
            *(word for name, value in settings.items() for word in ("--set", f"{name}={value}")),
        ],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, **SECRET},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def send(client: BlockingClient, rows: list[tuple[str, int, int]]) -> None:
    bodies = [
        {"k": k, "v": v, "at": f"2026-01-01 {n // 60 // 60:02}:{n // 60 % 60:02}:{n % 60:02}"} for k, v, n in rows
    ]
    client.send_many([Message("t", json.dumps(body).encode()) for body in bodies])


def test_a_job_on_two_workers_goes_on_when_one_of_them_is_killed(tmp_path: Path) -> None:
    with ExitStack() as running:
        servers = running.enter_context(running_servers_in_thread(tmp_path / "data"))
        client = running.enter_context(BlockingClient(servers.nameserver))
        client.create_topic(TopicConfig("t", read_queues=4, write_queues=4))
        client.create_topic(TopicConfig("sums", read_queues=1, write_queues=1))
        _, master = running.enter_context(daemon(tmp_path / "master", "spark-master", "--port", "0"))
        workers = [
            running.enter_context(daemon(tmp_path / name, "spark-worker", master, "--cores", "1"))[0]
            for name in ("one", "two")
        ]
        send(client, ROWS[:1_000])
        run_job(tmp_path, master, servers.nameserver, 2, is_last=False)
        assert all(list((tmp_path / name / "work").glob("app-*/*/stderr")) for name in ("one", "two"))
        workers[1].send_signal(signal.SIGKILL)
        workers[1].wait()
        send(client, ROWS[1_000:])
        run_job(tmp_path, master, servers.nameserver, 3, is_last=True)
        [queue] = client.queues("sums")
        found = [json.loads(message.body) for message in client.pull(queue, 0, max_messages=1_000).messages()]
    expected: Counter[tuple[str, str]] = Counter()
    for k, v, n in ROWS:
        expected[k, f"{n // 3600:02}:{n // 60 % 60:02}"] += v
    assert {(row["k"], row["at"]): row["total"] for row in found} == expected
    assert len(found) == len(expected)
