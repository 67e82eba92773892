"""DuckDB's own reader of Iceberg scans the table of a copy by its metadata, without the catalogue."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("pyiceberg")

from column_bench import CLUSTER, CopyBench

from millstream.broker import cold_tier, column_copies

pytestmark = pytest.mark.process

PYTHON = "MILLSTREAM_DUCKDB_PYTHON"
"""Names an interpreter whose DuckDB has the extension, where this one's has not."""

MISSING = (
    "DuckDB has no extension iceberg here: run INSTALL iceberg where DuckDB may fetch it, or make an environment by "
    f"pip install duckdb==1.4.4 duckdb-ext-iceberg duckdb-ext-avro, and name its interpreter in {PYTHON}"
)

SCAN = """
import json, pathlib, sys, duckdb
connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
for path in sys.path:
    extensions = pathlib.Path(path, "duckdb_ext", "extensions")
    if extensions.is_dir():
        connection.execute(f"SET extension_directory = '{extensions}'")
try:
    connection.execute("LOAD avro")
    connection.execute("LOAD iceberg")
except duckdb.Error:
    sys.exit(3)
found = connection.execute(sys.argv[1]).fetchall() if len(sys.argv) > 1 else []
print(json.dumps(found, default=str))
"""


@pytest.fixture(scope="module")
def interpreter() -> str:
    for found in (sys.executable, os.environ.get(PYTHON, "")):
        if found and subprocess.run([found, "-c", SCAN], capture_output=True, check=False).returncode == 0:
            return found
    pytest.skip(MISSING)


async def test_duckdb_scans_each_message_once_with_its_columns(
    tmp_path: Path, interpreter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cold_tier, "UPLOAD_INTERVAL_S", 1e6)
    monkeypatch.setattr(column_copies, "COPY_INTERVAL_S", 1e6)
    bench = CopyBench(tmp_path)
    await bench.open()
    for _ in range(3):
        await bench.send(40)
        await bench.upload()
        await bench.copy()
    await bench.close()
    bench.export()
    metadata = max((bench.store / "columns" / CLUSTER / "t" / "metadata").glob("*.metadata.json"))
    columns = "_queue_id, _queue_offset, id, name, price, _keys, _properties['color']"
    query = f"SELECT {columns} FROM iceberg_scan('{metadata}') ORDER BY 1, 2"
    wanted = []
    for queue in sorted(bench.sent):
        for offset, message in enumerate(bench.sent[queue]):
            body = json.loads(message.body)
            wanted.append(
                [queue, offset, body["id"], body["name"], body["price"], message.properties["KEYS"].split(), "red"]
            )
    assert _scan(interpreter, query) == wanted


def _scan(interpreter: str, query: str) -> object:
    scanned = subprocess.run([interpreter, "-c", SCAN, query], capture_output=True, check=True)
    return json.loads(scanned.stdout)
