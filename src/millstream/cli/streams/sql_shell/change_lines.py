"""Formats changes of a result as lines."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Sequence

from millstream.cli.options import OutputFormat
from millstream.streams.plan.changelog import RowKind
from millstream.streams.sql.shell.result_table import cell_text

__all__ = ["ChangeLines"]

_MAX_WIDTH = 40
"""Characters of a column at most; a longer value pushes what is behind it to the right, and loses nothing."""

_KIND_COLUMN = "op"


class ChangeLines:
    """Lines of one result: JSON objects, words by tabs, or columns under a header. `with_kinds` adds +I, -U, +U, -D."""

    def __init__(
        self, label: str, columns: Sequence[str], output: OutputFormat, zone: datetime.tzinfo, *, with_kinds: bool
    ) -> None:
        self._label = label
        self._columns = tuple(columns)
        self._format = output
        self._zone = zone
        self._with_kinds = with_kinds
        self._widths: list[int] | None = None

    def of(self, rows: Sequence[tuple[object, ...]], kinds: Sequence[RowKind] | None) -> Iterator[str]:
        """The lines of these rows, behind a header where there was none."""
        signs = [RowKind.INSERT.short] * len(rows) if kinds is None else [kind.short for kind in kinds]
        if self._format == "json":
            for row, sign in zip(rows, signs, strict=True):
                kind = {_KIND_COLUMN: sign} if self._with_kinds else {}
                values = dict(zip(self._columns, row, strict=True))
                line = {"sink": self._label, **kind, "row": values}
                yield json.dumps(line, ensure_ascii=False, default=self._text)
            return
        for cells in self._cells(rows, signs):
            yield "\t".join((self._label, *cells)) if self._format == "plain" else self._pad(cells)

    def _cells(self, rows: Sequence[tuple[object, ...]], signs: Sequence[str]) -> Iterator[list[str]]:
        texts = [[self._text(value).replace("\n", " ") for value in row] for row in rows]
        if self._with_kinds:
            texts = [[sign, *cells] for sign, cells in zip(signs, texts, strict=True)]
        if self._format == "table" and self._widths is None and texts:
            header = [*([_KIND_COLUMN] if self._with_kinds else []), *self._columns]
            columns = zip(header, *texts, strict=True)
            self._widths = [min(_MAX_WIDTH, max(map(len, column))) for column in columns]
            yield header
        yield from texts

    def _pad(self, cells: Sequence[str]) -> str:
        widths = self._widths or [0] * len(cells)
        return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()

    def _text(self, value: object) -> str:
        return cell_text(value, self._zone)
