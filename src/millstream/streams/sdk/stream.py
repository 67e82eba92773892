"""A stream of rows, and its operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from millstream.streams.errors import SqlError
from millstream.streams.plan.nodes import Node
from millstream.streams.plan.types import Schema
from millstream.streams.plan.user_calls import PythonKind
from millstream.streams.sdk import sql_text
from millstream.streams.sdk.code import ErrorChoice, python_rows
from millstream.streams.sdk.keyed import KeyedStream
from millstream.streams.sdk.schemas import Columns
from millstream.streams.sdk.sql_text import Duration, items, list_columns, literal, quote_name
from millstream.streams.sdk.windowed import WindowedStream
from millstream.streams.sdk.windows import Window
from millstream.streams.sql.shell.explain import explain_node

if TYPE_CHECKING:
    from millstream.streams.sdk.builder import StreamBuilder

__all__ = ["SplitStream", "Stream"]

_LABEL = "label_of_row"


class Stream:
    """Rows with named, typed columns. Each method gives another stream; nothing runs before the job is started.

    Texts are expressions of SQL over the columns. All methods raise SqlError, which points into the text, for names and
    types that do not fit.
    """

    def __init__(self, builder: StreamBuilder, node: Node) -> None:
        self.builder = builder
        self.node = node

    @property
    def schema(self) -> Schema:
        """The columns with their types."""
        return self.node.schema

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self.node.schema.names

    def explain(self) -> str:
        """The plan so far, a line a step."""
        return "\n".join(explain_node(self.node))

    def select(self, *columns: str, **named: str) -> Stream:
        """Only these columns; each is a column's name or an expression, `named` ones are called so.

        >>> from millstream.streams.sdk import StreamBuilder
        >>> events = StreamBuilder("job").source("events", schema={"host": str, "bytes": int})
        >>> events.select("host", kib="bytes / 1024").columns
        ('host', 'kib')
        """
        chosen = [items(columns, self.columns)] if columns else []
        chosen += [f"{items((value,), self.columns)} AS {quote_name(name)}" for name, value in named.items()]
        return self._of(f"SELECT {', '.join(chosen)} FROM stream")

    def map(
        self, function: Callable[[Any], Any], *, schema: Columns | None = None, on_error: ErrorChoice | None = None
    ) -> Stream:
        """The row that a Python function makes of each row; None makes none.

        The function gets a `Row`, or an object of the class that annotates its argument, which is then all it reads. It
        gives a dataclass, named tuple, msgspec.Struct, dict, tuple, or one value, which becomes the column `value`; the
        types are those of its annotation, or of `schema`. Event time goes along as a column of its own.
        A row for which it raises, or gives another type, goes with the traceback to the dead-letter topic of its source
        ("dead-letter", the default), is only counted ("skip"), or ends the job ("fail"; the default without a topic).

        >>> from millstream.streams.sdk import StreamBuilder
        >>> events = StreamBuilder("job").source("events", schema={"host": str}, watermark="5 s")
        >>> events.map(lambda row: {"length": len(row.host)}, schema={"length": int}).columns
        ('length', 'event_time')
        """
        return self._call(PythonKind.MAP, function, schema, on_error)

    def flat_map(
        self, function: Callable[[Any], Any], *, schema: Columns | None = None, on_error: ErrorChoice | None = None
    ) -> Stream:
        """The rows that a Python function makes of each row: none, one or several; see `map`.

        >>> from collections.abc import Iterator
        >>> from typing import NamedTuple
        >>> from millstream.streams.sdk import Row, StreamBuilder
        >>> class Word(NamedTuple):
        ...     word: str
        >>> def words(row: Row) -> Iterator[Word]:
        ...     return map(Word, row.line.split())
        >>> StreamBuilder("job").source("lines", schema={"line": str}).flat_map(words).columns
        ('word',)
        """
        return self._call(PythonKind.FLAT_MAP, function, schema, on_error)

    def map_batches(
        self, function: Callable[[Any], Any], *, schema: Columns, on_error: ErrorChoice | None = None
    ) -> Stream:
        """The columns that a Python function makes of a `pyarrow.RecordBatch` of rows, as many as it was given.

        It gives a RecordBatch, a Table or a dict of columns. Where it raises, all rows of the batch are refused; see
        `map`.

        >>> from millstream.streams.sdk import StreamBuilder
        >>> events = StreamBuilder("job").source("events", schema={"host": str})
        >>> import pyarrow.compute as pc
        >>> events.map_batches(lambda rows: {"host": pc.utf8_lower(rows["host"])}, schema={"host": str}).columns
        ('host',)
        """
        return self._call(PythonKind.MAP_BATCHES, function, schema, on_error)

    def foreach(self, function: Callable[[Any], Any], *, on_error: ErrorChoice | None = None) -> Stream:
        """Call a Python function for each row, for what it does elsewhere; the stream itself.

        A row is seen at least once: again after a crash.

        >>> from millstream.streams.sdk import StreamBuilder
        >>> events = StreamBuilder("job").source("events", schema={"host": str})
        >>> _ = events.foreach(lambda row: print(row.host))
        """
        called = self._call(PythonKind.FOREACH, function, None, on_error)
        self.builder.write_new("foreach", called.node, {"connector": "blackhole"})
        return self

    def with_column(self, name: str, value: str) -> Stream:
        """One more column, the value of an expression; a column of that name is replaced.

        >>> from millstream.streams.sdk import StreamBuilder
        >>> events = StreamBuilder("job").source("events", schema={"host": str})
        >>> events.with_column("short", "SUBSTRING(host, 1, 8)").columns
        ('host', 'short')
        """
        made = f"{items((value,), self.columns)} AS {quote_name(name)}"
        if name not in self.columns:
            return self._of(f"SELECT {list_columns(self.columns)}, {made} FROM stream")
        chosen = (made if known == name else quote_name(known) for known in self.columns)
        return self._of(f"SELECT {', '.join(chosen)} FROM stream")

    def drop(self, *names: str) -> Stream:
        """Without these columns.

        >>> from millstream.streams.sdk import StreamBuilder
        >>> StreamBuilder("job").source("t", schema={"a": int, "b": int}).drop("b").columns
        ('a',)
        """
        return self._of(f"SELECT {list_columns(self._others(names))} FROM stream")

    def filter(self, condition: str | Callable[[Any], object], *, on_error: ErrorChoice | None = None) -> Stream:
        """The rows for which the condition is true: not false, and not NULL. It may be a Python function; see `map`.

        >>> from millstream.streams.sdk import StreamBuilder
        >>> events = StreamBuilder("job").source("events", schema={"host": str, "bytes": int})
        >>> print(events.filter("bytes > 1000").explain())
        Filter >(bytes, 1000)
          Scan events (rocketmq) columns=[host STRING, bytes BIGINT]
        """
        if not isinstance(condition, str):
            return self._call(PythonKind.FILTER, condition, None, on_error)
        return self._of(f"SELECT * FROM stream WHERE {condition}")

    def union(self, *others: Stream) -> Stream:
        """The rows of all, whose columns have the same names or else stand in the same order.

        >>> from millstream.streams.sdk import StreamBuilder
        >>> builder = StreamBuilder("job")
        >>> both = builder.source("a", schema={"n": int}).union(builder.source("b", schema={"n": int}))
        """
        inputs = {"stream": self.node, **{f"stream_{place}": one.node for place, one in enumerate(others, 2)}}
        queries = [
            f"SELECT {list_columns(self.columns) if set(self.columns) == set(node.schema.names) else '*'} FROM {name}"
            for name, node in inputs.items()
        ]
        return Stream(self.builder, self.builder.rows(" UNION ALL ".join(queries), **inputs))

    def split(self, by: str | Callable[[Any], str], *, on_error: ErrorChoice | None = None) -> SplitStream:
        """Parts by the value of an expression or of a Python function, which names them; `select` gives each.

        >>> from millstream.streams.sdk import StreamBuilder
        >>> events = StreamBuilder("job").source("events", schema={"level": int})
        >>> parts = events.split("CASE WHEN level > 8 THEN 'urgent' ELSE 'other' END")
        >>> urgent, other = parts.select("urgent"), parts.select("other")
        """
        if isinstance(by, str):
            return SplitStream(self, by)
        step = python_rows(self.node, PythonKind.MAP, by, schema={_LABEL: str}, on_error=on_error, keep=self.columns)
        return SplitStream(Stream(self.builder, step), quote_name(_LABEL), self.columns)

    def distinct(self, *columns: str, within: Duration | None = None) -> Stream:
        """The first row of each value of the columns (all, if none are named), as it comes.

        It remembers each value for ever or the job's TTL; with `within` the first of each tumbling window of that size,
        by event time.

        >>> from millstream.streams.sdk import StreamBuilder
        >>> events = StreamBuilder("job").source("events", schema={"host": str, "user": str})
        >>> first = events.distinct("host")
        """
        return self.key_by(*(columns or self.columns)).first(within=within)

    def key_by(self, *keys: str) -> KeyedStream:
        """The rows by keys: columns, or expressions with a name, as in "LOWER(host) AS host_key".

        >>> from millstream.streams.sdk import StreamBuilder
        >>> events = StreamBuilder("job").source("events", schema={"host": str, "bytes": int})
        >>> events.key_by("host").sum("bytes").columns
        ('host', 'sum')
        """
        made = [key for key in keys if key not in self.columns]
        if not made:
            return KeyedStream(self, keys)
        stream = self._of(f"SELECT {list_columns(self.columns)}, {', '.join(made)} FROM stream")
        new = iter(stream.columns[len(self.columns) :])
        return KeyedStream(stream, tuple(key if key in self.columns else next(new) for key in keys))

    def window(self, window: Window, **how: str | Duration | bool | None) -> WindowedStream:
        """All rows in windows; see `KeyedStream.window`.

        >>> from millstream.streams.sdk import StreamBuilder, tumbling
        >>> events = StreamBuilder("job").source("events", schema={"host": str}, watermark="5 s")
        >>> events.window(tumbling("10 s")).count().columns
        ('window_start', 'window_end', 'count')
        """
        return KeyedStream(self, ()).window(window, **how)  # type: ignore[arg-type]

    def top_n(self, n: int, by: str, *, ascending: bool = False, rank: str | None = None) -> Stream:
        """The `n` rows with the greatest values of an expression, which change as rows come; see `KeyedStream.top_n`.

        >>> from millstream.streams.sdk import StreamBuilder
        >>> events = StreamBuilder("job").source("events", schema={"host": str, "bytes": int})
        >>> most = events.top_n(3, "bytes")
        """
        return KeyedStream(self, ()).top_n(n, by, ascending=ascending, rank=rank)

    def dim_join(
        self, table: str, on: sql_text.On, *, where: str | None = None, left: bool = False, suffix: str = "_right"
    ) -> Stream:
        """Each row with those that are in a dimension table now; with `left` also rows without any.

        `on` names a column of both, or maps columns of the stream to those of the table. `where` is a further condition
        over `l` (the stream) and `r` (the table). Columns of the table that are called like one of the stream get the
        `suffix`. The table is one that lookups can ask (docs/queries.md).

        >>> from millstream.streams.sdk import StreamBuilder
        >>> builder = StreamBuilder("job").sql('''
        ...     CREATE TABLE hosts (host STRING, owner STRING)
        ...     WITH ('connector' = 'filesystem', 'path' = '/data/hosts.csv', 'format' = 'csv')''')
        >>> events = builder.source("events", schema={"host": str})
        >>> events.dim_join("hosts", on="host", left=True).columns
        ('host', 'owner')
        """
        right = self.builder.table(table)
        query = sql_text.dimension_query(self.schema, right.schema, table, on, where=where, left=left, suffix=suffix)
        return self._of(query)

    def to_table(self, name: str) -> Stream:
        """Let SQL of this job read the stream under that name; the stream itself.

        >>> from millstream.streams.sdk import StreamBuilder
        >>> builder = StreamBuilder("job")
        >>> _ = builder.source("events", schema={"host": str}).filter("host <> ''").to_table("named")
        >>> counts = builder.from_sql("SELECT host, COUNT(*) AS n FROM named GROUP BY host")
        """
        self.builder.name(name, self.node)
        return self

    def insert_into(self, table: str) -> Stream:
        """Write the rows to a table of SQL: by the names of its columns where the stream has them all, else in order.

        >>> from millstream.streams.sdk import StreamBuilder
        >>> builder = StreamBuilder("job").sql("CREATE TABLE alerts (host STRING) WITH ('connector' = 'print')")
        >>> _ = builder.source("events", schema={"host": str}).insert_into("alerts")
        """
        self.builder.write(table, self.node)
        return self

    def sink(
        self,
        topic: str,
        *,
        format: str = "json",
        key: tuple[str, ...] | str = (),
        options: Mapping[str, str] | None = None,
    ) -> Stream:
        """Write the rows to a topic; with a `key` each row replaces the one before of that key (upsert-rocketmq).

        Rows that change (those of aggregates without a window, of joins that are not bounded in time) need a `key`.
        `options` are others of WITH (docs/connectors.md).

        >>> from millstream.streams.sdk import StreamBuilder
        >>> events = StreamBuilder("job").source("events", schema={"host": str})
        >>> _ = events.key_by("host").count().sink("counts", key="host")
        """
        keys = (key,) if isinstance(key, str) else tuple(key)
        given = {"connector": "rocketmq", "topic": topic, "format": format}
        if keys:
            given = {"connector": "upsert-rocketmq", "topic": topic, "key.format": format, "value.format": format}
        self.builder.write_new("sink", self.node, {**given, **(options or {})}, keys)
        return self

    def print(self, name: str | None = None) -> Stream:
        """Show the rows where the job is started, each behind `name`; the stream itself.

        >>> from millstream.streams.sdk import StreamBuilder
        >>> _ = StreamBuilder("job").source("events", schema={"host": str}).print("event")
        """
        options = {"connector": "print", **({} if name is None else {"print-identifier": name})}
        self.builder.write_new("print", self.node, options)
        return self

    def _call(
        self, kind: PythonKind, function: Callable[[Any], Any], schema: Columns | None, on_error: ErrorChoice | None
    ) -> Stream:
        return Stream(self.builder, python_rows(self.node, kind, function, schema=schema, on_error=on_error))

    def _of(self, query: str) -> Stream:
        return Stream(self.builder, self.builder.rows(query, stream=self.node))

    def _others(self, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in self.columns:
                remedy = f"Columns: {', '.join(self.columns)}."
                raise SqlError("SQL_UNKNOWN_COLUMN", f'There is no column "{name}".', remedy=remedy)
        return tuple(name for name in self.columns if name not in names)


class SplitStream:
    """A stream whose rows have labels."""

    def __init__(self, stream: Stream, by: str, columns: tuple[str, ...] = ()) -> None:
        self._stream = stream
        self._by = by
        self._columns = columns

    def select(self, label: str) -> Stream:
        """The rows with that label."""
        found = self._stream.filter(f"({self._by}) = {literal(label)}")
        return found.select(*self._columns) if self._columns else found
