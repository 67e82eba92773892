"""The table of a lookup join as its connector and options ask for it."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Hashable

from millstream.streams.connectors.options import milliseconds
from millstream.streams.errors import JobError
from millstream.streams.spark.lookups.database_table import DatabaseTable
from millstream.streams.spark.lookups.files import file_table
from millstream.streams.spark.lookups.kept_table import KeptKeys, KeptLimits, MissedAgain, WholeTable
from millstream.streams.spark.lookups.lookup_table import LookupSpec, LookupTable

__all__ = ["MAX_KEPT_KEYS", "open_table"]

MAX_KEPT_KEYS = 1_000_000
"""Keys that a worker keeps of a table with lookup.cache PARTIAL, unless an option says fewer."""

_DAY_S = 86_400
_DEFAULT_ATTEMPTS = "3"
_DEFAULT_DELAY = "1 s"


def open_table(spec: LookupSpec) -> LookupTable:
    """The table, not read yet. Raises JobError JOB_FAILED for one that cannot be looked up."""
    match spec.option("connector"):
        case "filesystem":
            return _patient(spec, file_table(spec))
        case "jdbc":
            return _database(spec)
        case connector:
            words = f"The table {spec.name} cannot be looked up: its connector is {connector!r}."
            raise JobError("JOB_FAILED", words)


def _database(spec: LookupSpec) -> LookupTable:
    database = DatabaseTable(spec)
    table = _patient(spec, database)
    match spec.option("lookup.cache", "NONE").upper():
        case "PARTIAL":
            limits = KeptLimits(
                int(spec.option("lookup.partial-cache.max-rows", str(MAX_KEPT_KEYS))),
                spec.seconds("lookup.partial-cache.expire-after-write"),
                spec.seconds("lookup.partial-cache.expire-after-access"),
                spec.option("lookup.partial-cache.cache-missing-key", "true").lower() == "true",
            )
            return KeptKeys(table, limits)
        case "FULL" if spec.option("lookup.full-cache.reload-strategy", "PERIODIC").upper() == "TIMED":
            return _patient(spec, WholeTable(spec, database.all_rows, _day_from(spec), 0))
        case "FULL":
            interval_s = spec.seconds("lookup.full-cache.periodic-reload.interval")
            if interval_s is None:
                return WholeTable(spec, database.all_rows, lambda: 0, _DAY_S)
            return _patient(spec, WholeTable(spec, database.all_rows, time.monotonic, interval_s))
        case _:
            return table


def _patient(spec: LookupSpec, table: LookupTable) -> LookupTable:
    """The table, asked again for rows that are not there yet where a hint says so."""
    hints = dict(spec.hints)
    if hints.get("retry-predicate", "").lower() != "lookup_miss":
        return table
    attempts = int(hints.get("max-attempts", _DEFAULT_ATTEMPTS))
    return MissedAgain(table, attempts, milliseconds(hints.get("fixed-delay", _DEFAULT_DELAY)) / 1000)


def _day_from(spec: LookupSpec) -> Callable[[], Hashable]:
    """The number of the day, where days begin at the time of reload in UTC."""
    text = spec.option("lookup.full-cache.timed-reload.iso-time").rstrip("Zz")
    begins = datetime.time.fromisoformat(text)
    begins_s = (begins.hour * 60 + begins.minute) * 60 + begins.second
    return lambda: int(time.time() - begins_s) // _DAY_S
