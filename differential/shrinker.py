"""The smallest case that differs as a given one does: fewer operators, rows and micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from differential.cases import Case, Step

__all__ = ["shrunk"]

Judge = Callable[[Sequence[Case]], Sequence[frozenset[str]]]
"""In which aspects each of the cases differs."""

AT_ONCE = 16
"""Cases that are judged together."""


def shrunk(case: Case, judge: Judge) -> Case:
    """Try smaller cases as long as one of them differs in the same aspect; all that are next are judged at once."""
    (aspects,) = judge([case])
    if not aspects:
        return case
    while True:
        smaller = _first(case, aspects, judge)
        if smaller is None:
            return case
        case = smaller


def _first(case: Case, aspects: frozenset[str], judge: Judge) -> Case | None:
    """The first smaller case that differs as well."""
    candidates = list(smaller_cases(case))
    for begin in range(0, len(candidates), AT_ONCE):
        part = candidates[begin : begin + AT_ONCE]
        for one, found in zip(part, judge(part), strict=True):
            if found & aspects:
                return one
    return None


def smaller_cases(case: Case) -> Iterator[Case]:
    """Cases with less, the greatest steps first."""
    for step in case.query.all():
        if step is not case.query:
            yield _with_query(case, step)
    for query in _without_one(case.query):
        yield _with_query(case, query)
    yield from _with_fewer_rows(case)
    for number in range(len(case.cuts)):
        yield replace(case, cuts=case.cuts[:number] + case.cuts[number + 1 :])


def _with_query(case: Case, query: Step) -> Case:
    """The case over another query, without the tables that it does not read."""
    read = query.tables()
    small = replace(case, query=query, sources=tuple(one for one in case.sources if one.name in read))
    return _of_rows(small, [number for number, one in enumerate(case.arrivals) if one.table in read])


def _with_fewer_rows(case: Case) -> Iterator[Case]:
    """Without halves, quarters, ... single rows."""
    count = len(case.arrivals)
    size = count // 2
    while size:
        for begin in range(0, count, size):
            left = [number for number in range(count) if not begin <= number < begin + size]
            if left and _is_whole(case, left):
                yield _of_rows(case, left)
        size //= 2


def _is_whole(case: Case, left: Sequence[int]) -> bool:
    """Whether each row that changes or goes came before, as it is then."""
    live: dict[str, list[object]] = {}
    for number in left:
        one = case.arrivals[number]
        rows = live.setdefault(one.table, [])
        if one.before is not None:
            if one.before not in rows:
                return False
            rows.remove(one.before)
        if one.after is not None:
            rows.append(one.after)
    return True


def _of_rows(case: Case, left: Sequence[int]) -> Case:
    """The case with the arrivals of those numbers; micro-batches without rows are gone."""
    arrivals = tuple(case.arrivals[number] for number in left)
    cuts = {sum(1 for number in left if number < cut) for cut in case.cuts}
    return replace(case, arrivals=arrivals, cuts=tuple(sorted(cuts - {0, len(arrivals)})))


def _without_one(step: Step) -> Iterator[Step]:
    """The query without one of its operators: an input stands in its place."""
    for place, below in enumerate(step.inputs):
        if isinstance(below, str):
            continue
        for instead in (*below.inputs, *_without_one(below)):
            inputs = (*step.inputs[:place], instead, *step.inputs[place + 1 :])
            yield replace(step, inputs=inputs)
