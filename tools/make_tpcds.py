"""Makes the tables and the queries of TPC-DS in a directory: `data/*.parquet` and `queries/q*.sql`.

Usage: make_tpcds.py DIRECTORY [SCALE]

Both come from DuckDB's extension `tpcds`, which this installs in a virtual environment of its own. TPC's licence of the
texts keeps them out of the tree.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

__all__ = ["make"]

PACKAGES = ("duckdb==1.5.5", "duckdb-extension-tpcds==1.5.5")

SCALE = 0.01
"""Some 28,000 sales: a query over them takes seconds, and most answers have rows."""

# Runs in that environment, with the directory and the scale as arguments.
_PROGRAM = """
import sys
from pathlib import Path

import duckdb
import duckdb_extension_tpcds

directory, scale = Path(sys.argv[1]), float(sys.argv[2])
[extension] = Path(duckdb_extension_tpcds.__file__).parent.rglob("*.duckdb_extension")
database = duckdb.connect(config={"allow_unsigned_extensions": True})
database.execute(f"LOAD '{extension}'")
database.execute(f"CALL dsdgen(sf={scale})")
for number, text in database.execute("FROM tpcds_queries()").fetchall():
    (directory / "queries" / f"q{number}.sql").write_text(text)
for (table,) in database.execute("SHOW TABLES").fetchall():
    database.execute(f"COPY {table} TO '{directory / 'data' / table}.parquet' (FORMAT parquet)")
"""


def make(directory: Path, scale: float = SCALE) -> None:
    """Make what is missing."""
    if (directory / "queries" / "q99.sql").is_file() and (directory / "data" / "web_site.parquet").is_file():
        return
    for part in ("data", "queries"):
        (directory / part).mkdir(parents=True, exist_ok=True)
    environment = directory / "venv"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    subprocess.run([python, "-c", _PROGRAM, str(directory), str(scale)], check=True)


if __name__ == "__main__":
    make(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else SCALE)
