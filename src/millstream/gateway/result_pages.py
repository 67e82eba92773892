"""Result pages of one statement: fetched by token, and repeatable until the next page is fetched."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from millstream.model.errors import MillstreamError
from millstream.streams.plan.changelog import RowKind
from millstream.streams.sql.shell.result_table import ResultShape, ResultTable

__all__ = ["MAX_KEPT_BYTES", "MAX_KEPT_ROWS", "MAX_SUMMED_ROWS", "ResultPage", "ResultPages"]

MAX_KEPT_ROWS: Final = 10_000
"""Rows of one result that wait for the client at most, and rows of a page at most; a query waits until there is
room."""

MAX_KEPT_BYTES: Final = 16 * 1024 * 1024
"""Bytes of these rows at most, but for the last one; counted are eight for each value, and the characters of texts.
Flink's clients read answers of up to 100 MiB."""

MAX_SUMMED_ROWS: Final = 100_000
"""Rows of the result of a query that ends and whose rows change on the way; a longer one fails."""

_VALUE_BYTES: Final = 8

Row = tuple[object, ...]
KindRow = tuple[RowKind, Row]


@dataclass(frozen=True, slots=True)
class ResultPage:
    """`rows` with their kinds. `next_token` names the page behind it: the same one where no row has come yet, None
    behind the last one."""

    rows: Sequence[KindRow] = field(default_factory=tuple)
    next_token: int | None = None


class ResultPages:
    """Takes rows from a job's thread and gives them as pages to others. Safe to call from any thread.

    `has_ended` says whether more rows may come, and raises what the job failed with; it is asked when no row waits.
    With `summed` the rows of that shape are kept until the end, and what is left after all changes is the result.
    """

    def __init__(self, has_ended: Callable[[], bool], *, summed: ResultShape | None = None) -> None:
        self._has_ended = has_ended
        self._waiting: deque[tuple[RowKind, Row, int]] = deque()
        self._waiting_bytes = 0
        self._changed = threading.Condition(threading.RLock())
        self._is_closed = False
        self._over = False
        self._page = ResultPage(next_token=0)
        self._token = 0
        """Of the page that is asked for next; the one before it is kept."""
        self._table = (
            None if summed is None else ResultTable(key=summed.key, max_rows=MAX_SUMMED_ROWS, order=summed.order)
        )

    @classmethod
    def of_rows(cls, rows: Sequence[Row]) -> ResultPages:
        """All rows of a statement that is done."""
        pages = cls(lambda: True)
        for row in rows:
            pages._put(RowKind.INSERT, row, _size_of(row))
        return pages

    @property
    def is_over(self) -> bool:
        """Whether the end was told."""
        return self._over and not self._waiting

    def add(self, rows: Sequence[Row], kinds: Sequence[RowKind] | None) -> None:
        """Take rows of a job; returns when there is room for them, or when nobody wants them any more."""
        with self._changed:
            if self._table is not None:
                self._table.apply(rows, kinds)
                return
        kinds = kinds or [RowKind.INSERT] * len(rows)
        for kind, row in zip(kinds, rows, strict=True):
            size = _size_of(row)
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed or self._has_room)
                if self._is_closed:
                    return
                self._put(kind, row, size)

    def page(self, token: int) -> ResultPage:
        """The page of that token: the one that comes next, or the last one again.

        Raises GATEWAY_TOKEN for another one, GATEWAY_RESULT_TOO_LARGE, and what the job failed with.
        """
        with self._changed:
            if token == self._token - 1:
                return self._page
            if token != self._token:
                wanted = f"{self._token - 1} or {self._token}" if self._token else "0"
                raise MillstreamError("GATEWAY_TOKEN", f"The next page is {wanted}, and {token} was asked for.")
            if self._waiting:
                return self._cut()
        # Outside of the lock: the job may have to add its last rows.
        ended = self._over or self._has_ended()
        with self._changed:
            if token != self._token:
                return self.page(token)
            if ended and not self._over:
                self._take_sum()
                self._over = True
            if self._waiting:
                return self._cut()
            return ResultPage() if ended else ResultPage(next_token=token)

    def close(self) -> None:
        """Nobody wants more rows: a job that waits for room goes on, and its rows are thrown away."""
        with self._changed:
            self._is_closed = True
            self._waiting.clear()
            self._changed.notify_all()

    @property
    def _has_room(self) -> bool:
        return len(self._waiting) < MAX_KEPT_ROWS and self._waiting_bytes < MAX_KEPT_BYTES

    def _put(self, kind: RowKind, row: Row, size: int) -> None:
        self._waiting.append((kind, row, size))
        self._waiting_bytes += size

    def _cut(self) -> ResultPage:
        rows, taken = list[KindRow](), 0
        while self._waiting and len(rows) < MAX_KEPT_ROWS and taken < MAX_KEPT_BYTES:
            kind, row, size = self._waiting.popleft()
            rows.append((kind, row))
            taken += size
        self._waiting_bytes -= taken
        self._token += 1
        self._page = ResultPage(rows, self._token)
        self._changed.notify_all()
        return self._page

    def _take_sum(self) -> None:
        if self._table is None:
            return
        if self._table.dropped:
            words = f"The result has more than {MAX_SUMMED_ROWS:,} rows, and they change on the way."
            raise MillstreamError("GATEWAY_RESULT_TOO_LARGE", words)
        for row in self._table.rows():
            self._put(RowKind.INSERT, row, _size_of(row))
        self._table = None


def _size_of(value: object) -> int:
    """About the bytes of a value."""
    match value:
        case str() | bytes():
            return _VALUE_BYTES + len(value)
        case tuple() | list():
            return _VALUE_BYTES + sum(map(_size_of, value))
        case dict():
            return _VALUE_BYTES + sum(map(_size_of, value.values()))
        case _:
            return _VALUE_BYTES
