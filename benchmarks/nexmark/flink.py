"""One query in PyFlink, on its own: `python flink.py EVENTS_DIRECTORY SCRATCH QUERY` tells its seconds as JSON.

Runs where `apache-flink` is installed, and needs nothing of this project but the texts of the queries.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path

QUERIES = Path(__file__).parent / "queries"
CORES = 2


def main() -> int:
    from pyflink.table import EnvironmentSettings, TableEnvironment

    lines, scratch, name = sys.argv[1:]
    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    environment.get_config().set("parallelism.default", str(CORES))
    events = (QUERIES / "events_topic.sql").read_text()
    events = events.replace("'connector' = 'rocketmq'", "'connector' = 'filesystem'")
    events = events.replace("'topic' = 'nexmark'", f"'path' = 'file://{lines}'")
    text = (QUERIES / f"{name}.sql").read_text().replace("${OUTPUT}", f"file://{scratch}/flink-output")
    statements = [
        one.strip() for one in (events + (QUERIES / "views.sql").read_text() + text).split(";") if one.strip()
    ]
    try:
        # A job before it warms up the JVM and its class loaders, as ours is warmed up.
        for statement in statements[:4]:
            environment.execute_sql(statement)
        environment.execute_sql("CREATE TABLE nowhere (price BIGINT) WITH ('connector' = 'blackhole')")
        environment.execute_sql("INSERT INTO nowhere SELECT price FROM bid").wait()
        for statement in statements[4:-1]:
            environment.execute_sql(statement)
        cpu_s, started_s = used_s(), time.monotonic()
        environment.execute_sql(statements[-1]).wait()
        print(json.dumps({"seconds": time.monotonic() - started_s, "cpu_s": used_s() - cpu_s}))
    except Exception as error:  # noqa: BLE001 - whatever Flink refuses is told
        print(json.dumps({"refused": reason(error)}))
    return 0


def reason(error: Exception) -> str:
    """The last cause in the text of Java's stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by")] or lines[1:2] or lines
    return causes[-1][:300]


def used_s() -> float:
    """Processor seconds of this process and its children, the running JVM included."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    total = own.ru_utime + own.ru_stime
    parents = {}
    times = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(words[1])
            times[int(entry.name)] = (int(words[11]) + int(words[12])) / 100
    for pid in parents:
        above = parents.get(pid)
        while above and above != os.getpid():
            above = parents.get(above)
        total += times[pid] if above else 0.0
    return total


if __name__ == "__main__":
    raise SystemExit(main())
