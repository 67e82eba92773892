"""What differs between two answers to one case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from differential.cases import Case
from differential.flink import Answer, Change

__all__ = ["Difference", "differences"]

Row = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """One way in which the answers differ.

    `aspect` is `refused` or `failed` (by one of them alone), `broken` (Flink takes back rows that are not there),
    `table` (what the changes add up to), `moments` (a table that ours shows at the end of a micro-batch and Flink never
    does) or `appends` (ours changes rows where Flink's plan promises that it does not).
    """

    aspect: str
    text: str
    only_flink: tuple[tuple[Row, int], ...] = ()
    only_ours: tuple[tuple[Row, int], ...] = ()

    def __str__(self) -> str:
        parts = [f"{self.aspect}: {self.text}"]
        for name, rows in (("only Flink", self.only_flink), ("only ours", self.only_ours)):
            parts += [f"  {name}: {row}{f' x {count}' if count != 1 else ''}" for row, count in rows[:6]]
        return "\n".join(parts)


def differences(case: Case, flink: Answer, ours: Answer) -> list[Difference]:
    """All of them; none for a query that both refuse. Where the tables differ, nothing else is compared."""
    if flink.refused or ours.refused:
        if bool(flink.refused) == bool(ours.refused):
            return []
        return [Difference("refused", f"Flink: {flink.refused or 'takes it'} | ours: {ours.refused or 'takes it'}")]
    if flink.failed or ours.failed:
        if bool(flink.failed) == bool(ours.failed):
            return []
        return [Difference("failed", f"Flink: {flink.failed or 'ends'} | ours: {ours.failed or 'ends'}")]
    theirs, mine = table_of(flink.changes), table_of(ours.changes)
    if theirs != mine:
        only_flink, only_ours = theirs.copy(), mine.copy()
        only_flink.subtract(mine)
        only_ours.subtract(theirs)
        rest = _most(only_flink), _most(only_ours)
        if min(theirs.values(), default=0) < 0 <= min(mine.values(), default=0):
            return [Difference("broken", "Flink takes back rows that are not there", *rest)]
        return [Difference("table", "the changes add up to other rows", *rest)]
    found = []
    if case.is_linear:
        moment = _unseen_moment(flink.changes, ours)
        if moment is not None:
            seen, shown = moment
            words = f"micro-batch {seen} ends with a table that Flink does not show then"
            found.append(Difference("moments", words, only_ours=tuple(sorted(shown.items(), key=repr))))
    if flink.appends and not ours.appends:
        found.append(Difference("appends", "rows of ours may change, those of Flink may not"))
    return found


def table_of(changes: Iterable[Change]) -> Counter[Row]:
    """What changes add up to; a row that went more often than it came has a count below 0."""
    table: Counter[Row] = Counter()
    for sign, row in changes:
        table[row] += 1 if sign == "+" else -1
        if not table[row]:
            del table[row]
    return table


def _unseen_moment(flink: Sequence[Change], ours: Answer) -> tuple[int, Counter[Row]] | None:
    """The first micro-batch of ours whose table does not come, in order, among the tables that Flink shows."""
    theirs, shown = _tables(flink), next(_tables(()))
    begin = 0
    current = next(theirs)
    for number, end in enumerate(ours.batches):
        for sign, row in ours.changes[begin:end]:
            shown[row] += 1 if sign == "+" else -1
            if not shown[row]:
                del shown[row]
        begin = end
        while current != shown:
            following = next(theirs, None)
            if following is None:
                return number, shown
            current = following
    return None


def _tables(changes: Iterable[Change]) -> Iterator[Counter[Row]]:
    """The tables behind each change, the empty one first. The same counter is given each time."""
    table: Counter[Row] = Counter()
    yield table
    for sign, row in changes:
        table[row] += 1 if sign == "+" else -1
        if not table[row]:
            del table[row]
        yield table


def _most(counts: Counter[Row]) -> tuple[tuple[Row, int], ...]:
    return tuple(sorted(((row, count) for row, count in counts.items() if count > 0), key=repr))
