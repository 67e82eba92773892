"""A dimension table beside a Python dict and a Java map: bytes a row, building, probes a second, copies in memory.

`python -m benchmarks.dimension build|ask|dict|hold ...` are the processes that are measured.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.streams.dimension.builder import TableBuilder
from millstream.streams.dimension.index_key import IndexKey
from millstream.streams.dimension.table import DimensionTable

__all__ = ["measure_dimension"]

_ROWS = int(os.environ.get("DIMENSION_ROWS", "2000000"))
_KEY_CHARACTERS, _VALUE_CHARACTERS = 50, 20
_BATCH_ROWS = 100_000
_PROBES = 100_000
_SMALL_PROBES = 1_000
_ROUNDS = 20
_SMALL_ROUNDS = 1_000
_HIT_SHARE = 0.8
_WORKERS = (1, 4, 8)

_BY_KEY = IndexKey.equal("key")
_SCHEMA = pa.schema([("key", pa.string()), ("value", pa.string())])
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_JAVA_SOURCE = Path(__file__).with_name("HeapOfMap.java")

Figures = dict[str, Any]


def _texts(numbers: np.ndarray, length: int, seed: int) -> pa.Array:
    """Texts of hexadecimal digits, of which the first eight are the number."""
    characters = _DIGITS[np.random.default_rng(seed).integers(0, 16, (len(numbers), length), dtype=np.uint8)]
    for place in range(8):
        characters[:, place] = _DIGITS[numbers >> 4 * place & 15]
    offsets = np.arange(0, (len(numbers) + 1) * length, length, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), len(numbers), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(characters))]
    )


def _batch(start: int) -> pa.RecordBatch:
    numbers = np.arange(start, start + _BATCH_ROWS)
    values = _texts(numbers * 2_654_435_761 % 2**32, _VALUE_CHARACTERS, start + 1)
    return pa.RecordBatch.from_arrays([_texts(numbers, _KEY_CHARACTERS, start), values], schema=_SCHEMA)


def _batches(rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows, _BATCH_ROWS):
        yield _batch(start)


def _probes(rows: int, count: int, rounds: int) -> list[pa.Array]:
    """Batches of keys, `_HIT_SHARE` of which are there, from ten places of the table."""
    starts = range(0, rows, max(_BATCH_ROWS, rows // 10 // _BATCH_ROWS * _BATCH_ROWS))
    known = pa.concat_arrays([_batch(start).column(0) for start in starts])
    unknown = _texts(np.arange(2**31, 2**31 + len(known)), _KEY_CHARACTERS, 7)
    both = pa.concat_arrays([known, unknown])
    chance = np.random.default_rng(3)
    found = []
    for _ in range(rounds):
        places = chance.integers(0, len(known), count)
        places[chance.random(count) > _HIT_SHARE] += len(known)
        found.append(both.take(pa.array(places)))
    return found


def measure_dimension() -> Figures:
    """Figures of `DIMENSION_ROWS` rows of a key of 50 characters and a value of 20; see benchmarks/README.md."""
    scratch = Path(tempfile.mkdtemp(prefix="millstream-bench-"))
    directory = scratch / "table"
    try:
        figures = {"rows": _ROWS, "build": _run("build", str(directory), str(_ROWS))}
        figures["ask"] = _run("ask", str(directory), str(_ROWS))
        figures["dict"] = _run("dict", str(_ROWS))
        figures["java_bytes_a_row"] = _java_bytes() / _ROWS if shutil.which("java") else None
        figures["pss"] = {str(count): _held_bytes(directory, count) for count in _WORKERS}
        bytes_a_row = figures["build"]["bytes_a_row"]
        figures["to_dict_percent"] = round(100 * bytes_a_row / figures["dict"]["bytes_a_row"], 1)
        if figures["java_bytes_a_row"]:
            figures["to_java_percent"] = round(100 * bytes_a_row / figures["java_bytes_a_row"], 1)
        return figures
    finally:
        shutil.rmtree(scratch)


def _run(*arguments: str) -> Figures:
    command = [sys.executable, "-m", "benchmarks.dimension", *arguments]
    figures: Figures = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    return figures


def _java_bytes() -> int:
    command = ["java", "-Xmx8g", str(_JAVA_SOURCE), str(_ROWS)]
    return int(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def _held_bytes(directory: Path, count: int) -> Figures:
    """Memory of the table's files in so many processes that have read all of it: their PSS, and as one copy."""
    command = [sys.executable, "-m", "benchmarks.dimension", "hold", str(directory)]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        files_bytes = sum(_mapped_bytes(process.pid, directory) for process in processes)
    finally:
        for process in processes:
            process.communicate(b"\n")
    copy_bytes = sum(path.stat().st_size for path in directory.iterdir())
    return {"files_mb": round(files_bytes / 2**20, 1), "to_one_copy": round(files_bytes / copy_bytes, 3)}


def _mapped_bytes(process: int, directory: Path) -> int:
    """PSS of the mappings of files in the directory."""
    total, inside = 0, False
    for line in Path(f"/proc/{process}/smaps").read_text().splitlines():
        if not line[:1].isupper():
            inside = str(directory) in line
        elif inside and line.startswith("Pss:"):
            total += int(line.split()[1]) * 1024
    return total


def _build(directory: Path, rows: int) -> Figures:
    """Seconds of adding and finishing alone; the peak is that of the whole process, its rows in the making included."""
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    builder = TableBuilder(directory, _SCHEMA, [_BY_KEY], stored=["value"])
    wall_s = processor_s = 0.0
    for batch in _batches(rows):
        began = time.monotonic(), time.process_time()
        builder.add(batch)
        wall_s, processor_s = wall_s + time.monotonic() - began[0], processor_s + time.process_time() - began[1]
    began = time.monotonic(), time.process_time()
    built = builder.finish()
    wall_s, processor_s = wall_s + time.monotonic() - began[0], processor_s + time.process_time() - began[1]
    return {
        "bytes_a_row": round(built.size_bytes / rows, 2),
        "wall_s": round(wall_s, 1),
        "processor_s": round(processor_s, 1),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "rss_before_mb": round(before_kib / 1024),
    }


def _ask(directory: Path, rows: int) -> Figures:
    table = DimensionTable.open(directory)
    figures: Figures = {}
    for name, take in (("find", False), ("find_and_take", True)):
        processor, wall = [], []
        for probes in _probes(rows, _PROBES, _ROUNDS):
            began = time.monotonic(), time.process_time()
            found = table.find(_BY_KEY, [probes])
            if take:
                table.take(found.row)
            processor.append(time.process_time() - began[1])
            wall.append(time.monotonic() - began[0])
        figures[f"{name}_probes_a_processor_s"] = round(_PROBES / statistics.median(processor))
        figures[f"{name}_probes_per_s"] = round(_PROBES / statistics.median(wall))
    seconds = []
    for probes in _probes(rows, _SMALL_PROBES, _SMALL_ROUNDS):
        began_s = time.monotonic()
        table.take(table.find(_BY_KEY, [probes]).row)
        seconds.append(time.monotonic() - began_s)
    centiles = statistics.quantiles(seconds, n=100)
    return {**figures, "p50_of_1k_ms": round(centiles[49] * 1e3, 2), "p99_of_1k_ms": round(centiles[98] * 1e3, 2)}


def _dict(rows: int) -> Figures:
    """A dict of texts: memory a row, and lookups of lists of texts."""
    before_bytes = _resident_bytes()
    known: dict[str, str] = {}
    for batch in _batches(rows):
        known.update(zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True))
    del batch
    pa.default_memory_pool().release_unused()
    bytes_a_row = (_resident_bytes() - before_bytes) / rows
    seconds = []
    for probes in _probes(rows, _PROBES, 5):
        began_s = time.process_time()
        [known.get(one) for one in probes.to_pylist()]
        seconds.append(time.process_time() - began_s)
    rate = round(_PROBES / statistics.median(seconds))
    return {"bytes_a_row": round(bytes_a_row, 1), "probes_a_processor_s": rate}


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _hold(directory: Path) -> None:
    """Read all of the table, say so, and wait."""
    table = DimensionTable.open(directory)
    for _ in table.scan():
        pass
    for probes in _probes(table.rows, _PROBES, 2):
        table.find(_BY_KEY, [probes])
    print("ready", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["build", directory, rows]:
            print(json.dumps(_build(Path(directory), int(rows))))
        case ["ask", directory, rows]:
            print(json.dumps(_ask(Path(directory), int(rows))))
        case ["dict", rows]:
            print(json.dumps(_dict(int(rows))))
        case ["hold", directory]:
            _hold(Path(directory))
