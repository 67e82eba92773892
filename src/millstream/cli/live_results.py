"""What `millstream sql` shows while jobs run: rows as they come, and one progress line."""

from __future__ import annotations

import datetime
import json
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING

from millstream.cli.options import OutputFormat

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

    from millstream.streams.jobs.progress import JobProgress, ResultRows

__all__ = ["LiveResults"]

_ROWS_SHOWN = 15
"""Rows of each result that the live table keeps on the screen."""


class LiveResults:
    """Shows rows and progress: a live table on a terminal, one line per row otherwise. Safe to call from any thread."""

    def __init__(self, output: OutputFormat | None) -> None:
        self._format: OutputFormat = output or ("table" if sys.stdout.isatty() else "plain")
        self._lock = threading.Lock()
        self._recent: dict[str, tuple[tuple[str, ...], deque[tuple[object, ...]]]] = {}
        self._progress = ""
        self._live: Live | None = None

    def __enter__(self) -> LiveResults:
        if self._format == "table" and sys.stdout.isatty():
            from rich.live import Live

            self._live = Live(get_renderable=self._render, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._live is not None:
            self._live.stop()

    def rows(self, result: ResultRows) -> None:
        """Rows of one sink arrived."""
        with self._lock:
            if self._format == "json":
                for row in result.rows:
                    values = dict(zip(result.columns, row, strict=True))
                    print(json.dumps({"sink": result.sink, "row": values}, ensure_ascii=False, default=_text))
            elif self._live is None:
                for row in result.rows:
                    print(result.sink, *map(_text, row), sep="\t")
            else:
                shown = self._recent.setdefault(result.sink, (result.columns, deque(maxlen=_ROWS_SHOWN)))[1]
                shown.extend(result.rows)
            sys.stdout.flush()

    def progress(self, progress: JobProgress, *, final: bool = False) -> None:
        """The state of the job; the last one is always printed, on standard error."""
        self._progress = progress_line(progress)
        if final and self._live is None:
            if self._format == "json":
                print(json.dumps({"progress": progress_values(progress)}), file=sys.stderr, flush=True)
            else:
                print(self._progress, file=sys.stderr, flush=True)

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        parts: list[RenderableType] = []
        with self._lock:
            for sink, (columns, rows) in self._recent.items():
                table = Table(title=sink, title_justify="left", box=None, header_style="bold", pad_edge=False)
                for column in columns:
                    table.add_column(column, no_wrap=True, overflow="ellipsis")
                for row in rows:
                    table.add_row(*(Text(_text(value).replace("\n", " ")) for value in row))
                parts.append(table)
        return Group(*parts, Text(self._progress, style="dim"))


def progress_values(progress: JobProgress) -> dict[str, object]:
    """The progress as plain values; what is unknown is None."""
    watermark = progress.watermark_ms
    return {
        "state": progress.state,
        "rows_in": progress.rows_in,
        "rows_out": dict(progress.rows_out),
        "malformed": progress.malformed,
        "late": progress.late,
        "rows_per_s": round(progress.rows_per_s),
        "watermark": None if watermark is None else _instant(watermark),
        "behind": progress.behind,
        "trouble": progress.trouble,
    }


def progress_line(progress: JobProgress) -> str:
    """One line: rows in and out, speed, watermark, and what was set aside."""
    out = sum(progress.rows_out.values())
    watermark = "-" if progress.watermark_ms is None else _instant(progress.watermark_ms)
    behind = "-" if progress.behind is None else f"{progress.behind:,}"
    aside = f", malformed {progress.malformed:,}, late {progress.late:,}" if progress.malformed or progress.late else ""
    if progress.trouble:
        aside += f". {progress.trouble}"
    return (
        f"{progress.state}: rows in {progress.rows_in:,}, rows out {out:,}, {progress.rows_per_s:,.0f} rows/s, "
        f"behind {behind}, watermark {watermark}{aside}"
    )


def _instant(milliseconds: int) -> str:
    moment = datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _text(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ", timespec="milliseconds")
    return str(value)
