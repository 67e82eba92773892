"""The shell: executes statements one by one, keeps background jobs, until QUIT or Ctrl-D."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from millstream import __version__
from millstream.cli.options import CommonOptions, ExitCode
from millstream.cli.printer import Printer, print_error
from millstream.cli.streams.sql_shell.background_rows import BackgroundRows
from millstream.cli.streams.sql_shell.change_lines import ChangeLines
from millstream.cli.streams.sql_shell.engine import SparkEngine
from millstream.cli.streams.sql_shell.foreground import Foreground, check_topics, is_bounded
from millstream.cli.streams.sql_shell.interrupts import Interrupts
from millstream.cli.streams.sql_shell.line_editor import Found, History, LineEditor, history_path
from millstream.cli.streams.sql_shell.result_view import ShowSettings
from millstream.cli.streams.sql_shell.topic_print import print_topic
from millstream.model.errors import MillstreamError
from millstream.streams.jobs.job_book import COLUMNS, JobBook, directory_of
from millstream.streams.plan.nodes import JobPlan, QueryPlan
from millstream.streams.sql.session.compiler import Command, JobCommand, PrintCommand, SqlSession, TextResult

__all__ = ["Shell", "run_shell"]

_WELCOME = f"""Millstream {__version__}: Flink SQL over topics. A statement ends with ; and HELP says more."""

_HELP = """\
A statement ends with ; and may have several lines. Tab completes names, words and settings.
  SELECT ...                 shows rows as they come; Ctrl-C ends the query and not the shell
  INSERT INTO t SELECT ...   starts a job that runs while you go on
  SHOW JOBS, STOP JOB 'n'    the jobs of this shell
  PRINT 'topic'              messages of a topic as they come; also FROM BEGINNING, LIMIT 10
  EXPLAIN ..., SHOW TABLES, DESCRIBE t, SET
  SET 'sql-client.execution.result-mode' = 'table', 'changelog' or 'tableau'
  SET 'execution.runtime-mode' = 'batch'   what is there now, and then the query ends
  CLEAR, QUIT (or Ctrl-D)"""


def run_shell(session: SqlSession, common: CommonOptions, *, bounded: bool, checkpoint_dir: Path | None) -> ExitCode:
    """The shell on this terminal until the user leaves it. Checkpoints of jobs lie in `checkpoint_dir`, if given."""
    interrupts = Interrupts()
    interrupts.install()

    def complete(text: str, cursor: int) -> Found:
        found = session.complete(text, cursor)
        return found.start, [candidate.text for candidate in found.candidates]

    editor = LineEditor(History(history_path()), complete, interrupts)
    engine = SparkEngine()
    with tempfile.TemporaryDirectory(prefix="millstream-sql-", ignore_cleanup_errors=True) as scratch:
        try:
            shell = Shell(session, common, engine, interrupts, Path(scratch), checkpoint_dir, bounded=bounded)
            shell.run(editor)
        finally:
            engine.close()
    return ExitCode.DONE


class Shell:
    """Runs statements. Queries leave nothing behind; checkpoints of jobs lie in `checkpoint_dir`, else in `scratch`."""

    def __init__(
        self,
        session: SqlSession,
        common: CommonOptions,
        engine: SparkEngine,
        interrupts: Interrupts,
        scratch: Path,
        checkpoint_dir: Path | None,
        *,
        bounded: bool,
    ) -> None:
        self._session = session
        self._common = common
        self._engine = engine
        self._interrupts = interrupts
        self._scratch = scratch
        self._checkpoints = checkpoint_dir or scratch / "jobs"
        self._bounded = bounded
        self._printer = Printer(common.output)
        self._jobs = JobBook()
        self._background = BackgroundRows()
        self._queries = 0

    def run(self, editor: LineEditor) -> None:
        """Statement by statement until QUIT, Ctrl-D or SIGTERM; then all jobs are stopped."""
        print(_WELCOME)
        while not self._interrupts.terminated:
            self._tell_news()
            try:
                statement = editor.statement()
            except KeyboardInterrupt:
                print("^C  (QUIT or Ctrl-D leaves the shell)")
                continue
            except EOFError:
                print()
                break
            if statement.upper() in ("QUIT", "EXIT"):
                break
            self.execute(statement)
        for name in self._jobs.running:
            print(self._jobs.stop(name), file=sys.stderr, flush=True)

    def execute(self, statement: str) -> None:
        """One statement; an error is said and does not end the shell."""
        self._interrupts.stopped.clear()
        if statement.upper() == "HELP":
            print(_HELP)
            return
        if statement.upper() == "CLEAR":
            print("\x1b[2J\x1b[H", end="", flush=True)
            return
        try:
            for command in self._session.compile(statement):
                self._do(command)
            if self._session.catalog.tables:
                # A query will come: what takes longest begins while the user types it.
                self._engine.begin()
        except MillstreamError as refused:
            print_error(refused)
        except KeyboardInterrupt:
            print("^C")
        except Exception as unexpected:
            if os.environ.get("MILLSTREAM_DEBUG") == "1":
                raise
            print_error(MillstreamError("INTERNAL_ERROR", f"{type(unexpected).__name__}: {unexpected}."))

    def _do(self, command: Command) -> None:
        match command:
            case QueryPlan():
                self._show(command)
            case JobPlan():
                self._start(command)
            case JobCommand(action="SHOW"):
                self._printer.listing(COLUMNS, self._jobs.rows(), empty="There are no jobs in this shell.")
            case JobCommand(job=job):
                print(self._jobs.stop(job), file=sys.stderr, flush=True)
            case PrintCommand():
                print_topic(command, self._common, self._interrupts)
            case TextResult(columns=()):
                print(command.title, file=sys.stderr, flush=True)
            case TextResult():
                self._printer.listing(command.columns, command.rows, empty=command.title)

    def _show(self, plan: QueryPlan) -> None:
        self._queries += 1
        self._watch(plan, f"query-{self._queries}", self._scratch)

    def _watch(self, plan: JobPlan | QueryPlan, name: str, checkpoints: Path) -> None:
        foreground = Foreground(self._engine, self._interrupts, self._common, checkpoints)
        if not foreground.run([plan], [name], bounded=self._bounded):
            print("stopped by Ctrl-C", file=sys.stderr, flush=True)

    def _start(self, plan: JobPlan) -> None:
        name = self._jobs.free_name(plan)
        if plan.settings.get("table.dml-sync", "").lower() == "true":
            self._watch(plan, directory_of(name), self._checkpoints)
            return
        check_topics([plan], self._common)
        runner = self._engine.runner(self._interrupts.stopped, self._common.nameserver, self._checkpoints)
        if runner is None:
            print("stopped by Ctrl-C; the job has not started", file=sys.stderr, flush=True)
            return
        job = runner.start(plan, name=directory_of(name), bounded=self._bounded, on_rows=self._background.add)
        self._jobs.add(name, job)
        ends = "ends by itself" if is_bounded(plan, bounded=self._bounded) else f"STOP JOB '{name}' ends it"
        print(f"The job {name} runs; {ends}, SHOW JOBS shows how far it is.", file=sys.stderr, flush=True)

    def _tell_news(self) -> None:
        """What came from jobs meanwhile: rows of print sinks, and their ends."""
        for result, count in self._background.take():
            zone = ShowSettings.of(self._session.settings).zone
            kinds = result.kinds is not None
            lines = ChangeLines(result.sink, result.columns, self._printer.format, zone, with_kinds=kinds)
            if self._printer.format == "table":
                print(f"{result.sink}:")
            for line in lines.of(result.rows, result.kinds):
                print(line)
            if count > len(result.rows):
                print(f"{result.sink}: the newest {len(result.rows):,} of {count:,} rows", file=sys.stderr, flush=True)
        for sentence in self._jobs.news():
            print(sentence, file=sys.stderr, flush=True)
