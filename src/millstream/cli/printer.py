"""Output of commands: results on standard output as table, JSON or text; everything else on standard error."""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import sys
from collections.abc import Mapping, Sequence

from millstream.cli.options import ExitCode, OutputFormat
from millstream.model.errors import MillstreamError

__all__ = ["Printer", "Value", "WarningLines", "confirm", "print_error", "print_usage", "wait_for_input"]


Value = str | int | float | bool | None


class Printer:
    """Prints results in one format. JSON: one object per line, or one array for a listing. Plain: words by tabs."""

    def __init__(self, output: OutputFormat | None) -> None:
        self.format: OutputFormat = output or ("table" if sys.stdout.isatty() else "plain")

    def record(self, values: Mapping[str, Value | Sequence[Value]], *, sentence: str) -> None:
        """One result: the sentence for people, the values for JSON, the bare values for plain."""
        if self.format == "json":
            self._line(json.dumps(values, ensure_ascii=False, default=str))
        elif self.format == "plain":
            self._line("\t".join(_text(value) for value in values.values()))
        else:
            self._line(sentence)

    def listing(self, columns: Sequence[str], rows: Sequence[Sequence[Value]], *, empty: str) -> None:
        """A table of rows; `empty` is said (on standard error) where there are none."""
        if self.format == "json":
            self._line(json.dumps([dict(zip(columns, row, strict=True)) for row in rows], ensure_ascii=False))
            return
        if not rows:
            print(empty, file=sys.stderr)
            return
        if self.format == "plain":
            for row in rows:
                self._line("\t".join(_text(value) for value in row))
            return
        from rich.console import Console
        from rich.table import Table

        table = Table(box=None, header_style="bold", pad_edge=False)
        for column in columns:
            table.add_column(column.replace("_", " "), overflow="fold")
        for row in rows:
            table.add_row(*(_text(value) for value in row))
        Console(markup=False).print(table)

    def _line(self, text: str) -> None:
        print(text, flush=True)


def _text(value: Value | Sequence[Value]) -> str:
    if value is None:
        return "-"
    if isinstance(value, (list, tuple)):
        return ",".join(map(_text, value))
    return str(value)


class WarningLines(logging.Handler):
    """Says warnings in words on standard error, whatever stands for it now: above a live table, not inside of it."""

    def emit(self, record: logging.LogRecord) -> None:
        """One line, without the logger's name."""
        try:
            print(f"{record.levelname.lower()}: {self.format(record)}", file=sys.stderr, flush=True)
        except Exception:  # noqa: BLE001 - as all handlers of logging do
            self.handleError(record)


def print_error(error: MillstreamError) -> None:
    """The error's words, remedy and number on standard error."""
    print(f"error: {error}", file=sys.stderr, flush=True)


def print_usage(words: str) -> int:
    """Say on standard error what is wrong with the command's options; the exit code for it."""
    print(f"error: {words}", file=sys.stderr, flush=True)
    return ExitCode.USAGE


def confirm() -> bool:
    """Whether the user says yes; without a terminal there is nobody to ask, and it is no."""
    if not sys.stdin.isatty():
        return False
    print("Do it? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


_WOKEN_BYTES = 64
"""Signals that are taken note of at a time."""


def wait_for_input(descriptor: int) -> None:
    """Returns once something can be read from the descriptor; raises what a signal's handler raises.

    A read alone misses a signal that comes after Python last looked for one and before the system began to wait: it
    is then handled when the read ends, which may be never. For the main thread.
    """
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    before = signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    try:
        while True:
            ready, _, _ = select.select([descriptor, woken], [], [])
            if descriptor in ready:
                return
            os.read(woken, _WOKEN_BYTES)
    finally:
        signal.set_wakeup_fd(before)
        os.close(woken)
        os.close(wakes)
