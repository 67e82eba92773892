"""`millstream store`: inspect and mend the data directory of a stopped server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from millstream.cli.options import ExitCode, OutputFormat
from millstream.cli.printer import Printer

__all__ = ["repair"]


def repair(
    *,
    directory: Annotated[Path, Parameter(name="--dir")] = Path("millstream-data"),
    accept_loss: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    output: Annotated[OutputFormat | None, Parameter(name=["--output", "-o"])] = None,
) -> int:
    """Show what a data directory has lost, and go on without it if it cannot be put back.

    The exit code is 1 while something is missing that was not accepted. The server must not run meanwhile.

    Parameters
    ----------
    directory
        The server's --dir; of a cluster's processes each has its own below it.
    accept_loss
        What the next start is to do without, as the refusal names it (config/topics.json); may be given several times.
    """
    from millstream.broker.data_directory import accept_losses, all_losses

    accepted = accept_losses(directory, accept_loss) if accept_loss else []
    left = all_losses(directory)
    rows = [(loss.part, "accepted", loss.words) for loss in accepted]
    rows += [(loss.part, "damaged" if loss.is_damaged else "missing", loss.words) for loss in left]
    Printer(output).listing(("part", "state", "what"), rows, empty=f"Nothing is missing from {directory}.")
    return ExitCode.REFUSED if left else ExitCode.DONE
