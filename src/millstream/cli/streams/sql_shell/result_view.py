"""The view of a foreground job, with its schema before the first row."""

from __future__ import annotations

import datetime
import json
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, cast

from millstream.cli.options import OutputFormat
from millstream.cli.streams.sql_shell.change_lines import ChangeLines
from millstream.cli.streams.sql_shell.progress_text import progress_line, progress_values
from millstream.streams.connectors.registry import connector_of
from millstream.streams.functions.calendar import zone_of
from millstream.streams.plan.changelog import ChangelogMode, changelog_of
from millstream.streams.plan.nodes import JobPlan, QueryPlan
from millstream.streams.sql.options.settings import SETTINGS
from millstream.streams.sql.shell.result_table import ResultShape, ResultTable, cell_text, query_shape

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

    from millstream.streams.jobs.progress import JobProgress, ResultRows

__all__ = ["ResultMode", "ResultView", "ShowSettings", "shapes_of"]


ResultMode = Literal["table", "changelog", "tableau"]


@dataclass(frozen=True, slots=True)
class ShowSettings:
    """The settings that say how results are shown."""

    mode: ResultMode = "table"
    max_rows: int = 1_000_000
    zone: datetime.tzinfo = field(default=datetime.UTC)

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> ShowSettings:
        """The values of SET, else the defaults."""

        def value(name: str) -> str:
            return settings.get(name, SETTINGS[name].default)

        return cls(
            mode=cast(ResultMode, value("sql-client.execution.result-mode").lower()),
            max_rows=int(value("sql-client.execution.max-table-result.rows")),
            zone=zone_of(value("table.local-time-zone")) or datetime.UTC,
        )


def shapes_of(plan: JobPlan | QueryPlan, query_label: str) -> dict[str, ResultShape]:
    """The shapes of the results that the user sees, by what their rows are labelled with."""
    if isinstance(plan, QueryPlan):
        return {query_label: query_shape(plan.query)}
    return {
        sink.table.options.get("print-identifier") or sink.table.name: ResultShape(
            sink.input.schema.names, changelog_of(sink.input) is ChangelogMode.RETRACT, is_query=False
        )
        for sink in plan.sinks
        if connector_of(sink.table.connector).shows_rows
    }


_LINES_AROUND = 4
"""Lines of the screen that a live table leaves for its header, the progress and the prompt."""

_MIN_ROWS_SHOWN = 3

_MAX_FINAL_ROWS = 1_000
"""Rows that stay on a terminal when a bounded query has ended."""

_MAX_APPENDED_ROWS = 2_000
"""Rows that a live table keeps where rows only come: it shows the newest."""


class ResultView:
    """Shows rows and progress of the jobs that `expect` announced; a context manager. Safe to call from any thread.

    A query's rows are a table that follows their changes in the modes table (on a terminal as they change, else when a
    bounded query has ended) and tableau (once a bounded query has ended), else lines as they come. The rows of print
    sinks always are lines as they come.
    """

    def __init__(self, output: OutputFormat | None, settings: ShowSettings, *, bounded: bool) -> None:
        self._is_terminal = sys.stdout.isatty()
        self._format: OutputFormat = output or ("table" if self._is_terminal else "plain")
        self._settings = settings
        self._bounded = bounded
        self._lock = threading.Lock()
        self._printing = threading.Lock()
        self._shapes: dict[str, ResultShape] = {}
        self._tables: dict[str, ResultTable] = {}
        self._lines: dict[str, ChangeLines] = {}
        self._progress = ""
        self._has_trouble = False
        self._live: Live | None = None
        self._ended = False

    def expect(self, shapes: Mapping[str, ResultShape]) -> None:
        """Results with these labels will come."""
        with self._lock:
            for label, shape in shapes.items():
                self._shapes[label] = shape
                if self._is_kept(shape):
                    self._tables[label] = ResultTable(key=shape.key, max_rows=self._max_rows(shape), order=shape.order)

    def __enter__(self) -> ResultView:
        if self._format == "table" and self._is_terminal:
            from rich.live import Live

            self._live = Live(get_renderable=self._render, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._ended = True
        if self._live is not None:
            self._live.stop()
            return
        with self._lock:
            for label, table in self._tables.items():
                self._print_lines(label, table)

    def rows(self, result: ResultRows) -> None:
        """Rows of one result arrived."""
        with self._lock:
            table = self._tables.get(result.sink)
            if table is not None:
                table.apply(result.rows, result.kinds)
                return
        # Apart from the other lock, which the live screen takes while it holds its own; a print takes that one.
        with self._printing:
            writer = self._lines.get(result.sink)
            if writer is None:
                shape = self._shapes.get(result.sink) or _shape_of(result)
                writer = self._lines[result.sink] = self._writer(result.sink, shape)
            _print(writer.of(result.rows, result.kinds))

    def progress(self, progress: JobProgress, *, final: bool = False) -> None:
        """The state of the job; the last one is always printed, on standard error."""
        self._progress = progress_line(progress)
        self._has_trouble = progress.trouble is not None
        if final and self._live is None:
            words = json.dumps({"progress": progress_values(progress)}) if self._format == "json" else self._progress
            print(words, file=sys.stderr, flush=True)

    def _is_kept(self, shape: ResultShape) -> bool:
        """Whether a table is kept, in place of telling each change as it comes."""
        if not shape.is_query or self._settings.mode == "changelog":
            return False
        if self._format == "table" and self._is_terminal and self._settings.mode == "table":
            return True
        return self._bounded and (shape.changes or bool(shape.order))

    def _max_rows(self, shape: ResultShape) -> int:
        least = _MAX_FINAL_ROWS if self._bounded else _MAX_APPENDED_ROWS
        return self._settings.max_rows if shape.changes or shape.order else min(self._settings.max_rows, least)

    def _writer(self, label: str, shape: ResultShape, *, final: bool = False) -> ChangeLines:
        shows_changes = not final and (shape.changes or (shape.is_query and self._settings.mode == "changelog"))
        return ChangeLines(label, shape.columns, self._format, self._settings.zone, with_kinds=shows_changes)

    def _print_lines(self, label: str, table: ResultTable) -> None:
        _print(self._writer(label, self._shapes[label], final=True).of(table.rows(), None))

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        parts: list[RenderableType] = []
        with self._lock:
            for label, table in self._tables.items():
                if self._settings.mode == "table" or self._ended:
                    parts += self._render_table(label, table)
        line = Text(self._progress, style="dim", no_wrap=not self._has_trouble, overflow="ellipsis")
        return Group(*parts, line)

    def _render_table(self, label: str, table: ResultTable) -> list[RenderableType]:
        from rich.table import Table
        from rich.text import Text

        if not len(table) and not self._ended:
            return []
        shape, count = self._shapes[label], self._rows_shown()
        title = label if len(self._tables) > 1 else None
        shown = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
        for column in shape.columns:
            shown.add_column(column, no_wrap=True, overflow="ellipsis")
        rows = table.last(count)
        for row in rows:
            shown.add_row(*(Text(cell_text(value, self._settings.zone).replace("\n", " ")) for value in row))
        total = len(table) + table.dropped
        if total == len(rows):
            return [shown]
        which = "first" if shape.order else "newest"
        return [shown, Text(f"the {which} {len(rows):,} of {total:,} rows", style="dim")]

    def _rows_shown(self) -> int:
        if self._ended and self._bounded:
            return _MAX_FINAL_ROWS
        height = 24 if self._live is None else self._live.console.size.height
        tables = max(1, len(self._tables))
        return max(_MIN_ROWS_SHOWN, (height - _LINES_AROUND) // tables - 2)


def _shape_of(result: ResultRows) -> ResultShape:
    return ResultShape(result.columns, result.kinds is not None, is_query=False)


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)
    sys.stdout.flush()
