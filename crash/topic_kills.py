"""S9, kill -9 of the driver of a job from topic to topics, as its messages come: each row is in its topic once."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from crash.job_lives import LIFE_LIMIT_S, Driver, ends_after_kills
from crash.programme import ProgrammeRun, scratch_directory
from crash.topic_job import FILES, SINKS, SOURCE
from millstream.client.blocking import BlockingClient
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.server.child import ServerProcess

__all__ = ["kill_topic_jobs"]

_ROWS = 400
"""A smoke run has a tenth."""
_KEYS = 5
_WINDOW = 20
_FIRST_ID = 10
_POLL_S = 0.01

_TAKES_BACK = ("-U", "-D")


def kill_topic_jobs(run: ProgrammeRun, job: str = "crash.topic_job") -> None:
    """S9, and S20 with another `job`. One kill (CI), ten (full), a hundred (soak).

    Most of them are between a send and Spark's note of the micro-batch.
    """
    kills, rows = run.by_size(1, 10, 100), run.by_size(_ROWS, _ROWS, _ROWS)
    with scratch_directory() as root, ServerProcess(root / "data") as server:
        nameserver = server.addresses.nameserver
        with BlockingClient(nameserver) as client:
            _fill(client, rows)
            if _ended(run, client, [job, nameserver, str(root)], root, kills, rows):
                _compare(run, client, root, rows)


def _fill(client: BlockingClient, rows: int) -> None:
    for name in (SOURCE, *SINKS):
        client.create_topic(TopicConfig(name, read_queues=2, write_queues=2))
    for number in range(rows):
        moment = f"2026-01-01 00:{number // 60:02}:{number % 60:02}"
        client.send(Message(SOURCE, json.dumps({"id": number, "k": number % _KEYS, "ts": moment}).encode()))


def _ended(run: ProgrammeRun, client: BlockingClient, job: list[str], root: Path, kills: int, rows: int) -> bool:
    """Lives of the job; the first ones are killed a moment after new messages came."""

    def moment(driver: Driver) -> None:
        _wait_for_messages(client, driver)
        time.sleep(run.random.choice((0.0, 0.0, 0.05, 0.5)))

    command = [sys.executable, "-m", *job, str(rows // (kills * 2 + 2))]
    return ends_after_kills(run, root, command, kills, moment)


def _wait_for_messages(client: BlockingClient, driver: Driver) -> None:
    before, limit_s = _messages(client), time.monotonic() + LIFE_LIMIT_S
    while driver.poll() is None and _messages(client) == before and time.monotonic() < limit_s:
        time.sleep(_POLL_S)


def _messages(client: BlockingClient) -> int:
    return sum(held.range.max_offset for name in SINKS for held in client.queue_ranges(name))


def _rows_of(client: BlockingClient, topic: str) -> list[dict[str, object]]:
    return [
        json.loads(message.body)
        for held in client.queue_ranges(topic)
        for batch in client.read(held.queue, held.range.min_offset, held.range.max_offset)
        for message in batch.messages()
    ]


def _compare(run: ProgrammeRun, client: BlockingClient, root: Path, rows: int) -> None:
    plain = Counter(str(row["word"]) for row in _rows_of(client, "plain"))
    counted = Counter((row["k"], row["n"]) for row in _rows_of(client, "counted"))
    summed: Counter[tuple[object, object]] = Counter()
    for change in _rows_of(client, "summed"):
        data = change["data"]
        assert isinstance(data, dict)
        summed[data["k"], data["total"]] += -1 if change["op"] in _TAKES_BACK else 1
    _same(run, root, "plain", plain, Counter(f"w{number}" for number in range(_FIRST_ID, rows)))
    windows = Counter((number % _KEYS, number // _WINDOW) for number in range(rows))
    _same(run, root, "counted", counted, Counter((key, count) for (key, _), count in windows.items()))
    sums = Counter((key, sum(range(key, rows, _KEYS))) for key in range(_KEYS))
    _same(run, root, FILES, _filed(root / FILES), Counter((key % _KEYS, key) for key in range(rows)))
    _same(run, root, "summed", Counter({row: count for row, count in summed.items() if count}), sums)


def _filed(directory: Path) -> Counter[tuple[int, int]]:
    """The rows of all files that readers see, in partitions that are said to be whole."""
    return Counter(
        (int(mark.parent.name.removeprefix("k=")), json.loads(line)["id"])
        for mark in directory.glob("k=*/_SUCCESS")
        for file in mark.parent.glob("part-*")
        for line in file.read_text().splitlines()
    )


def _same(run: ProgrammeRun, root: Path, topic: str, found: Counter[Any], wanted: Counter[Any]) -> None:
    run.count("rows", sum(found.values()))
    for words, rows in (("too much", found - wanted), ("missing", wanted - found)):
        if rows:
            run.fail(f"{topic}: {sum(rows.values())} rows {words}, such as {next(iter(rows))}", root)
