"""`millstream sql`: a Flink SQL shell and script runner; SELECT and print sinks show rows as they arrive."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from millstream.cli.options import CommonOptions, ExitCode
from millstream.cli.printer import Printer, print_usage
from millstream.model.errors import ExtraMissing, MillstreamError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.cli.streams.sql_shell.engine import SparkEngine
    from millstream.streams.plan.nodes import JobPlan, QueryPlan
    from millstream.streams.sql.session.compiler import Command, PrintCommand, SqlSession

__all__ = ["run_plans", "show_plans", "sql", "sql_session"]


def sql(
    action: Annotated[Literal["explain"] | None, Parameter(name="ACTION")] = None,
    /,
    *,
    file: Annotated[list[Path] | None, Parameter(name=["--file", "-f"], negative="")] = None,
    statement: Annotated[str | None, Parameter(name=["--execute", "-e"])] = None,
    bounded: Annotated[bool, Parameter(negative="")] = False,
    checkpoint_dir: Path | None = None,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Run Flink SQL over topics: a script, or a shell if none is given.

    Examples: millstream sql; millstream sql -f detect.sql; millstream sql explain -f detect.sql;
    millstream sql --bounded -e "SELECT ..." -o json.

    Parameters
    ----------
    action
        explain shows the plans of the script's queries and starts nothing.
    file
        A script; - reads standard input. May be given several times: the scripts run as one, in their order.
    statement
        Statements on the command line.
    bounded
        Read what is there now, close all windows and end.
    checkpoint_dir
        Where offsets and state are kept, so that the next run goes on; default: a directory of this run only.
    """
    if file is not None and statement is not None:
        return print_usage("Give -f FILE or -e STATEMENT, not both.")
    session = sql_session(common)
    if file is None and statement is None:
        if action is not None or not (sys.stdin.isatty() and sys.stdout.isatty()):
            return print_usage("Give -f FILE (- reads standard input) or -e STATEMENT; the shell needs a terminal.")
        from millstream.cli.streams.sql_shell.shell import run_shell

        return run_shell(session, common, bounded=bounded, checkpoint_dir=checkpoint_dir)
    commands = [command for script in _scripts(file, statement) for command in script.compile_in(session)]
    if action == "explain":
        return show_plans(commands, common)
    printer = Printer(common.output)
    plans: list[JobPlan | QueryPlan] = []
    for command in commands:
        _collect(command, printer, plans, common)
    if plans:
        return run_plans(plans, common, bounded=bounded, checkpoint_dir=checkpoint_dir)
    return ExitCode.DONE


@dataclass(frozen=True, slots=True)
class _Script:
    """A text to run, and the file that it is from, where there are several."""

    text: str
    file: Path | None = None

    def compile_in(self, session: SqlSession) -> list[Command]:
        """Its commands. Raises SqlError, which names the file."""
        from millstream.streams.errors import SqlError

        try:
            return session.compile(self.text)
        except SqlError as error:
            if self.file is None:
                raise
            message = f"{self.file}: {error.message}"
            named = SqlError(error.name, message, position=error.position, script=error.script, remedy=error.remedy)
            raise named from None


def _scripts(files: Sequence[Path] | None, statement: str | None) -> list[_Script]:
    if statement is not None:
        return [_Script(statement)]
    several = len(files or ()) > 1
    return [_Script(_text(file), file if several else None) for file in files or ()]


def _text(file: Path) -> str:
    if str(file) == "-":
        return sys.stdin.read()
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MillstreamError("SQL_SCRIPT", f"Cannot read the script {file}: {error}.") from None


def sql_session(common: CommonOptions) -> SqlSession:
    """A session on the cluster. Raises ExtraMissing where the stream engine is not installed."""
    try:
        from millstream.streams.sql.session.compiler import SqlSession
    except ModuleNotFoundError as error:
        raise ExtraMissing("The stream engine", error.name, extra="streams") from None
    return SqlSession(nameserver=common.nameserver)


def show_plans(commands: Sequence[Command], common: CommonOptions) -> int:
    """Show the plan of each query, and what the script's own EXPLAINs say, in their order."""
    from millstream.streams.optimizer.explain import explain_query, explain_sinks
    from millstream.streams.plan.nodes import JobPlan, QueryPlan
    from millstream.streams.sql.session.compiler import TextResult
    from millstream.streams.sql.shell.explain import explain_node, explain_sink

    printer = Printer(common.output)
    shown = False
    for command in commands:
        match command:
            case JobPlan(sinks=sinks, settings=settings):
                lines = [line for sink in sinks for line in explain_sink(sink)] + explain_sinks(sinks, settings)
            case QueryPlan(query=query, settings=settings):
                lines = explain_node(query) + explain_query(query, settings)
            case TextResult(columns=("plan",), rows=rows):
                lines = [line for (line,) in rows]
            case _:
                continue
        printer.listing(("plan",), [(line,) for line in lines], empty="")
        shown = True
    if not shown:
        raise MillstreamError("SQL_SCRIPT", "The script has no SELECT, INSERT or EXPLAIN.", remedy="")
    return ExitCode.DONE


def _collect(command: Command, printer: Printer, plans: list[JobPlan | QueryPlan], common: CommonOptions) -> None:
    """Print what a statement says, or keep what it asks to run."""
    from millstream.streams.plan.nodes import JobPlan, QueryPlan
    from millstream.streams.sql.session.compiler import JobCommand, PrintCommand

    if isinstance(command, JobPlan | QueryPlan):
        plans.append(command)
    elif isinstance(command, JobCommand):
        if command.action != "SHOW":
            raise MillstreamError("SQL_UNKNOWN_NAME", f"There is no job {command.job!r}: a script runs only its own.")
        printer.listing(("job",), (), empty="There are no jobs before the script runs.")
    elif isinstance(command, PrintCommand):
        _print_topic(command, common)
    elif command.columns:
        printer.listing(command.columns, command.rows, empty=command.title)
    else:
        print(command.title, file=sys.stderr)


def _print_topic(command: PrintCommand, common: CommonOptions) -> None:
    from millstream.cli.streams.sql_shell.interrupts import Interrupts
    from millstream.cli.streams.sql_shell.topic_print import print_topic

    interrupts = Interrupts()
    interrupts.install()
    print_topic(command, common, interrupts)


def run_plans(
    plans: Sequence[JobPlan | QueryPlan],
    common: CommonOptions,
    *,
    bounded: bool,
    checkpoint_dir: Path | None,
    name: str = "sql",
    names: Sequence[str] | None = None,
    engine: SparkEngine | None = None,
) -> ExitCode:
    """Run the plans and show what they give until they end or Ctrl-C stops them.

    The jobs are called `names`, else `name` and a number.
    """
    from millstream.cli.streams.sql_shell.engine import SparkEngine, start_spark
    from millstream.cli.streams.sql_shell.foreground import Foreground
    from millstream.cli.streams.sql_shell.interrupts import Interrupts
    from millstream.streams.connectors.rules.hit_plans import reads_hits_alone

    interrupts = Interrupts()
    interrupts.install()
    engine = engine or SparkEngine(partial(start_spark, few_rows_in_java=all(map(reads_hits_alone, plans))))
    try:
        with tempfile.TemporaryDirectory(prefix="millstream-sql-") as scratch:
            foreground = Foreground(engine, interrupts, common, checkpoint_dir or Path(scratch))
            called = names or [f"{name}-{number}" for number in range(len(plans))]
            ended = foreground.run(plans, called, bounded=bounded)
    finally:
        engine.close()
    return ExitCode.DONE if ended or not bounded else ExitCode.PARTLY_DONE
