"""MATCH_RECOGNIZE becomes the plan's Match, and Flink's rules for patterns are errors at their place."""

from __future__ import annotations

import pytest
from compiling import query, refused

from millstream.streams.plan.nodes import Node, Project, inputs_of
from millstream.streams.plan.patterns import (
    Alternation,
    Match,
    Pattern,
    Quantified,
    Sequence,
    Skip,
    SkipMode,
    Variable,
)

A, B, C = Variable("A"), Variable("B"), Variable("C")


def select(
    pattern: str = "(A B)",
    define: str = "A AS A.score > 1",
    measures: str = "A.id AS a",
    order: str = "ts",
    after: str = "",
    **more: str,
) -> str:
    return (
        f"SELECT * FROM events MATCH_RECOGNIZE (PARTITION BY host ORDER BY {order} MEASURES {measures}"
        f" {more.get('rows', 'ONE ROW PER MATCH')} {after} PATTERN {pattern} {more.get('within', '')} DEFINE {define}) AS m"
    )


def match(statement: str) -> Match:
    node: Node = query(statement)
    while not isinstance(node, Match):
        (node,) = inputs_of(node)
    return node


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("(A B)", Sequence((A, B))),
        ("(A)", A),
        ("(A* B)", Sequence((Quantified(A, 0, None), B))),
        ("(A+? B)", Sequence((Quantified(A, 1, None, greedy=False), B))),
        ("(A? B)", Sequence((Quantified(A, 0, 1), B))),
        ("(A?? B)", Sequence((Quantified(A, 0, 1, greedy=False), B))),
        ("(A{3} B)", Sequence((Quantified(A, 3, 3), B))),
        ("(A{2,} B)", Sequence((Quantified(A, 2, None), B))),
        ("(A{,2} B)", Sequence((Quantified(A, 0, 2), B))),
        ("(A{1,2}? B)", Sequence((Quantified(A, 1, 2, greedy=False), B))),
        ("(A (B C)+ B)", Sequence((A, Quantified(Sequence((B, C)), 1, None), B))),
        ("((A | B C) B)", Sequence((Alternation((A, Sequence((B, C)))), B))),
        ("(A B{3})", Sequence((A, Quantified(B, 3, 3)))),
        ("(A B?)", Sequence((A, Quantified(B, 0, 1)))),
        ("(A B+?)", Sequence((A, Quantified(B, 1, None, greedy=False)))),
    ],
)
def test_a_pattern_is_read_with_its_quantifiers_groups_and_alternatives(text: str, pattern: Pattern) -> None:
    assert match(select(text)).pattern == pattern


@pytest.mark.parametrize(
    ("after", "skip"),
    [
        ("", Skip(SkipMode.TO_NEXT_ROW)),
        ("AFTER MATCH SKIP TO NEXT ROW", Skip(SkipMode.TO_NEXT_ROW)),
        ("AFTER MATCH SKIP PAST LAST ROW", Skip(SkipMode.PAST_LAST_ROW)),
        ("AFTER MATCH SKIP TO FIRST B", Skip(SkipMode.TO_FIRST, "B")),
        ("AFTER MATCH SKIP TO LAST B", Skip(SkipMode.TO_LAST, "B")),
        ("AFTER MATCH SKIP TO B", Skip(SkipMode.TO_LAST, "B")),
    ],
)
def test_the_search_goes_on_where_after_match_says(after: str, skip: Skip) -> None:
    assert match(select(after=after)).skip == skip


@pytest.mark.parametrize(
    ("measure", "bound"),
    [
        ("A.id AS a", "MATCH_LAST(id, 'A', 0)"),
        ("id AS a", "MATCH_LAST(id, '', 0)"),
        ("FIRST(A.id) AS a", "MATCH_FIRST(id, 'A', 0)"),
        ("FINAL LAST(A.id, 2) AS a", "MATCH_LAST(id, 'A', 2)"),
        ("RUNNING LAST(A.id) AS a", "MATCH_LAST(id, 'A', 0)"),
        ("COUNT(*) AS a", "MATCH_AGGREGATE('COUNT', '')"),
        ("COUNT(A.*) AS a", "MATCH_AGGREGATE('COUNT', 'A')"),
        ("COUNT(A.id) AS a", "MATCH_AGGREGATE('COUNT', 'A', id)"),
        ("SUM(A.score * A.score) AS a", "MATCH_AGGREGATE('SUM', 'A', *(score, score))"),
        ("LAST(A.place.city) AS a", "MATCH_LAST(FIELD(place, 'city'), 'A', 0)"),
        ("B.score - A.score AS a", "-(MATCH_LAST(score, 'B', 0), MATCH_LAST(score, 'A', 0))"),
        ("UPPER(FIRST(host)) AS a", "UPPER(MATCH_FIRST(host, '', 0))"),
    ],
)
def test_measures_read_the_rows_of_a_match(measure: str, bound: str) -> None:
    assert [str(value) for _, value in match(select(measures=measure)).measures] == [bound]


def test_definitions_read_the_rows_so_far_and_those_beside_the_row_that_is_tried() -> None:
    found = match(
        select(
            "(A B+ C)",
            "C AS C.score < PREV(C.score) AND C.score > PREV(score, 2), B AS B.score > LAST(B.score, 1) AND AVG(B.score) < A.score",
        )
    )
    assert [(name, str(value)) for name, value in found.defines] == [
        ("B", "AND(>(MATCH_LAST(score, 'B', 0), MATCH_LAST(score, 'B', 1)), <(MATCH_AGGREGATE('AVG', 'B', score), MATCH_LAST(score, 'A', 0)))"),
        ("C", "AND(<(MATCH_LAST(score, 'C', 0), MATCH_PREV(score, 1)), >(MATCH_LAST(score, 'C', 0), MATCH_PREV(score, 2)))"),
    ]  # fmt: skip


def test_a_match_gives_the_partition_and_the_measures_with_their_times() -> None:
    found = match(select(measures="MATCH_ROWTIME() AS t, MATCH_ROWTIME() + INTERVAL '1' SECOND AS u, COUNT(*) AS n"))
    assert found.schema.names == ("host", "t", "u", "n")
    assert [field.rowtime for field in found.schema.fields] == [False, True, False, False]
    assert str(found.measures[0][1]) == "MATCH_LAST(ts, '', 0)"
    node = query(select(measures="A.id AS a, MATCH_PROCTIME() AS p").replace("SELECT *", "SELECT p, a"))
    assert [(field.name, field.proctime) for field in node.schema.fields] == [("p", True), ("a", False)]


def test_within_limits_the_time_of_a_match() -> None:
    assert match(select(within="WITHIN INTERVAL '1' HOUR")).within_ms == 3_600_000
    assert match(select()).within_ms is None


def test_matches_are_found_in_views_sub_queries_and_by_processing_time() -> None:
    inside = select().replace("FROM events", "FROM (SELECT host, ts, id, score FROM events WHERE ok) AS e")
    assert isinstance(match(inside).input, Project)
    clock = select(order="p").replace("FROM events", "FROM (SELECT host, id, score, PROCTIME() AS p FROM events)")
    assert match(clock).order[0].column == "p"
    joined = select().replace("SELECT *", "SELECT m.host, m.a")
    assert query(joined).schema.names == ("host", "a")


def test_a_match_can_be_windowed_by_its_time() -> None:
    inner = select(measures="MATCH_ROWTIME() AS t")
    node = query(f"SELECT COUNT(*) AS n FROM ({inner}) GROUP BY TUMBLE(t, INTERVAL '1' HOUR)")
    assert node.schema.names == ("n",)


@pytest.mark.parametrize(
    ("statement", "name", "shown", "said"),
    [
        (select("(A B+)"), "SQL_UNSUPPORTED", "(A B+)", "B+?"),
        (select("(A B{1,3})"), "SQL_UNSUPPORTED", "(A B{1,3})", "no match would ever end"),
        (select("(A (B | C*))"), "SQL_UNSUPPORTED", "(A (B | C*))", "C*"),
        (select("(A+)", within="WITHIN INTERVAL '1' HOUR"), "SQL_UNSUPPORTED", "(A+)", "A+"),
        (select("(A* B?)"), "SQL_UNSUPPORTED", "(A* B?)", "no row at all"),
        (select("(A {- B -} C)"), "SQL_UNSUPPORTED", "{", "Exclusions"),
        (select("(PERMUTE(A, B))"), "SQL_UNSUPPORTED", "PERMUTE", "A B | B A"),
        (select("(^ A B)"), "SQL_UNSUPPORTED", "^", "first row"),
        (select("(A B{3,2} C)"), "SQL_SYNTAX", "{3,2}", "at most"),
        (select("(A B{} C)"), "SQL_SYNTAX", "}", "{2,3}"),
        (select("(A B{99999} C)"), "SQL_SYNTAX", "99999", "at most 10000"),
        (select(measures="D.id AS d"), "SQL_UNKNOWN_COLUMN", "D.id", "A, B"),
        (select(measures="COUNT(D.*) AS d"), "SQL_UNKNOWN_COLUMN", "D.*", "A, B"),
        (select(define="D AS D.score > 1"), "SQL_UNKNOWN_COLUMN", "D", "no variable"),
        (select(define="A AS TRUE, A AS TRUE"), "SQL_SYNTAX", "A", "twice"),
        (select(after="AFTER MATCH SKIP TO FIRST D"), "SQL_UNKNOWN_COLUMN", "AFTER MATCH SKIP TO FIRST D", "no variable"),
        (select(after="AFTER MATCH SKIP TO FIRST A"), "SQL_UNSUPPORTED", "AFTER MATCH SKIP TO FIRST A", "never end"),
        (select(after="AFTER MATCH SKIP TO LAST A"), "SQL_UNSUPPORTED", "AFTER MATCH SKIP TO LAST A", "never end"),
        (select(rows="ALL ROWS PER MATCH"), "SQL_UNSUPPORTED", "ALL", "ONE ROW PER MATCH"),
        (select(measures="CLASSIFIER() AS c"), "SQL_UNSUPPORTED", "CLASSIFIER", "as in Flink"),
        (select(measures="PREV(A.id) AS p"), "SQL_UNSUPPORTED", "PREV(A.id)", "DEFINE only"),
        (select(define="B AS PREV(A.score) > 1"), "SQL_UNSUPPORTED", "PREV(A.score)", "LAST(A."),
        (select(measures="LAST(A.score * B.score) AS x"), "SQL_UNSUPPORTED", "A.score * B.score", "A and B"),
        (select(measures="SUM(DISTINCT A.id) AS x"), "SQL_UNSUPPORTED", "SUM(DISTINCT A.id)", "without DISTINCT"),
        (select(measures="LAST(A.id, -1) AS x"), "SQL_TYPE", "-1", "0 or more"),
        (select(measures="LAST(FIRST(A.id)) AS x"), "SQL_UNSUPPORTED", "FIRST(A.id)", "inside of LAST"),
        (select(measures="A.id AS x, B.id AS x"), "SQL_SYNTAX", "B.id AS x", '"x"'),
        (select(measures="A.id AS host"), "SQL_SYNTAX", "A.id AS host", "PARTITION BY"),
        (select(define="A AS A.score"), "SQL_TYPE", "A.score", "condition"),
        (select(define="A AS A.scor > 1"), "SQL_UNKNOWN_COLUMN", "A.scor", 'Did you mean "score"?'),
        (select(order="id"), "SQL_TIME_ATTRIBUTE", "id", "ORDER BY ts"),
        (select(order="ts DESC"), "SQL_TIME_ATTRIBUTE", "ts DESC", "ascending"),
        (select(within="WITHIN INTERVAL '1' MONTH"), "SQL_TYPE", "INTERVAL '1' MONTH", "without months"),
        (select(within="SUBSET U = (A, B)"), "SQL_UNSUPPORTED", "SUBSET", "each variable"),
        (select().replace("FROM events", "FROM (SELECT host, COUNT(*) AS id, MAX(score) AS score, MAX(ts) AS ts FROM events GROUP BY host) AS e"),
         "SQL_UNSUPPORTED", "(SELECT", "only appended"),
    ],
)  # fmt: skip
def test_what_flink_refuses_is_refused_at_its_place(statement: str, name: str, shown: str, said: str) -> None:
    error = refused(statement)
    assert (error.name, said in f"{error.message} {error.remedy}") == (name, True), error
    assert error.position is not None
    line = error.script.splitlines()[error.position.line - 1]
    assert line[error.position.column - 1 :].startswith(shown)
