"""The shell without Spark: what it says to statements, and what it does with jobs and queries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from millstream.cli.options import CommonOptions
from millstream.cli.streams.sql_shell import foreground
from millstream.cli.streams.sql_shell import shell as shell_module
from millstream.cli.streams.sql_shell.interrupts import Interrupts
from millstream.cli.streams.sql_shell.shell import Shell
from millstream.streams.jobs.progress import JobProgress, ResultRows
from millstream.streams.sql.session.compiler import SqlSession

VISITS = "CREATE TABLE visits (page STRING) WITH ('connector' = 'rocketmq', 'topic' = 'visits')"
OUT = "CREATE TABLE out (page STRING) WITH ('connector' = 'print')"


class Job:
    def __init__(self, name: str) -> None:
        self.query = name
        self.state: Any = "running"

    def progress(self) -> JobProgress:
        return JobProgress(rows_in=3, state=self.state)

    def wait(self, timeout_s: float) -> bool:
        return bool(self.state != "running")

    def stop(self) -> None:
        self.state = "ended"


class Engine:
    """Starts jobs that do nothing; those of queries show one row and end."""

    def __init__(self, interrupts: Interrupts) -> None:
        self.interrupts = interrupts
        self.started: list[tuple[str, bool, Path]] = []
        self.begun = 0
        self.ends = True
        self.on_rows: Any = None

    def begin(self) -> None:
        self.begun += 1

    def runner(self, stopped: object, nameserver: str, root: Path) -> Engine:
        self.root = root
        return self

    def start(self, plan: object, *, name: str, bounded: bool, on_rows: Any) -> Job:
        self.started.append((name, bounded, self.root))
        self.on_rows = on_rows
        job = Job(name)
        if name.startswith("query"):
            on_rows(ResultRows("result", ("page",), [("/home",)]))
            if self.ends:
                job.state = "ended"
            else:
                self.interrupts.stopped.set()
        return job

    def start_merged(self, plans: Sequence[object], *, names: Sequence[str], bounded: bool, on_rows: Any) -> list[Job]:
        return [
            self.start(plan, name=name, bounded=bounded, on_rows=on_rows)
            for plan, name in zip(plans, names, strict=True)
        ]


class Editor:
    def __init__(self, *statements: str | BaseException) -> None:
        self._statements = list(statements)

    def statement(self) -> str:
        found = self._statements.pop(0)
        if isinstance(found, BaseException):
            raise found
        return found


@pytest.fixture
def engine() -> Engine:
    return Engine(Interrupts())


@pytest.fixture
def shell(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    for module in (foreground, shell_module):
        monkeypatch.setattr(module, "check_topics", lambda plans, common: None)
    played: Any = engine
    return Shell(SqlSession(), CommonOptions(), played, engine.interrupts, tmp_path, None, bounded=False)


def test_an_error_shows_its_place_and_the_shell_goes_on(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    for statement in (VISITS, "SELECT pagee\nFROM visits", "SHOW TABLES"):
        shell.execute(statement)
    told = capsys.readouterr()
    assert "line 1, column 8" in told.err
    assert "  SELECT pagee\n         ^^^^^\n" in told.err
    assert told.out == "visits\n"


def test_spark_begins_to_start_with_the_first_table(shell: Shell, engine: Engine) -> None:
    shell.execute("SHOW TABLES")
    assert engine.begun == 0
    shell.execute(VISITS)
    assert engine.begun == 1


def test_a_query_is_shown_until_it_ends(shell: Shell, engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    shell.execute(VISITS)
    shell.execute("SELECT page FROM visits")
    told = capsys.readouterr()
    assert told.out == "result\t/home\n"
    assert "rows in 3" in told.err
    assert "Ctrl-C" not in told.err


def test_ctrl_c_stops_the_query_and_the_next_one_runs(
    shell: Shell, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.execute(VISITS)
    engine.ends = False
    shell.execute("SELECT page FROM visits")
    assert "stopped by Ctrl-C" in capsys.readouterr().err
    engine.ends = True
    shell.execute("SELECT page FROM visits")
    assert "Ctrl-C" not in capsys.readouterr().err
    assert [name for name, _, _ in engine.started] == ["query-1", "query-2"]


def test_an_insert_runs_beside_the_shell_and_is_stopped_by_name(
    shell: Shell, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    for statement in (VISITS, OUT, "INSERT INTO out SELECT page FROM visits", "SHOW JOBS"):
        shell.execute(statement)
    assert capsys.readouterr().out.startswith("insert-into-out\trunning\t3\t")
    shell.execute("STOP JOB 'insert-into-out'")
    shell.execute("SHOW JOBS")
    assert capsys.readouterr().out.startswith("insert-into-out\tstopped\t3\t")
    shell.execute("STOP JOB 'insert-into-ou'")
    assert 'Did you mean "insert-into-out"?' in capsys.readouterr().err


def test_a_shell_that_waits_for_jobs_shows_them_as_queries(shell: Shell, engine: Engine) -> None:
    for statement in (VISITS, OUT, "SET 'table.dml-sync' = 'true'", "SET 'pipeline.name' = 'query of mine'"):
        shell.execute(statement)
    engine.ends = False
    shell.execute("INSERT INTO out SELECT page FROM visits")
    assert [name for name, _, _ in engine.started] == ["query%20of%20mine"]


def test_leaving_the_shell_stops_its_jobs(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    editor: Any = Editor(VISITS, OUT, "INSERT INTO out SELECT page FROM visits", KeyboardInterrupt(), EOFError())
    shell.run(editor)
    told = capsys.readouterr()
    assert "^C" in told.out
    assert "The job insert-into-out is stopped" in told.err


def test_rows_of_a_jobs_print_sink_come_before_the_next_prompt(
    shell: Shell, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    class Late(Editor):
        def statement(self) -> str:
            if engine.on_rows is not None and not late.told:
                late.told = True
                engine.on_rows(ResultRows("out", ("page",), [("/late",)]))
            return super().statement()

        told = False

    late: Any = Late(VISITS, OUT, "INSERT INTO out SELECT page FROM visits", "SHOW VIEWS", "QUIT")
    shell.run(late)
    assert "out\t/late\n" in capsys.readouterr().out


def test_help_tells_how_to_leave(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.execute("help")
    assert "QUIT" in capsys.readouterr().out
