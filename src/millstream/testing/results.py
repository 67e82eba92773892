"""What a run of a job under test has given: rows, changes, the table they add up to, what was set aside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from millstream.streams.plan.changelog import RowKind

__all__ = ["FailedRow", "Letter", "Results"]

_ADDS = (RowKind.INSERT, RowKind.UPDATE_AFTER)


@dataclass(frozen=True, slots=True)
class Letter:
    """A message that is no row of its table: where it was fed, and why."""

    table: str
    queue: int
    offset: int
    reason: str
    body: bytes


@dataclass(frozen=True, slots=True)
class FailedRow:
    """A row that is a dead letter, as JSON, since a call of a user's function failed for it, and what is told of it."""

    table: str
    function: str
    arguments: str
    reason: str
    trace: str
    body: bytes


@dataclass(frozen=True)
class Results:
    """The outputs by the names of their tables, "result" for a query. An output may be left out where there is one.

    `batches` has each micro-batch's changes by output; `late` the late rows by table; `late_count` is how many
    they are; `malformed` the messages that are no rows; `failed` the rows that users' functions failed for.
    """

    columns: Mapping[str, tuple[str, ...]]
    batches: Mapping[str, Sequence[Sequence[tuple[RowKind, tuple[Any, ...]]]]]
    late: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    late_count: int = 0
    malformed: Sequence[Letter] = ()
    failed: Sequence[FailedRow] = ()

    def rows(self, output: str | None = None) -> list[dict[str, Any]]:
        """The rows that are there at the end, as dicts by column; equal rows as often as they are there."""
        name = self._find_output(output)
        counts, rows = self._count_rows(name)
        return [dict(zip(self.columns[name], rows[key], strict=True)) for key in rows for _ in range(counts[key])]

    def changelog(self, output: str | None = None) -> list[tuple[str, tuple[Any, ...]]]:
        """All changes in the order in which they were said: `+I`, `-U`, `+U` or `-D`, and the row."""
        return [(kind.short, row) for batch in self.batches[self._find_output(output)] for kind, row in batch]

    def table(self, output: str | None = None) -> Counter[tuple[Any, ...]]:
        """How often each row is there when all changes are added up; lists and dicts in rows are tuples.

        Raises AssertionError for a row that goes and is not there.
        """
        return +self._count_rows(self._find_output(output))[0]

    def _count_rows(self, name: str) -> tuple[Counter[tuple[Any, ...]], dict[tuple[Any, ...], tuple[Any, ...]]]:
        """How often each row is there by its key, and the rows."""
        counts: Counter[tuple[Any, ...]] = Counter()
        rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        for kind, row in (told for batch in self.batches[name] for told in batch):
            key = _hashable(row)
            rows.setdefault(key, row)
            counts[key] += 1 if kind in _ADDS else -1
            if counts[key] < 0:
                raise AssertionError(f"The output {name} takes back {row}, which is not there.")
        return counts, rows

    def _find_output(self, output: str | None) -> str:
        if output is not None and output in self.batches:
            return output
        known = ", ".join(self.batches)
        if output is not None:
            raise KeyError(f"There is no output {output!r}; there are {known}.")
        if len(self.batches) != 1:
            raise KeyError(f"Name the output: there are {known}.")
        return next(iter(self.batches))


def _hashable(value: Any) -> Any:
    """The value, with lists and dicts as tuples."""
    match value:
        case tuple() | list():
            return tuple(map(_hashable, value))
        case dict():
            return tuple(sorted(((_hashable(key), _hashable(one)) for key, one in value.items()), key=repr))
        case float() if value != value:
            return "NaN"
        case _:
            return value
