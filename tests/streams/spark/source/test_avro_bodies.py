"""Avro in messages: what it says byte by byte, what a registry adds, and every type there and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from example_counts import scaled

pytest.importorskip("fastavro", reason="needs the extra formats")

from hypothesis import given, settings
from typed_rows import KINDS, ROWS, read, table_of, written

from millstream.streams.errors import JobError
from millstream.streams.plan.types import BIGINT, INT, STRING, DataType, Field, TypeKind
from millstream.streams.spark.source.formats.avro_schema import schema_of
from millstream.streams.spark.source.formats.body_format import BodyColumn

AVRO = {"format": "avro"}
NEVER_NULL = {"a": BIGINT.as_nullable(False), "b": STRING.as_nullable(False)}


@settings(deadline=None)
@given(ROWS)
def test_rows_of_all_types_come_back_as_they_were(rows: list[dict[str, Any]]) -> None:
    table = table_of(AVRO)
    assert read(table, written(table, rows)) == (rows, [])


@settings(deadline=None, max_examples=scaled(20))
@given(ROWS)
def test_times_without_a_zone_come_back_as_they_were(rows: list[dict[str, Any]]) -> None:
    table = table_of({**AVRO, "avro.timestamp_mapping.legacy": "false"})
    assert read(table, written(table, rows)) == (rows, [])


def test_a_record_is_written_as_the_specification_has_it() -> None:
    # Avro 1.11, "Complex Types": {"a": 27, "b": "foo"} is 36 06 66 6f 6f.
    table = table_of(AVRO, NEVER_NULL)
    body = bytes.fromhex("3606666f6f")
    assert written(table, [{"a": 27, "b": "foo"}]) == [body]
    assert read(table, [body]) == ([{"a": 27, "b": "foo"}], [])


def test_a_value_that_may_be_null_is_a_union_whose_first_branch_is_null() -> None:
    table = table_of(AVRO, {"b": STRING})
    assert written(table, [{"b": None}, {"b": "foo"}]) == [b"\x00", bytes.fromhex("0206666f6f")]


def test_the_schema_of_columns_is_the_one_that_flink_derives() -> None:
    moment = DataType(TypeKind.TIMESTAMP, precision=3)
    row = DataType(TypeKind.ROW, fields=(Field("n", INT.as_nullable(False)),))
    columns = [BodyColumn("id", BIGINT.as_nullable(False)), BodyColumn("at", moment), BodyColumn("in", row)]
    name = "org.apache.flink.avro.generated.record"
    inner = {"type": "record", "name": f"{name}_in", "fields": [{"name": "n", "type": "int"}]}
    assert schema_of(columns) == {
        "type": "record",
        "name": name,
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
            {"name": "in", "type": ["null", inner], "default": None},
        ],
    }


def test_bodies_that_are_no_record_are_told_with_the_reason_and_the_others_are_read() -> None:
    table = table_of(AVRO, NEVER_NULL)
    good = bytes.fromhex("3606666f6f")
    rows, malformed = read(table, [b"", good, good + b"x", b"\x36\x06fo", b"\x36\x04\xff\xff"])
    assert rows == [{"a": 27, "b": "foo"}]
    assert [place for place, _ in malformed] == [0, 2, 3, 4]
    assert malformed[1][1] == "1 bytes stand behind the record"


def test_a_number_that_the_column_does_not_hold_is_malformed() -> None:
    wide = table_of(AVRO, {"n": INT.as_nullable(False)})
    schema = json.dumps({"type": "record", "name": "r", "fields": [{"name": "n", "type": "int"}]})
    narrow = table_of({**AVRO, "avro.schema": schema}, {"n": DataType(TypeKind.TINYINT)})
    rows, malformed = read(narrow, written(wide, [{"n": 7}, {"n": 300}]))
    assert rows == [{"n": 7}]
    assert malformed[0][0] == 1
    assert "n: 300 is no integer of 8 bits" in malformed[0][1]


def test_a_schema_that_is_given_may_have_more_fields_in_another_order(tmp_path: Path) -> None:
    fields = [
        {"name": "more", "type": {"type": "enum", "name": "e", "symbols": ["X", "Y"]}, "default": "X"},
        {"name": "b", "type": "string"},
        {"name": "a", "type": "long"},
    ]
    file = tmp_path / "r.avsc"
    file.write_text(json.dumps({"type": "record", "name": "r", "fields": fields}))
    table = table_of({**AVRO, "avro.schema": str(file)}, NEVER_NULL)
    bodies = written(table, [{"a": 27, "b": "foo"}])
    assert bodies == [bytes.fromhex("0006666f6f36")]
    assert read(table, bodies, "a") == ([{"a": 27}], [])


@pytest.mark.parametrize(
    ("options", "columns", "said"),
    [
        ({}, {"a b": INT}, "Avro has no field 'a b'"),
        ({}, {"m": DataType(TypeKind.MAP, elements=(INT, INT))}, "the keys of its maps are texts"),
        ({"avro.schema": "{1}"}, {"a": INT}, "cannot be read"),
        ({"avro.schema": '{"type": "wrong"}'}, {"a": INT}, "cannot be read"),
        ({"avro.schema": '{"type": "array", "items": "int"}'}, {"a": INT}, "is no record"),
        ({"avro.schema": "/nowhere/r.avsc"}, {"a": INT}, "The schema '/nowhere/r.avsc' cannot be read"),
        ({"avro.schema": '{"type": "record", "name": "r", "fields": []}'}, {"a": INT}, "no field for the column a"),
    ],
)  # fmt: skip
def test_what_cannot_be_avro_is_refused_before_the_first_row(
    options: dict[str, str], columns: dict[str, DataType], said: str
) -> None:
    with pytest.raises(JobError, match=said):
        written(table_of({**AVRO, **options}, columns), [])


def test_a_row_that_the_schema_does_not_take_is_an_error_of_the_sink() -> None:
    with pytest.raises(JobError, match="does not fit the Avro schema") as caught:
        written(table_of(AVRO, NEVER_NULL), [{"a": 1, "b": None}])
    assert caught.value.name == "SINK_FAILED"


def test_every_kind_of_column_is_drawn() -> None:
    # A table in Avro holds none of these: CREATE TABLE refuses VARIANT.
    plain = {TypeKind.NULL, TypeKind.INTERVAL_DAY, TypeKind.INTERVAL_YEAR, TypeKind.VARIANT}
    assert {kind.kind for kind, _ in KINDS.values()} == set(TypeKind) - plain
