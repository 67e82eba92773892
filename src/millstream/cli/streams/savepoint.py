"""`millstream job savepoint`: write a savepoint of a job, and describe one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from millstream.cli.options import ExitCode
from millstream.cli.printer import Printer, print_usage
from millstream.cli.streams.submitted_job import JobServerAccess
from millstream.streams.jobs.savepoints.savepoint import Savepoint, write_savepoint
from millstream.streams.jobs.savepoints.savepoint_parts import describe_parts

__all__ = ["savepoint"]


def savepoint(
    job: str = "",
    target: Path | None = None,
    /,
    *,
    to: Annotated[Path | None, Parameter(negative="")] = None,
    name: str = "",
    describe: Annotated[Path | None, Parameter(negative="")] = None,
    at: JobServerAccess = JobServerAccess(),
) -> int:
    """Write a savepoint of a job of a job server, or of one that is stopped; or show what one holds.

    A savepoint is one directory, which can be moved. A job begins from it with
    SET 'execution.state-recovery.path' = 'DIRECTORY', or --from-savepoint DIRECTORY of job submit and job run.
    Examples: millstream job savepoint detect --to /backup/before-update;
    millstream job savepoint ck/job-0 /backup/before-update; millstream job savepoint --describe /backup/before-update.

    Parameters
    ----------
    job
        The name of a job of the job server, which runs or is paused. With a second argument it is the directory of a
        stopped job in its --checkpoint-dir, and no server is asked.
    target
        The directory to write of a stopped job, which must not exist.
    to
        The directory to write of a job of a server, on the server's machine; default: one beside its checkpoints.
    name
        A name for people.
    describe
        A savepoint to show; nothing is written.
    """
    if describe is not None:
        return _print_parts(describe_parts(describe), at)
    if not job or (target is None and "/" in job) or (target is not None and to is not None):
        return print_usage(
            "Give the name of a job, or the checkpoint of one and a directory to write, or --describe DIRECTORY."
        )
    if target is not None:
        return _print_parts([write_savepoint(Path(job), target, name)], at)
    found = at.client.savepoint(job, directory="" if to is None else str(to.absolute()), label=name)
    printer = Printer(at.output)
    if printer.format == "json":
        printer.record(found, sentence="")
    else:
        print("\n".join([f"The savepoint is written to {found['directory']}.", *found["lines"]]))
    return ExitCode.DONE


def _print_parts(found: list[Savepoint], at: JobServerAccess) -> int:
    if at.output == "json":
        print(msgspec.json.encode(found[0] if len(found) == 1 else found).decode())
    else:
        print("\n".join(line for one in found for line in one.lines()))
    return ExitCode.DONE
