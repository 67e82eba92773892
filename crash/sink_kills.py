"""S12, kill -9 of the driver of a job that writes files, tables of databases and requests, around its commits."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crash.job_batches import is_noted, planned
from crash.job_lives import LIFE_LIMIT_S, Driver, ends_after_kills
from crash.programme import ProgrammeRun, scratch_directory
from crash.script_job import SCRIPT
from crash.sink_databases import POSTGRESQL_SKIPPED, SinkDatabase, postgresql, sqlite

if TYPE_CHECKING:
    from http_servers import HttpServer

__all__ = ["kill_sink_jobs"]

_ROWS = 600
_KEYS = 7
_POLL_S = 0.005
_NO_NAMESERVER = "127.0.0.1:9"
"""The job reads and writes no topic."""

_MADE = f"""
CREATE TABLE made (id INT) WITH ('connector' = 'datagen', 'number-of-rows' = '{_ROWS}',
  'fields.id.kind' = 'sequence', 'fields.id.start' = '0', 'fields.id.end' = '{_ROWS - 1}');
CREATE TABLE filed (id INT, k INT) PARTITIONED BY (k)
  WITH ('connector' = 'filesystem', 'path' = '{{filed}}', 'format' = 'json');
CREATE TABLE called (id INT) WITH ('connector' = 'http', 'url' = '{{url}}', 'body' = 'array',
  'sink.request.max-rows' = '8');
"""
_TABLES = """
CREATE TABLE {name}_added (id INT, word STRING)
  WITH ('connector' = 'jdbc', 'table-name' = 'added', {options});
CREATE TABLE {name}_newest (k INT, total INT, PRIMARY KEY (k) NOT ENFORCED)
  WITH ('connector' = 'jdbc', 'table-name' = 'newest', {options});
"""
_INSERTS = f"""
INSERT INTO {{name}}_added SELECT id, CONCAT('w', CAST(id AS STRING)) FROM made;
INSERT INTO {{name}}_newest SELECT MOD(id, {_KEYS}) AS k, SUM(id) AS total FROM made GROUP BY MOD(id, {_KEYS});
"""


_MOMENTS = ("left", "written", "sent", "hidden", "planned")
"""What a kill waits for; see `_Sinks.seen`."""


@dataclass(frozen=True)
class _Sinks:
    """What the job writes to."""

    root: Path
    databases: Sequence[SinkDatabase]
    server: HttpServer

    @property
    def filed(self) -> Path:
        return self.root / "filed"

    def script(self) -> str:
        """The job: all its outputs have the same rows, some of them added up."""
        tables = [_TABLES.format(name=one.name, options=one.options) for one in self.databases]
        inserts = [_INSERTS.format(name=one.name) for one in self.databases]
        made = _MADE.format(filed=self.filed, url=f"{self.server.address}/rows")
        ours = f"INSERT INTO filed SELECT id, MOD(id, {_KEYS}) FROM made;\nINSERT INTO called SELECT id FROM made;"
        return "\n".join([made, *tables, "EXECUTE STATEMENT SET BEGIN", ours, *inserts, "END;"])

    def seen(self, what: str) -> frozenset[Hashable]:
        """What is there of a kind: a new member says that the job got further."""
        match what:
            case "left":
                # Rows that wait for a transaction: written, and not committed.
                return frozenset(self.root.glob("checkpoints/job/**/*-rows/*"))
            case "written":
                # Committed, and perhaps not noted.
                return frozenset(self.databases[0].rows("added"))
            case "sent":
                return frozenset(range(len(self.server.requests)))
            case "hidden":
                # Files that are written, and not shown.
                return frozenset(_stamps(path for path in self.filed.rglob(".*") if path.is_file()))
            case _:
                # Micro-batches that Spark has noted, before they are written.
                return frozenset(batch.note for batch in planned(self.root))


def kill_sink_jobs(run: ProgrammeRun) -> None:
    """S12. One kill (CI), twenty (full), a hundred (soak), between what is written and what is noted of it."""
    sys.path.append(str(Path(__file__).parent.parent / "tests"))
    from http_servers import Told, serving

    kills = run.by_size(1, 20, 100)
    with scratch_directory() as root, postgresql() as server, serving(lambda _: Told()) as asked:
        if server is None:
            run.count(POSTGRESQL_SKIPPED)
        sinks = _Sinks(root, [sqlite(root), *([server] if server is not None else [])], asked)
        (root / SCRIPT).write_text(sinks.script())
        rows = str(_ROWS // (kills * 2 + 2))
        command = [sys.executable, "-m", "crash.script_job", _NO_NAMESERVER, str(root), rows]
        if ends_after_kills(run, root, command, kills, lambda driver: _wait(run, driver, sinks)):
            _compare(run, sinks)


def _wait(run: ProgrammeRun, driver: Driver, sinks: _Sinks) -> None:
    """Until a sink has got further, one of chance, and perhaps a moment more."""
    name = run.random.choice(_MOMENTS)
    before, limit_s = sinks.seen(name), time.monotonic() + LIFE_LIMIT_S
    while driver.poll() is None and time.monotonic() < limit_s:
        # Files and directories go while they are looked for.
        with contextlib.suppress(FileNotFoundError):
            if not sinks.seen(name) <= before:
                break
        time.sleep(_POLL_S)
    time.sleep(run.random.choice((0.0, 0.0, 0.02, 0.2)))
    if driver.poll() is None:
        run.count(f"killed_when_{name}")
        run.count("killed_in_a_micro_batch", bool(planned(sinks.root)) and not is_noted(sinks.root))


def _compare(run: ProgrammeRun, sinks: _Sinks) -> None:
    """Files and tables have each row once; requests have each, and once for who looks at their keys."""
    numbers = range(_ROWS)
    _same(run, sinks, "filed", _filed(sinks.filed), Counter((number, number % _KEYS) for number in numbers))
    for database in sinks.databases:
        added = Counter((number, f"w{number}") for number in numbers)
        _same(run, sinks, f"{database.name} added", database.rows("added"), added)
        sums = Counter((key, sum(range(key, _ROWS, _KEYS))) for key in range(_KEYS))
        _same(run, sinks, f"{database.name} newest", database.rows("newest"), sums)
    by_key: dict[str, bytes] = {}
    for asked in sinks.server.requests:
        if by_key.setdefault(asked.headers["idempotency-key"], asked.body) != asked.body:
            run.fail(f"two bodies came under the key {asked.headers['idempotency-key']}", sinks.root)
    run.count("repeated_requests", len(sinks.server.requests) - len(by_key))
    called = Counter((row["id"],) for body in by_key.values() for row in json.loads(body))
    _same(run, sinks, "requests by key", called, Counter((number,) for number in numbers))


def _stamps(paths: Iterable[Path]) -> Iterator[tuple[Path, int]]:
    """Files that go meanwhile are passed over."""
    for path in paths:
        with contextlib.suppress(OSError):
            yield path, path.stat().st_mtime_ns


def _filed(directory: Path) -> Counter[tuple[Any, ...]]:
    """The rows of all files that readers see."""
    found: Counter[tuple[Any, ...]] = Counter()
    for file in directory.glob("k=*/*"):
        if file.name.startswith((".", "_")):
            continue
        for line in file.read_text().splitlines():
            found[json.loads(line)["id"], int(file.parent.name.removeprefix("k="))] += 1
    return found


def _same(
    run: ProgrammeRun, sinks: _Sinks, name: str, found: Counter[tuple[Any, ...]], wanted: Counter[tuple[Any, ...]]
) -> None:
    run.count("rows", sum(found.values()))
    for words, rows in (("too much", found - wanted), ("missing", wanted - found)):
        if rows:
            run.fail(f"{name}: {sum(rows.values())} rows {words}, such as {next(iter(rows))}", sinks.root)
