"""MATCH_RECOGNIZE in an operator of ours: the matches that trying every way over all sorted rows gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pytest
from hypothesis import given, note, reject, settings
from hypothesis import strategies as st
from playing import Player, inserted

from example_counts import scaled
from millstream.streams.errors import JobError
from millstream.streams.operators.keys import OrderColumn
from millstream.streams.operators.operator import INSERT, Row
from millstream.streams.operators.patterns.matcher import Matcher
from millstream.streams.operators.patterns.navigation import Formula, formula_of
from millstream.streams.operators.patterns.program import program_of
from millstream.streams.operators.patterns.search import PatternSpec
from millstream.streams.plan.expressions import Call, Column, Expression, Literal
from millstream.streams.plan.patterns import Alternation, Pattern, Quantified, Sequence, Skip, SkipMode, Variable
from millstream.streams.plan.types import BIGINT, BOOLEAN, DOUBLE, STRING, DataType

S = 1_000_000
NAMES = ("key", "time", "value")
A, B, C = (Variable(name) for name in "ABC")
VALUE = Column("value", BIGINT)
PAST = Skip()
Binding = tuple[tuple[str, int], ...]
"""Which row fits which variable, in order."""

Fits = Callable[[list[Row], Binding], bool]
"""Whether the last row of a binding fits its variable."""


def literal(value: Any) -> Literal:
    return Literal(value, STRING if isinstance(value, str) else BIGINT)


def call(function: str, *arguments: Expression | str | int, of: DataType = BIGINT) -> Call:
    parts = tuple(literal(part) if isinstance(part, str | int) else part for part in arguments)
    return Call(function, parts, of)


def place_of(expression: Expression) -> int:
    assert isinstance(expression, Column)
    return NAMES.index(expression.name)


def formula(expression: Expression) -> Formula:
    return formula_of(expression, place_of)


def values(rows: list[Row], binding: Binding, variable: str = "") -> list[int]:
    return [rows[number][2] for name, number in binding if name == variable or not variable]


# Definitions, each as a formula and as a plain function of the rows.
DEFINES: list[tuple[Callable[[str], Expression], Callable[[str], Fits]]] = [
    (
        lambda name: call(">", call("MATCH_LAST", VALUE, name, 0), 0, of=BOOLEAN),
        lambda name: lambda rows, binding: values(rows, binding, name)[-1] > 0,
    ),
    (
        # Rising: above the row of the variable before.
        lambda name: call(
            "OR",
            call("IS NULL", call("MATCH_LAST", VALUE, name, 1), of=BOOLEAN),
            call(">", call("MATCH_LAST", VALUE, name, 0), call("MATCH_LAST", VALUE, name, 1), of=BOOLEAN),
            of=BOOLEAN,
        ),
        lambda name: (
            lambda rows, binding: (
                len(values(rows, binding, name)) < 2
                or values(rows, binding, name)[-1] > values(rows, binding, name)[-2]
            )
        ),
    ),
    (
        lambda name: call("<", call("MATCH_AGGREGATE", "SUM", name, VALUE), 3, of=BOOLEAN),
        lambda name: lambda rows, binding: sum(values(rows, binding, name)) < 3,
    ),
    (
        lambda name: call("<", call("MATCH_AGGREGATE", "AVG", "", Column("value", DOUBLE), of=DOUBLE), 1, of=BOOLEAN),
        lambda name: lambda rows, binding: sum(values(rows, binding)) / len(binding) < 1,
    ),
    (
        lambda name: call("<=", call("MATCH_AGGREGATE", "COUNT", ""), 3, of=BOOLEAN),
        lambda name: lambda rows, binding: len(binding) <= 3,
    ),
    (
        lambda name: call(
            ">=", call("COALESCE", call("MATCH_FIRST", VALUE, "A", 0), 0), call("MATCH_LAST", VALUE, "", 0), of=BOOLEAN
        ),
        lambda name: lambda rows, binding: (values(rows, binding, "A") or [0])[0] >= rows[binding[-1][1]][2],
    ),
    (
        lambda name: call(">", VALUE, call("COALESCE", call("MATCH_PREV", VALUE, 1), 0), of=BOOLEAN),
        lambda name: (
            lambda rows, binding: rows[binding[-1][1]][2] > (rows[binding[-1][1] - 1][2] if binding[-1][1] > 0 else 0)
        ),
    ),
    (
        lambda name: call(">=", VALUE, call("COALESCE", call("MATCH_NEXT", VALUE, 2), 0), of=BOOLEAN),
        lambda name: (
            lambda rows, binding: (
                rows[binding[-1][1]][2] >= (rows[binding[-1][1] + 2][2] if binding[-1][1] + 2 < len(rows) else 0)
            )
        ),
    ),
]

BEFORE = call("MATCH_PREV", VALUE, 1)
MEASURES = (
    call("MATCH_FIRST", Column("time", BIGINT), "", 0),
    call("MATCH_LAST", Column("time", BIGINT), "", 0),
    call("MATCH_FIRST", VALUE, "A", 1),
    call("MATCH_LAST", VALUE, "B", 0),
    call("MATCH_AGGREGATE", "SUM", "B", VALUE),
    call("MATCH_AGGREGATE", "COUNT", ""),
    BEFORE,
    call("+", call("MATCH_LAST", VALUE, "", 0), 1),
)


def measured(rows: list[Row], binding: Binding) -> Row:
    first, last = binding[0][1], binding[-1][1]
    of_a, of_b = values(rows, binding, "A"), values(rows, binding, "B")
    return (
        rows[first][0],
        rows[first][1],
        rows[last][1],
        of_a[1] if len(of_a) > 1 else None,
        of_b[-1] if of_b else None,
        sum(of_b) if of_b else None,
        len(binding),
        rows[last - 1][2] if last else None,
        rows[last][2] + 1,
    )


def ways(pattern: Pattern, at: int, so_far: Binding, fits: Callable[[Binding], bool], count: int) -> Iterator[Binding]:
    """Every way to fit a pattern from row `at` on, the preferred first."""
    match pattern:
        case Variable(name=name):
            longer = (*so_far, (name, at + len(so_far)))
            if at + len(so_far) < count and fits(longer):
                yield longer
        case Sequence(parts=()):
            yield so_far
        case Sequence(parts=(first, *rest)):
            for one in ways(first, at, so_far, fits, count):
                yield from ways(Sequence(tuple(rest)), at, one, fits, count)
        case Alternation(parts=parts):
            for part in parts:
                yield from ways(part, at, so_far, fits, count)
        case Quantified():
            yield from repeated(pattern, 0, at, so_far, fits, count)


def repeated(
    pattern: Quantified, times: int, at: int, so_far: Binding, fits: Callable[[Binding], bool], count: int
) -> Iterator[Binding]:
    enough = times >= pattern.least
    if enough and not pattern.greedy:
        yield so_far
    if pattern.most is None or times < pattern.most:
        for one in ways(pattern.part, at, so_far, fits, count):
            # A round without rows leads nowhere where rounds are not counted.
            if pattern.most is not None or not enough or len(one) > len(so_far):
                yield from repeated(pattern, times + 1, at, one, fits, count)
    if enough and pattern.greedy:
        yield so_far


TRIES = 2_000
"""Rows that are tried for a variable at most; patterns with more ways than that say nothing new."""


def matches(pattern: Pattern, rows: list[Row], fits: dict[str, Fits], skip: Skip, within: int | None) -> list[Row]:
    found, start = [], 0
    tried = iter(range(TRIES))
    while start < len(rows):

        def fit(binding: Binding) -> bool:
            if next(tried, None) is None:
                reject()
            name, last = binding[-1]
            if within is not None and rows[last][1] - rows[binding[0][1]][1] >= within:
                return False
            return name not in fits or fits[name](rows, binding)

        best = next(ways(pattern, start, (), fit, len(rows)), ())
        if not best:
            start += 1
            continue
        found.append(measured(rows, best))
        of = [number for name, number in best if name == skip.variable] or [start]
        start = {
            SkipMode.PAST_LAST_ROW: best[-1][1] + 1,
            SkipMode.TO_NEXT_ROW: start + 1,
            SkipMode.TO_FIRST: max(of[0], start + 1),
            SkipMode.TO_LAST: max(of[-1], start + 1),
        }[skip.mode]
    return found


def quantified(part: Pattern) -> st.SearchStrategy[Pattern]:
    numbers = st.sampled_from([(0, None), (1, None), (0, 1), (2, 2), (1, 3), (0, 2), (2, None)])
    return st.builds(lambda pair, greedy: Quantified(part, pair[0], pair[1], greedy), numbers, st.booleans())


PATTERNS = st.recursive(
    st.sampled_from([A, B, C]),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: Sequence(tuple(parts))),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: Alternation(tuple(parts))),
        inner.flatmap(quantified),
    ),
    max_leaves=3,
)
SKIPS = st.sampled_from([Skip(), Skip(SkipMode.TO_NEXT_ROW), Skip(SkipMode.TO_FIRST, "B"), Skip(SkipMode.TO_LAST, "A")])
ABOVE_0 = 3
"""The place of a column that tells a definition of a row alone."""

CHOSEN = st.dictionaries(st.sampled_from("ABC"), st.integers(-len(DEFINES), len(DEFINES) - 1), max_size=3)
"""A definition by its number; negative ones are all told by that column."""
ROWS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 20), st.integers(-2, 2)), max_size=8)


def matcher(
    pattern: Pattern,
    defines: Mapping[str, Expression | int],
    skip: Skip = PAST,
    within: int | None = None,
    unless: tuple[tuple[str, str], ...] = (),
    measures: tuple[Expression, ...] = MEASURES,
) -> Callable[[], Matcher]:
    formulas = tuple((name, of if isinstance(of, int) else formula(of)) for name, of in defines.items())
    spec = PatternSpec(program_of(pattern), formulas, skip, within, unless)
    return partial(Matcher, (0,), (OrderColumn(1),), spec, tuple(map(formula, measures)), time=1)


def defined(number: int, name: str) -> tuple[Expression | int, Fits]:
    if number < 0:
        return ABOVE_0, lambda rows, binding: rows[binding[-1][1]][2] > 0
    make, fits = DEFINES[number]
    return make(name), fits(name)


ANYTHING: Fits = lambda _rows, _binding: True  # noqa: E731 - as the others are made


def neither(own: Fits, other: str, of_other: Fits) -> Fits:
    """A row that fits and would not fit the other variable in its place."""
    return lambda rows, binding: own(rows, binding) and not of_other(rows, (*binding[:-1], (other, binding[-1][1])))


@settings(max_examples=scaled(250), deadline=None)
@given(
    pattern=PATTERNS,
    chosen=CHOSEN,
    skip=SKIPS,
    within=st.sampled_from([None, 4 * S]),
    unless=st.sampled_from([(), (("B", "A"),), (("C", "B"),)]),
    looks_back=st.booleans(),
    rows=ROWS,
    sizes=st.lists(st.integers(0, 4), max_size=5),
)
def test_matches_are_those_of_trying_every_way(
    pattern: Pattern,
    chosen: dict[str, int],
    skip: Skip,
    within: int | None,
    unless: tuple[tuple[str, str], ...],
    looks_back: bool,
    rows: list[Row],
    sizes: list[int],
) -> None:
    # Out of order by less than 5 seconds, which the watermark waits for.
    rows = [(key, time * S, value, value > 0) for key, time, value in sorted(rows, key=lambda row: row[1] // 5)]
    note(f"PATTERN {pattern}")
    told = [number for number, measure in enumerate(MEASURES) if looks_back or measure != BEFORE]
    fits = {name: defined(of, name)[1] for name, of in chosen.items()}
    fits |= {name: neither(fits.get(name, ANYTHING), other, fits.get(other, ANYTHING)) for name, other in unless}
    wanted = {
        key: [
            (row[0], *(row[1 + number] for number in told))
            for row in matches(
                pattern, sorted((row for row in rows if row[0] == key), key=lambda row: row[1]), fits, skip, within
            )
        ]
        for key in "ab"
    }
    defines = {name: defined(of, name)[0] for name, of in chosen.items()}
    measures = tuple(MEASURES[number] for number in told)
    player = Player(matcher(pattern, defines, skip, within, unless, measures))
    newest = start = 0
    for size in [*sizes, len(rows)]:
        part = rows[start : start + size]
        start += size
        newest = max([newest, *(row[1] for row in part)])
        player.turn(inserted(*part), watermark_us=newest - 5 * S)
    player.end()
    for key in "ab":
        assert [row for _, row in player.played.said if row[0] == key] == wanted[key]
    assert player.played.late == []
    assert player.keys() <= 1


def test_the_first_row_that_fits_is_the_one_where_rows_between_must_not_fit() -> None:
    """Relaxed contiguity, as Flink calls it: `a followedBy b next c` over a, b, x, b, c finds nothing."""
    defines = {name: call("=", VALUE, number, of=BOOLEAN) for number, name in enumerate("ABC")}
    pattern = Sequence((A, Quantified(Variable("gap"), 0, None, greedy=False), B, C))
    rows = [("a", number * S, value) for number, value in enumerate((0, 1, 9, 1, 2))]
    for unless, wanted in (((), 1), ((("gap", "B"),), 0)):
        player = Player(matcher(pattern, defines, unless=unless))
        player.turn(inserted(*rows), watermark_us=9 * S)
        assert len(player.played.said) == wanted


def test_a_price_that_falls_and_recovers_is_told_once_per_dip() -> None:
    """The example of Flink's documentation: START_ROW PRICE_DOWN+ PRICE_UP."""
    last = call("MATCH_LAST", VALUE, "B", 1)
    down = call(
        "OR",
        call(
            "AND",
            call("IS NULL", last, of=BOOLEAN),
            call("<", call("MATCH_LAST", VALUE, "B", 0), call("MATCH_LAST", VALUE, "A", 0), of=BOOLEAN),
            of=BOOLEAN,
        ),
        call("<", call("MATCH_LAST", VALUE, "B", 0), last, of=BOOLEAN),
        of=BOOLEAN,
    )
    up = call(">", call("MATCH_LAST", VALUE, "C", 0), call("MATCH_LAST", VALUE, "B", 0), of=BOOLEAN)
    pattern = Sequence((A, Quantified(B, 1, None), C))
    player = Player(matcher(pattern, {"B": down, "C": up}, Skip(SkipMode.TO_LAST, "C")))
    prices = [12, 17, 19, 21, 25, 18, 15, 14, 24, 25, 19]
    for number, price in enumerate(prices):
        player.turn(inserted(("ACME", number * S, price)), watermark_us=number * S)
    assert [(row[1] // S, row[2] // S, row[4], row[5], row[6]) for _, row in player.played.said] == [
        (4, 8, 14, 18 + 15 + 14, 5)
    ]


def test_a_reluctant_end_is_told_with_its_first_row_and_a_greedy_one_when_it_is_over() -> None:
    positive = {"B": call(">", VALUE, 0, of=BOOLEAN)}
    rows = [("a", S, 0), ("a", 2 * S, 1), ("a", 3 * S, 1), ("a", 4 * S, 0)]
    told: list[list[int]] = []
    for greedy in (False, True):
        player = Player(matcher(Sequence((A, Quantified(B, 1, None, greedy))), positive))
        told.append([len(player.turn(inserted(row), watermark_us=row[1])) for row in rows])
    assert told == [[0, 1, 0, 0], [0, 0, 0, 1]]


def test_the_watermark_ends_what_can_no_longer_match_within_its_time() -> None:
    pattern = Sequence((A, Quantified(B, 0, 5)))
    player = Player(matcher(pattern, {"B": call(">", VALUE, 0, of=BOOLEAN)}, within=10 * S))
    assert player.turn(inserted(("a", S, 0), ("a", 2 * S, 1)), watermark_us=2 * S) == []
    assert player.keys() > 0
    assert player.turn(watermark_us=11 * S - 1) == []
    assert [row[6] for _, row in player.turn(watermark_us=11 * S)] == [2]


def test_rows_that_begin_nothing_are_not_kept() -> None:
    never = {"A": call(">", VALUE, 9, of=BOOLEAN)}
    player = Player(partial(Matcher, (0,), (OrderColumn(1),), spec_of(Sequence((A, B)), never), (), time=1))
    player.turn(inserted(*(("a", number * S, 1) for number in range(100))), watermark_us=200 * S)
    assert player.keys() == 0


def spec_of(pattern: Pattern, defines: Mapping[str, Expression]) -> PatternSpec:
    return PatternSpec(program_of(pattern), tuple((name, formula(value)) for name, value in defines.items()))


def test_a_row_of_a_long_match_is_written_once() -> None:
    pattern = Sequence((A, Quantified(B, 0, None), C))
    first = call("IS NULL", call("MATCH_PREV", VALUE, 1), of=BOOLEAN)
    defines = {"A": first, "C": call(">", VALUE, 9, of=BOOLEAN)}
    player = Player(partial(Matcher, (0,), (OrderColumn(1),), spec_of(pattern, defines), (), time=1))
    text = "x" * 1000
    for number in range(20):
        player.turn([(INSERT, ("a", number * S, 1, text))], watermark_us=number * S)
    assert max(map(len, player._deltas)) < 3000


def test_a_row_with_a_condition_of_its_own_is_told_by_its_column() -> None:
    spec = PatternSpec(program_of(Sequence((A, B))), (("A", 2), ("B", 3)))
    player = Player(partial(Matcher, (0,), (OrderColumn(1),), spec, (formula(VALUE),), time=1))
    rows = [("a", S, True, False), ("a", 2 * S, True, None), ("a", 3 * S, False, True)]
    assert player.turn(inserted(*rows), watermark_us=9 * S) == [(INSERT, ("a", False))]


def test_by_processing_time_rows_match_at_once() -> None:
    spec = PatternSpec(program_of(Sequence((A, B))), (("B", 1),), within_us=5 * S)
    player = Player(partial(Matcher, (0,), (), spec, (), time=None))
    assert player.turn(inserted(("a", False)), now_us=S) == []
    assert player.turn(inserted(("a", True)), now_us=3 * S) == [(INSERT, ("a",))]
    player.turn(inserted(("a", False)), now_us=4 * S)
    assert player.turn(inserted(("a", True)), now_us=9 * S) == []


def test_a_pattern_with_too_many_states_is_refused() -> None:
    with pytest.raises(JobError, match="states"):
        program_of(Quantified(Quantified(A, 100, 100), 100, 100))
