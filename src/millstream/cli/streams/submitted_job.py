"""`millstream job submit` and the commands for jobs on a job server."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from millstream.cli.options import ExitCode, OutputFormat
from millstream.cli.printer import Printer, Value, print_usage
from millstream.client.job_server import DEFAULT_JOB_SERVER, JobServerClient
from millstream.model.errors import MillstreamError

__all__ = ["JobServerAccess", "cancel", "describe", "list_jobs", "logs", "pause", "resume", "submit", "update"]

_KINDS = {".sql": "sql", ".py": "program"}
_MEMORY = re.compile(r"(\d+)\s*([mg]?)b?", re.IGNORECASE)
_COLUMNS = ("job", "state", "rows_in", "rows_out", "behind", "restarts", "reason")


@Parameter(name="*")
@dataclass(frozen=True)
class JobServerAccess:
    """What every command for a job server takes."""

    server: Annotated[
        str, Parameter(env_var="MILLSTREAM_JOB_SERVER", help="URL of a job server; any of several will do.")
    ] = DEFAULT_JOB_SERVER
    output: Annotated[
        OutputFormat | None,
        Parameter(name=["--output", "-o"], help="table, json or plain. Default: table on a terminal, plain in a pipe."),
    ] = None
    timeout_s: Annotated[
        float, Parameter(name="--timeout", help="Seconds to wait for each answer.", validator=Number(gt=0, lte=3600))
    ] = 90.0

    @property
    def client(self) -> JobServerClient:
        """Asks that server. The token is that of MILLSTREAM_JOB_TOKEN."""
        return JobServerClient(self.server, timeout_s=self.timeout_s)


def submit(
    file: Path,
    /,
    *,
    name: str = "",
    cores: Annotated[int, Parameter(validator=Number(gte=0))] = 0,
    memory: str = "",
    settings: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
    from_savepoint: Annotated[Path | None, Parameter(negative="")] = None,
    at: JobServerAccess = JobServerAccess(),
) -> int:
    """Hand a script (FILE.sql) or a program (FILE.py) to a job server, which runs it until it is cancelled.

    Examples: millstream job submit detect.sql; millstream job submit words.py --name words --cores 2 --memory 2g.

    Parameters
    ----------
    file
        The script, or the program, which must need no other file of yours.
    name
        What the job is called; default: like the file.
    cores
        Processor cores of a driver of its own; without cores and memory it shares one with other jobs.
    memory
        Its Java heap, as 1500m or 2g.
    settings
        A setting as NAME=VALUE: one of SET, or one of Spark's that begins with spark. May be given several times.
    from_savepoint
        A savepoint on the server's machine from which the job begins; refused where its state does not fit.
    """
    kind = _KINDS.get(file.suffix)
    if kind is None:
        return print_usage("Give a program FILE.py or a script FILE.sql.")
    pairs = _pairs(settings)
    if from_savepoint is not None:
        pairs["execution.state-recovery.path"] = str(from_savepoint.absolute())
    kept = at.client.submit(
        name=name or file.stem,
        kind=kind,
        text=_text(file),
        settings=pairs,
        cores=cores,
        memory_mb=_memory_mb(memory),
    )
    _print_warnings(kept["notices"])
    _print_state(kept, at, "is submitted", [f"{one['checkpoint']}: {one['words']}" for one in kept["recovery"]])
    return ExitCode.DONE


def list_jobs(*, at: JobServerAccess = JobServerAccess()) -> int:
    """List the jobs of a job server."""
    rows = [_row(job) for job in at.client.jobs()]
    Printer(at.output).listing(_COLUMNS, rows, empty="There are no jobs.")
    return ExitCode.DONE


def describe(name: str, /, *, at: JobServerAccess = JobServerAccess()) -> int:
    """Show a job: what it is, how far it is, and why it failed.

    Parameters
    ----------
    name
        The job.
    """
    job = at.client.describe(name)
    shown: dict[str, Value | Sequence[Value]] = dict(job)
    if at.output != "json":
        # One line holds all: what is nested is JSON in it, which tools read.
        shown |= {name: json.dumps(value) for name, value in job.items() if isinstance(value, dict | list)}
    Printer(at.output).record(shown, sentence="\n".join(_lines(job)))
    return ExitCode.DONE


def logs(
    name: str,
    /,
    *,
    lines: Annotated[int, Parameter(validator=Number(gte=1, lte=10_000))] = 100,
    at: JobServerAccess = JobServerAccess(),
) -> int:
    """Print the last lines of the log of a job's driver, which other jobs may share.

    Parameters
    ----------
    name
        The job.
    lines
        How many.
    """
    found = at.client.logs(name, lines)
    if at.output == "json":
        Printer(at.output).listing(("line",), [(line,) for line in found], empty="")
    else:
        print("\n".join(found))
    return ExitCode.DONE


def pause(name: str, /, *, at: JobServerAccess = JobServerAccess()) -> int:
    """Stop a job so that it can be resumed; its checkpoint stays.

    Parameters
    ----------
    name
        The job.
    """
    _print_state(at.client.change(name, "pause"), at, "is to pause")
    return ExitCode.DONE


def resume(name: str, /, *, at: JobServerAccess = JobServerAccess()) -> int:
    """Start a job again that is paused or has failed; it goes on from its checkpoint.

    Parameters
    ----------
    name
        The job.
    """
    _print_state(at.client.change(name, "resume"), at, "is to run")
    return ExitCode.DONE


def cancel(name: str, /, *, at: JobServerAccess = JobServerAccess()) -> int:
    """End a job for good. Its checkpoint stays on the disk; a job of that name that is submitted later starts over.

    Parameters
    ----------
    name
        The job.
    """
    _print_state(at.client.change(name, "cancel"), at, "is cancelled")
    return ExitCode.DONE


def update(
    name: str,
    file: Path | None = None,
    /,
    *,
    cores: Annotated[int | None, Parameter(validator=Number(gte=0))] = None,
    memory: str | None = None,
    settings: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
    apply: Annotated[bool, Parameter(negative="")] = False,
    at: JobServerAccess = JobServerAccess(),
) -> int:
    """Show what another text, other settings or demands change in a job, and what becomes of its state.

    Parameters
    ----------
    name
        The job.
    file
        Its new script or program.
    cores
        New cores, with --memory as in submit: both are replaced.
    memory
        New memory.
    settings
        New settings, which replace all that the job had.
    apply
        Do it. The job runs on unchanged where its state does not fit.
    """
    demand = {}
    if cores is not None or memory is not None:
        demand = {"cores": cores or 0, "memory_mb": _memory_mb(memory or "")}
    found = at.client.update(
        name,
        text=None if file is None else _text(file),
        settings=None if settings is None else _pairs(settings),
        apply=apply,
        **demand,
    )
    _print_warnings(found["notices"])
    printer = Printer(at.output)
    if printer.format == "json":
        printer.record(found, sentence="")
        return ExitCode.DONE
    for line in found["difference"] or ["The plans are equal."]:
        print(line)
    for one in found["state"]:
        print(f"{one['checkpoint']}: {one['words']}")
    fits = all(one["fits"] for one in found["state"])
    if not apply:
        print("Nothing is changed yet; --apply does it." if fits else "It cannot be applied.")
    else:
        print(f"The job {name} is updated.")
    return ExitCode.DONE


def _print_warnings(notices: Sequence[str]) -> None:
    for notice in notices:
        print(f"warning: {notice}", file=sys.stderr, flush=True)


def _print_state(job: Mapping[str, Any], at: JobServerAccess, words: str, more: Sequence[str] = ()) -> None:
    values = {"job": job["name"], "state": job["state"], "wanted": job["wanted"], "generation": job["generation"]}
    sentence = f"The job {job['name']} {words}; it is {job['state']} now."
    Printer(at.output).record(values, sentence="\n".join([sentence, *more]))


def _row(job: Mapping[str, Any]) -> tuple[Value, ...]:
    progress = job["progress"]
    rows_in, rows_out, behind = None, None, None
    if progress is not None:
        rows_in, rows_out, behind = progress["rows_in"], sum(progress["rows_out"].values()), progress["behind"]
    return (job["name"], job["state"], rows_in, rows_out, behind, job["restarts"], job["reason"] or None)


def _lines(job: Mapping[str, Any]) -> list[str]:
    lines = [f"{job['name']}: {job['state']}" + (f" ({job['reason']})" if job["reason"] else "")]
    demand = job["demand"]
    own = f"{demand['cores'] or 1} cores, {demand['memory_mb'] or 1024} MiB" if any(demand.values()) else "shared"
    lines += [
        f"  wanted       {job['wanted']}, generation {job['generation']}",
        f"  driver       {own}; queries {', '.join(job['queries']) or '-'}",
        f"  restarts     {job['restarts']}",
    ]
    lines += [f"  isolated     {job['isolation']}"] * bool(job["isolation"])
    progress = job["progress"]
    if progress is not None:
        lines += [
            f"  rows in      {progress['rows_in']}, behind {_count_text(progress['behind'])}"
            f" (for {_count_text(progress['lag_s'])} s)"
        ]
        lines += [f"  rows out     {count} to {sink}" for sink, count in progress["rows_out"].items()]
        lines += [f"  watermark    {_count_text(progress['watermark_lag_s'])} s ago"] * (
            progress["watermark_ms"] is not None
        )
        lines += [f"  trouble      {progress['trouble']}"] * bool(progress["trouble"])
        lines += [f"  queue        {one['table']} {one['queue']} at {one['offset']}" for one in progress["queues"]]
    lines += [f"  event        {_moment(one['at_ms'])} {one['kind']} {one['words']}" for one in job["events"]]
    for failure in job["failures"]:
        lines.append(f"  failed       {failure['message']} [{failure['label']}]")
    return lines


def _moment(time_ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time_ms / 1000))


def _count_text(value: Any) -> str:
    return "unknown" if value is None else f"{value:.0f}"


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MillstreamError("SQL_SCRIPT", f"Cannot read {file}: {error}.") from None


def _pairs(settings: Sequence[str] | None) -> dict[str, str]:
    found = {}
    for setting in settings or ():
        name, equals, value = setting.partition("=")
        if not equals or not name.strip():
            raise MillstreamError("SQL_OPTION", f"{setting!r} is no setting.", remedy="Write --set NAME=VALUE.")
        found[name.strip()] = value
    return found


def _memory_mb(text: str) -> int:
    if not text:
        return 0
    match = _MEMORY.fullmatch(text.strip())
    if match is None:
        raise MillstreamError("JOB_DEMAND", f"{text!r} is no amount of memory.", remedy="Write it as 1500m or 2g.")
    return int(match[1]) * (1024 if match[2].lower() == "g" else 1)
