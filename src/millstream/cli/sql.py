"""`millstream sql`: run a script of Flink SQL; SELECT and print sinks show their rows as they come."""

from __future__ import annotations

import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from millstream.cli.live_results import LiveResults
from millstream.cli.options import Common, ExitCode
from millstream.cli.printer import Printer
from millstream.model.errors import ExtraMissing, MillstreamError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.streams.jobs.runner import JobHandle
    from millstream.streams.plan.nodes import JobPlan, QueryPlan
    from millstream.streams.sql.compiler import Command

__all__ = ["sql"]

_POLL_S = 0.25


def sql(
    *,
    file: Annotated[Path | None, Parameter(name=["--file", "-f"])] = None,
    statement: Annotated[str | None, Parameter(name=["--execute", "-e"])] = None,
    bounded: Annotated[bool, Parameter(negative="")] = False,
    checkpoint_dir: Path | None = None,
    common: Common = Common(),
) -> int:
    """Run Flink SQL over topics.

    Parameters
    ----------
    file
        A script; - reads standard input.
    statement
        Statements on the command line.
    bounded
        Read what is there now, close all windows and end.
    checkpoint_dir
        Where positions and state are kept, so that the next run goes on; default: a directory of this run only.
    """
    if (file is None) == (statement is None):
        print("error: give either -f FILE or -e STATEMENT.", file=sys.stderr)
        return ExitCode.USAGE
    commands = _compile(_script(file, statement), common.nameserver)
    printer = Printer(common.output)
    plans: list[JobPlan | QueryPlan] = []
    for command in commands:
        _collect(command, printer, plans)
    if plans:
        _check_topics(plans, common)
        return _run(plans, common, bounded=bounded, checkpoint_dir=checkpoint_dir)
    return ExitCode.DONE


def _script(file: Path | None, statement: str | None) -> str:
    if statement is not None:
        return statement
    if file is None or str(file) == "-":
        return sys.stdin.read()
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MillstreamError("SQL_SCRIPT", f"Cannot read the script {file}: {error}.") from None


def _compile(script: str, nameserver: str) -> Sequence[Command]:
    """Parse and bind the whole script; nothing has started yet when this fails."""
    try:
        from millstream.streams.sql.compiler import SqlSession
    except ModuleNotFoundError as error:
        raise ExtraMissing("The stream engine", error.name, extra="streams") from None
    return SqlSession(nameserver=nameserver).compile(script)


def _collect(command: Command, printer: Printer, plans: list[JobPlan | QueryPlan]) -> None:
    """Print what a statement says, or keep what it asks to run."""
    from millstream.streams.plan.nodes import JobPlan, QueryPlan
    from millstream.streams.sql.compiler import JobCommand

    if isinstance(command, JobPlan | QueryPlan):
        plans.append(command)
    elif isinstance(command, JobCommand):
        if command.action != "SHOW":
            raise MillstreamError("SQL_UNKNOWN_NAME", f"There is no job {command.job!r}: a script runs only its own.")
        printer.listing(("job",), (), empty="There are no jobs before the script runs.")
    elif command.columns:
        printer.listing(command.columns, command.rows, empty=command.title)
    else:
        print(command.title, file=sys.stderr)


def _check_topics(plans: Sequence[JobPlan | QueryPlan], common: Common) -> None:
    """Refuse an unknown topic or a missing server before Spark takes seconds to start."""
    from millstream.client.blocking import BlockingClient
    from millstream.streams.plan.nodes import JobPlan, scans_of

    topics: set[tuple[str, str]] = set()
    for plan in plans:
        roots = [sink.input for sink in plan.sinks] if isinstance(plan, JobPlan) else [plan.query]
        for root in roots:
            for scan in scans_of(root):
                if scan.table.connector == "rocketmq":
                    options = scan.table.options
                    topics.add((options.get("nameserver", common.nameserver), options["topic"]))
    for nameserver, topic in sorted(topics):
        with BlockingClient(nameserver, timeout_s=common.timeout_s) as client:
            client.queue_ranges(topic)


def _run(
    plans: Sequence[JobPlan | QueryPlan], common: Common, *, bounded: bool, checkpoint_dir: Path | None
) -> ExitCode:
    try:
        from millstream.streams.jobs.runner import JobRunner
        from millstream.streams.spark.session import SessionOptions, start_session
    except ModuleNotFoundError as error:
        raise ExtraMissing("The stream engine", error.name, extra="streams") from None
    print("starting Spark ...", file=sys.stderr, flush=True)
    session = start_session(SessionOptions())
    # After the start: PySpark sets a handler of its own then.
    stopped = _stop_on_signals()
    try:
        with tempfile.TemporaryDirectory(prefix="millstream-sql-") as scratch, LiveResults(common.output) as results:
            runner = JobRunner(session, nameserver=common.nameserver, checkpoint_root=checkpoint_dir or Path(scratch))
            if bounded:
                for number, plan in enumerate(plans):
                    if not stopped.is_set():
                        job = runner.start(plan, name=f"sql-{number}", bounded=True, on_rows=results.rows)
                        _watch([job], results, stopped)
            else:
                names = (f"sql-{number}" for number in range(len(plans)))
                jobs = [
                    runner.start(plan, name=name, on_rows=results.rows) for plan, name in zip(plans, names, strict=True)
                ]
                _watch(jobs, results, stopped)
    finally:
        session.stop()
    return ExitCode.PARTLY_DONE if bounded and stopped.is_set() else ExitCode.DONE


def _watch(jobs: Sequence[JobHandle], results: LiveResults, stopped: threading.Event) -> None:
    """Show the jobs until all have ended or the user stops them."""
    try:
        running = list(jobs)
        while running and not stopped.is_set():
            running = [job for job in running if not job.wait(_POLL_S)]
            results.progress(jobs[-1].progress())
    finally:
        for job in jobs:
            job.stop()
            results.progress(job.progress(), final=True)


def _stop_on_signals() -> threading.Event:
    """Set by Ctrl-C and SIGTERM. An exception would come in the middle of a call to Spark and break its connection."""
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    return stopped
