"""S11, kill -9 of the driver of a job whose dimension table is loaded all the time: one version for a micro-batch."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import msgspec

from crash.dimension_job import EVENTS, JOINED
from crash.job_batches import batches_of_events, end_group, is_done, is_noted, topic_rows
from crash.programme import ProgrammeRun, scratch_directory
from millstream.client.blocking import BlockingClient
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.server.child import ServerProcess
from millstream.streams.dimension.directory import DIRECTORY_VARIABLE, tables_in
from millstream.streams.dimension.table import DimensionTable
from millstream.streams.dimension.versions import ReloadRequest, VersionStore
from millstream.streams.errors import DimensionError

__all__ = ["kill_dimension_jobs"]

_EVENTS = 400
_KEYS = 7
_PARTS = 2
_QUEUES = 2
_LIMIT_S = 900.0
_POLL_S = 0.02
_FAILED_LIVES = 5
"""Lives that may end with an error before the job is a failure: a busy machine starts Python too slowly for Spark."""


class _Watched:
    """What was seen of the table while the job ran: the label of each version, and the version of each micro-batch."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.labels: dict[int, int] = {}
        self.pins: dict[int, set[int]] = {}
        self._label = 0

    @property
    def store(self) -> VersionStore | None:
        """The table's versions, once there are any."""
        return next(iter(tables_in(self._root / "dimensions")), None)

    def look(self) -> None:
        """Read what is there now; versions and pins go again after a while."""
        store = self.store
        for head in store.versions() if store is not None else ():
            if head.version not in self.labels:
                assert store is not None
                with contextlib.suppress(DimensionError):
                    table = DimensionTable.open(store.directory / "versions" / str(head.version))
                    (label,) = {row["label"] for batch in table.scan(["label"]) for row in batch.to_pylist()}
                    self.labels[head.version] = label
        for path in (self._root / "checkpoints").glob("job/*/lookups/*/*.pin"):
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                version = msgspec.json.decode(path.read_bytes())["version"]
                self.pins.setdefault(int(path.stem), set()).add(version)

    def change(self) -> None:
        """Give all rows another label, and wish for it to be loaded."""
        self._label += 1
        with contextlib.closing(sqlite3.connect(self._root / "labels.db", timeout=60)) as connection, connection:
            connection.execute("CREATE TABLE IF NOT EXISTS labels (k INTEGER, part INTEGER, label INTEGER)")
            connection.execute("DELETE FROM labels")
            rows = [(key, part, self._label) for key in range(_KEYS) for part in range(_PARTS)]
            connection.executemany("INSERT INTO labels VALUES (?, ?, ?)", rows)
        store = self.store
        if store is not None:
            ReloadRequest(store.directory).request(time.time_ns() // 1_000_000)


def kill_dimension_jobs(run: ProgrammeRun) -> None:
    """S11. One kill (CI), ten (full), a hundred (soak); the table is loaded with nearly every micro-batch."""
    kills = run.by_size(1, 10, 100)
    with scratch_directory() as root, ServerProcess(root / "data") as server:
        nameserver = server.addresses.nameserver
        with BlockingClient(nameserver) as client:
            watched = _Watched(root)
            watched.change()
            for name in (EVENTS, JOINED):
                client.create_topic(TopicConfig(name, read_queues=_QUEUES, write_queues=_QUEUES))
            for number in range(_EVENTS):
                client.send(Message(EVENTS, json.dumps({"n": number, "k": number % _KEYS}).encode()))
            if _played(run, client, nameserver, root, watched, kills):
                _compare(run, client, root, watched)


def _played(
    run: ProgrammeRun, client: BlockingClient, nameserver: str, root: Path, watched: _Watched, kills: int
) -> bool:
    """Lives of the job; the first ones are killed while the table is loaded, the last one once all is joined."""
    rows = str(_EVENTS // (kills * 4 + 8))
    environment = {**os.environ, DIRECTORY_VARIABLE: str(root / "dimensions")}
    killed = failed = 0
    while failed <= _FAILED_LIVES:
        command = [sys.executable, "-m", "crash.dimension_job", nameserver, str(root), rows]
        with (root / "said").open("ab") as said:
            driver = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True, env=environment)
        batches = run.random.randint(2, 4) if killed < kills else _EVENTS
        ended = _changed(run, client, driver, root, watched, batches)
        if not ended:
            time.sleep(run.random.choice((0.0, 0.05, 0.2, 0.5)))
        is_alive = driver.poll() is None
        end_group(driver)
        driver.wait()
        watched.look()
        # What is repeated meets another version than the one it used.
        watched.change()
        if ended and is_alive:
            return True
        if is_alive:
            killed += 1
            run.count("kills")
            run.count("killed_in_a_micro_batch", not is_noted(root))
        else:
            failed += 1
            run.count("lives_that_failed")
    run.fail("the job did not go on", root)
    return False


def _changed(
    run: ProgrammeRun,
    client: BlockingClient,
    driver: subprocess.Popen[bytes],
    root: Path,
    watched: _Watched,
    times: int,
) -> bool:
    """Another table each time that rows came, so often or until all is joined; whether it is."""
    limit_s = time.monotonic() + _LIMIT_S
    before, changes = _messages(client), 0
    while driver.poll() is None and changes < times and time.monotonic() < limit_s:
        watched.look()
        if is_done(root, _EVENTS):
            return True
        now = _messages(client)
        if now != before:
            before, changes = now, changes + 1
            watched.change()
            run.count("changes")
        time.sleep(_POLL_S)
    return False


def _messages(client: BlockingClient) -> int:
    return sum(held.range.max_offset for held in client.queue_ranges(JOINED))


def _compare(run: ProgrammeRun, client: BlockingClient, root: Path, watched: _Watched) -> None:
    """Each row is there once, and has the label of the version that was noted for its micro-batch."""
    batches = batches_of_events(root)
    wanted: Counter[tuple[int, int, int]] = Counter(
        (queue, place, part) for (queue, place), _ in topic_rows(client, EVENTS) for part in range(_PARTS)
    )
    found: Counter[tuple[int, int, int]] = Counter()
    labels: dict[int, set[int]] = {}
    for _, row in topic_rows(client, JOINED):
        found[row["queue"], row["place"], row["part"]] += 1
        labels.setdefault(batches[row["queue"], row["place"]].number, set()).add(row["label"])
    for words, rows in (("too much", found - wanted), ("missing", wanted - found)):
        if rows:
            run.fail(f"{sum(rows.values())} rows {words}, such as {next(iter(rows))}", root)
    for batch, said in labels.items():
        pins = watched.pins.get(batch, set())
        if len(said) > 1 or len(pins) > 1:
            run.fail(f"micro-batch {batch} has the labels {sorted(said)} of the versions {sorted(pins)}", root)
        elif pins and pins <= watched.labels.keys() and said != {watched.labels[one] for one in pins}:
            run.fail(f"micro-batch {batch} has the label {said} and not that of version {pins}", root)
    seen = [batch for batch in labels if watched.pins.get(batch, set()) & watched.labels.keys()]
    run.count("rows", sum(found.values()))
    run.count("micro_batches", len(labels))
    run.count("micro_batches_whose_version_was_seen", len(seen))
    if not seen or len({label for said in labels.values() for label in said}) < 2:
        run.fail("the table never changed while the job ran", root)
