"""Cases from seeds: what the generator promises of their rows and queries."""

from __future__ import annotations

import datetime
import json
from collections import Counter

from differential.cases import Case
from differential.generator import draw_case
from differential.ours import script_of
from differential.shrinker import smaller_cases

from millstream.streams.sql.session.compiler import SqlSession

SEEDS = range(300)

CASES = [draw_case(seed) for seed in SEEDS]


def test_a_seed_is_one_case() -> None:
    assert [draw_case(seed) for seed in SEEDS[:20]] == CASES[:20]


def test_a_case_comes_back_from_json() -> None:
    assert [Case.from_json(json.loads(json.dumps(case.to_json()))) for case in CASES] == CASES


def test_most_queries_have_two_to_four_operators() -> None:
    counts = Counter(len(case.kinds) for case in CASES)
    assert sum(counts[number] for number in (2, 3, 4)) > len(CASES) * 0.95
    assert all(counts[number] > len(CASES) * 0.15 for number in (2, 3, 4))


def test_every_kind_of_operator_is_drawn() -> None:
    drawn = {kind.split(" ")[0] for seed in range(700) for kind in draw_case(seed).kinds}
    assert drawn >= {"filter", "project", "group", "distinct", "window", "over", "top", "dedup", "match"}
    assert drawn >= {"join", "interval", "temporal", "versions", "union", "except", "intersect", "in", "not", "exists"}


def test_a_row_is_late_only_where_the_case_says_so() -> None:
    late = Counter(case.has_late for case in CASES if _has_late_row(case))
    assert late[False] == 0
    assert late[True] > 20


def test_micro_batches_of_late_rows_are_single_rows() -> None:
    for case in CASES:
        if case.has_late:
            assert case.cuts == tuple(range(1, len(case.arrivals)))
            assert case.is_linear


def test_rows_that_go_were_there() -> None:
    changed = 0
    for case in CASES:
        live: Counter[tuple[object, ...]] = Counter()
        for arrival in case.arrivals:
            if arrival.before is not None:
                changed += 1
                assert live[arrival.table, *arrival.before] == 1
                live[arrival.table, *arrival.before] -= 1
            if arrival.after is not None:
                live[arrival.table, *arrival.after] += 1
    assert changed > 100


def test_nulls_and_equal_times_are_among_the_rows() -> None:
    rows = [(arrival.table, *arrival.after) for case in CASES for arrival in case.arrivals if arrival.after]
    assert sum(None in row for row in rows) > len(rows) * 0.1
    times = [[row.after[-1] for row in case.arrivals if row.after] for case in CASES]
    assert sum(len(set(of)) < len(of) for of in times) > len(CASES) * 0.5


def test_ours_takes_what_is_drawn() -> None:
    for case in CASES[:20]:
        SqlSession().compile(script_of(case))


def test_a_smaller_case_is_smaller_and_whole() -> None:
    for case in CASES[:40]:
        for small in smaller_cases(case):
            size = (len(small.kinds), len(small.arrivals), len(small.cuts))
            assert size < (len(case.kinds), len(case.arrivals), len(case.cuts)) or len(small.arrivals) < len(
                case.arrivals
            )
            assert {source.name for source in small.sources} == small.query.tables()
            assert all(0 < cut < max(len(small.arrivals), 1) for cut in small.cuts)


def _has_late_row(case: Case) -> bool:
    newest: dict[str, datetime.datetime] = {}
    for arrival in case.arrivals:
        if arrival.after is None:
            continue
        time = datetime.datetime.fromisoformat(arrival.after[-1])
        delay = next(datetime.timedelta(seconds=one.delay_s) for one in case.sources if one.name == arrival.table)
        if arrival.table in newest and time <= newest[arrival.table] - delay:
            return True
        newest[arrival.table] = max(time, newest.get(arrival.table, time))
    return False
