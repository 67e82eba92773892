"""Makes the archive of Spark's classes where there is none, before many processes start Spark: `archive_classes.py`."""

from __future__ import annotations

from typing import Any

from pyspark import SparkContext

from millstream.streams.spark.runtime.class_archive import archive_directory, find_archive
from millstream.streams.spark.runtime.java import find_java
from millstream.streams.spark.runtime.session import start_session


def main() -> int:
    """0 where it is there at the end, or none can be kept."""
    archive = find_archive(find_java().path, archive_directory())
    if archive is None or archive.is_made():
        return 0
    start_session().stop()
    gateway: Any = SparkContext._gateway
    gateway.shutdown()
    # Java ends, and writes, when nobody can ask it any more.
    gateway.proc.stdin.close()
    gateway.proc.wait()
    return int(not archive.is_made())


if __name__ == "__main__":
    raise SystemExit(main())
