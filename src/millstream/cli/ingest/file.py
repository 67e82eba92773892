"""`millstream ingest file`: lines of files become messages, through rotation and restarts."""

from __future__ import annotations

import codecs
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from millstream.cli.ingest.shared import IngestOptions, run_gateway, state_directory, target_of
from millstream.cli.options import CommonOptions
from millstream.cli.printer import print_usage

if TYPE_CHECKING:
    from millstream.ingest.files.multiline import MultilineRule

__all__ = ["ingest_file"]


def ingest_file(
    topic: str,
    /,
    *path: str,
    begin: Annotated[Literal["beginning", "end"], Parameter(name="--from")] = "beginning",
    once: Annotated[bool, Parameter(negative="")] = False,
    directory: Annotated[Path | None, Parameter(name="--dir")] = None,
    encoding: str = "utf-8",
    event_start: str | None = None,
    event_continues: str | None = None,
    max_line_bytes: Annotated[int, Parameter(validator=Number(gte=16, lte=3 * 1024 * 1024))] = 1024 * 1024,
    oversized: Literal["cut", "dead-letter", "drop"] = "cut",
    given: IngestOptions = IngestOptions(),
    common: CommonOptions = CommonOptions(),
) -> int:
    """Send the lines of files as messages, and follow the files until Ctrl-C.

    Examples: millstream ingest file logs "/var/log/app/*.log" --bulk;
    millstream ingest file old-logs "archive/*.gz" --once;
    millstream ingest file logs app.log --event-start "^[0-9]{4}-".

    Parameters
    ----------
    topic
        The topic, which must exist.
    path
        Files, or patterns with *, ?, [] and ** (in quotes). Names that end with .gz or .zst are unpacked.
    begin
        Where to start in files that are there at the first start; those that come later are read from the beginning.
    once
        End at the end of the files.
    directory
        Where the offsets are kept, by one process at a time. Default: ~/.local/state/millstream/ingest/TOPIC.
    encoding
        How the files are written, by Python's names; messages are UTF-8.
    event_start
        Regular expression; a line that matches begins an event, the others go on with it.
    event_continues
        Regular expression; a line that matches goes on with the event before it.
    max_line_bytes
        Bytes of a line or event beyond which it is cut.
    oversized
        What becomes of longer ones: cut sends their beginning with the property cut-from-bytes, dead-letter sends
        that to --dead-letters, drop counts them.
    """
    from millstream.ingest.files.input import FileInput, FileOptions, Oversized
    from millstream.ingest.files.tail import TailOptions
    from millstream.ingest.files.watch import WatchOptions
    from millstream.ingest.gateway import InputPlan

    if not path:
        return print_usage("Name at least one file or pattern.")
    if oversized == "dead-letter" and given.dead_letters is None:
        return print_usage("--oversized dead-letter needs --dead-letters TOPIC.")
    try:
        joining = _joining(event_start, event_continues)
        codec = codecs.lookup(encoding).name
    except (ValueError, LookupError) as error:
        return print_usage(str(error) if isinstance(error, ValueError) else f"--encoding: there is no {encoding!r}.")
    patterns = [os.path.abspath(os.path.expanduser(one)) for one in path]
    tail = TailOptions(codec, joining, max_line_bytes=max_line_bytes)
    options = FileOptions(
        WatchOptions(patterns, tail, from_end=begin == "end"),
        directory or state_directory(topic),
        once=once,
        oversized=Oversized(oversized),
    )
    plan = InputPlan(
        lambda outlet, tally, say: FileInput(options, outlet, tally, say), target_of(topic, given), given.bulk
    )
    return run_gateway([plan], given, common)


def _joining(first: str | None, more: str | None) -> MultilineRule | None:
    """What joins lines to events; ValueError where it cannot be read or is said twice."""
    from millstream.ingest.files.multiline import MultilineRule

    if first is not None and more is not None:
        raise ValueError("Give --event-start or --event-continues, not both.")
    try:
        if first is not None:
            return MultilineRule(first=re.compile(first.encode()))
        return MultilineRule(more=re.compile(more.encode())) if more is not None else None
    except re.error as error:
        name = "--event-start" if first is not None else "--event-continues"
        raise ValueError(f"{name} is no regular expression: {error}.") from None
