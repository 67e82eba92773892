"""`millstream job savepoint`: writes a savepoint of a stopped job, and tells what one holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from millstream.cli.options import CommonOptions, ExitCode
from millstream.cli.printer import print_usage
from millstream.streams.jobs.savepoint import describe_savepoint, write_savepoint

__all__ = ["savepoint"]


def savepoint(
    checkpoint: Path | None = None,
    target: Path | None = None,
    /,
    *,
    name: str = "",
    describe: Annotated[Path | None, Parameter(negative="")] = None,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Write a savepoint of a job that is stopped, or show what one holds.

    A savepoint is one directory, which can be moved. A job begins from it with
    SET 'execution.state-recovery.path' = 'DIRECTORY', or job run --from-savepoint DIRECTORY. Examples:
    millstream job savepoint ck/job-0 /backup/before-update; millstream job savepoint --describe /backup/before-update.

    Parameters
    ----------
    checkpoint
        The directory of the job in its --checkpoint-dir.
    target
        The directory to write, which must not exist.
    name
        A name for people.
    describe
        A savepoint to show; nothing is written.
    """
    if describe is not None:
        found = describe_savepoint(describe)
    elif checkpoint is None or target is None:
        return print_usage("Give the checkpoint of a job and a directory to write, or --describe DIRECTORY.")
    else:
        found = write_savepoint(checkpoint, target, name)
    if common.output == "json":
        print(msgspec.json.encode(found).decode())
    else:
        print("\n".join(found.lines()))
    return ExitCode.DONE
