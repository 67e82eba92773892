"""`millstream dim`: manage the dimension tables of this machine, used by lookup joins."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number

from millstream.cli.messages.moment import time_text
from millstream.cli.options import CommonOptions, ExitCode
from millstream.cli.printer import Printer, Value
from millstream.streams.dimension.directory import DIRECTORY_VARIABLE, dimension_directory, find_table, tables_in
from millstream.streams.dimension.hit_counts import COUNTS, HitCounts
from millstream.streams.dimension.versions import ReloadRequest, VersionStore
from millstream.streams.errors import DimensionError

__all__ = ["describe", "drop", "list_tables", "reload"]

_COLUMNS = ("table", "id", "rows", "bytes", "bytes_a_row", "version", "loaded", "hit_rate", "trouble")
_POLL_S = 0.1

Directory = Annotated[Path | None, Parameter(name="--dir", env_var=DIRECTORY_VARIABLE)]


def list_tables(*, directory: Directory = None, common: CommonOptions = CommonOptions()) -> int:
    """List the dimension tables of this machine, with the current version of each.

    Parameters
    ----------
    directory
        The directory of all tables; default: MILLSTREAM_DIMENSIONS, or in the user's directory of state.
    """
    root = directory or dimension_directory()
    rows = [_row(store) for store in tables_in(root)]
    Printer(common.output).listing(_COLUMNS, rows, empty=f"{root} has no dimension tables.")
    return ExitCode.DONE


def _row(store: VersionStore) -> tuple[Value, ...]:
    note, head, trouble = store.note(), store.current(), store.load_failure()
    rate = HitCounts.read(store.directory / COUNTS).rate
    return (
        None if note is None else note.name,
        store.directory.name,
        None if head is None else head.rows,
        None if head is None else head.size_bytes,
        None if head is None else round(head.size_bytes / max(head.rows, 1), 1),
        None if head is None else head.version,
        None if head is None else time_text(head.time_ms),
        None if rate is None else round(rate, 4),
        None if trouble is None else trouble.words,
    )


def describe(table: str, *, directory: Directory = None, common: CommonOptions = CommonOptions()) -> int:
    """Show one dimension table: where it is from, its columns and indexes, its versions, and what jobs found in it.

    Parameters
    ----------
    table
        Its name in SQL, or its id if several have the name.
    directory
        The directory of all tables; default: MILLSTREAM_DIMENSIONS, or in the user's directory of state.
    """
    store = find_table(directory or dimension_directory(), table)
    values = _description_of(store)
    width = max(map(len, values))
    lines = [f"{name:<{width}}  {_text_of(value)}" for name, value in values.items()]
    for head in store.versions():
        mark = "*" if head.version == values["version"] else " "
        overlay = f", {head.changed:,} of them changed" if head.changed else ""
        size = f"{head.rows:,} rows{overlay}, {head.size_bytes:,} bytes"
        took = f"loaded in {head.load_ms / 1000:.1f} s"
        lines.append(f"{mark} version {head.version}: {time_text(head.time_ms)}, {size}, {took}")
    full = values | {"versions": [head.version for head in store.versions()]}
    Printer(common.output).record(full, sentence="\n".join(lines))
    return ExitCode.DONE


def _description_of(store: VersionStore) -> dict[str, Value | list[Value]]:
    row = dict(zip(_COLUMNS, _row(store), strict=True))
    note, trouble = store.note(), store.load_failure()
    hits = HitCounts.read(store.directory / COUNTS)
    assert note is not None
    keys = [msgspec.json.decode(key) for key in note.keys]
    return {
        **row,
        "connector": note.connector,
        "from": note.place,
        "columns": [*note.columns],
        "filters": [*note.filters],
        "reload": note.reload,
        "indexes": [f"{key['kind']} ({', '.join(key['columns'])})" for key in keys],
        "asked": hits.probes,
        "found": hits.hits,
        "kept_for": [f"{job}: {', '.join(map(str, versions))}" for job, versions in store.versions_by_job().items()],
        "trouble_since": None if trouble is None else time_text(trouble.time_ms),
    }


def _text_of(value: Value | list[Value]) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def reload(
    table: str,
    *,
    wait: Annotated[float, Parameter(validator=Number(gte=0, lte=86_400))] = 0,
    directory: Directory = None,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Load a dimension table again: a job that joins it does so at once, or the next one when it starts.

    Parameters
    ----------
    table
        Its name in SQL, or its id if several have the name.
    wait
        Seconds to wait for the new version; exit code 4 if it did not come, 1 if the load failed.
    directory
        The directory of all tables; default: MILLSTREAM_DIMENSIONS, or in the user's directory of state.
    """
    store = find_table(directory or dimension_directory(), table)
    before, asked_ms = store.current(), time.time_ns() // 1_000_000
    number = 0 if before is None else before.version
    try:
        ReloadRequest(store.directory).request(asked_ms)
    except OSError as error:
        words = f"{store.directory} cannot be written: {error.strerror}."
        raise DimensionError("DIMENSION_NOT_WRITABLE", words) from None
    until_s = time.monotonic() + wait
    while wait:
        now, trouble = store.current(), store.load_failure()
        if now is not None and now.version > number:
            values = {"version": now.version, "rows": now.rows}
            Printer(common.output).record(values, sentence=f"version {now.version} has {now.rows:,} rows")
            return ExitCode.DONE
        if trouble is not None and trouble.time_ms >= asked_ms:
            Printer(common.output).record({"trouble": trouble.words}, sentence=f"the load failed: {trouble.words}")
            return ExitCode.REFUSED
        if time.monotonic() >= until_s:
            break
        time.sleep(_POLL_S)
    sentence = "no new version came yet" if wait else "a running job loads it now, else the next one that starts"
    Printer(common.output).record({"version": number, "asked": time_text(asked_ms)}, sentence=sentence)
    return ExitCode.TIMED_OUT if wait else ExitCode.DONE


def drop(table: str, *, directory: Directory = None, common: CommonOptions = CommonOptions()) -> int:
    """Remove a dimension table with all its versions. A job that joins it loads it again when it starts.

    A job that was killed and has to repeat its last micro-batch cannot do that without the version it used.

    Parameters
    ----------
    table
        Its name in SQL, or its id if several have the name.
    directory
        The directory of all tables; default: MILLSTREAM_DIMENSIONS, or in the user's directory of state.
    """
    store = find_table(directory or dimension_directory(), table)
    try:
        gone = store.drop()
    except OSError as error:
        words = f"{store.directory} cannot be removed: {error.strerror}."
        raise DimensionError("DIMENSION_NOT_WRITABLE", words) from None
    if not gone:
        words = f"The dimension table {store.directory.name} is read or loaded by a process."
        raise DimensionError("DIMENSION_IN_USE", words)
    Printer(common.output).record({"removed": store.directory.name}, sentence=f"{store.directory.name} is removed")
    return ExitCode.DONE
