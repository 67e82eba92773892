"""Arrow batches are judged as the same events in Python are."""

from __future__ import annotations

import pyarrow as pa
from drawn_rules import FORMULAS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stages import plain_hits, rule_set, stage_hits

from example_counts import scaled
from millstream.streams.rules.conditions import Not, Op, Predicate
from millstream.streams.rules.event_rows import ArrowEvents
from millstream.streams.rules.stage.stage import RuleStage

PATHS = {"c": (("nested", "c"), ("spare",))}
_COLUMNS = {
    "a": (pa.string(), st.sampled_from(["", "a", "ab\\n", "İ", "true", "1"])),
    "b": (pa.int64(), st.integers(-2, 2)),
    "d": (pa.float64(), st.sampled_from([0.5, -0.0, 1.0, float("nan"), float("inf")])),
    "spare": (pa.bool_(), st.booleans()),
    "nested": (
        pa.struct([("c", pa.large_string())]),
        st.fixed_dictionaries({"c": st.sampled_from(["a", "abc", None])}),
    ),
}
_ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, (_, values) in _COLUMNS.items()}), max_size=9
)


def batch_of(rows, **columns):
    schema = pa.schema(list(columns.items()))
    return pa.RecordBatch.from_pylist(rows, schema=schema)


@settings(deadline=None, max_examples=scaled(60), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(FORMULAS, min_size=1, max_size=8), _ROWS)
def test_a_batch_is_judged_as_its_rows_are(conditions, rows):
    rules = rule_set(*conditions, paths=PATHS)
    batch = batch_of(rows, **{name: kind for name, (kind, _) in _COLUMNS.items()})
    assert stage_hits(RuleStage(rules), ArrowEvents(batch, PATHS)) == plain_hits(rules, batch.to_pylist())


def test_bytes_are_texts_and_broken_ones_lose_nothing():
    conditions = (
        Predicate("a", Op.CONTAINS, ("evil",), caseless=True),
        Predicate("a", Op.MATCHES, (r"evil$",)),
        Predicate("a", Op.IN, ("größer",)),
        Not(Predicate("a", Op.STARTS, ("x",))),
        *(Predicate("a", Op.ENDS, (f"e{number}",)) for number in range(9)),
    )
    rows = [{"a": one} for one in (b"\xff\xfe Evil", b"xx\x80evil", "größer".encode(), None, b"\xc3", b"\xe2\x82e5")]
    hits = stage_hits(RuleStage(rule_set(*conditions)), ArrowEvents(batch_of(rows, a=pa.binary()), {}))
    assert hits == [(0, 0), (0, 3), (1, 0), (1, 1), (2, 2), (2, 3), (4, 3), (5, 3), (5, 9)]


def test_a_whole_row_is_the_text_of_its_values():
    rules = rule_set(Predicate("", Op.CONTAINS, ("two\n3",)), paths={"": ((),)})
    batch = batch_of([{"x": "two", "y": 3}, {"x": "two", "y": 4}], x=pa.string(), y=pa.int32())
    assert stage_hits(RuleStage(rules), ArrowEvents(batch, rules.paths)) == [(0, 0)]


def test_columns_that_are_not_there_are_null():
    rules = rule_set(Predicate("gone", Op.IS_NULL), Predicate("gone", Op.IN, ("x",)))
    assert stage_hits(RuleStage(rules), ArrowEvents(batch_of([{"x": "1"}], x=pa.string()), {})) == [(0, 0)]
