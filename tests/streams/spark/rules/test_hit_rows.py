"""Messages to hits: which rows there are and what each column tells; versions, and what is left out."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

import msgspec
import numpy as np

from millstream.model.message import Address, OutgoingMessage
from millstream.protocol.record import encode_record
from millstream.streams.plan.hits import HIT_COLUMNS
from millstream.streams.plan.types import INT, STRING
from millstream.streams.rules.conditions import Op, Predicate, Truth
from millstream.streams.rules.event_rows import Places
from millstream.streams.rules.reference import evaluate, field_reader
from millstream.streams.rules.rule import Combination, Measure, MeasureKind, Rule, RuleSet, RuleStatistics
from millstream.streams.rules.stage.raw_events import EventReader, RawEvents
from millstream.streams.spark.rules.hit_columns import Hits, RuleColumns
from millstream.streams.spark.rules.hit_rows import HitRows
from millstream.streams.spark.rules.stages import KeptStages, VersionStage
from millstream.streams.spark.rules.task_report import Judged
from millstream.streams.spark.source.messages import RecordMessages
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.source.spec import SourceColumn, SourceSpec

HOST = Address("127.0.0.1", 10911)
STORED_MS = 1_700_000_000_123


class PlainStage(VersionStage):
    """A stage that asks the plain judge, rule by rule."""

    def __init__(self, rule_set: RuleSet) -> None:
        self.version, self.paths, self._set = rule_set.version, rule_set.paths, rule_set
        self.columns = RuleColumns(rule_set)

    def reader(self, keys: frozenset[str]) -> EventReader:
        return EventReader(Places(self.paths), (), keys)

    def evaluate(self, events: RawEvents) -> Hits:  # type: ignore[override]
        pairs = [
            (row, number)
            for row, event in enumerate(events)
            for number, rule in enumerate(self._set.rules)
            if rule.enabled and evaluate(rule.condition, field_reader(event, self.paths)) is True
        ]
        rows, rules = (np.array([pair[place] for pair in pairs], np.int32) for place in (0, 1))
        return self.columns.hits_of(rows, rules)


@dataclass
class OneStage(KeptStages):
    """Gives one stage for every version."""

    stage: VersionStage

    def of(self, judged: Judged, version: int) -> VersionStage:
        return self.stage


def message(number: int, body: bytes) -> memoryview:
    stored = encode_record(
        OutgoingMessage("t", body, {"TAGS": f"tag{number}"}),
        queue_id=2, queue_offset=number, log_offset=0, store_timestamp_ms=STORED_MS + number, store_host=HOST,
    )  # fmt: skip
    return memoryview(stored)


def columns(*names: str, **metadata: str) -> tuple[SourceColumn, ...]:
    plain = [SourceColumn(name, HIT_COLUMNS[name]) for name in names]
    return (*plain, *(SourceColumn(name, STRING, key) for name, key in metadata.items()))


def told(
    rules: RuleSet, events: list[bytes], wanted: tuple[SourceColumn, ...], *, queues: bool = False, times: str = ""
) -> tuple[list[dict[str, Any]], list[tuple[int, str]], HitRows]:
    spec = SourceSpec("n", "t", wanted, Position(), queues=queues)
    judged = Judged("", "", time_fields=tuple(times.split(";")) if times else ())
    rows = HitRows(spec, judged, rules.version, OneStage(PlainStage(rules)))
    messages = RecordMessages([message(number, body) for number, body in enumerate(events)])
    batch, malformed = rows.rows(messages, "b/2")
    return batch.to_pylist(), [(one.position, one.reason) for one in malformed], rows


def read(stage: VersionStage, events: Sequence[Mapping[str, Any]]) -> RawEvents:
    return stage.reader(frozenset()).read([*map(body, events)])[0]


def is_a(value: object, **more: Any) -> Rule:
    return Rule(f"is-{value}", f"It is {value}", Predicate("kind", Op.IN, (value,)), **more)  # type: ignore[arg-type]


def body(event: Mapping[str, Any]) -> bytes:
    return json.dumps(event).encode()


def test_each_rule_that_fits_gives_a_row_in_the_order_of_events() -> None:
    rules = RuleSet(7, (is_a("a", tags=("x", "y"), level="high"), is_a("b"), Rule("all", "All", Truth(True))))
    events = [body({"kind": "b"}), body({"kind": "c"}), body({"kind": "a"})]
    rows, malformed, made = told(
        rules, events, columns("rule", "title", "level", "tags", "event", "version", tag="tag")
    )
    assert [(row["rule"], row["tag"]) for row in rows] == [
        ("is-b", "tag0"), ("all", "tag0"), ("all", "tag1"), ("is-a", "tag2"), ("all", "tag2"),
    ]  # fmt: skip
    assert rows[3] == {
        "rule": "is-a", "title": "It is a", "level": "high", "tags": ["x", "y"], "event": '{"kind": "a"}',
        "version": 7, "tag": "tag2", "__tick": None,
    }  # fmt: skip
    assert malformed == []
    assert (made.report.events, made.report.hits) == (3, {"is-a": 1, "is-b": 1, "all": 3})


def test_what_is_no_json_object_is_told_with_its_place_and_harms_no_other() -> None:
    events = [b"{", body({"kind": "a"}), b"[1]", b"null", b'"a"', b"\xff{}", body({"kind": "a"})]
    rows, malformed, _ = told(RuleSet(1, (is_a("a"),)), events, columns("rule", tag="tag"))
    assert [row["tag"] for row in rows] == ["tag1", "tag6"]
    assert [place for place, _ in malformed] == [0, 2, 3, 4, 5]
    assert malformed[1][1] == "an event is a JSON object, not an array"


def test_no_hits_give_no_rows() -> None:
    rows, _, made = told(RuleSet(1, (is_a("a"),)), [body({"kind": "b"})], columns("rule", "event", "shows"))
    assert (rows, made.report.events) == ([], 1)


def moment(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)


def test_the_first_field_with_a_time_counts_and_else_the_store_time() -> None:
    events = [
        body({"kind": "a", "t": "2020-09-20T13:33:47.5Z", "u": 5}),
        body({"kind": "a", "t": "soon", "u": 1_600_000_000}),
        body({"kind": "a"}),
    ]
    rows, _, _ = told(RuleSet(1, (is_a("a"),)), events, columns("event_time"), times="t;u")
    assert [row["event_time"] for row in rows[:3]] == [
        moment("2020-09-20T13:33:47.500+00:00"),
        moment("2020-09-13T12:26:40+00:00"),
        datetime.datetime.fromtimestamp((STORED_MS + 2) / 1000, datetime.UTC),
    ]


def test_a_time_may_lie_deeper_where_its_name_has_dots_or_the_rules_say_so() -> None:
    events = [body({"kind": "a", "winlog": {"at": 1_600_000_000}}), body({"kind": "a", "b": {"c": 1_600_000_001}})]
    rules = RuleSet(1, (is_a("a"),), paths={"When": (("When",), ("b", "c"))})
    rows, _, _ = told(rules, events, columns("event_time"), times="winlog.at;When")
    assert [row["event_time"].second for row in rows[:2]] == [40, 41]


def test_event_time_goes_on_in_its_queue_where_no_rule_fits() -> None:
    events = [body({"t": "2020-09-20 13:00:00"}), body({"t": "2020-09-20 15:00:00+01:00"}), body({"t": 5})]
    wanted = columns("rule", "event_time")
    tick = moment("0001-01-01T00:00:00+00:00")
    newest = {"rule": None, "event_time": moment("2020-09-20T14:00:00+00:00"), "__tick": tick}
    rows, _, _ = told(RuleSet(1, (is_a("a"),)), events, wanted, times="t")
    assert rows == [newest]
    rows, _, _ = told(RuleSet(1, (is_a("a"),)), events, wanted, times="t", queues=True)
    assert rows == [{**newest, "__queue": "b/2"}]


def test_a_row_shows_the_fields_that_its_rule_names() -> None:
    rules = RuleSet(1, (is_a("a", shows=("who", "port", "nothing")),), paths={"who": (("user", "name"),)})
    rows, _, _ = told(rules, [body({"kind": "a", "user": {"name": "eve"}, "port": 22})], columns("shows"))
    assert rows[0]["shows"] == [("who", "eve"), ("port", "22")]


def counting(kind: MeasureKind, of: str = "", **more: Any) -> RuleStatistics:
    return RuleStatistics(Measure(kind, of), 60_000, **more)


def test_a_rule_that_counts_tells_the_group_and_what_is_counted() -> None:
    statistics = counting(MeasureKind.VALUES, "port", by=("host", "user"), at_least=3)
    rules = RuleSet(1, (is_a("a", statistics=statistics),))
    wanted = columns("measure", "window_ms", "at_least", "at_most", "group_key", "measured")
    rows, _, _ = told(rules, [body({"kind": "a", "host": "h", "port": 22})], wanted)
    (row,) = rows
    assert row == {
        "measure": "values", "window_ms": 60_000, "at_least": 3, "at_most": None, "group_key": '["h",null]',
        "measured": "22", "__tick": None,
    }  # fmt: skip


def test_hits_of_parts_count_for_the_rules_that_name_them_under_their_names_of_fields() -> None:
    parts = ("is-a", "is-b")
    order = ("is-a", "is-b", "is-a")
    aliases = {"who": {"is-a": "source", "is-b": "target"}}
    steps = Rule(
        "steps", "", Truth(False), statistics=counting(MeasureKind.SEQUENCE, parts=order, by=("who",), aliases=aliases)
    )
    both = Rule("both", "", Truth(True), statistics=counting(MeasureKind.PARTS, parts=parts))
    off = Rule("off", "", Truth(False), statistics=counting(MeasureKind.PARTS, parts=parts), enabled=False)
    rules = RuleSet(1, (is_a("a"), is_a("b", alerts=False), steps, both, off))
    events = [body({"kind": "b", "target": "t"}), body({"kind": "a", "source": "s"})]
    rows, _, made = told(rules, events, columns("rule", "group_key", "measured"))
    assert [(row["rule"], row["group_key"], row["measured"]) for row in rows] == [
        ("steps", '["t"]', "2"), ("both", "[]", "is-b"),
        ("is-a", None, None), ("steps", '["s"]', "1,3"), ("both", "[]", "is-a"),
    ]  # fmt: skip
    assert made.report.hits == {"is-a": 1, "steps": 2, "both": 2}


def test_hits_of_a_rule_that_counts_are_told_where_its_alerts_are_counted_and_are_none_of_the_rule_that_does() -> None:
    inner = is_a("a", alerts=False, statistics=counting(MeasureKind.EVENTS))
    outer = Rule("outer", "", Truth(True), statistics=counting(MeasureKind.PARTS, parts=("is-a", "is-b")))
    off = msgspec.structs.replace(outer, enabled=False)
    event = [body({"kind": "a"})]
    rows, _, _ = told(RuleSet(1, (inner, is_a("b"), outer)), event, columns("rule", "measure"))
    assert [(row["rule"], row["measure"]) for row in rows] == [("is-a", "events")]
    assert told(RuleSet(1, (inner, is_a("b"), off)), event, columns("rule"))[0] == []


def test_hits_of_combined_parts_tell_the_bit_of_the_part_and_the_sets_that_hold() -> None:
    combined = RuleStatistics(
        Measure(MeasureKind.COMBINATION), 60_000, parts=("is-a", "is-b"), combination=Combination("not is-a", "1010")
    )
    rules = RuleSet(1, (is_a("a"), is_a("b"), Rule("one", "", Truth(False), statistics=combined)))
    rows, _, _ = told(rules, [body({"kind": "b"}), body({"kind": "a"})], columns("rule", "measured", "holds", "bounds"))
    assert [row for row in rows if row["rule"] == "one"] == [
        {"rule": "one", "measured": bit, "holds": "1010", "bounds": "not is-a", "__tick": None} for bit in ("2", "1")
    ]


@pytest.mark.parametrize(
    ("value", "measured"),
    [(7, "7.0"), ("1.5e3", "1500.0"), (-2.5, "-2.5"), ("many", None), (None, None), (True, None), ("9" * 400, None),
     ("1e999", None)],
)  # fmt: skip
def test_a_rule_of_numbers_tells_each_number_as_sql_reads_it(value: object, measured: str | None) -> None:
    statistics = RuleStatistics(Measure(MeasureKind.PERCENTILE, "n", percent=95), 60_000, at_least=None, above=2)
    rules = RuleSet(1, (is_a("a", statistics=statistics),))
    wanted = columns("measure", "measured", "at_least", "at_most", "lower", "upper", "other_than", "bounds")
    ((row,), _, _) = told(rules, [body({"kind": "a", "n": value})], wanted)
    assert row == {
        "measure": "percentile 95", "measured": measured, "at_least": None, "at_most": None,
        "lower": 2.0000000000000004, "upper": None, "other_than": None, "bounds": "above 2", "__tick": None,
    }  # fmt: skip


def test_values_of_several_fields_are_told_together_where_all_are_there() -> None:
    statistics = RuleStatistics(Measure(MeasureKind.VALUES, "a", ("b",)), 60_000)
    rules = RuleSet(1, (is_a("a", statistics=statistics),))
    events = [body({"kind": "a", "a": "x", "b": 1}), body({"kind": "a", "a": "x"})]
    rows, _, _ = told(rules, events, columns("measured"))
    assert [row["measured"] for row in rows] == ['["x",1]', None]


def test_numbers_may_be_any_integer() -> None:
    wanted = (SourceColumn("version", INT), SourceColumn("window_ms", INT))
    rows, _, _ = told(RuleSet(3, (is_a("a", statistics=counting(MeasureKind.EVENTS)),)), [body({"kind": "a"})], wanted)
    assert rows == [{"version": 3, "window_ms": 60_000, "__tick": None}]


def test_every_column_that_a_table_may_have_is_filled() -> None:
    rows, _, _ = told(RuleSet(1, (is_a("a"),)), [body({"kind": "a"})], columns(*HIT_COLUMNS))
    assert set(rows[0]) == {*HIT_COLUMNS, "__tick"}


def test_a_stage_tells_the_atoms_that_it_found_since_it_was_asked_last(tmp_path: Path) -> None:
    rules = RuleSet(1, (is_a("a"), Rule("x", "", Predicate("who", Op.CONTAINS, ("eve",)))))
    stage = VersionStage(Judged("", str(tmp_path)), rules, frozenset())
    events = [{"kind": "a", "who": "eve"}, {"kind": "a", "who": "adam"}]
    assert len(stage.evaluate(read(stage, events)).rows) == 3
    assert sum(stage.report_since().atoms.values()) > 0
    assert stage.report_since().atoms == {}
    stage.evaluate(read(stage, events))
    assert any("eve" in predicate for predicate in stage.report_since().atoms)


def test_a_stage_judges_without_the_rules_that_are_left_out(tmp_path: Path) -> None:
    stage = VersionStage(Judged("", str(tmp_path)), RuleSet(1, (is_a("a"), is_a("b"))), frozenset({"is-a"}))
    events = [{"kind": "a"}, {"kind": "b"}]
    assert stage.evaluate(read(stage, events)).rules.tolist() == [1]
