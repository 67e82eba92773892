"""Executes the statements of a session, with the results that Flink's gateway gives."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from millstream.gateway.jobs import JOB_COLUMNS, GatewayJobs
from millstream.gateway.operations import GatewayOperation, ResultColumn, StatementResult
from millstream.gateway.result_pages import ResultPages
from millstream.gateway.sessions import GatewaySession
from millstream.model.errors import MillstreamError
from millstream.streams.errors import SqlError
from millstream.streams.plan.nodes import JobPlan, QueryPlan, scans_of_plan
from millstream.streams.plan.types import BIGINT, STRING, DataType
from millstream.streams.sql.options.settings import SETTINGS, SettingProblem, check_setting
from millstream.streams.sql.session.compiler import Command, JobCommand, PrintCommand, TextResult
from millstream.streams.sql.shell.result_table import query_shape

if TYPE_CHECKING:
    from millstream.streams.jobs.progress import ResultRows

__all__ = ["configure", "execute", "set_properties"]

_SYNC_POLL_S: Final = 0.1
_BEGIN_SET: Final = re.compile(r"\s*BEGIN\s+STATEMENT\s+SET\s*;?\s*", re.IGNORECASE)
_END_SET: Final = re.compile(r"\s*END\s*;?\s*", re.IGNORECASE)
_ONE_TEXT: Final = (("plan",), ("statement",))
"""The columns of results whose rows are the lines of one text; Flink gives that text as one row."""

_INCOMPLETE: Final = 'Encountered "<EOF>"'
"""What Flink's SQL client looks for in an error to know that a statement goes on in the next line."""


def execute(
    session: GatewaySession, jobs: GatewayJobs, operation: GatewayOperation, statement: str, config: Mapping[str, str]
) -> StatementResult:
    """Run one statement in this thread; `config` are settings for it alone.

    Raises SqlError, JobError, GATEWAY_UNSUPPORTED.
    """
    command = _command_of(session, statement)
    match command:
        case None:
            return _ok()
        case QueryPlan():
            return _select(replace(command, settings=_with(command.settings, config)), jobs)
        case JobPlan():
            return _insert(replace(command, settings=_with(command.settings, config)), jobs, operation)
        case JobCommand(action="SHOW"):
            return _table(JOB_COLUMNS, jobs.rows(), [STRING if name in _TEXTS else BIGINT for name in JOB_COLUMNS])
        case JobCommand(job=job):
            jobs.stop(job)
            return _ok()
        case PrintCommand():
            raise MillstreamError("GATEWAY_UNSUPPORTED", "PRINT is a statement of the shell millstream sql.")
        case TextResult(columns=()):
            return _ok()
        case TextResult(columns=columns, rows=rows) if columns in _ONE_TEXT:
            return _table(("result",), [("\n".join(line for (line,) in rows),)])
        case TextResult(columns=columns, rows=rows):
            return _table(columns, rows)


_TEXTS: Final = ("job id", "job", "state", "watermark", "trouble")


def configure(session: GatewaySession, statement: str) -> None:
    """Run a statement that changes the session and starts nothing. Raises SqlError, GATEWAY_UNSUPPORTED."""
    if not isinstance(_compile(session, statement), TextResult):
        raise MillstreamError("GATEWAY_UNSUPPORTED", "A session is configured by SET, RESET, USE, CREATE and the like.")


def set_properties(session: GatewaySession, properties: Mapping[str, str]) -> None:
    """Take the properties that a client gives a new session; those that mean nothing here are kept and do nothing.

    Raises SqlError for a value that a setting cannot have.
    """
    for key, value in properties.items():
        if key in SETTINGS:
            key_text, value_text = (text.replace("'", "''") for text in (key, value))
            session.sql.compile(f"SET '{key_text}' = '{value_text}'")
        else:
            session.inert[key] = value


def _command_of(session: GatewaySession, statement: str) -> Command | None:
    """What the statement asks for; None if there is nothing to do yet: Flink's SQL client sends the statements of a
    set one by one."""
    if _BEGIN_SET.fullmatch(statement):
        session.open_set = []
        return None
    if session.open_set is None:
        return _compile(session, statement)
    inserts = session.open_set
    if _END_SET.fullmatch(statement):
        session.open_set = None
        return _compile(session, _set_text(inserts))
    bare = statement.strip().rstrip(";")
    if not bare.upper().startswith("INSERT"):
        raise MillstreamError("GATEWAY_UNSUPPORTED", "A statement set holds INSERTs; END closes it.")
    _compile(session, _set_text([bare]))
    session.open_set = [*inserts, bare]
    return None


def _set_text(inserts: list[str]) -> str:
    return "EXECUTE STATEMENT SET BEGIN\n" + "".join(f"{insert};\n" for insert in inserts) + "END"


def _compile(session: GatewaySession, statement: str) -> Command:
    try:
        (command,) = session.sql.compile(statement, single=True)
    except SqlError as error:
        if not _is_incomplete(error):
            raise
        message = f"{error.message} {_INCOMPLETE}."
        raise SqlError(error.name, message, position=error.position, script=error.script, remedy=error.remedy) from None
    return command


def _is_incomplete(error: SqlError) -> bool:
    return error.name == "SQL_SYNTAX" and error.message.endswith("but found the end.")


def _with(settings: Mapping[str, str], config: Mapping[str, str]) -> dict[str, str]:
    for key, value in config.items():
        try:
            check_setting(key, value)
        except SettingProblem as problem:
            raise MillstreamError(problem.name, problem.message, remedy=problem.remedy) from None
    return {**settings, **config}


def _select(plan: QueryPlan, jobs: GatewayJobs) -> StatementResult:
    ends = plan.settings.get("execution.runtime-mode", "").lower() == "batch" or not scans_of_plan(plan)
    shape = query_shape(plan.query)

    def take(result: ResultRows) -> None:
        pages.add(result.rows, result.kinds)

    pages = ResultPages(lambda: job.wait(0), summed=shape if ends and (shape.changes or shape.order) else None)
    job_id, job, stop = jobs.query(plan, take)
    columns = tuple(ResultColumn(field.name, field.type) for field in plan.query.schema.fields)
    return StatementResult(columns, pages, is_query=True, job_id=job_id, stop=stop)


def _insert(plan: JobPlan, jobs: GatewayJobs, operation: GatewayOperation) -> StatementResult:
    job_id, job = jobs.insert(plan)
    if plan.settings.get("table.dml-sync", "").lower() == "true":
        while not operation.canceled.is_set() and not job.wait(_SYNC_POLL_S):
            pass
        if operation.canceled.is_set():
            jobs.stop(job_id)
    found = _table(("job id",), [(job_id,)])
    return replace(found, job_id=job_id)


def _table(
    columns: Sequence[str], rows: Sequence[tuple[str | int | None, ...]], types: Sequence[DataType] | None = None
) -> StatementResult:
    heads = tuple(map(ResultColumn, columns, types or [STRING] * len(columns)))
    return StatementResult(heads, ResultPages.of_rows(rows))


def _ok() -> StatementResult:
    return replace(_table(("result",), [("OK",)]), has_content=False)
