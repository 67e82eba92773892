"""Alerts for hosts on which many logins failed within a minute, with the team that owns the host.

Rows that are no failures are left out, each host is looked up in hosts.csv, failures are counted by window, and windows
with too many become messages of the topic login-alerts.

Run it:  millstream quickstart        (in another terminal)
         python examples/datastream/failed_logins.py
         millstream consume login-alerts --from earliest
"""

from __future__ import annotations

from pathlib import Path

from samples import NAMESERVER, send

from millstream.streams.sdk import Row, StreamBuilder, tumbling

HOSTS = Path(__file__).resolve().parent / "hosts.csv"
ATTEMPTS = [
    *(
        {"host": "web-1", "user": "root", "ok": False, "ts": f"2026-05-01 12:00:{second:02d}"}
        for second in range(10, 16)
    ),
    *({"host": "web-2", "user": "ann", "ok": False, "ts": f"2026-05-01 12:00:{second:02d}"} for second in (20, 21)),
    {"host": "web-2", "user": "ann", "ok": True, "ts": "2026-05-01 12:00:22"},
    {"host": "db-1", "user": "backup", "ok": False, "ts": "2026-05-01 12:02:30"},
]


def is_person(row: Row) -> bool:
    """Whether no program logs in under that name."""
    return row.user not in ("backup", "monitor")


def main() -> StreamBuilder:
    """The job, with attempts to try it on."""
    send("logins", ATTEMPTS, outputs=["login-alerts"])
    builder = StreamBuilder("failed-logins", nameserver=NAMESERVER)
    builder.sql(f"""
        CREATE TABLE hosts (host STRING, team STRING, failures_allowed BIGINT)
        WITH ('connector' = 'filesystem', 'path' = '{HOSTS}', 'format' = 'csv')
    """)
    logins = builder.source(
        "logins",
        schema={"host": str, "user": str, "ok": bool, "ts": "TIMESTAMP(3)"},
        timestamp="ts",
        watermark="5 s",
    )
    failed = logins.filter("NOT ok").filter(is_person).dim_join("hosts", on="host")
    counted = failed.key_by("host", "team", "failures_allowed").window(tumbling("1 min")).count(name="failures")
    alerts = counted.filter("failures > failures_allowed").select("window_end", "host", "team", "failures")
    alerts.sink("login-alerts").print("alert")
    return builder


if __name__ == "__main__":
    main().run_bounded()
