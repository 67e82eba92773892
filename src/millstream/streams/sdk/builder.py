"""The job builder: tables, streams, and their sinks.

Plans without projections that change nothing.

CREATE TABLE as the SDK writes it: topics that are read, and what a stream is written to.
"""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.streams.errors import JobError, SqlError
from millstream.streams.jobs.progress import JobProgress, ResultRows
from millstream.streams.plan.expressions import Column
from millstream.streams.plan.nodes import JobPlan, Node, Project, QueryPlan, Sink, inputs_of, with_inputs
from millstream.streams.plan.types import Schema
from millstream.streams.sdk.code import import_path
from millstream.streams.sdk.running import RunningJob, print_rows, start_job
from millstream.streams.sdk.schemas import Columns, column_text, type_text
from millstream.streams.sdk.sql_text import Duration, interval, list_columns, literal, quote_name
from millstream.streams.sdk.stream import Stream
from millstream.streams.sdk.submission import submit_program
from millstream.streams.sql.catalog.catalog import CatalogView
from millstream.streams.sql.options.option_checks import check_read_options
from millstream.streams.sql.session.compiler import SqlSession
from millstream.streams.sql.shell.explain import explain_sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["EVENT_TIME", "Start", "StreamBuilder", "TopicTable", "create_table", "plain", "sink_table"]

EVENT_TIME = "event_time"
"""The column of event time where `timestamp` is an expression or left out."""

Start = str | int | datetime.datetime
"""Where a job without a checkpoint begins: "earliest", "latest", a store time, or the offsets of queues."""

_NAME = re.compile(r"[A-Za-z_]\w*")
_OWN_TIMES = {"born": "born-timestamp", "store": "store-timestamp"}


@dataclass(frozen=True, slots=True)
class TopicTable:
    """A topic as a table. `timestamp` is a column, "born" or "store", or an expression of SQL."""

    name: str
    topic: str
    schema: Columns
    format: str
    timestamp: str | None
    watermark: Duration | None
    start: Start
    options: Mapping[str, str] = field(default_factory=dict)

    def statement(self) -> str:
        """The CREATE TABLE."""
        columns, time = [column_text(self.schema)], EVENT_TIME
        timestamp = self.timestamp or ("born" if self.watermark is not None else None)
        if timestamp in _OWN_TIMES:
            key = _OWN_TIMES[timestamp]
            columns.append(f"{quote_name(EVENT_TIME)} TIMESTAMP_LTZ(3) METADATA FROM '{key}' VIRTUAL")
        elif timestamp is not None and _NAME.fullmatch(timestamp):
            time = timestamp
        elif timestamp is not None:
            columns.append(f"{quote_name(EVENT_TIME)} AS {timestamp}")
        if timestamp is not None:
            delay = self.watermark if self.watermark is not None else "0 s"
            columns.append(f"WATERMARK FOR {quote_name(time)} AS {quote_name(time)} - {interval(delay)}")
        options = {"connector": "rocketmq", "topic": self.topic, "format": self.format, **_startup(self.start)}
        return create_table(self.name, columns, {**options, **self.options})


def create_table(name: str, columns: list[str], options: Mapping[str, str]) -> str:
    """A CREATE TABLE of parts."""
    pairs = ",\n  ".join(f"{literal(key)} = {literal(value)}" for key, value in options.items())
    return f"CREATE TABLE {quote_name(name)} (\n  {(',' + chr(10) + '  ').join(columns)}\n) WITH (\n  {pairs}\n)"


def sink_table(name: str, schema: Schema, options: Mapping[str, str], key: tuple[str, ...] = ()) -> str:
    """The table that takes the rows of a schema; those of one `key` replace each other."""
    for one in key:
        if schema.find(one) is None:
            remedy = f"Columns: {', '.join(schema.names)}."
            raise SqlError("SQL_UNKNOWN_COLUMN", f'There is no column "{one}" to be a key.', remedy=remedy)
    columns = [
        f"{quote_name(of.name)} {type_text(of.type.as_nullable(of.name not in key and of.type.nullable))}"
        for of in schema.fields
    ]
    if key:
        columns.append(f"PRIMARY KEY ({list_columns(key)}) NOT ENFORCED")
    return create_table(name, columns, options)


def _startup(start: Start) -> dict[str, str]:
    if isinstance(start, datetime.datetime):
        moment = start.replace(tzinfo=datetime.UTC) if start.tzinfo is None else start
        start = round(moment.timestamp() * 1000)
    if isinstance(start, int):
        return {"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": str(start)}
    if "offset:" in start:
        return {"scan.startup.mode": "specific-offsets", "scan.startup.specific-offsets": start}
    mode = f"{start}-offset" if start in ("earliest", "latest") else start
    return {"scan.startup.mode": mode}


def plain(node: Node) -> Node:
    """The same rows without the projections that only list the columns of their input in its order."""
    inputs = inputs_of(node)
    below = with_inputs(node, tuple(map(plain, inputs))) if inputs else node
    return below.input if isinstance(below, Project) and _changes_nothing(below) else below


def _changes_nothing(node: Project) -> bool:
    same = all(isinstance(value, Column) and value.name == name for name, value in node.columns)
    return same and node.schema == node.input.schema


_JOB_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


class StreamBuilder:
    """A job of the DataStream SDK; `job_id` names it, and its directory of state.

    `settings` are those of SET (docs/sql-options.md); `variables` are the values of ${name} in texts of SQL.
    Raises JobError JOB_FAILED for an id that is no name of a directory, SqlError for an unknown setting.

    >>> builder = StreamBuilder("word-count")
    >>> lines = builder.source("lines", schema={"line": str})
    >>> _ = lines.filter("CHAR_LENGTH(line) > 0").print()
    >>> print("\\n".join(builder.explain()))
    Sink print_1 (print)
      Project [line]
        Filter >(CHAR_LENGTH(line), 0)
          Scan lines (rocketmq) columns=[line STRING]
    """

    def __init__(
        self,
        job_id: str,
        *,
        nameserver: str = "",
        settings: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        if not _JOB_ID.fullmatch(job_id):
            message = f"{job_id!r} is no id of a job."
            raise JobError("JOB_FAILED", message, remedy="Use 1 to 100 letters, digits, and . _ - behind the first.")
        self.job_id = job_id
        self.nameserver = nameserver
        self._session = SqlSession(nameserver=nameserver, variables=variables)
        self._sinks: list[Sink] = []
        self._functions: dict[str, str] = {}
        self._numbers = itertools.count(1)
        for name, value in (settings or {}).items():
            self.set(name, value)

    def set(self, name: str, value: str) -> StreamBuilder:
        """What SET says, for all that is built from now on. Raises SqlError.

        >>> builder = StreamBuilder("job").set("table.exec.source.idle-timeout", "2 s")
        """
        self._session.set(name, value)
        return self

    def source(
        self,
        topic: str,
        *,
        schema: Columns,
        format: str = "json",
        timestamp: str | None = None,
        watermark: Duration | None = None,
        start: Start = "earliest",
        name: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> Stream:
        """The rows of a topic, which is a table of SQL from now on, called `name` or else like the topic.

        `timestamp` is event time: a column, an expression of SQL (its column is `event_time`), "born" (when the message
        was made; the default with a `watermark`) or "store". Rows may be `watermark` older than the newest one.
        `start` says where a job begins that has no checkpoint: "earliest", "latest", a store time, or offsets.
        `options` are others of WITH (docs/connectors.md). Raises SqlError.

        >>> builder = StreamBuilder("job")
        >>> readings = builder.source("readings", schema="device STRING, celsius DOUBLE", watermark="5 s")
        >>> readings.columns
        ('device', 'celsius', 'event_time')
        """
        table = TopicTable(
            name or topic, topic, schema, format, timestamp, watermark, start, {**(options or {})}
        )  # fmt: skip
        self.sql(table.statement())
        return self.table(table.name)

    def sql(self, script: str) -> StreamBuilder:
        """Run statements of SQL: CREATE, SET and the like; an INSERT becomes an output of this job. Raises SqlError.

        >>> builder = StreamBuilder("job")
        >>> seconds = builder.sql("CREATE TABLE t (n BIGINT) WITH ('connector' = 'datagen')").table("t")
        """
        for command in self._session.compile(script):
            if isinstance(command, JobPlan):
                self._sinks += command.sinks
            elif isinstance(command, QueryPlan):
                raise SqlError(
                    "SQL_SCRIPT", "The rows of a SELECT go nowhere here.", remedy="Use from_sql(...).print()."
                )
        return self

    def table(self, name: str) -> Stream:
        """The rows of a table or view of SQL; a name of several parts is written as in SQL. Raises SqlError."""
        shown = name if "." in name or name.startswith("`") else quote_name(name)
        return self.from_sql(f"SELECT * FROM {shown}")

    def from_sql(self, query: str) -> Stream:
        """The rows of a query over the tables, views and streams (see `Stream.to_table`) of this job. Raises SqlError.

        >>> builder = StreamBuilder("job")
        >>> _ = builder.source("t", schema={"host": str, "bytes": int})
        >>> builder.from_sql("SELECT host, bytes / 1024 AS kib FROM t").columns
        ('host', 'kib')
        """
        return Stream(self, self.rows(query))

    def function(self, function: Callable[..., Any], name: str | None = None) -> str:
        """Let texts of SQL in this job call a Python function, or a class that is an aggregate; its name there.

        It must be found by its module and name, as CREATE FUNCTION wants it (docs/user-functions.md). Raises SqlError.

        >>> from millstream.streams.functions.java_twins import count_char
        >>> builder = StreamBuilder("job")
        >>> builder.function(count_char, "count_of")
        'count_of'
        >>> _ = builder.source("t", schema={"line": str}).select(n="count_of(line, 'a')")
        """
        path, called = import_path(function), name or function.__name__
        if self._functions.setdefault(called, path) != path:
            message = f'There is another function "{called}" in this job.'
            raise SqlError("SQL_TABLE_EXISTS", message, remedy="Give it another name.")
        self.sql(f"CREATE TEMPORARY FUNCTION IF NOT EXISTS {quote_name(called)} AS {literal(path)} LANGUAGE PYTHON")
        return called

    def plan(self) -> JobPlan:
        """What runs: all outputs as one job. Raises JobError JOB_FAILED where there are none.

        Raises SqlError where they read a table under two sets of options.
        """
        if not self._sinks:
            message = f"The job {self.job_id} has no output."
            raise JobError("JOB_FAILED", message, remedy="End a stream with print(), sink(...) or insert_into(...).")
        check_read_options(sink.input for sink in self._sinks)
        # Whoever runs the plan, a command for one, has a nameserver of its own.
        own = {"millstream.nameserver": self.nameserver} if self.nameserver else {}
        return JobPlan(tuple(self._sinks), {**own, **self._session.settings})

    def start(
        self,
        *,
        bounded: bool = False,
        checkpoint_dir: Path | str | None = None,
        spark: SparkSession | None = None,
        master: str = "",
        code: Sequence[Path | str] = (),
        on_rows: Callable[[ResultRows], None] = print_rows,
    ) -> RunningJob:
        """Start the job in this process and return at once, when it runs; takes 5 to 20 s where Spark is started.

        `bounded` reads what the topics hold now, closes all windows and ends. Positions and state are kept in
        `checkpoint_dir` under the job's id, so that the next start goes on; without it each start starts over.
        `spark` is a session that is used instead of a local one, `master` the cluster to run on, to which the modules
        in the directories `code` are sent. `on_rows` takes the rows of `print`, from other threads.
        Raises JobError, NameRefused TOPIC_NOT_FOUND, ConnectionFailed.

            with builder.start(checkpoint_dir="state") as job:
                job.wait(60)
                print(job.status, job.progress().rows_in)
        """
        return start_job(
            self.plan(),
            name=self.job_id,
            nameserver=self.nameserver,
            bounded=bounded,
            spark=spark,
            master=master,
            code=[Path(directory) for directory in code],
            checkpoint_dir=None if checkpoint_dir is None else Path(checkpoint_dir),
            on_rows=on_rows,
        )

    def run_bounded(self, **how: Any) -> JobProgress:
        """Run the job over what the topics hold now, with all windows closed; what it counted. See `start`.

        Raises JobError if it fails.
        """
        with self.start(bounded=True, **how) as job:
            job.wait()
            return job.progress()

    def run(self, **how: Any) -> JobProgress:
        """Run the job until Ctrl-C stops it, or it ends by itself; what it counted. See `start`."""
        return self.start(**how).until_interrupted()

    def submit(self, url: str, *, name: str = "", cores: int = 0, memory_mb: int = 0) -> str:
        """Hand the program in which this is called to a job server; the name of its job.

        The server gets the file of the caller, alone, reads it there and runs what its builders say, as `name` or else
        the id of this job. `cores` and `memory_mb` ask for a driver of its own. While a server reads the file this does
        nothing. The token, where the server wants one, is in MILLSTREAM_JOB_TOKEN. Raises MillstreamError.
        """
        return submit_program(url, name=name or self.job_id, cores=cores, memory_mb=memory_mb)

    def explain(self) -> list[str]:
        """The plan as lines of text, as EXPLAIN shows it."""
        return [line for sink in self.plan().sinks for line in explain_sink(sink)]

    def rows(self, query: str, /, **inputs: Node) -> Node:
        """The plan of a query in which each of `inputs` is a table of that name. Raises SqlError."""
        return plain(self._session.rows(query, inputs))

    def write(self, table: str, node: Node) -> None:
        """Make an output: the rows of a node go into a table, by the names of its columns where it has them all.

        Raises SqlError.
        """
        shown = table if "." in table or table.startswith("`") else quote_name(table)
        known = self._writable(table)
        names = f" ({list_columns(known)})" if known and set(known) <= set(node.schema.names) else ""
        chosen = list_columns(known) if names else "*"
        sink = self._session.sink(f"INSERT INTO {shown}{names} SELECT {chosen} FROM stream", {"stream": node})
        # The projection at the top stays as SQL has it: what is shared by outputs is found below it.
        top = with_inputs(sink.input, tuple(map(plain, inputs_of(sink.input))))
        self._sinks.append(replace(sink, input=top))

    def write_new(self, kind: str, node: Node, options: Mapping[str, str], key: tuple[str, ...] = ()) -> None:
        """Make an output to a table of its own, called `kind` and a number. Raises SqlError."""
        name = f"{kind}_{next(self._numbers)}"
        self.sql(sink_table(name, node.schema, options, key))
        self.write(name, node)

    def name(self, name: str, node: Node) -> None:
        """Let a node be a table of SQL. Raises SqlError SQL_TABLE_EXISTS."""
        catalog = self._session.catalog
        full = catalog.full_name((name,))
        if full in catalog.views or full in catalog.tables:
            raise SqlError("SQL_TABLE_EXISTS", f'There is a table or view "{name}" already.')
        catalog.views[full] = CatalogView(node, "", temporary=True)

    def _writable(self, table: str) -> tuple[str, ...]:
        """The columns that a table takes; none where it is no table."""
        catalog = self._session.catalog
        found = catalog.tables.get(catalog.full_name(tuple(part.strip("`") for part in table.split("."))))
        return () if found is None else tuple(column.name for column in found.table.writable)
