"""The rows of one statement, page by page: a page is asked for by its token, and again until the next one is."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from millstream.model.errors import MillstreamError
from millstream.streams.plan.changelog import RowKind
from millstream.streams.sql.shell.result_table import ResultShape, ResultTable

__all__ = ["MAX_KEPT_ROWS", "MAX_SUMMED_ROWS", "ResultPage", "ResultPages"]

MAX_KEPT_ROWS: Final = 10_000
"""Rows of one result that wait for the client at most, and rows of a page at most; a query waits until there is
room."""

MAX_SUMMED_ROWS: Final = 100_000
"""Rows of the result of a query that ends and whose rows change on the way; a longer one fails."""

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
        self._waiting: deque[KindRow] = deque()
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
        pages._waiting.extend((RowKind.INSERT, row) for row in rows)
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
        pairs = [(RowKind.INSERT if kinds is None else kinds[place], row) for place, row in enumerate(rows)]
        while pairs:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed or len(self._waiting) < MAX_KEPT_ROWS)
                if self._is_closed:
                    return
                room = MAX_KEPT_ROWS - len(self._waiting)
                self._waiting.extend(pairs[:room])
            pairs = pairs[room:]

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

    def _cut(self) -> ResultPage:
        rows = tuple(self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_KEPT_ROWS)))
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
        self._waiting.extend((RowKind.INSERT, row) for row in self._table.rows())
        self._table = None
